use grove_backend::Backend;

use crate::{AnyArray, Node, Path, Tree, Visitor, leaf_name, map_with_path};

/// The leaves of any tree, with their paths: a tree of one type, whatever the type of the original. Code that is generic
/// over trees is then compiled once. Filters by path, and buffers, work as in the original.
///
/// ```
/// use grove_tree::{Array, FlatTree, paths, structure};
/// # type B = burn_flex::Flex;
/// let tree = (Array::<B, 1>::absent([2]), vec![Array::<B, 2>::absent([3, 4])]);
/// let (frame, flat) = FlatTree::split(tree.clone());
/// assert_eq!(paths::<B, _>(&flat), ["0", "1.0"]);
/// assert!(structure::<B, _>(&flat.join(frame)) == structure::<B, _>(&tree));
/// ```
#[derive(Clone, Debug)]
pub struct FlatTree<B: Backend> {
    leaves: Vec<(Path, AnyArray<B>)>,
}

impl<B: Backend> FlatTree<B> {
    /// Splits a tree into a frame, whose leaves are absent, and its leaves.
    pub fn split<T: Tree<B>>(tree: T) -> (T, Self) {
        let mut leaves = Vec::new();
        let frame = map_with_path(tree, |path, leaf| {
            let absent = leaf.clone().into_absent();
            leaves.push((path.clone(), leaf));
            absent
        });
        (frame, Self { leaves })
    }

    /// Reverses [`split`](Self::split): replaces the leaves of a frame.
    ///
    /// # Panics
    /// If the frame has other leaves.
    pub fn join<T: Tree<B>>(self, frame: T) -> T {
        let mut leaves = self.leaves.into_iter();
        let tree = map_with_path(frame, |path, _| match leaves.next() {
            Some((own, leaf)) if own == *path => leaf,
            _ => panic!("the frame has a {} that the flat tree does not have", leaf_name("leaf", path.as_str())),
        });
        assert!(leaves.next().is_none(), "the flat tree has a leaf that the frame does not have");
        tree
    }
}

impl<B: Backend> Tree<B> for FlatTree<B> {
    type On<C: Backend> = FlatTree<C>;

    fn visit(&self, path: &mut Path, visitor: &mut dyn Visitor<B>) {
        visitor.enter(path, Node::Map);
        for (own, leaf) in &self.leaves {
            path.within_path(own, |path| {
                // The whole path identifies the leaf: two leaves may have the same last segment.
                visitor.enter(path, Node::Tuple(own.as_str()));
                leaf.visit(path, visitor);
                visitor.exit(path, Node::Tuple(own.as_str()));
            });
        }
        visitor.exit(path, Node::Map);
    }

    fn map(self, path: &mut Path, f: &mut dyn FnMut(&Path, AnyArray<B>) -> AnyArray<B>) -> Self {
        self.lift(path, f)
    }

    fn lift<C: Backend>(self, path: &mut Path, f: &mut dyn FnMut(&Path, AnyArray<B>) -> AnyArray<C>) -> FlatTree<C> {
        let leaves = self.leaves.into_iter().map(|(own, leaf)| {
            let leaf = path.within_path(&own, |path| f(path, leaf));
            (own, leaf)
        });
        FlatTree { leaves: leaves.collect() }
    }
}
