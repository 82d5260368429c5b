use grove_backend::Backend;
use grove_tree::{AnyArray, Node, Path, StaticValue, Tree, Visitor, leaf_name, map, structure};

use super::leaf::{check_leaf, row, stack_leaves, unstack_leaves};

/// Trees of the same structure, such as the members of an ensemble, with their leaves stacked along a new first axis.
/// Accepts any tree, whereas [`Stack`](super::Stack) needs a type for the stacked tree.
///
/// A `Stacked` is a tree itself: it has the paths of one member, and its leaves have one more axis. An optimizer can
/// therefore train all members at once, and one file can hold them all. In a loss, [`unstack`](Self::unstack) returns
/// the members; gradients flow back into the stacked leaves.
///
/// ```
/// use burn::tensor::Tensor;
/// use grove_transform::{Stacked, value_and_grad};
/// use grove_tree::{Array, Tree};
/// # use grove_backend::Backend;
/// # type B = burn_flex::Flex;
///
/// #[derive(Tree, Clone, Debug)]
/// struct Line<B: Backend> {
///     slope: Array<B, 1>,
/// }
///
/// let line = |x: f32| Line::<B> { slope: Array::new(Tensor::from_floats([x], &Default::default())) };
/// let lines = Stacked::new(vec![line(1.0), line(2.0), line(3.0)]);
/// assert_eq!(grove_tree::display(&lines), "Line { slope: f32[3,1] }");
/// let (_, grads) = value_and_grad(&lines, |lines| {
///     lines.unstack().into_iter().map(|line| line.slope.val().square().sum()).reduce(|a, b| a + b).unwrap()
/// });
/// assert_eq!(grads.get(2).slope.val().into_scalar(), 6.0);
/// ```
#[derive(Clone, Debug)]
pub struct Stacked<B: Backend, T> {
    /// The structure of one member, with absent leaves.
    one: T,
    /// The stacked leaves, in the order of `one`.
    leaves: Vec<AnyArray<B>>,
    len: usize,
}

impl<B: Backend, T: Tree<B>> Stacked<B, T> {
    /// Stacks one or more trees. A leaf that is absent in every tree is absent in the result.
    ///
    /// # Shapes
    /// - leaf of a tree `[…]`
    /// - leaf of the result `[trees, …]`
    ///
    /// # Panics
    /// If `trees` is empty, or the trees differ in structure, shapes or dtypes, or in which leaves are present.
    #[track_caller]
    pub fn new(trees: Vec<T>) -> Self {
        let len = trees.len();
        let one = map(
            trees.first().expect("there is nothing to stack: the shapes of zero trees are unknown").clone(),
            AnyArray::into_absent,
        );
        let expected = structure(&one);
        for (i, tree) in trees.iter().enumerate() {
            if let Some([first, other]) = expected.difference(&structure(tree)) {
                panic!(
                    "tree {i} has {other} where the first tree has {first}: only trees of the same structure can be \
                     stacked"
                );
            }
        }
        let mut columns: Vec<Vec<AnyArray<B>>> = vec![];
        for (i, tree) in trees.iter().enumerate() {
            let mut at = 0;
            tree.visit(&mut Path::root(), &mut |path: &Path, leaf: &AnyArray<B>| {
                match columns.get_mut(at) {
                    None => columns.push(vec![leaf.clone()]),
                    Some(column) => {
                        check_leaf(path, &column[0], leaf, "tree", i);
                        column.push(leaf.clone());
                    }
                }
                at += 1;
            });
        }
        drop(trees);
        Self { one, leaves: columns.into_iter().map(stack_leaves).collect(), len }
    }

