//! The map between published names and a model's own paths.

use std::borrow::Cow;

use crate::checkpoint::TensorFiles;
use crate::entry::TensorInfo;
use crate::pattern::{Captures, Pattern};
use crate::step::Step;

/// Maps between the names and layouts of published checkpoints and those of a model, in both directions.
///
/// A map is a list of rules from published names to paths. Both may contain captures, `{i}`, which match one or more
/// characters without a dot, at most once per segment. A leaf gets its values from the first rule for its path whose
/// published names all exist. A path without a rule is its own published name, so an empty map suits trees saved under
/// their own paths. Saving applies the first rule for a path in reverse.
///
/// ```
/// use grove_weights::{NameMap, Step};
/// let names = NameMap::new()
///     .prefix("transformer.")                          // may stand before any name, or not
///     .rule("wte.weight", "wte.weight")
///     .alias("lm_head.weight", "wte.weight")           // used if `wte.weight` is not there; never saved
///     .rule("h.{i}.mlp.c_fc.{p}", "blocks.{i}.mlp.up.{p}")
///     .rule("h.{i}.attn.out.weight", "blocks.{i}.attn.out.weight").then(Step::Transpose)
///     .split("h.{i}.attn.c_attn.bias", 0, &[
///         "blocks.{i}.attn.q.bias", "blocks.{i}.attn.k.bias", "blocks.{i}.attn.v.bias",
///     ])
///     .ignore("h.*.attn.masked_bias");
/// ```
#[derive(Clone, Debug, Default)]
pub struct NameMap {
    pub(crate) prefixes: Vec<String>,
    pub(crate) rules: Vec<Rule>,
    /// Patterns of names that are not used, each with the reason.
    pub(crate) ignored: Vec<(Pattern, &'static str)>,
}

/// A rule between published names and paths; at most one side has several.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    pub(crate) names: Vec<Pattern>,
    pub(crate) paths: Vec<Pattern>,
    /// Concatenation axis of the pieces of a split or merge.
    pub(crate) axis: usize,
    /// Steps applied in order to each piece.
    pub(crate) steps: Vec<Step>,
    /// If true, the rule applies only to loading, and its tensor is not reported as unexpected if unused.
    pub(crate) alias: bool,
}

impl NameMap {
    /// Creates a map in which every path is its own published name.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an optional prefix of published names, such as `"transformer."`. Several prefixes may be stacked in any
    /// order. Names in rules may include the prefix or not; they are saved as written.
    pub fn prefix(mut self, prefix: &str) -> Self {
        self.prefixes.push(prefix.into());
        self
    }

    /// Maps the published tensor `name` to the leaf `path`.
    pub fn rule(self, name: &str, path: &str) -> Self {
        self.push(&[name], 0, &[path], false)
    }

    /// Adds another published name of the leaf `path`, such as an older spelling or a tied weight. The name is used if
    /// the names of earlier rules do not exist. It is never saved, and not reported as unexpected if it exists but is
    /// not used.
    pub fn alias(self, name: &str, path: &str) -> Self {
        self.push(&[name], 0, &[path], true)
    }

    /// Maps the published tensor `name` to several leaves, concatenated along `axis`, such as a fused query, key and
    /// value. The size of each part follows from the shape of its leaf.
    pub fn split(self, name: &str, axis: usize, paths: &[&str]) -> Self {
        self.push(&[name], axis, paths, false)
    }

    /// Maps several published tensors, concatenated along `axis`, to the leaf `path`. Saving divides the leaf into
    /// equal parts.
    pub fn merge(self, names: &[&str], axis: usize, path: &str) -> Self {
        self.push(names, axis, &[path], false)
    }

    /// Adds a step to the last rule; does nothing if there is no rule. For a split or merge, the step applies to each
    /// of the smaller pieces.
    pub fn then(mut self, step: Step) -> Self {
        if let Some(rule) = self.rules.last_mut() {
            rule.steps.push(step);
        }
        self
    }

    /// Ignores published names that the model does not use, such as masks stored as buffers. In the pattern, `*`
    /// matches one segment, `**` any number of segments. [`ignore_each`](Self::ignore_each) gives the report a reason.
    pub fn ignore(self, pattern: &str) -> Self {
        self.ignore_each(&[(pattern, "not part of the model")])
    }

