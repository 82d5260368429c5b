//! Matching of a checkpoint's names and shapes with a model's leaves, before any value is read.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use crate::checkpoint::TensorFiles;
use crate::entry::{TensorInfo, joined};
use crate::error::{Result, WeightsError};
use crate::names::{NameMap, Rule};
use crate::pattern::{Captures, Pattern};
use crate::placement::{Placement, Slot};
use crate::quantized;
use crate::report::{Ignored, Loaded, Mismatched, Missing, Report, Unexpected};
use crate::step::Step;

/// Maximum number of missing names, and of unexpected names, that get suggestions.
const SUGGESTED: usize = 20;

/// Returns the placement of each leaf by its path, and the report of all names.
///
/// # Errors
/// A tensor that would be used has another value under another prefix.
pub(crate) fn plan(
    leaves: &[Slot],
    checkpoint: &TensorFiles,
    names: &NameMap,
) -> Result<(HashMap<String, Placement>, Report)> {
    let matching = Matching::new(leaves, checkpoint, names);
    let mut placements = HashMap::new();
    let mut report = Report { prefix: matching.prefix(), ..Report::default() };
    let mut used = HashSet::new();
    for slot in leaves {
        let (path, shape) = (&slot.path, &slot.shape);
        match matching.find(slot) {
            Found::Fits(placement) => {
                used.extend(placement.names.iter().cloned());
                report.loaded.push(Loaded { path: path.clone(), names: placement.names.clone() });
                placements.insert(path.clone(), placement);
            }
            Found::Misfit(found) => {
                used.extend(found.iter().map(|(name, _)| name.clone()));
                report.mismatched.push(Mismatched { path: path.clone(), expected: shape.clone(), found });
            }
            Found::Nothing(names) => report.missing.push(Missing {
                path: path.clone(),
                shape: shape.clone(),
                shard: names.iter().find_map(|name| checkpoint.promised(name)).map(str::to_owned),
                names,
                suggestions: Vec::new(),
            }),
        }
    }
    let placed: HashSet<&str> = placements.keys().map(String::as_str).collect();
    for name in checkpoint.names().filter(|name| !used.contains(*name)) {
        let is_repeated =
            || matching.repeats(name, &placed) || matching.actual(name).is_some_and(|other| used.contains(other));
        let repeated = || is_repeated().then_some("another name of a loaded tensor");
        if let Some(reason) = matching.reason_to_ignore(name).or_else(repeated) {
            report.ignored.push(Ignored { name: name.into(), reason });
        } else {
            let shape = checkpoint.info(name).map(|info| info.shape).unwrap_or_default();
            report.unexpected.push(Unexpected { name: name.into(), shape, suggestions: Vec::new() });
        }
    }
    matching.check_prefixes(&used)?;
    add_suggestions(&mut report, names);
    Ok((placements, report))
}

/// Pairs missing names with similar unexpected ones, ignoring prefixes.
fn add_suggestions(report: &mut Report, map: &NameMap) {
    let left_over: Vec<String> = report.unexpected.iter().map(|unexpected| unexpected.name.clone()).collect();
    let wanted: Vec<String> = report.missing.iter().flat_map(|missing| missing.names.clone()).collect();
    let similar = |name: &str, among: &[String]| -> Vec<String> {
        let bare = |name| map.bare(name);
        let found = grove_tree::similar(bare(name), among.iter().map(|name| bare(name)));
        among.iter().filter(|name| found.contains(&bare(name))).cloned().collect()
    };
    for missing in report.missing.iter_mut().take(SUGGESTED) {
        missing.suggestions = similar(missing.names.first().unwrap_or(&missing.path), &left_over);
    }
    for unexpected in report.unexpected.iter_mut().take(SUGGESTED) {
        unexpected.suggestions = similar(&unexpected.name, &wanted);
    }
}

enum Found {
    Fits(Placement),
    /// Names and shapes of the tensors found.
    Misfit(Vec<(String, Vec<usize>)>),
    /// Names that the checkpoint lacks.
    Nothing(Vec<String>),
}

struct Matching<'a> {
    checkpoint: &'a TensorFiles,
    map: &'a NameMap,
    slots: HashMap<&'a str, &'a Slot>,
    /// Maps names without prefixes to the names in the checkpoint; added tensors are first.
    actual: HashMap<&'a str, Vec<&'a str>>,
    /// The rules, with the patterns of their names without prefixes.
    patterns: Vec<(&'a Rule, Vec<Pattern>)>,
}

impl<'a> Matching<'a> {
    fn new(leaves: &'a [Slot], checkpoint: &'a TensorFiles, map: &'a NameMap) -> Self {
        let mut actual: HashMap<&str, Vec<&str>> = HashMap::new();
        let (added, own): (Vec<&str>, Vec<&str>) = checkpoint.names().partition(|name| checkpoint.is_added(name));
        for name in added.into_iter().chain(own) {
            actual.entry(map.bare(name)).or_default().push(name);
        }
        let bare = |pattern: &Pattern| Pattern::new(map.bare(pattern.text()));
        let patterns = map.rules.iter().map(|rule| (rule, rule.names.iter().map(bare).collect())).collect();
        let slots = leaves.iter().map(|slot| (slot.path.as_str(), slot)).collect();
        Self { checkpoint, map, slots, actual, patterns }
    }

    /// Returns the most frequent prefix of the names.
    fn prefix(&self) -> String {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for name in self.checkpoint.names() {
            *counts.entry(self.map.without_prefix(name).0).or_default() += 1;
        }
        counts.into_iter().max_by_key(|&(_, count)| count).map(|(prefix, _)| prefix.to_string()).unwrap_or_default()
    }

