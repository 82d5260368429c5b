//! Trees of single steps, and their stacked counterparts with a new first axis.

mod impls;
mod leaf;
mod stacked;

use grove_backend::Backend;
use grove_tree::{AnyArray, Path, Tree};

pub(crate) use leaf::{join_rows, rows, stack_rows, zero_rows};
pub use stacked::Stacked;

/// A tree of one step. Several such trees, stacked along a new first axis, form one [`Stacked`](Self::Stacked) tree.
///
/// `Array<B, D, K>` stacks to `Array<B, D + 1, K>` (`D` up to 5). Tuples, arrays, vectors and options stack element by
/// element, `Key` stacks to `Keys`, and `()` to itself. A custom struct implements the trait by delegating to a tuple
/// of its fields. [`Stacked`] stacks any tree.
///
/// ```
/// use burn::tensor::Tensor;
/// use grove_transform::{stack, unstack};
/// use grove_tree::Array;
/// # type B = burn_flex::Flex;
/// let step = |x: f32| (Array::<B, 1>::new(Tensor::from_floats([x, -x], &Default::default())), ());
/// let stacked = stack(vec![step(1.0), step(2.0), step(3.0)]);
/// assert_eq!(stacked.0.shape(), [3, 2]);
/// assert_eq!(unstack(stacked)[2].0.val().to_data().to_vec::<f32>().unwrap(), [3.0, -3.0]);
/// ```
pub trait Stack<B: Backend>: Tree<B> {
    /// The stacked tree.
    type Stacked: Unstack<B, Step = Self>;

    /// Stacks one or more steps. `path` is the position of the tree in a larger tree. Call [`stack`] instead.
    ///
    /// # Panics
    /// If the steps differ in structure, shapes or dtypes, or in which leaves are present.
    fn stack(steps: Vec<Self>, path: &mut Path) -> Self::Stacked;
}

/// A tree whose leaves have the steps along their first axis: the inverse of [`Stack`].
pub trait Unstack<B: Backend>: Tree<B> {
    /// The tree of one step.
    type Step: Stack<B, Stacked = Self>;

    /// Splits the tree into its `steps` steps. Call [`unstack`] instead.
    fn unstack(self, steps: usize) -> Vec<Self::Step>;
}

/// Stacks the leaves of trees with the same structure along a new first axis. A leaf that is absent in every tree is
/// absent in the result.
///
/// # Shapes
/// - leaf of a step `[…]`
/// - leaf of the result `[steps, …]`
///
/// # Panics
/// If `steps` is empty, or the steps differ in structure, shapes or dtypes, or in which leaves are present.
#[track_caller]
pub fn stack<B: Backend, T: Stack<B>>(steps: Vec<T>) -> T::Stacked {
    assert!(!steps.is_empty(), "there is nothing to stack: the shapes of zero steps are unknown");
    T::stack(steps, &mut Path::root())
}

/// Splits a stacked tree into its steps: the inverse of [`stack`].
///
/// # Gradients
/// In Burn, the gradient of a slice has the size of the whole array: `t` slices of an array of `n` elements would cost
/// `t * n` in the backward pass. Floating-point leaves are therefore split by an operation of grove, whose gradient is
/// one pass over `n` elements. Time of the backward pass for an array `[t, 32, 256]` in seconds, measured on flex with
/// two cores busy with other work:
///
/// | t | slices | `unstack` |
/// |---|---|---|
/// | 50 | 0.15 | 0.002 |
/// | 500 | 18 | 0.04 |
/// | 2000 | 487 | 0.19 |
///
/// # Panics
/// If the leaves differ in the number of steps, or the tree has no leaves.
#[track_caller]
pub fn unstack<B: Backend, S: Unstack<B>>(stacked: S) -> Vec<S::Step> {
    let steps =
        stacked_len(&stacked).expect("a tree without leaves cannot be unstacked: the number of steps is unknown");
    stacked.unstack(steps)
}

