//! Loops over trees, as `jax.lax.scan`.

mod remat;
mod replay;

use grove_backend::Backend;
use grove_tree::{Tree, map};

use crate::stack::{Stack, Unstack, join_rows, rows, stack, stacked_len, zero_rows};

pub use remat::RematScan;

/// Scans a function over the leading axis of a tree while passing on a carry: `jax.lax.scan`.
///
/// `f` receives the carry and one step of `xs`, and returns the next carry and one step of `ys`. The result is the last
/// carry and the stacked `ys`. [`Scan`] has options, and [`Scan::run`] documents the case of zero steps.
///
/// Under [`value_and_grad`](crate::value_and_grad), the residuals of all steps are stored for the backward pass.
/// [`Scan::remat`] stores fewer and computes the steps twice.
///
/// Source: <https://docs.jax.dev/en/latest/_autosummary/jax.lax.scan.html>
///
/// # Shapes
/// - leaf of `xs` `[t, …]`; leaf of one step of `xs` `[…]`
/// - leaf of one step of `ys` `[…]`; leaf of the stacked `ys` `[t, …]`
///
/// # Panics
/// If the leaves of `xs` differ in the number of steps, if `xs` has no leaves, or if the `ys` of two steps cannot be
/// [stacked](stack).
///
/// ```
/// use burn::tensor::Tensor;
/// use grove_transform::scan;
/// use grove_tree::Array;
/// # type B = burn_flex::Flex;
/// let xs = Array::<B, 2>::new(Tensor::from_floats([[1.0], [2.0], [3.0]], &Default::default()));
/// let zero = Array::<B, 1>::new(Tensor::zeros([1], &Default::default()));
/// let (sum, sums) = scan(
///     |sum: Array<B, 1>, x| {
///         let sum = Array::<B, 1>::new(sum.val() + x.val());
///         (sum.clone(), sum)
///     },
///     zero,
///     xs,
/// );
/// assert_eq!(sum.val().into_scalar(), 6.0);
/// assert_eq!(sums.val().to_data().to_vec::<f32>().unwrap(), [1.0, 3.0, 6.0]);
/// ```
pub fn scan<B, C, X, Y>(f: impl FnMut(C, X::Step) -> (C, Y), init: C, xs: X) -> (C, Y::Stacked)
where
    B: Backend,
    C: Clone,
    X: Unstack<B>,
    Y: Stack<B>,
{
    Scan::new().run(f, init, xs)
}

/// Maximum number of steps that are unstacked at once: the handles of small arrays take more memory than their values.
const AT_ONCE: usize = 1 << 10;

/// Options of [`scan`].
///
/// ```
/// use burn::tensor::Tensor;
/// use grove_transform::Scan;
/// use grove_tree::Array;
/// # type B = burn_flex::Flex;
/// // Powers of two, the largest first: `xs` has no leaves, so the number of steps must be set.
/// let one = Array::<B, 1>::new(Tensor::ones([1], &Default::default()));
/// let double = |x: Array<B, 1>, ()| (Array::new(x.val() * 2.0), x);
/// let (last, powers) = Scan::new().reverse().length(4).run(double, one, ());
/// assert_eq!(last.val().into_scalar(), 16.0);
/// assert_eq!(powers.val().to_data().to_vec::<f32>().unwrap(), [8.0, 4.0, 2.0, 1.0]);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Scan {
    reverse: bool,
    length: Option<usize>,
}

impl Scan {
    /// Creates a scan from the first step of `xs` to the last.
    pub fn new() -> Self {
        Self::default()
    }

    /// Scans from the last step of `xs` to the first. The `ys` are in the order of the `xs`.
    pub fn reverse(self) -> Self {
        Self { reverse: true, ..self }
    }

    /// Sets the number of steps. Required if `xs` has no leaves; otherwise it must equal the number of steps in `xs`.
    pub fn length(self, steps: usize) -> Self {
        Self { length: Some(steps), ..self }
    }

    /// Converts to a scan whose backward pass stores few carries and recomputes the steps.
    pub fn remat(self) -> RematScan {
        RematScan::new(self)
    }