    /// Creates a stack of `len` trees from their stacked leaves, in the order of the leaves of `one`. The values of
    /// `one` are dropped.
    ///
    /// # Panics
    /// If the number of leaves differs from `one`, or the shape of a leaf is not `[len, …]` with the shape of the leaf
    /// in `one`.
    #[track_caller]
    pub fn from_leaves(one: T, leaves: Vec<AnyArray<B>>, len: usize) -> Self {
        let mut rest = leaves.iter();
        one.visit(&mut Path::root(), &mut |path: &Path, leaf: &AnyArray<B>| {
            let expected = [&[len], leaf.shape()].concat();
            let found = rest.next().map(|leaf| leaf.shape().to_vec()).unwrap_or_default();
            assert!(
                found == expected,
                "the {} of {len} trees must have shape {expected:?}, not {found:?}",
                leaf_name("leaf", path.as_str())
            );
        });
        assert!(rest.next().is_none(), "there are more leaves than a tree has");
        Self { one: map(one, AnyArray::into_absent), leaves, len }
    }

    /// Returns one tree with absent leaves, and the stacked leaves in the order of that tree.
    pub fn into_leaves(self) -> (T, Vec<AnyArray<B>>) {
        (self.one, self.leaves)
    }

    /// Returns the number of trees.
    #[allow(clippy::len_without_is_empty)] // there is at least one
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the tree at an index.
    ///
    /// # Panics
    /// If `index` is out of range.
    #[track_caller]
    pub fn get(&self, index: usize) -> T {
        assert!(index < self.len, "there is no tree {index} among {}", self.len);
        let mut leaves = self.leaves.iter();
        map(self.one.clone(), |_| row(next(&mut leaves).clone(), index))
    }

    /// Returns all trees.
    pub fn unstack(self) -> Vec<T> {
        let columns = self.leaves.into_iter().map(|leaf| unstack_leaves(leaf, self.len));
        let mut columns: Vec<_> = columns.map(Vec::into_iter).collect();
        let tree = |_| {
            let mut leaves = columns.iter_mut().map(next);
            map(self.one.clone(), |_| next(&mut leaves))
        };
        (0..self.len).map(tree).collect()
    }
}

/// Returns the next item. The iterator has one item for each leaf of each tree.
fn next<I>(items: &mut impl Iterator<Item = I>) -> I {
    items.next().expect("one for each leaf of each tree")
}

impl<B: Backend, T: Tree<B>> Tree<B> for Stacked<B, T> {
    type On<C: Backend> = Stacked<C, T::On<C>>;

    fn visit(&self, path: &mut Path, visitor: &mut dyn Visitor<B>) {
        self.one.visit(path, &mut WithLeaves { leaves: self.leaves.iter(), visitor });
    }

    fn map(self, path: &mut Path, f: &mut dyn FnMut(&Path, AnyArray<B>) -> AnyArray<B>) -> Self {
        let mut old = self.leaves.into_iter();
        let mut leaves = vec![];
        let one = self.one.map(path, &mut |path, absent| {
            leaves.push(f(path, next(&mut old)));
            absent
        });
        Self { one, leaves, len: self.len }
    }

    fn lift<C: Backend>(
        self,
        path: &mut Path,
        f: &mut dyn FnMut(&Path, AnyArray<B>) -> AnyArray<C>,
    ) -> Stacked<C, T::On<C>> {
        let mut old = self.leaves.into_iter();
        let mut leaves = vec![];
        let one = self.one.lift(path, &mut |path, absent| {
            leaves.push(f(path, next(&mut old)));
            AnyArray::absent(absent.shape(), absent.dtype())
        });
        Stacked { one, leaves, len: self.len }
    }
}

/// Visits the structure of one tree with the stacked leaves in place of its own.
struct WithLeaves<'a, B: Backend> {
    leaves: std::slice::Iter<'a, AnyArray<B>>,
    visitor: &'a mut dyn Visitor<B>,
}

