//! The map between the names in published checkpoints and a model's own paths.

use crate::checkpoint::Checkpoint;
use crate::entry::TensorInfo;
use crate::pattern::{Captures, Pattern};
use crate::step::Step;

/// How published names and layouts become a model's, and back.
///
/// A map is a list of rules from published names to paths. Both may contain captures, `{i}`, which stand for one
/// or more characters without a dot, at most once per segment. A leaf takes its values by the first rule for its
/// path whose published names all exist; a path that no rule speaks of is its own published name, so that an
/// empty map is right for trees saved under their own paths. Saving follows the first rule for a path backwards.
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
    pub(crate) ignored: Vec<Pattern>,
}

/// One or several published names for one or several paths; at most one side has several.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    pub(crate) names: Vec<Pattern>,
    pub(crate) paths: Vec<Pattern>,
    /// Along which the pieces of a split or merge lie in the whole.
    pub(crate) axis: usize,
    /// Applied in order to each piece.
    pub(crate) steps: Vec<Step>,
    /// Only for loading, and no surprise if it is left over.
    pub(crate) alias: bool,
}

impl NameMap {
    /// The map in which every path is its own published name.
    pub fn new() -> Self {
        Self::default()
    }

    /// A prefix, such as `"transformer."`, that may stand before published names, or not. With several, each may
    /// stand before the others. Names in rules may be written with or without; they are saved as written.
    pub fn prefix(mut self, prefix: &str) -> Self {
        self.prefixes.push(prefix.into());
        self
    }

    /// The published tensor `name` is the leaf `path`.
    pub fn rule(self, name: &str, path: &str) -> Self {
        self.push(&[name], 0, &[path], false)
    }

    /// Another published name of the leaf `path`, used where the earlier ones do not exist: older spellings, tied
    /// weights. It is not saved, and if it exists beside the one that is used, that is no surprise.
    pub fn alias(self, name: &str, path: &str) -> Self {
        self.push(&[name], 0, &[path], true)
    }

    /// The published tensor `name` holds several leaves, one after another along `axis`, such as a fused query,
    /// key and value. Each takes as much as its shape asks for.
    pub fn split(self, name: &str, axis: usize, paths: &[&str]) -> Self {
        self.push(&[name], axis, paths, false)
    }

    /// The leaf `path` holds several published tensors, one after another along `axis`. Saving divides it into
    /// equal parts.
    pub fn merge(self, names: &[&str], axis: usize, path: &str) -> Self {
        self.push(names, axis, &[path], false)
    }

    /// Adds a step to the rule that was added last; does nothing if there is none. Of a split or merge it is done
    /// to each of the smaller pieces.
    pub fn then(mut self, step: Step) -> Self {
        if let Some(rule) = self.rules.last_mut() {
            rule.steps.push(step);
        }
        self
    }

    /// Published names that a model has no use for, such as masks stored as buffers. In the pattern `*` stands
    /// for one segment, `**` for any number.
    pub fn ignore(mut self, pattern: &str) -> Self {
        self.ignored.push(Pattern::new(pattern));
        self
    }

    /// The name in `checkpoint` of the tensor that the leaf `path` would take, and what is known of it; of several
    /// that are merged the first one's. Shapes are not compared: this is how a model is built by what a file holds,
    /// plain or quantised, before there is anything to load into.
    ///
    /// `None` if the checkpoint has none of the leaf's published names.
    pub fn published<'a>(&self, checkpoint: &'a Checkpoint, path: &str) -> Option<(&'a str, TensorInfo)> {
        let actual = |name: &str| {
            let bare = self.without_prefix(name).1;
            checkpoint.names().find(|name| name.ends_with(bare) && self.without_prefix(name).1 == bare)
        };
        let mut rules = self.rules_for(path).peekable();
        let name = match rules.peek() {
            None => actual(path),
            Some(_) => rules.find_map(|(rule, captures, _)| {
                let names = rule.names.iter().map(|name| actual(&name.expand(&captures)?));
                names.collect::<Option<Vec<_>>>()?.first().copied()
            }),
        }?;
        Some((name, checkpoint.info(name).ok()?))
    }

    fn push(mut self, names: &[&str], axis: usize, paths: &[&str], alias: bool) -> Self {
        let patterns = |texts: &[&str]| texts.iter().map(|text| Pattern::new(text)).collect();
        self.rules.push(Rule { names: patterns(names), paths: patterns(paths), axis, steps: Vec::new(), alias });
        self
    }

    /// `name` without prefixes, and what was taken off.
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

    /// The rules that speak of `path`, each with its captures and the number of the path among the rule's.
    pub(crate) fn rules_for<'a>(&'a self, path: &'a str) -> impl Iterator<Item = (&'a Rule, Captures, usize)> {
        self.rules.iter().filter_map(move |rule| {
            rule.paths.iter().enumerate().find_map(|(part, pattern)| Some((rule, pattern.matches(path)?, part)))
        })
    }
}

impl Rule {
    /// The shape that a piece must have as published for its leaf to have `shape`.
    pub(crate) fn shape_before(&self, shape: &[usize]) -> Option<Vec<usize>> {
        self.steps.iter().rev().try_fold(shape.to_vec(), |shape, step| step.inverse().shape_after(&shape))
    }

    /// The leaf's shape that a published piece of `shape` gets.
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
            .map(|(rule, captures, part)| (rule.names[0].expand(&captures), part, rule.alias))
            .collect();
        let name = |name: &str| Some(name.to_string());
        assert_eq!(found, [(name("h.2.q"), 0, false), (name("h.2.qkv"), 1, false), (name("old.2.q"), 0, true)]);
    }
}