    /// Runs the scan; see [`scan`].
    ///
    /// With zero steps, the result is `init` and `ys` whose leaves have no rows. As in JAX, `f` is called once to
    /// determine their shapes, with zeros for a step of `xs`, and the result is discarded.
    ///
    /// # Panics
    /// Same as [`scan`], and if [`length`](Self::length) does not match `xs`.
    #[track_caller]
    pub fn run<B, C, X, Y>(self, mut f: impl FnMut(C, X::Step) -> (C, Y), init: C, xs: X) -> (C, Y::Stacked)
    where
        B: Backend,
        C: Clone,
        X: Unstack<B>,
        Y: Stack<B>,
    {
        let steps = self.steps(&xs);
        if steps == 0 {
            let ys = no_steps(|x| f(init.clone(), x).1, xs);
            return (init, ys);
        }
        let (mut carry, mut parts) = (init, Vec::new());
        let mut part = |xs: X, count, mut carry| {
            let mut ys = Vec::with_capacity(count);
            for x in self.in_order(xs.unstack(count)) {
                let (next, y) = f(carry, x);
                carry = next;
                ys.push(y);
            }
            (carry, stack(self.in_order(ys)))
        };
        // Under autodiff, the gradient of each slice of rows would have the size of the whole array.
        if steps <= AT_ONCE || B::ad_enabled(&Default::default()) {
            return part(xs, steps, carry);
        }
        for done in (0..steps).step_by(AT_ONCE) {
            let count = AT_ONCE.min(steps - done);
            let first = if self.reverse { steps - done - count } else { done };
            let some = map(xs.clone(), |leaf| rows(leaf, first..first + count));
            let (next, ys) = part(some, count, carry);
            carry = next;
            parts.push(ys);
        }
        (carry, join_rows(self.in_order(parts)))
    }

    /// Returns true if the scan starts with the last step of `xs`.
    pub fn is_reverse(self) -> bool {
        self.reverse
    }

    /// Returns the number of steps of a scan over `xs`.
    ///
    /// # Panics
    /// If `xs` has no leaves and no [`length`](Self::length) is set, or if the two disagree.
    #[track_caller]
    pub fn steps<B: Backend, X: Tree<B>>(self, xs: &X) -> usize {
        match (stacked_len(xs), self.length) {
            (Some(steps), Some(length)) if steps != length => {
                panic!("`length({length})` does not match the leaves of `xs`, which have {steps} steps")
            }
            (Some(steps), _) | (None, Some(steps)) => steps,
            (None, None) => {
                panic!("`xs` has no leaves, so the number of steps is unknown: set it with `Scan::new().length(n)`")
            }
        }
    }

    /// Converts from the order of `xs` to the order of execution, or back.
    fn in_order<T>(self, mut steps: Vec<T>) -> Vec<T> {
        if self.reverse {
            steps.reverse();
        }
        steps
    }
}