impl<B: Backend> Visitor<B> for WithLeaves<'_, B> {
    fn leaf(&mut self, path: &Path, _: &AnyArray<B>) {
        self.visitor.leaf(path, next(&mut self.leaves));
    }

    fn enter(&mut self, path: &Path, node: Node<'_>) {
        self.visitor.enter(path, node);
    }

    fn exit(&mut self, path: &Path, node: Node<'_>) {
        self.visitor.exit(path, node);
    }

    fn constant(&mut self, path: &Path, value: &dyn StaticValue) {
        self.visitor.constant(path, value);
    }

    fn static_field(&mut self, path: &Path, value: &dyn StaticValue) {
        self.visitor.static_field(path, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value_and_grad;
    use burn::tensor::{Bool, Int, Tensor};
    use burn_flex::Flex;
    use grove_tree::{Array, by_path, combine, count_params, eq, leaves, partition, paths};

    type B = Flex;

    #[derive(Tree, Clone, Debug)]
    struct Member<B: Backend> {
        scale: Array<B, 1>,
        table: Option<Array<B, 2, Int>>,
        #[tree(buffer)]
        seen: Array<B, 1, Bool>,
        deep: Vec<Array<B, 3>>,
        residual: bool,
    }

    fn member(i: i32) -> Member<B> {
        let device = Default::default();
        let deep = Tensor::<B, 1>::from_floats([i as f32; 8], &device).reshape([2, 2, 2]);
        Member {
            scale: Array::new(Tensor::from_floats([i as f32, 2.0], &device)),
            table: Some(Array::new(Tensor::from_ints([[i, 2], [3, 4]], &device))),
            seen: Array::new(Tensor::from_bool([i > 1, true].into(), &device)),
            deep: vec![Array::absent([4, 1, 1]), Array::new(deep)],
            residual: true,
        }
    }

    #[test]
    fn members_come_back() {
        let members: Vec<_> = (0..3).map(member).collect();
        let stacked = Stacked::new(members.clone());
        assert_eq!((stacked.len(), paths(&stacked)), (3, paths(&members[0])));
        let shapes: Vec<_> = leaves(&stacked).iter().map(|(_, leaf)| leaf.shape().to_vec()).collect();
        assert_eq!(shapes, [vec![3, 2], vec![3, 2, 2], vec![3, 2], vec![3, 4, 1, 1], vec![3, 2, 2, 2]]);
        assert!((0..3).all(|i| eq(&stacked.get(i), &members[i])));
        let (scale, rest) = partition(stacked, &by_path("scale"));
        let stacked = combine(scale, rest).expect("both are parts of one tree");
        assert_eq!(count_params(&stacked), 3 * (2 + 4 + 8));
        assert!(stacked.unstack().iter().zip(&members).all(|(a, b)| eq(a, b)));
    }

    #[test]
    fn gradients_match_each_member() {
        let loss =
            |scale: Tensor<grove_backend::Autodiff<B>, 1>, i: usize| scale.powi_scalar(3).sum() * (i as f32 + 1.0);
        let stacked = Stacked::new((0..3).map(member).collect());
        let (_, grads) = value_and_grad(&stacked, |stacked| {
            let losses = stacked.unstack().into_iter().enumerate().map(|(i, member)| loss(member.scale.val(), i));
            losses.reduce(|a, b| a + b).expect("three")
        });
        for (i, grads) in grads.unstack().into_iter().enumerate() {
            let (_, alone) = value_and_grad(&member(i as i32), |member| loss(member.scale.val(), i));
            assert_eq!(grads.scale.val().into_data(), alone.scale.val().into_data());
        }
    }

    #[test]
    #[should_panic(expected = "the leaf `scale` is f32[2] in the first tree and f32[3] in tree 1")]
    fn refuses_other_shapes() {
        let other =
            Member { scale: Array::new(Tensor::from_floats([1.0, 2.0, 3.0], &Default::default())), ..member(1) };
        Stacked::new(vec![member(0), other]);
    }

    #[test]
    #[should_panic(expected = "only trees of the same structure can be stacked")]
    fn refuses_another_structure() {
        Stacked::new(vec![member(0), Member { residual: false, ..member(1) }]);
    }

    #[test]
    #[should_panic(expected = "the leaf `deep.1` is absent in some trees and present in others, such as tree 1")]
    fn refuses_leaves_that_are_absent_in_one() {
        let deep = vec![Array::absent([4, 1, 1]), Array::absent([2, 2, 2])];
        Stacked::new(vec![member(0), Member { deep, ..member(1) }]);
    }

    #[test]
    #[should_panic(expected = "there is no tree 2 among 2")]
    fn refuses_an_index_past_the_end() {
        Stacked::new(vec![member(0), member(1)]).get(2);
    }
}
