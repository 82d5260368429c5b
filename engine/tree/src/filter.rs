use grove_backend::Backend;
use std::sync::Arc;

use crate::{AnyArray, Path, Tree, TreeError, leaves, pattern::Pattern};

/// A predicate on leaves and their paths. Combine filters with `&`, `|` and `!`.
///
/// ```
/// # use grove_tree::{by_path, is_param, Filter};
/// # type B = burn_flex::Flex;
/// let attention: Filter<B> = is_param() & by_path("blocks.*.attn.**");
/// let everything_else = !attention;
/// ```
///
/// A filter made with [`by_path`] remembers its pattern, and a combination of filters remembers the patterns of its
/// parts: see [`check`](Self::check).
#[derive(Clone)]
pub struct Filter<B: Backend> {
    predicate: Arc<Predicate<B>>,
    /// Patterns that must match the path of some leaf.
    patterns: Vec<Arc<Pattern>>,
}

type Predicate<B> = dyn Fn(&Path, &AnyArray<B>) -> bool + Send + Sync;

impl<B: Backend> Filter<B> {
    /// Creates a filter from a function.
    pub fn new(predicate: impl Fn(&Path, &AnyArray<B>) -> bool + Send + Sync + 'static) -> Self {
        Self { predicate: Arc::new(predicate), patterns: Vec::new() }
    }

    /// Returns true if the filter passes the leaf.
    pub fn passes(&self, path: &Path, leaf: &AnyArray<B>) -> bool {
        (self.predicate)(path, leaf)
    }

    /// Returns an error if one of the filter's patterns matches no path of the tree, which usually means that it is
    /// misspelt. Masked optimizers, gradients of a part of a model and training loops call this method.
    ///
    /// A filter without patterns may pass no leaf at all: a model may have no matrices. Functions of trees such as
    /// [`partition`](crate::partition) do not check.
    ///
    /// # Errors
    /// [`TreeError::Pattern`] with similar paths.
    ///
    /// ```
    /// # use grove_tree::{Array, Filter, by_path};
    /// # type B = burn_flex::Flex;
    /// let model = [("query".to_owned(), Array::<B, 1>::absent([3]))].into_iter().collect::<std::collections::BTreeMap<_, _>>();
    /// let misspelt: Filter<B> = !by_path("qeury");
    /// let error = misspelt.check(&model).unwrap_err();
    /// assert_eq!(error.to_string(), "the pattern `qeury` matches no path of this tree; similar path: query");
    /// assert!(misspelt.optional().check(&model).is_ok());
    /// ```
    pub fn check<T: Tree<B>>(&self, tree: &T) -> Result<(), TreeError> {
        if self.patterns.is_empty() {
            return Ok(());
        }
        let paths: Vec<String> = leaves(tree).into_iter().map(|(path, _)| path).collect();
        match self.patterns.iter().find(|pattern| !paths.iter().any(|path| pattern.fits(path))) {
            Some(pattern) => Err(TreeError::Pattern { pattern: pattern.to_string(), near: pattern.nearest(&paths) }),
            None => Ok(()),
        }
    }

    /// Drops the patterns to check, so that [`check`](Self::check) accepts every tree. The predicate is unchanged.
    #[must_use]
    pub fn optional(self) -> Self {
        Self { patterns: Vec::new(), ..self }
    }

    /// Creates a filter from a predicate, with the patterns of its parts.
    fn combined(parts: &[&Self], predicate: impl Fn(&Path, &AnyArray<B>) -> bool + Send + Sync + 'static) -> Self {
        let mut patterns: Vec<Arc<Pattern>> = Vec::new();
        for pattern in parts.iter().flat_map(|part| &part.patterns) {
            if !patterns.contains(pattern) {
                patterns.push(pattern.clone());
            }
        }
        Self { predicate: Arc::new(predicate), patterns }
    }
}

impl<B: Backend> std::ops::BitAnd for Filter<B> {
    type Output = Self;
    fn bitand(self, other: Self) -> Self {
        let (left, right) = (self.predicate.clone(), other.predicate.clone());
        Self::combined(&[&self, &other], move |path, leaf| left(path, leaf) && right(path, leaf))
    }
}

impl<B: Backend> std::ops::BitOr for Filter<B> {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        let (left, right) = (self.predicate.clone(), other.predicate.clone());
        Self::combined(&[&self, &other], move |path, leaf| left(path, leaf) || right(path, leaf))
    }
}

impl<B: Backend> std::ops::Not for Filter<B> {
    type Output = Self;
    fn not(self) -> Self {
        let predicate = self.predicate.clone();
        Self::combined(&[&self], move |path, leaf| !predicate(path, leaf))
    }
}

/// Passes every leaf.
pub fn everything<B: Backend>() -> Filter<B> {
    Filter::new(|_, _| true)
}

/// Passes floating-point leaves, which can have a gradient.
pub fn is_inexact<B: Backend>() -> Filter<B> {
    Filter::new(|_, leaf| leaf.dtype().is_float())
}

/// Passes parameters: floating-point leaves outside `#[tree(buffer)]`.
pub fn is_param<B: Backend>() -> Filter<B> {
    Filter::new(|path, leaf| leaf.dtype().is_float() && !path.is_buffer())
}

/// Passes leaves in fields marked `#[tree(buffer)]`, such as running statistics.
pub fn is_buffer<B: Backend>() -> Filter<B> {
    Filter::new(|path, _| path.is_buffer())
}

/// Passes leaves whose path matches a pattern. `*` matches one segment or part of one, `**` any number of segments.
///
/// Optimizers and gradients reject a pattern that matches no leaf of the model: see [`Filter::check`].
pub fn by_path<B: Backend>(pattern: &str) -> Filter<B> {
    let pattern = Arc::new(Pattern::new(pattern));
    let patterns = vec![pattern.clone()];
    Filter { predicate: Arc::new(move |path, _| pattern.fits(path.as_str())), patterns }
}

/// Returns true if a dotted path matches a pattern of [`by_path`].
///
/// ```
/// assert!(grove_tree::path_fits("encoder.layer.*.query", "encoder.layer.3.query"));
/// ```
pub fn path_fits(pattern: &str, path: &str) -> bool {
    Pattern::new(pattern).fits(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Array;
    use burn_flex::Flex;

    type B = Flex;

    fn model() -> (Array<B, 1>, [Array<B, 2>; 2]) {
        (Array::absent([3]), [Array::absent([1, 2]), Array::absent([1, 2])])
    }

    #[test]
    fn check_names_the_pattern_that_matches_nothing() {
        let good: Filter<B> = by_path("0") & !by_path("1.*") | by_path("**");
        assert_eq!(good.check(&model()), Ok(()));
        let error = (good.clone() & !by_path("1.7")).check(&model()).unwrap_err();
        assert_eq!(error.to_string(), "the pattern `1.7` matches no path of this tree; similar paths: 1.0, 1.1, 0");
        assert_eq!((good & by_path("1.7").optional()).check(&model()), Ok(()));
        // A predicate may reject every leaf.
        assert_eq!((Filter::<B>::new(|_, _| false) & is_buffer()).check(&model()), Ok(()));
        assert!(by_path::<B>("0").check(&Vec::<Array<B, 1>>::new()).is_err());
        assert!(by_path::<B>("**").check(&Array::<B, 1>::absent([1])).is_ok());
    }
}