/// Returns the `ys` of zero steps, with shapes from calling the function on zeros.
fn no_steps<B: Backend, X: Unstack<B>, Y: Stack<B>>(f: impl FnOnce(X::Step) -> Y, xs: X) -> Y::Stacked {
    let zeros = map(xs, |leaf| zero_rows(leaf, 1)).unstack(1).pop().expect("one step");
    map(stack(vec![f(zeros)]), |leaf| zero_rows(leaf, 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Int, Tensor};
    use burn_flex::Flex;
    use grove_tree::{Array, display};

    type B = Flex;

    fn array<const D: usize>(shape: [usize; D], x: &[f32]) -> Array<B, D> {
        Array::new(Tensor::<B, 1>::from_floats(x, &Default::default()).reshape(shape))
    }

    fn numbers<const D: usize>(leaf: &Array<B, D>) -> Vec<f32> {
        leaf.val().to_data().to_vec().expect("f32")
    }

    /// `c -> a c + x`, with the old carry as output.
    fn leaky<C: Backend>(a: Tensor<C, 1>) -> impl Fn(Array<C, 1>, Array<C, 1>) -> (Array<C, 1>, Array<C, 1>) {
        move |c, x| (Array::new(a.clone() * c.val() + x.val()), c)
    }

    #[test]
    fn both_directions() {
        let half = Tensor::from_floats([0.5], &Default::default());
        let xs = array([3, 1], &[1.0, 2.0, 4.0]);
        let (last, ys) = scan(leaky(half.clone()), array([1], &[8.0]), xs.clone());
        assert_eq!((numbers(&last), numbers(&ys)), (vec![6.25], vec![8.0, 5.0, 4.5]));
        let (last, ys) = Scan::new().reverse().length(3).run(leaky(half.clone()), array([1], &[8.0]), xs);
        assert_eq!((numbers(&last), numbers(&ys)), (vec![4.0], vec![6.0, 8.0, 8.0]));
        let (last, ys) = scan(leaky(half), array([1], &[8.0]), array([1, 1], &[1.0]));
        assert_eq!((numbers(&last), numbers(&ys)), (vec![5.0], vec![8.0]));
    }

    /// More steps than `AT_ONCE`, with a short last part.
    #[test]
    fn many_steps() {
        let steps = 2 * AT_ONCE + 3;
        let xs: Vec<f32> = (0..steps).map(|i| (i % 7) as f32).collect();
        for scan in [Scan::new(), Scan::new().reverse()] {
            let sum = |sum: Array<B, 1>, (x, absent): (Array<B, 1>, Array<B, 1>)| {
                let sum = Array::<B, 1>::new(sum.val() + x.val());
                (sum.clone(), (sum, absent))
            };
            let absent = Array::<B, 2>::absent([steps, 4]);
            let (last, (sums, absent)) = scan.run(sum, array([1], &[0.0]), (array([steps, 1], &xs), absent));
            let mut expected: Vec<f32> = scan.in_order(xs.clone());
            for i in 1..steps {
                expected[i] += expected[i - 1];
            }
            assert_eq!(numbers(&last), [expected[steps - 1]]);
            assert_eq!(numbers(&sums), scan.in_order(expected));
            assert_eq!((absent.shape(), absent.is_present()), ([steps, 4], false));
        }
    }

    #[test]
    fn nested_trees_and_a_carry_that_is_not_a_tree() {
        let xs = (array([2, 2], &[1.0, 2.0, 3.0, 4.0]), [array([2, 1], &[5.0, 6.0])]);
        let f = |seen: Vec<f32>, (x, [y]): (Array<B, 1>, [Array<B, 1>; 1])| {
            let sum = x.val().sum() + y.val();
            ([seen, vec![sum.clone().into_scalar()]].concat(), (Some(Array::<B, 1>::new(sum)), ()))
        };
        let (seen, (sums, ())) = scan(f, Vec::new(), xs);
        assert_eq!((seen, sums.map(|sums| numbers(&sums))), (vec![8.0, 13.0], Some(vec![8.0, 13.0])));
    }

    #[test]
    fn no_steps() {
        let mut calls = 0;
        let mut f = |c: Array<B, 1>, x: Array<B, 2, Int>| {
            calls += 1;
            assert_eq!(x.val().sum().into_scalar(), 0);
            (c.clone(), (c, x))
        };
        let xs = Array::<B, 3, Int>::new(Tensor::empty([0, 4, 3], &Default::default()));
        let (last, ys) = scan(&mut f, array([1], &[8.0]), xs);
        assert_eq!((numbers(&last), display(&ys).as_str()), (vec![8.0], "(f32[0,1], i32[0,4,3])"));
        let (last, ys) = Scan::new().length(0).run(|c, ()| (c, array([2], &[1.0, 2.0])), 3, ());
        assert_eq!((last, calls, ys.shape()), (3, 1, [0, 2]));
    }

    #[test]
    fn gradients_come_from_the_tape() {
        let inputs = (array([1], &[0.5]), array([1], &[8.0]), array([3, 1], &[1.0, 2.0, 4.0]));
        let (loss, (da, dc, dxs)) = crate::value_and_grad(&inputs, |(a, c, xs)| {
            let (last, ys) = scan(leaky(a.val()), c, xs);
            last.val() + ys.val().sum()
        });
        // The loss is a³c + a²x₀ + a x₁ + x₂ plus the carries before it. Derivatives by hand.
        assert_eq!(loss.into_scalar(), 6.25 + 17.5);
        assert_eq!(numbers(&da), [3.0 * 0.25 * 8.0 + 1.0 + 2.0 + 2.0 * 0.5 * 8.0 + 1.0 + 8.0]);
        assert_eq!((numbers(&dc), numbers(&dxs)), (vec![1.875], vec![1.75, 1.5, 1.0]));
    }

    #[test]
    #[should_panic(expected = "`length(2)` does not match the leaves of `xs`, which have 3 steps")]
    fn rejects_a_wrong_length() {
        Scan::new().length(2).run(|c, x: Array<B, 1>| (c, x), (), array([3, 1], &[1.0, 2.0, 4.0]));
    }

    #[test]
    #[should_panic(expected = "`xs` has no leaves")]
    fn rejects_an_unknown_length() {
        scan(|c, ()| (c, array([1], &[0.0])), (), ());
    }
}
