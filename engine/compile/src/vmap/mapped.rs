//! Arguments of mapped functions.

use grove_backend::Backend;
use grove_transform::Stacked;
use grove_tree::{AnyArray, Array, Key, Keys, Kind, Path, Tree};

use crate::words::leaf_name;

/// A leaf of an argument of a mapped function.
#[derive(Clone, Debug)]
pub struct MappedLeaf<B: Backend> {
    pub(crate) path: String,
    pub(crate) array: AnyArray<B>,
    /// The batch axis; `None` if all examples share the leaf.
    pub(crate) axis: Option<usize>,
    /// True for an array of random keys, one for each example.
    pub(crate) keys: bool,
}

impl<B: Backend> MappedLeaf<B> {
    fn new(path: &Path, array: AnyArray<B>, axis: Option<usize>) -> Self {
        Self { path: path.to_string(), array, axis, keys: false }
    }
}

/// A tree that [`vmap`](crate::vmap()) splits into examples.
///
/// `Array<B, D + 1, K>` becomes an `Array<B, D, K>` for each example (`D` up to 5), split along the first axis or the axis
/// given by [`Over`]. Tuples, arrays, vectors and options are split element by element. [`Stacked`] becomes one of its trees
/// for each example, [`Keys`] a [`Key`], and [`Shared`] the same tree for all examples.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be split into examples on the backend `{B}`",
    note = "arrays of rank 2 to 6, tuples and vectors of them, and `Stacked` trees can; wrap what all examples share in `Shared`"
)]
pub trait Mapped<B: Backend> {
    /// The tree of one example.
    type Example: Tree<B>;

    /// Appends the leaves to a list, in the order of the tree, and returns the tree of one example with absent leaves.
    fn split(self, axis: usize, path: &mut Path, leaves: &mut Vec<MappedLeaf<B>>) -> Self::Example;
}

/// An argument that all examples share: `None` in the `in_axes` of `jax.vmap`.
///
/// ```
/// use burn::tensor::Tensor;
/// use grove_compile::{Shared, Traced, vmap};
/// use grove_tree::Array;
/// # type B = burn_flex::Flex;
/// # let device = Default::default();
/// let scaled = vmap(|(scale, x): (Array<Traced, 1>, Array<Traced, 1>)| Array::<_, 1>::new(scale.val() * x.val()));
/// let scale = Array::<B, 1>::new(Tensor::from_floats([2.0, 3.0], &device));
/// let xs = Array::<B, 2>::new(Tensor::ones([5, 2], &device));
/// assert_eq!(scaled.call((Shared(scale), xs)).shape(), [5, 2]);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Shared<T>(pub T);

/// An argument with another batch axis than the first: an integer in the `in_axes` of `jax.vmap`.
#[derive(Clone, Copy, Debug)]
pub struct Over<T>(pub usize, pub T);

impl<B: Backend, T: Tree<B>> Mapped<B> for Shared<T> {
    type Example = T;

    fn split(self, _: usize, path: &mut Path, leaves: &mut Vec<MappedLeaf<B>>) -> T {
        self.0.map(path, &mut |path, array| {
            let absent = array.clone().into_absent();
            leaves.push(MappedLeaf::new(path, array, None));
            absent
        })
    }
}

impl<B: Backend, T: Mapped<B>> Mapped<B> for Over<T> {
    type Example = T::Example;

    fn split(self, _: usize, path: &mut Path, leaves: &mut Vec<MappedLeaf<B>>) -> T::Example {
        self.1.split(self.0, path, leaves)
    }
}

impl<B: Backend, T: Tree<B>> Mapped<B> for Stacked<B, T> {
    type Example = T;

    fn split(self, axis: usize, path: &mut Path, leaves: &mut Vec<MappedLeaf<B>>) -> T {
        let (one, stacked) = self.into_leaves();
        let mut stacked = stacked.into_iter();
        one.map(path, &mut |path, absent| {
            leaves.extend(stacked.next().map(|array| MappedLeaf::new(path, array, Some(axis))));
            absent
        })
    }
}

