//! Parameter filters by rank and role. [`by_path`](grove_tree::by_path) filters by path.

use grove_backend::Backend;
use grove_tree::{AnyArray, Filter, Node, Path, Tree, Visitor, by_path, is_param, path_fits, paths};
use serde::{Deserialize, Serialize};
use std::{collections::HashSet, ops::RangeBounds};

use crate::OptimError;

/// Passes parameters with at least two axes: the usual mask of weight decay. Biases and the scales of norms do not
/// pass.
///
/// ```
/// use grove_optim::{Adamw, matrices};
/// # type B = burn_flex::Flex;
/// let options = Adamw::<B>::default().weight_decay(0.1).mask(matrices());
/// # let _ = options;
/// ```
pub fn matrices<B: Backend>() -> Filter<B> {
    by_rank(2..)
}

/// Passes parameters by their number of axes.
///
/// ```
/// # use grove_optim::by_rank;
/// # use grove_tree::Filter;
/// # type B = burn_flex::Flex;
/// let vectors: Filter<B> = by_rank(1..=1);
/// let kernels: Filter<B> = by_rank(4..);
/// ```
pub fn by_rank<B: Backend>(rank: impl RangeBounds<usize> + Send + Sync + 'static) -> Filter<B> {
    Filter::new(move |path, leaf| leaf.dtype().is_float() && !path.is_buffer() && rank.contains(&leaf.shape().len()))
}

/// Passes all parameters except the frozen ones: those whose paths match one of the patterns of [`by_path`].
///
/// A pattern may omit `prefix`, the path of a submodule including its final dot.
///
/// ```
/// # use grove_optim::except;
/// # use grove_tree::{Array, filter, leaves};
/// # type B = burn_flex::Flex;
/// let layer = || (Array::<B, 2>::absent([2, 3]), Array::<B, 1>::absent([2]));
/// let model = (layer(), layer());
/// assert!(except(&model, &["0.**"], "").is_ok());
/// assert!(except(&model, &["2.**"], "").is_err());
/// assert!(except(&model, &["1"], "0.").is_ok()); // 0.1
/// ```
///
/// # Errors
/// If a pattern matches no path of the parameters.
pub fn except<B: Backend>(
    params: &impl Tree<B>,
    patterns: &[impl AsRef<str>],
    prefix: &str,
) -> Result<Filter<B>, OptimError> {
    let known = paths(params);
    let mut passing = is_param();
    for pattern in patterns.iter().map(AsRef::as_ref) {
        let written = [pattern.to_owned(), format!("{prefix}{pattern}")];
        if !known.iter().any(|path| written.iter().any(|pattern| path_fits(pattern, path))) {
            let first = known.iter().take(3).map(|path| path.strip_prefix(prefix).unwrap_or(path).to_owned());
            return Err(OptimError::UnmatchedPattern { pattern: pattern.into(), first: first.collect() });
        }
        for pattern in written {
            passing = passing & !by_path(&pattern).optional();
        }
    }
    Ok(passing)
}

/// Role of a parameter in a model. Each parameter has one role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// A scale or shift of a normalisation: any leaf in a struct with `Norm` in its name, including biases.
    Norm,
    /// Embedding vectors of tokens or positions: any leaf in a struct with `Embed` in its name, or with `embed` in
    /// its own name.
    Embedding,
    /// A leaf whose name begins with `bias`, outside of norms and embeddings.
    Bias,
    /// Everything else.
    Weight,
}

/// Passes the parameters of a model with a given role.
///
/// Roles are determined by the names of the structs that contain a leaf and by the leaf's own name, in one walk over
/// the parameters. The filter is valid for these parameters, and for updates and states of the same structure.
///
/// ```
/// # use grove_optim::{Role, by_role};
/// # use grove_tree::{Array, Filter, Tree};
/// # use grove_backend::Backend;
/// #[derive(Tree, Clone)]
/// struct LayerNorm<B: Backend> { weight: Array<B, 1>, bias: Array<B, 1> }
/// #[derive(Tree, Clone)]
/// struct Model<B: Backend> { norm: LayerNorm<B>, weight: Array<B, 2>, bias: Array<B, 1> }
///
/// let norm = LayerNorm { weight: Array::absent([4]), bias: Array::absent([4]) };
/// let model = Model::<burn_flex::Flex> { norm, weight: Array::absent([4, 3]), bias: Array::absent([3]) };
/// let decaying: Filter<burn_flex::Flex> = by_role(&model, Role::Weight);
/// let without_decay = by_role(&model, Role::Norm) | by_role(&model, Role::Bias);
/// # let passing = |filter: &Filter<burn_flex::Flex>| {
/// #     let mut passing = Vec::new();
/// #     grove_tree::map_with_path(model.clone(), |path, leaf| {
/// #         if filter.passes(path, &leaf) { passing.push(path.to_string()); }
/// #         leaf
/// #     });
/// #     passing
/// # };
/// # assert_eq!(passing(&decaying), ["weight"]);
/// # assert_eq!(passing(&without_decay), ["norm.weight", "norm.bias", "bias"]);
/// ```
pub fn by_role<B: Backend, P: Tree<B>>(params: &P, role: Role) -> Filter<B> {
    let mut finder = Finder { role, around: Vec::new(), found: HashSet::new() };
    params.visit(&mut Path::root(), &mut finder);
    let found = finder.found;
    Filter::new(move |path, leaf| leaf.dtype().is_float() && !path.is_buffer() && found.contains(path.as_str()))
}

/// Visitor that collects the paths of a role.
struct Finder {
    role: Role,
    /// Roles determined by the enclosing nodes; `None` for nodes without one.
    around: Vec<Option<Role>>,
    found: HashSet<String>,
}

impl<B: Backend> Visitor<B> for Finder {
    fn leaf(&mut self, path: &Path, _: &AnyArray<B>) {
        // The innermost node with a role counts: a norm within an embedding is a norm.
        let around = self.around.iter().rev().find_map(|role| *role);
        let role = around.unwrap_or_else(|| match path.last() {
            name if name.contains("embed") => Role::Embedding,
            name if name.starts_with("bias") => Role::Bias,
            _ => Role::Weight,
        });
        if role == self.role {
            self.found.insert(path.to_string());
        }
    }

    fn enter(&mut self, _: &Path, node: Node<'_>) {
        self.around.push(match node {
            Node::Struct(name) | Node::Tuple(name) if name.contains("Norm") => Some(Role::Norm),
            Node::Struct(name) | Node::Tuple(name) if name.contains("Embed") => Some(Role::Embedding),
            _ => None,
        });
    }

    fn exit(&mut self, _: &Path, _: Node<'_>) {
        self.around.pop();
    }
}