/// Returns the number of steps of a stacked tree: the common size of the first axes of its leaves, absent leaves
/// included. `None` for a tree without leaves.
///
/// # Panics
/// If the sizes of the first axes differ.
#[track_caller]
pub fn stacked_len<B: Backend, S: Tree<B>>(stacked: &S) -> Option<usize> {
    let mut first: Option<(usize, String)> = None;
    let mut disagreement = None;
    stacked.visit(&mut Path::root(), &mut |path: &Path, leaf: &AnyArray<B>| {
        let steps = leaf.shape()[0];
        match &first {
            None => first = Some((steps, path.to_string())),
            Some((len, name)) if *len != steps && disagreement.is_none() => {
                disagreement = Some(format!(
                    "the leaf `{path}`, {leaf}, holds {steps} steps along its first axis, and the leaf `{name}` holds \
                     {len}: the numbers must be equal"
                ));
            }
            Some(_) => {}
        }
    });
    if let Some(message) = disagreement {
        panic!("{message}");
    }
    first.map(|(steps, _)| steps)
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Bool, Int, Tensor};
    use burn_flex::Flex;
    use grove_tree::{Array, all_close, display, eq};

    type B = Flex;

    fn array(x: [f32; 2]) -> Array<B, 1> {
        Array::new(Tensor::from_floats(x, &Default::default()))
    }

    #[test]
    #[allow(clippy::type_complexity)]
    fn containers_and_kinds_come_back_as_they_were() {
        type Tree =
            ((Array<B, 1>, Array<B, 1, Int>, (), Array<B, 2, Bool>), Vec<[Array<B, 1>; 2]>, Option<Array<B, 5>>);
        let step = |i: i32| -> Tree {
            let ints = Tensor::from_ints([i, 2 * i, 3 * i], &Default::default());
            let bools = Tensor::from_bool([[i > 1, true]].into(), &Default::default());
            let x = array([i as f32, 0.5]);
            let deep = Array::new(x.val().reshape([1, 1, 2, 1, 1]));
            let pair = [x.clone(), Array::new(x.val() * 2.0)];
            ((x, Array::new(ints), (), Array::new(bools)), vec![pair.clone(), pair], Some(deep))
        };
        let steps: Vec<Tree> = (0..5).map(step).collect();
        let stacked = stack(steps.clone());
        assert_eq!(
            display(&stacked),
            "(
  (f32[5,2], i32[5,3], (), bool[5,1,2]),
  [[f32[5,2], f32[5,2]], [f32[5,2], f32[5,2]]],
  f32[5,1,1,2,1,1],
)"
        );
        assert_eq!(stacked_len(&stacked), Some(5));
        for (back, step) in unstack(stacked).iter().zip(&steps) {
            assert!(eq(back, step));
        }
    }

    #[test]
    fn absent_leaves_stay_absent() {
        let stacked = stack(vec![(Array::<B, 1>::absent([3]), None::<Array<B, 1>>); 4]);
        assert!(!stacked.0.is_present() && stacked.1.is_none());
        assert_eq!((stacked.0.shape(), stacked_len(&stacked)), ([4, 3], Some(4)));
        assert_eq!(unstack(stacked)[3].0.shape(), [3]);
        assert_eq!(stacked_len::<B, _>(&((), 3_usize)), None);
    }

    #[test]
    fn the_gradient_of_unstacking_is_stacking() {
        for steps in [1, 2, 3, 7, 8, 13] {
            let weights = Tensor::<B, 1, Int>::arange(0..steps as i64 * 2, &Default::default()).float();
            let weights = Array::<B, 2>::new(weights.reshape([steps, 2]));
            let grad = crate::grad(&weights, |xs| {
                let rows = unstack(xs).into_iter().zip(unstack(weights.clone()));
                // The last row does not contribute to the loss, so its gradient is zero.
                let terms = rows.take(steps.max(2) - 1).map(|(x, w)| (x.val() * Tensor::from_inner(w.val())).sum());
                terms.reduce(|sum, term| sum + term).expect("a step")
            });
            let mask = Tensor::<B, 2>::ones([steps, 2], &Default::default());
            let mask = if steps > 1 { mask.slice_fill([steps - 1..steps, 0..2], 0.0) } else { mask };
            assert!(all_close(&grad, &Array::new(weights.val() * mask), 0.0, 0.0));
        }
    }

    #[test]
    #[should_panic(expected = "the leaf `1.0`, f32[3,2], holds 3 steps along its first axis, and the leaf `0` holds 2")]
    fn rejects_different_lengths() {
        let xs = |steps| stack(vec![array([1.0, 2.0]); steps]);
        unstack((xs(2), (xs(3), xs(4))));
    }

    #[test]
    #[should_panic(expected = "the leaf `0.1` is f32[2] in the first step and f32[1] in step 1")]
    fn rejects_different_shapes() {
        let step = |n| [((), Array::<B, 1>::absent([n]))];
        stack(vec![step(2), step(1)]);
    }

    #[test]
    #[should_panic(expected = "the sequence `0` has 1 elements in the first step and 2 in step 1")]
    fn rejects_different_structures() {
        stack(vec![(vec![array([0.0; 2])],), (vec![array([0.0; 2]); 2],)]);
    }

    #[test]
    #[should_panic(expected = "there is nothing to stack")]
    fn nothing_cannot_be_stacked() {
        stack(Vec::<Array<B, 1>>::new());
    }
}