/// One implementation per rank: Rust cannot compute `D + 1` in a type.
macro_rules! arrays {
    ($($example:literal $all:literal),*) => {$(
        impl<B: Backend, K: Kind> Mapped<B> for Array<B, $all, K> {
            type Example = Array<B, $example, K>;

            #[track_caller]
            fn split(self, axis: usize, path: &mut Path, leaves: &mut Vec<MappedLeaf<B>>) -> Self::Example {
                let array = self.into_any();
                assert!(
                    axis < $all,
                    "the {} of a mapped function, {array}, has no axis {axis}: give an axis below {}", leaf_name("argument", path.as_str()), $all
                );
                let mut shape = array.shape().to_vec();
                shape.remove(axis);
                let example = AnyArray::absent(shape, array.dtype());
                leaves.push(MappedLeaf::new(path, array, Some(axis)));
                Array::from_any(example).expect("kind stays, and one axis goes")
            }
        }
    )*};
}
arrays!(1 2, 2 3, 3 4, 4 5, 5 6);

/// Each example has its own key.
impl<B: Backend> Mapped<B> for Keys<B> {
    type Example = Key;

    #[track_caller]
    fn split(self, axis: usize, path: &mut Path, leaves: &mut Vec<MappedLeaf<B>>) -> Key {
        assert!(
            axis == 0,
            "the {} of a mapped function, random keys, has no axis {axis}",
            leaf_name("argument", path.as_str())
        );
        let array = self.into_array().into_any();
        leaves.push(MappedLeaf { keys: true, ..MappedLeaf::new(path, array, Some(0)) });
        Key::stand_in()
    }
}

impl<B: Backend> Mapped<B> for () {
    type Example = ();

    fn split(self, _: usize, _: &mut Path, _: &mut Vec<MappedLeaf<B>>) {}
}

macro_rules! tuples {
    ($($T:ident $i:tt),*) => {
        impl<BB: Backend, $($T: Mapped<BB>),*> Mapped<BB> for ($($T,)*) {
            type Example = ($($T::Example,)*);

            #[track_caller]
            fn split(self, axis: usize, path: &mut Path, leaves: &mut Vec<MappedLeaf<BB>>) -> Self::Example {
                ($(path.within_index($i, |path| self.$i.split(axis, path, leaves)),)*)
            }
        }
    };
}
tuples!(T0 0);
tuples!(T0 0, T1 1);
tuples!(T0 0, T1 1, T2 2);
tuples!(T0 0, T1 1, T2 2, T3 3);

impl<B: Backend, T: Mapped<B>> Mapped<B> for Vec<T> {
    type Example = Vec<T::Example>;

    fn split(self, axis: usize, path: &mut Path, leaves: &mut Vec<MappedLeaf<B>>) -> Self::Example {
        let element = |(i, x): (usize, T)| path.within_index(i, |path| x.split(axis, path, leaves));
        self.into_iter().enumerate().map(element).collect()
    }
}

impl<B: Backend, T: Mapped<B>, const N: usize> Mapped<B> for [T; N] {
    type Example = [T::Example; N];

    fn split(self, axis: usize, path: &mut Path, leaves: &mut Vec<MappedLeaf<B>>) -> Self::Example {
        let mut i = 0..;
        self.map(|x| path.within_index(i.next().unwrap_or_default(), |path| x.split(axis, path, leaves)))
    }
}

impl<B: Backend, T: Mapped<B>> Mapped<B> for Option<T> {
    type Example = Option<T::Example>;

    fn split(self, axis: usize, path: &mut Path, leaves: &mut Vec<MappedLeaf<B>>) -> Self::Example {
        self.map(|x| x.split(axis, path, leaves))
    }
}
