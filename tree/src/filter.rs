use grove_backend::Backend;
use std::sync::Arc;

use crate::{AnyArray, Path};

/// A predicate on leaves and where they lie. Combine filters with `&`, `|` and `!`.
///
/// ```
/// # use grove_tree::{by_path, is_param, Filter};
/// # type B = burn_flex::Flex;
/// let attention: Filter<B> = is_param() & by_path("blocks.*.attn.**");
/// let everything_else = !attention;
/// ```
#[derive(Clone)]
pub struct Filter<B: Backend>(Arc<Predicate<B>>);

type Predicate<B> = dyn Fn(&Path, &AnyArray<B>) -> bool + Send + Sync;

impl<B: Backend> Filter<B> {
    /// A filter from a function.
    pub fn new(predicate: impl Fn(&Path, &AnyArray<B>) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(predicate))
    }

    /// Whether the leaf passes.
    pub fn passes(&self, path: &Path, leaf: &AnyArray<B>) -> bool {
        (self.0)(path, leaf)
    }
}

impl<B: Backend> std::ops::BitAnd for Filter<B> {
    type Output = Self;
    fn bitand(self, other: Self) -> Self {
        Self::new(move |path, leaf| self.passes(path, leaf) && other.passes(path, leaf))
    }
}

impl<B: Backend> std::ops::BitOr for Filter<B> {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self::new(move |path, leaf| self.passes(path, leaf) || other.passes(path, leaf))
    }
}

impl<B: Backend> std::ops::Not for Filter<B> {
    type Output = Self;
    fn not(self) -> Self {
        Self::new(move |path, leaf| !self.passes(path, leaf))
    }
}

/// Passes every leaf.
pub fn everything<B: Backend>() -> Filter<B> {
    Filter::new(|_, _| true)
}

/// Passes leaves of floating-point numbers: what can have a gradient.
pub fn is_inexact<B: Backend>() -> Filter<B> {
    Filter::new(|_, leaf| leaf.dtype().is_float())
}

/// Passes parameters: floating-point leaves outside `#[tree(buffer)]`.
pub fn is_param<B: Backend>() -> Filter<B> {
    Filter::new(|path, leaf| leaf.dtype().is_float() && !path.is_buffer())
}

/// Passes leaves by their path. `*` stands for one segment or a part of one, `**` for any number of segments.
pub fn by_path<B: Backend>(pattern: &str) -> Filter<B> {
    let pattern: Vec<String> = pattern.split('.').map(str::to_owned).collect();
    Filter::new(move |path, _| {
        let segments: Vec<&str> = if path.depth() == 0 { vec![] } else { path.as_str().split('.').collect() };
        match_segments(&pattern, &segments)
    })
}

/// Whether a dotted path fits a pattern as [`by_path`] takes it.
///
/// ```
/// assert!(grove_tree::path_fits("encoder.layer.*.query", "encoder.layer.3.query"));
/// ```
pub fn path_fits(pattern: &str, path: &str) -> bool {
    let pattern: Vec<String> = pattern.split('.').map(str::to_owned).collect();
    match_segments(&pattern, &path.split('.').collect::<Vec<_>>())
}

fn match_segments(pattern: &[String], segments: &[&str]) -> bool {
    match pattern.split_first() {
        None => segments.is_empty(),
        Some((first, rest)) if first == "**" => (0..=segments.len()).any(|n| match_segments(rest, &segments[n..])),
        Some((first, rest)) => match segments.split_first() {
            Some((segment, others)) => match_segment(first, segment) && match_segments(rest, others),
            None => false,
        },
    }
}

/// Whether a segment has the fixed parts of a pattern in order, anything where the pattern has `*`.
fn match_segment(pattern: &str, segment: &str) -> bool {
    let Some((head, tail)) = pattern.split_once('*') else {
        return pattern == segment;
    };
    let Some(rest) = segment.strip_prefix(head) else {
        return false;
    };
    (0..=rest.len()).filter(|&n| rest.is_char_boundary(n)).any(|n| match_segment(tail, &rest[n..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        let check = path_fits;
        assert!(check("blocks.*.attn.**", "blocks.3.attn.qkv.weight"));
        assert!(!check("blocks.*.attn.**", "blocks.3.mlp.weight"));
        assert!(check("**.bias", "blocks.0.bias") && check("**.bias", "bias"));
        assert!(check("ln_*.weight", "ln_f.weight") && !check("ln_*.weight", "xln_f.weight"));
        assert!(!check("*", "a.b"));
    }
}
