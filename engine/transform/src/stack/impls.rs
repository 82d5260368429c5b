use grove_backend::Backend;
use grove_tree::{AnyArray, Array, Key, Keys, Kind, Path, leaf_name};

use super::{
    Stack, Unstack,
    leaf::{stack_any, stack_leaf, unstack_leaf, unstack_leaves},
};

/// One implementation per rank: Rust cannot compute `D + 1` in a type.
macro_rules! arrays {
    ($($step:literal $stacked:literal),*) => {$(
        impl<B: Backend, K: Kind> Stack<B> for Array<B, $step, K> {
            type Stacked = Array<B, $stacked, K>;

            fn stack(steps: Vec<Self>, path: &mut Path) -> Self::Stacked {
                stack_leaf(steps, path)
            }
        }

        impl<B: Backend, K: Kind> Unstack<B> for Array<B, $stacked, K> {
            type Step = Array<B, $step, K>;

            fn unstack(self, steps: usize) -> Vec<Self::Step> {
                unstack_leaf(self, steps)
            }
        }
    )*};
}
arrays!(1 2, 2 3, 3 4, 4 5, 5 6);

/// Leaves of any rank.
impl<B: Backend> Stack<B> for AnyArray<B> {
    type Stacked = Self;

    fn stack(steps: Vec<Self>, path: &mut Path) -> Self {
        stack_any(steps, path)
    }
}

impl<B: Backend> Unstack<B> for AnyArray<B> {
    type Step = Self;

    fn unstack(self, steps: usize) -> Vec<Self> {
        unstack_leaves(self, steps)
    }
}

impl<B: Backend> Stack<B> for Key {
    type Stacked = Keys<B>;

    /// Stacks on the default device.
    fn stack(steps: Vec<Self>, _: &mut Path) -> Keys<B> {
        Keys::new(&steps, &Default::default())
    }
}

impl<B: Backend> Unstack<B> for Keys<B> {
    type Step = Key;

    fn unstack(self, _: usize) -> Vec<Key> {
        self.to_vec()
    }
}

impl<B: Backend> Stack<B> for () {
    type Stacked = ();

    fn stack(_: Vec<()>, _: &mut Path) {}
}

impl<B: Backend> Unstack<B> for () {
    type Step = ();

    fn unstack(self, steps: usize) -> Vec<()> {
        vec![(); steps]
    }
}

macro_rules! tuples {
    ($($T:ident $i:tt),*) => {
        impl<BB: Backend, $($T: Stack<BB>),*> Stack<BB> for ($($T,)*) {
            type Stacked = ($($T::Stacked,)*);

            fn stack(steps: Vec<Self>, path: &mut Path) -> Self::Stacked {
                let mut columns = ($(Vec::<$T>::with_capacity(steps.len()),)*);
                for step in steps {
                    $(columns.$i.push(step.$i);)*
                }
                ($(path.within_index($i, |path| $T::stack(columns.$i, path)),)*)
            }
        }

        impl<BB: Backend, $($T: Unstack<BB>),*> Unstack<BB> for ($($T,)*) {
            type Step = ($($T::Step,)*);

            fn unstack(self, steps: usize) -> Vec<Self::Step> {
                let mut columns = ($(self.$i.unstack(steps).into_iter(),)*);
                std::iter::from_fn(|| Some(($(columns.$i.next()?,)*))).collect()
            }
        }
    };
}
tuples!(T0 0);
tuples!(T0 0, T1 1);
tuples!(T0 0, T1 1, T2 2);
tuples!(T0 0, T1 1, T2 2, T3 3);

/// Stacks the first elements of all sequences, then the second elements, and so on.
fn stack_sequences<B: Backend, T: Stack<B>>(steps: Vec<Vec<T>>, path: &mut Path) -> Vec<T::Stacked> {
    let len = steps[0].len();
    for (i, step) in steps.iter().enumerate() {
        assert!(
            step.len() == len,
            "the {} has {len} elements in the first step and {} in step {i}",
            leaf_name("sequence", path.as_str()),
            step.len()
        );
    }
    let mut steps: Vec<_> = steps.into_iter().map(Vec::into_iter).collect();
    let mut column = |path: &mut Path| T::stack(steps.iter_mut().filter_map(Iterator::next).collect(), path);
    (0..len).map(|i| path.within_index(i, &mut column)).collect()
}

/// Reverses [`stack_sequences`].
fn unstack_sequence<B: Backend, S: Unstack<B>>(sequence: Vec<S>, steps: usize) -> Vec<Vec<S::Step>> {
    let mut columns: Vec<_> = sequence.into_iter().map(|tree| tree.unstack(steps).into_iter()).collect();
    (0..steps).map(|_| columns.iter_mut().filter_map(Iterator::next).collect()).collect()
}

impl<B: Backend, T: Stack<B>> Stack<B> for Vec<T> {
    type Stacked = Vec<T::Stacked>;

    fn stack(steps: Vec<Self>, path: &mut Path) -> Self::Stacked {
        stack_sequences(steps, path)
    }
}

impl<B: Backend, S: Unstack<B>> Unstack<B> for Vec<S> {
    type Step = Vec<S::Step>;

    fn unstack(self, steps: usize) -> Vec<Self::Step> {
        unstack_sequence(self, steps)
    }
}

/// Converts the elements of an array back into an array of the same length.
fn into_array<T, const N: usize>(elements: Vec<T>) -> [T; N] {
    elements.try_into().unwrap_or_else(|elements: Vec<T>| panic!("expected {N} elements, found {}", elements.len()))
}

impl<B: Backend, T: Stack<B>, const N: usize> Stack<B> for [T; N] {
    type Stacked = [T::Stacked; N];

    fn stack(steps: Vec<Self>, path: &mut Path) -> Self::Stacked {
        into_array(stack_sequences(steps.into_iter().map(Vec::from).collect(), path))
    }
}

impl<B: Backend, S: Unstack<B>, const N: usize> Unstack<B> for [S; N] {
    type Step = [S::Step; N];

    fn unstack(self, steps: usize) -> Vec<Self::Step> {
        unstack_sequence(Vec::from(self), steps).into_iter().map(into_array).collect()
    }
}

impl<B: Backend, T: Stack<B>> Stack<B> for Option<T> {
    type Stacked = Option<T::Stacked>;

    fn stack(steps: Vec<Self>, path: &mut Path) -> Self::Stacked {
        let count = steps.len();
        let steps: Vec<T> = steps.into_iter().flatten().collect();
        assert!(
            steps.is_empty() || steps.len() == count,
            "the {} is `Some` in {} of {count} steps: it must be `Some` in all of them or in none",
            leaf_name("option", path.as_str()),
            steps.len()
        );
        (!steps.is_empty()).then(|| T::stack(steps, path))
    }
}

impl<B: Backend, S: Unstack<B>> Unstack<B> for Option<S> {
    type Step = Option<S::Step>;

    fn unstack(self, steps: usize) -> Vec<Self::Step> {
        match self {
            Some(tree) => tree.unstack(steps).into_iter().map(Some).collect(),
            None => (0..steps).map(|_| None).collect(),
        }
    }
}