    /// Ignores published names as [`ignore`](Self::ignore) does. The report of loading names the reason of each pattern.
    ///
    /// ```
    /// # use grove_weights::NameMap;
    /// let names = NameMap::new().ignore_each(&[("h.*.attn.masked_bias", "masks, which are computed")]);
    /// assert_eq!(names.ignored().next(), Some(("h.*.attn.masked_bias", "masks, which are computed")));
    /// ```
    pub fn ignore_each(mut self, patterns: &[(&str, &'static str)]) -> Self {
        self.ignored.extend(patterns.iter().map(|(pattern, reason)| (Pattern::new(pattern), *reason)));
        self
    }

    /// Returns the patterns of ignored names, each with the reason.
    pub fn ignored(&self) -> impl Iterator<Item = (&str, &'static str)> {
        self.ignored.iter().map(|(pattern, reason)| (pattern.text(), *reason))
    }

    /// Returns the name and description of the tensor in `checkpoint` that would fill the leaf `path`; for a merge, the
    /// first part. Shapes are not compared, so that the structure of a model, quantized or not, can be chosen by the
    /// content of a file before there is a skeleton.
    ///
    /// `None` if the checkpoint has none of the leaf's published names.
    pub fn published<'a>(&self, checkpoint: &'a TensorFiles, path: &str) -> Option<(&'a str, TensorInfo)> {
        let actual = |name: &str| {
            let bare = self.bare(name);
            let same = checkpoint.names().filter(|name| name.ends_with(bare) && self.bare(name) == bare);
            same.min_by_key(|name| !checkpoint.is_added(name))
        };
        let name = self.rules_for(path).into_iter().find_map(|(rule, captures, _)| {
            let names = rule.names.iter().map(|name| actual(&name.expand(&captures)?));
            names.collect::<Option<Vec<_>>>()?.first().copied()
        })?;
        Some((name, checkpoint.info(name).ok()?))
    }

    /// Returns the name under which the leaf `path` is saved, and the steps from the saved tensor to the leaf.
    ///
    /// `None` if the leaf is saved together with others, or in several parts.
    pub fn saved(&self, path: &str) -> Option<(String, Vec<Step>)> {
        let (rule, captures) = self.saving_rule(path)?;
        let ([name], [_]) = (&rule.names[..], &rule.paths[..]) else { return None };
        Some((name.expand(&captures)?, rule.steps.clone()))
    }

    /// Returns all names under which a file may contain the leaf `path` alone, with the steps from the tensor to the
    /// leaf. The name under which the leaf is [`saved`](Self::saved) is first.
    pub fn known(&self, path: &str) -> Vec<(String, Vec<Step>)> {
        let mut rules = self.rules_for(path);
        rules.retain(|(rule, ..)| rule.names.len() == 1 && rule.paths.len() == 1);
        rules.sort_by_key(|(rule, ..)| rule.alias);
        let named = |(rule, captures, _): RuleFor| Some((rule.names[0].expand(&captures)?, rule.steps.clone()));
        rules.into_iter().filter_map(named).collect()
    }

    /// Returns a published name without its optional [prefixes](Self::prefix).
    pub fn bare<'a>(&self, name: &'a str) -> &'a str {
        self.without_prefix(name).1
    }

    /// Returns the map of a model that has this map's model as a part: paths get the prefix `path`, and saved names the
    /// prefix `name` unless they begin with it.
    ///
    /// ```
    /// # use grove_weights::NameMap;
    /// let names = NameMap::new().rule("wte.weight", "wte.weight").within("transformer.", "decoder.");
    /// assert_eq!(names.saved("decoder.wte.weight").unwrap().0, "transformer.wte.weight");
    /// ```
    pub fn within(mut self, name: &str, path: &str) -> Self {
        let prefixed = |pattern: &mut Pattern, prefix: &str| {
            if !pattern.text().starts_with(prefix) {
                *pattern = Pattern::new(&format!("{prefix}{}", pattern.text()));
            }
        };
        for rule in &mut self.rules {
            rule.paths.iter_mut().for_each(|pattern| *pattern = Pattern::new(&format!("{path}{}", pattern.text())));
            rule.names.iter_mut().filter(|_| !rule.alias).for_each(|pattern| prefixed(pattern, name));
        }
        self
    }

    fn push(mut self, names: &[&str], axis: usize, paths: &[&str], alias: bool) -> Self {
        self.rules.push(Rule::new(names, axis, paths, alias));
        self
    }

    /// Splits `name` into its prefixes and the remaining name, in this order.
    pub(crate) fn without_prefix<'a>(&self, name: &'a str) -> (&'a str, &'a str) {
        let mut rest = name;
        while let Some(shorter) = self.prefixes.iter().find_map(|prefix| match &**prefix {
            "" => None,
            prefix => rest.strip_prefix(prefix),
        }) {
            rest = shorter;
        }
        name.split_at(name.len() - rest.len())
    }

    /// Returns the rules for `path`, in order. A path without a rule is its own published name.
    pub(crate) fn rules_for(&self, path: &str) -> Vec<RuleFor<'_>> {
        let mut rules: Vec<RuleFor> =
            self.rules.iter().filter_map(|rule| Rule::fitted(Cow::Borrowed(rule), path)).collect();
        if rules.is_empty() {
            rules.extend(Rule::own_name(path));
        }
        rules
    }

    /// Returns the rule by which the leaf `path` is saved, and its captures.
    pub(crate) fn saving_rule(&self, path: &str) -> Option<(Cow<'_, Rule>, Captures)> {
        let rule = self.rules_for(path).into_iter().find(|(rule, ..)| !rule.alias);
        rule.or_else(|| Rule::own_name(path)).map(|(rule, captures, _)| (rule, captures))
    }
}

