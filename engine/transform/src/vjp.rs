use grove_backend::{Autodiff, Backend};
use grove_tree::{Tree, device_of};

use crate::tape::{Column, Seeds, Tape, check_cotangent, column, from_inner, lower, track_params, typed};

/// Returns the value of a function of a tree and its pullback, the vector-Jacobian product: `jax.vjp`.
///
/// The function receives the tree on the autodiff backend and returns a tree. The pullback maps the gradient of a
/// scalar with respect to the result to its gradient with respect to the argument. The pullback keeps the tape alive
/// until it is called or dropped.
///
/// Gradients have the types of the corresponding trees. Integers, booleans, absent leaves and buffers
/// (`#[tree(buffer)]`, state such as running statistics) have absent gradients, as with
/// [`value_and_grad`](crate::value_and_grad). An absent gradient as input counts as zero.
///
/// Pullbacks compose with each other and with [`value_and_grad`](crate::value_and_grad): pass the gradient returned by
/// one to the next. [`RematScan`](crate::RematScan) is an application.
///
/// # Panics
/// The pullback panics if the paths and shapes of its argument differ from the value of the function.
///
/// ```
/// use burn::tensor::Tensor;
/// use grove_transform::vjp;
/// use grove_tree::Array;
/// # type B = burn_flex::Flex;
/// let array = |x: [f32; 2]| Array::<B, 1>::new(Tensor::from_floats(x, &Default::default()));
/// let (y, pullback) = vjp(&array([2.0, 3.0]), |x| Array::<_, 1>::new(x.val() * x.val()));
/// assert_eq!(y.val().to_data().to_vec::<f32>().unwrap(), [4.0, 9.0]);
/// let grad = pullback(array([1.0, 10.0]));
/// assert_eq!(grad.val().to_data().to_vec::<f32>().unwrap(), [4.0, 60.0]);
/// ```
pub fn vjp<B, T, O, F>(tree: &T, f: F) -> (O::On<B>, impl FnOnce(O::On<B>) -> T + use<B, T, O, F>)
where
    B: Backend,
    T: Tree<B>,
    O: Tree<Autodiff<B>>,
    F: FnOnce(T::On<Autodiff<B>>) -> O,
{
    let mut tape = Tape::new();
    let (lifted, leaves) = track_params(from_inner(tree.clone()), &mut tape);
    let result = f(lifted);
    let value = lower(result.clone());
    tape.on(device_of(&value));
    let shapes = grove_tree::skeleton(value.clone());
    let (tree, recorded) = (tree.clone(), Recorded { result: column(&result), leaves, tape });
    drop(result);
    let pullback = move |grad: O::On<B>| {
        check_cotangent("the result", &shapes, &grad);
        typed(tree, recorded.pull(column(&grad)))
    };
    (value, pullback)
}

/// Content of a pullback. Fields are dropped in this order: the tape, dropped last, frees all unreachable nodes.
struct Recorded<B: Backend> {
    result: Column<Autodiff<B>>,
    leaves: Column<Autodiff<B>>,
    tape: Tape<B>,
}

impl<B: Backend> Recorded<B> {
    fn pull(self, grad: Column<B>) -> Column<B> {
        let mut seeds = Seeds::new();
        for (result, grad) in self.result.into_iter().zip(grad) {
            seeds.add(result, grad);
        }
        self.tape.gradients(seeds.into_root(), vec![self.leaves]).pop().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Int, Tensor};
    use burn_flex::Flex;
    use grove_tree::{Array, skeleton};

    type B = Flex;

    fn array(x: f32) -> Array<B, 1> {
        Array::new(Tensor::from_floats([x], &Default::default()))
    }

    fn number(leaf: &Array<B, 1>) -> f32 {
        leaf.val().into_scalar()
    }

    #[test]
    fn several_results_and_no_gradients_for_integers() {
        let count = Array::<B, 1, Int>::new(Tensor::from_ints([3], &Default::default()));
        let tree = (array(2.0), array(5.0), count, Array::<B, 1>::absent([1]), array(7.0));
        let (result, pullback) = vjp(&tree, |(x, y, n, _, _)| {
            // The second result is the input itself; the third is a constant.
            (Array::<_, 1>::new(x.val() * y.val()), x.clone(), Array::<_, 1>::new(x.val().detach() * 0.0 + 1.0), n)
        });
        assert_eq!((number(&result.0), number(&result.1), number(&result.2)), (10.0, 2.0, 1.0));
        let n = skeleton(result.3.clone());
        let (x, y, n, absent, unused) = pullback((array(10.0), array(1.0), array(100.0), n));
        assert_eq!((number(&x), number(&y), number(&unused)), (51.0, 20.0, 0.0));
        assert!(!n.is_present() && !absent.is_present());
    }

    #[test]
    fn absent_gradients_count_as_zero() {
        let (result, pullback) = vjp(&array(2.0), |x| (Array::<_, 1>::new(x.val() * 3.0), x));
        assert_eq!(number(&pullback((skeleton(result.0), array(1.0)))), 1.0);
        let (result, pullback) = vjp(&array(2.0), |x| x);
        assert_eq!(number(&pullback(skeleton(result))), 0.0);
    }

    #[test]
    #[should_panic(expected = "the gradient of the result has the leaf `1`, f32[2], where the result has `1`, f32[1]")]
    fn gradients_have_the_shapes_of_the_result() {
        let (_, pullback) = vjp(&array(2.0), |x| (x.clone(), x));
        pullback((array(1.0), Array::absent([2])));
    }
}
