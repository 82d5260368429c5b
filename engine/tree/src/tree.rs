use grove_backend::Backend;
use std::any::Any;

use crate::{AnyArray, Path, StaticValue};

/// A value made of leaves: arrays, and structs, sequences, options and maps of trees.
///
/// Write `#[derive(Tree)]` on a struct or an enum instead of implementing it. Its fields are trees themselves, or
/// numbers, strings and truth values, which have no leaves, or carry `#[tree(static)]`. `#[tree(buffer)]` marks
/// leaves that are state rather than parameters (running statistics). `#[tree(layer)]` on the type makes
/// [`layers_mut`](crate::layers_mut) find it.
///
/// These are the ways to walk; the functions of this crate ([`map`](crate::map),
/// [`partition`](crate::partition), …) are what programs call.
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
    note = "derive it: `#[derive(Tree, Clone)]` on `{Self}`; or, if it holds no arrays, mark the field `#[tree(static)]`"
)]
pub trait Tree<B: Backend>: Clone {
    /// The same structure on another backend.
    type On<C: Backend>: Tree<C>;

    /// Shows every leaf, in the order of the fields.
    fn visit(&self, path: &mut Path, visitor: &mut dyn Visitor<B>);

    /// Replaces every leaf. Rank and kind must stay.
    fn map(self, path: &mut Path, f: &mut dyn FnMut(&Path, AnyArray<B>) -> AnyArray<B>) -> Self;

    /// Replaces every leaf by one on another backend. Rank and kind must stay.
    fn lift<C: Backend>(self, path: &mut Path, f: &mut dyn FnMut(&Path, AnyArray<B>) -> AnyArray<C>) -> Self::On<C>;

    /// Shows every struct or enum marked `#[tree(layer)]`, each before the layers that it contains. A tree without layers
    /// keeps the default.
    fn visit_layers(&mut self, _path: &mut Path, _f: &mut dyn FnMut(&Path, &mut dyn Any)) {}
}

/// The kind of node that is visited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node<'a> {
    /// An array.
    Leaf,
    /// A struct, or a variant of an enum, with named fields; its name.
    Struct(&'a str),
    /// A struct, or a variant of an enum, with numbered fields; its name. A tuple has an empty one.
    Tuple(&'a str),
    /// A vector or an array of trees.
    Sequence,
    /// A map from strings to trees.
    Map,
}

/// The visitor that [`Tree::visit`] calls for each leaf and node. Only [`leaf`](Self::leaf) is required.
pub trait Visitor<B: Backend> {
    /// A leaf.
    fn leaf(&mut self, path: &Path, leaf: &AnyArray<B>);
    /// Before a node and what it contains.
    fn enter(&mut self, _path: &Path, _node: Node<'_>) {}
    /// After a node and what it contains.
    fn exit(&mut self, _path: &Path, _node: Node<'_>) {}
    /// A number, a string or a truth value in the tree, or an option that is none.
    fn constant(&mut self, _path: &Path, _value: &dyn StaticValue) {}
    /// A field that is marked `#[tree(static)]`.
    fn static_field(&mut self, _path: &Path, _value: &dyn StaticValue) {}
}

impl<B: Backend, F: FnMut(&Path, &AnyArray<B>)> Visitor<B> for F {
    fn leaf(&mut self, path: &Path, leaf: &AnyArray<B>) {
        self(path, leaf);
    }
}