/// A rule for a path, its captures, and the index of the path among the rule's paths.
type RuleFor<'a> = (Cow<'a, Rule>, Captures, usize);

impl Rule {
    fn new(names: &[&str], axis: usize, paths: &[&str], alias: bool) -> Self {
        let patterns = |texts: &[&str]| texts.iter().map(|text| Pattern::new(text)).collect();
        Self { names: patterns(names), paths: patterns(paths), axis, steps: Vec::new(), alias }
    }

    /// Returns the rule of a path that is its own published name.
    fn own_name(path: &str) -> Option<RuleFor<'static>> {
        Self::fitted(Cow::Owned(Self::new(&[path], 0, &[path], false)), path)
    }

    /// Returns the rule for `path`; `None` if it has no such path.
    fn fitted<'a>(rule: Cow<'a, Self>, path: &str) -> Option<RuleFor<'a>> {
        let paths = &mut rule.paths.iter().enumerate();
        let (captures, part) = paths.find_map(|(part, pattern)| Some((pattern.matches(path)?, part)))?;
        Some((rule, captures, part))
    }

    /// Returns the shape of a published piece whose leaf has `shape`; `None` if the steps do not apply.
    pub(crate) fn shape_before(&self, shape: &[usize]) -> Option<Vec<usize>> {
        self.steps.iter().rev().try_fold(shape.to_vec(), |shape, step| step.inverse().shape_after(&shape))
    }

    /// Returns the shape of the leaf for a published piece of `shape`; `None` if the steps do not apply.
    pub(crate) fn shape_after(&self, shape: &[usize]) -> Option<Vec<usize>> {
        self.steps.iter().try_fold(shape.to_vec(), |shape, step| step.shape_after(&shape))
    }
}

#[cfg(test)]
mod tests {
    use super::NameMap;

    #[test]
    fn prefixes_may_be_stacked() {
        let names = NameMap::new().prefix("transformer.").prefix("module.");
        for (name, expected) in [
            ("wte.weight", ("", "wte.weight")),
            ("transformer.wte.weight", ("transformer.", "wte.weight")),
            ("module.transformer.wte.weight", ("module.transformer.", "wte.weight")),
        ] {
            assert_eq!(names.without_prefix(name), expected);
        }
        assert_eq!(NameMap::new().prefix("").without_prefix("a"), ("", "a"));
    }

    #[test]
    fn rules_for_a_path_come_in_order() {
        let names = NameMap::new()
            .rule("h.{i}.q", "blocks.{i}.q")
            .split("h.{i}.qkv", 0, &["blocks.{i}.k", "blocks.{i}.q"])
            .alias("old.{i}.q", "blocks.{i}.q");
        let found: Vec<_> = names
            .rules_for("blocks.2.q")
            .iter()
            .map(|(rule, captures, part)| (rule.names[0].expand(captures), *part, rule.alias))
            .collect();
        let name = |name: &str| Some(name.to_string());
        assert_eq!(found, [(name("h.2.q"), 0, false), (name("h.2.qkv"), 1, false), (name("old.2.q"), 0, true)]);
    }
}
