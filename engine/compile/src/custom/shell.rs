//! Trees without their arrays, which can move between backends.

use grove_backend::{AnyTensor, Backend, ops::Spec};
use grove_tree::{AnyArray, Path, Tree};

use crate::{Traced, same_type::same_type, sub_graph::is_float, traced::Recording, words::leaf_name};

/// A tree without its arrays, from which the same tree can be built on any backend.
#[derive(Clone)]
pub(super) struct Shell<T> {
    tree: T,
    /// Path, type and presence of each leaf.
    pub leaves: Vec<(String, Spec, bool)>,
}

/// The arrays of a tree; `None` for an absent leaf.
pub(super) type Arrays<B> = Vec<Option<AnyTensor<B>>>;

impl<T: Tree<Traced> + 'static> Shell<T> {
    /// Takes the arrays out of a tree.
    pub(super) fn of<B: Backend, U: Tree<B> + 'static>(tree: U) -> (Self, Arrays<B>) {
        let (mut leaves, mut arrays) = (Vec::new(), Vec::new());
        let tree = tree.lift::<Traced>(&mut Path::root(), &mut |path, leaf| {
            let absent = AnyArray::absent(leaf.shape(), leaf.dtype());
            let spec = Spec { shape: leaf.shape().to_vec().into(), dtype: leaf.dtype() };
            leaves.push((path.to_string(), spec, leaf.is_present()));
            arrays.push(leaf.into_value());
            absent
        });
        (Self { tree: declared(tree), leaves }, arrays)
    }

    /// Fills the tree with arrays of a backend. Leaves without an array are absent.
    pub(super) fn filled<B: Backend, U: Tree<B> + 'static>(&self, arrays: Arrays<B>) -> U {
        let mut arrays = arrays.into_iter();
        let tree = self.tree.clone().lift::<B>(&mut Path::root(), &mut |_, leaf| {
            let absent = || AnyArray::absent(leaf.shape(), leaf.dtype());
            arrays.next().flatten().map_or_else(absent, AnyArray::present)
        });
        declared(tree)
    }

    /// Places values at the present leaves.
    pub(super) fn at_leaves<B: Backend>(&self, values: impl IntoIterator<Item = AnyTensor<B>>) -> Arrays<B> {
        let mut values = values.into_iter();
        self.leaves.iter().map(|(.., present)| if *present { values.next() } else { None }).collect()
    }

    /// Creates inputs of a trace for the present leaves.
    pub(super) fn arguments(&self, recording: &Recording) -> Arrays<Traced> {
        self.arguments_where(recording, |_| true)
    }

    /// Creates inputs of a trace for the present floating-point leaves.
    pub(super) fn float_arguments(&self, recording: &Recording) -> Arrays<Traced> {
        self.arguments_where(recording, is_float)
    }

    fn arguments_where(&self, recording: &Recording, is_wanted: impl Fn(&Spec) -> bool) -> Arrays<Traced> {
        let argument = |(path, spec, present): &(String, Spec, bool)| {
            (*present && is_wanted(spec)).then(|| recording.input(path.clone(), spec.clone()))
        };
        self.leaves.iter().map(argument).collect()
    }

    /// Returns an array for each present floating-point leaf: the given array, cast to the leaf's dtype, or zeros. Panics if
    /// the shape of a given array differs from the leaf; the message names the role of the array.
    #[track_caller]
    pub(super) fn complete<B: Backend>(&self, role: &str, given: Arrays<B>, device: &B::Device) -> Arrays<B> {
        let count = given.len();
        assert!(
            count == self.leaves.len(),
            "the {role} has {count} leaves instead of {}: return a tree with the structure of the one that it belongs \
             to",
            self.leaves.len()
        );
        let leaf = |((path, spec, present), x): (&(String, Spec, bool), Option<AnyTensor<B>>)| {
            if !*present || !spec.dtype.is_float() {
                return None;
            }
            let Some(x) = x else {
                return Some(AnyTensor::Float(B::float_zeros(spec.shape.clone(), device, spec.dtype.into())));
            };
            let shape = x.shape();
            assert!(
                shape == spec.shape && matches!(x, AnyTensor::Float(_)),
                "the {role} has shape {:?} at the {}; expected {:?}",
                &shape[..],
                leaf_name("leaf", path),
                &spec.shape[..]
            );
            Some(if x.dtype() == spec.dtype { x } else { x.cast_float(spec.dtype.into()) })
        };
        self.leaves.iter().zip(given).map(leaf).collect()
    }
}

/// Returns the arrays of a tree.
pub(super) fn arrays<B: Backend, T: Tree<B>>(tree: &T) -> Arrays<B> {
    let mut arrays = Vec::new();
    tree.visit(&mut Path::root(), &mut |_: &Path, leaf: &AnyArray<B>| arrays.push(leaf.value().cloned()));
    arrays
}

/// Converts a tree to the type that the function declares for the same backend.
fn declared<T: 'static, U: 'static>(tree: T) -> U {
    same_type(tree).unwrap_or_else(|_| {
        panic!(
            "`{}` is a tree that is `{}` on another backend: declare the types of a function with its own derivative \
             for every backend, as in `type Args<B: Backend> = (Array<B, 1>, Model<B>)`",
            std::any::type_name::<U>(),
            std::any::type_name::<T>()
        )
    })
}
