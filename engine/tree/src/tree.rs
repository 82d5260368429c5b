use grove_backend::Backend;
use std::any::Any;

use crate::{AnyArray, Path, StaticValue};

/// A pytree: an array, or a struct, sequence, option or map of trees.
///
/// Write `#[derive(Tree)]` on a struct or an enum instead of implementing the trait. The fields are trees themselves;
/// numbers, strings and booleans, which have no leaves; or values of any other type marked `#[tree(static)]`.
/// `#[tree(buffer)]` marks leaves that are state rather than parameters (running statistics). `#[tree(layer)]` on the
/// type makes [`layers_mut`](crate::layers_mut) find it. `#[tree(transparent)]` on an enum of layers gives the leaves the
/// paths that they have without the enum.
///
/// The methods are low-level walks. Programs call the functions of this crate instead, such as [`map`](crate::map) and
/// [`partition`](crate::partition).
///
/// ```
/// use grove_backend::Backend;
/// use grove_tree::{Array, Tree, paths};
///
/// #[derive(Tree, Clone)]
/// struct Scale<B: Backend> {
///     factor: Array<B, 1>,
///     #[tree(buffer)]
///     seen: Array<B, 1>,
///     name: String,
/// }
/// # type B = burn_flex::Flex;
/// let scale = Scale::<B> { factor: Array::absent([3]), seen: Array::absent([1]), name: "scale".into() };
/// assert_eq!(paths(&scale), ["factor", "seen"]);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a tree on the backend `{B}`",
    label = "this is neither an array, nor made of arrays, nor a plain number or string",
    note = "derive it: `#[derive(Tree, Clone)]` on `{Self}`; or, if it has no arrays, mark the field `#[tree(static)]`",
    note = "a `Tensor` becomes an array with `Array::new`"
)]
pub trait Tree<B: Backend>: Clone {
    /// The same structure on another backend.
    type On<C: Backend>: Tree<C>;

    /// Visits every leaf and node, in the order of the fields.
    fn visit(&self, path: &mut Path, visitor: &mut dyn Visitor<B>);

    /// Replaces every leaf. `f` must keep rank and kind.
    fn map(self, path: &mut Path, f: &mut dyn FnMut(&Path, AnyArray<B>) -> AnyArray<B>) -> Self;

    /// Replaces every leaf by a leaf on another backend. `f` must keep rank and kind.
    fn lift<C: Backend>(self, path: &mut Path, f: &mut dyn FnMut(&Path, AnyArray<B>) -> AnyArray<C>) -> Self::On<C>;

    /// Visits every struct or enum marked `#[tree(layer)]`, each before the layers that it contains. The default
    /// implementation is for trees without layers.
    fn visit_layers(&mut self, _path: &mut Path, _f: &mut dyn FnMut(&Path, &mut dyn Any)) {}
}

/// The kind of node that is visited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node<'a> {
    /// An array.
    Leaf,
    /// The name of a struct, or of an enum variant, with named fields.
    Struct(&'a str),
    /// The name of a struct, or of an enum variant, with numbered fields. The name of a tuple is empty.
    Tuple(&'a str),
    /// A vector or an array of trees.
    Sequence,
    /// A map from strings to trees.
    Map,
}

/// Visitor whose methods [`Tree::visit`] calls for each leaf and node. Only [`leaf`](Self::leaf) is required.
pub trait Visitor<B: Backend> {
    /// Visits a leaf.
    fn leaf(&mut self, path: &Path, leaf: &AnyArray<B>);
    /// Called before the content of a node.
    fn enter(&mut self, _path: &Path, _node: Node<'_>) {}
    /// Called after the content of a node.
    fn exit(&mut self, _path: &Path, _node: Node<'_>) {}
    /// Visits a number, a string or a boolean in the tree, or an option that is `None`.
    fn constant(&mut self, _path: &Path, _value: &dyn StaticValue) {}
    /// Visits a field that is marked `#[tree(static)]`.
    fn static_field(&mut self, _path: &Path, _value: &dyn StaticValue) {}
}

impl<B: Backend, F: FnMut(&Path, &AnyArray<B>)> Visitor<B> for F {
    fn leaf(&mut self, path: &Path, leaf: &AnyArray<B>) {
        self(path, leaf);
    }
}