    /// Returns the checkpoint's name for a rule's name `name`.
    fn actual(&self, name: &str) -> Option<&'a str> {
        self.actual.get(self.map.bare(name))?.first().copied()
    }

    /// Returns an error if a tensor that is used has another value under another prefix. An added tensor replaces the
    /// others.
    fn check_prefixes(&self, used: &HashSet<String>) -> Result<()> {
        let mut groups: Vec<(&&str, &[&str])> = self.actual.values().filter_map(|names| names.split_first()).collect();
        groups.retain(|(name, others)| !others.is_empty() && used.contains(**name));
        groups.sort();
        for (name, others) in groups {
            for other in others.iter().filter(|other| self.checkpoint.is_added(name) == self.checkpoint.is_added(other))
            {
                if !self.checkpoint.have_equal_values(name, other)? {
                    let reason = format!(
                        "the file also has the tensor `{other}`, which differs from it only in its prefix, and the two \
                         have different values: remove one of them"
                    );
                    let file = self.checkpoint.info(name)?.file;
                    return Err(WeightsError::malformed_tensor(&file, name, reason));
                }
            }
        }
        Ok(())
    }

    fn find(&self, slot: &Slot) -> Found {
        let mut looked_for = Vec::new();
        for (rule, captures, part) in self.map.rules_for(&slot.path) {
            let Some(names) = rule.names.iter().map(|name| name.expand(&captures)).collect::<Option<Vec<_>>>() else {
                continue;
            };
            match names.iter().map(|name| self.actual(name)).collect::<Option<Vec<_>>>() {
                Some(names) => return self.fit(&rule, &captures, part, names, slot),
                None => names.into_iter().for_each(|name| {
                    if !looked_for.contains(&name) {
                        looked_for.push(name);
                    }
                }),
            }
        }
        Found::Nothing(looked_for)
    }

    /// Compares the shapes of tensors and leaf, counted in values.
    fn fit(&self, rule: &Rule, captures: &Captures, part: usize, names: Vec<&str>, slot: &Slot) -> Found {
        let infos: Vec<TensorInfo> = names.iter().filter_map(|name| self.checkpoint.info(name).ok()).collect();
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        match self.placed(rule, captures, part, &infos, slot) {
            Some((part, steps, is_quantized)) => {
                Found::Fits(Placement { names, part, axis: rule.axis, steps, is_quantized })
            }
            None => {
                let found = infos.iter().map(|info| quantized::shape_for(slot, info));
                Found::Misfit(names.into_iter().zip(found).collect())
            }
        }
    }

    /// Returns the range of the leaf in the tensor, the steps, and true if the leaf gets the quantized bytes without
    /// decoding. `None` if the resulting shape differs from the leaf's.
    fn placed(
        &self,
        rule: &Rule,
        captures: &Captures,
        part: usize,
        infos: &[TensorInfo],
        slot: &Slot,
    ) -> Option<(Option<Range<usize>>, Vec<Step>, bool)> {
        let range = match (rule.paths.len(), infos) {
            (1, _) => None,
            (_, [whole]) => Some(self.part(rule, captures, part, whole)?),
            _ => return None,
        };
        let published: Vec<Vec<usize>> = infos
            .iter()
            .map(|info| {
                let mut piece = info.shape.clone();
                if let Some(range) = &range {
                    piece[rule.axis] = range.len();
                }
                piece
            })
            .collect();
        let pieces: Vec<Vec<usize>> = published.iter().map(|piece| rule.shape_after(piece)).collect::<Option<_>>()?;
        let is_quantized = infos.iter().any(|info| quantized::kind(slot, info).is_some());
        let steps = if is_quantized { quantized::steps(rule, infos, published.first()?)? } else { rule.steps.clone() };
        let wanted = quantized::shape_in_values(slot, infos.first()?)?;
        (joined(&pieces, rule.axis)? == wanted).then_some((range, steps, is_quantized))
    }

    /// Returns the range of part number `part` in a tensor that is divided among the rule's paths.
    fn part(&self, rule: &Rule, captures: &Captures, part: usize, whole: &TensorInfo) -> Option<Range<usize>> {
        let extent = *whole.shape.get(rule.axis)?;
        let of_path = |path: &Pattern| {
            let slot = self.slots.get(path.expand(captures)?.as_str())?;
            rule.shape_before(&quantized::shape_in_values(slot, whole)?)?.get(rule.axis).copied()
        };
        let extents: Option<Vec<usize>> = rule.paths.iter().map(of_path).collect();
        // If the model lacks some of the parts, their sizes are unknown; assume equal parts.
        let extents = extents.unwrap_or_else(|| vec![extent / rule.paths.len(); rule.paths.len()]);
        let start: usize = extents[..part].iter().sum();
        (extents.iter().sum::<usize>() == extent).then(|| start..start + extents[part])
    }

    /// Returns the reason for which the map ignores `name`; `None` if it does not.
    fn reason_to_ignore(&self, name: &str) -> Option<&'static str> {
        let bare = self.map.bare(name);
        let fits = |pattern: &Pattern| pattern.matches(name).is_some() || pattern.matches(bare).is_some();
        self.map.ignored.iter().find(|(pattern, _)| fits(pattern)).map(|(_, reason)| *reason)
    }

    /// Returns true if `name` is another published name of leaves that already have values.
    fn repeats(&self, name: &str, placed: &HashSet<&str>) -> bool {
        let bare = self.map.bare(name);
        self.patterns.iter().any(|(rule, patterns)| {
            patterns.iter().filter_map(|pattern| pattern.matches(bare)).any(|captures| {
                rule.paths.iter().all(|path| path.expand(&captures).is_some_and(|path| placed.contains(path.as_str())))
            })
        })
    }
}
