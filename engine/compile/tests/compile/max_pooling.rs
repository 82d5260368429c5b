//! Burn's max pooling with NaN, in every mode. The maximum of a window with NaN is NaN, as in PyTorch and JAX.

use burn::tensor::{
    Int, Tensor,
    module::{max_pool1d, max_pool1d_with_indices, max_pool2d, max_pool2d_with_indices},
};
use grove_backend::{Autodiff, Backend, Candle, Flex};
use grove_compile::{Traced, jit, jvp, linearize, vmap};
use grove_transform::grad;
use grove_tree::Array;

const NAN: f32 = f32::NAN;
const INF: f32 = f32::INFINITY;
/// Three windows of four elements.
const VALUES: [f32; 12] = [1.0, NAN, 5.0, NAN, 3.0, 4.0, 2.0, 8.0, INF, -INF, NAN, 7.0];
const MAXIMA: &str = "[NaN, 8.0, NaN]";
const INDICES: [i64; 3] = [1, 7, 10];

type Images<B> = Array<B, 4>;

fn images<B: Backend>() -> Images<B> {
    Array::new(Tensor::<B, 1>::from_floats(VALUES, &Default::default()).reshape([1, 1, 1, 12]))
}

fn pool<B: Backend>(x: Images<B>) -> Images<B> {
    Array::new(max_pool2d(x.val(), [1, 4], [1, 4], [0, 0], [1, 1], false))
}

type WithIndices<B> = (Images<B>, Array<B, 4, Int>);

fn pool_with_indices<B: Backend>(x: Images<B>) -> WithIndices<B> {
    let (y, indices) = max_pool2d_with_indices(x.val(), [1, 4], [1, 4], [0, 0], [1, 1], false);
    (Array::new(y), Array::new(indices))
}

/// Sum of the maxima with the factors 1, 2 and 3.
fn loss<B: Backend>(x: Images<B>) -> Tensor<B, 1> {
    let y = pool(x).val();
    (y.clone() * Tensor::<B, 1>::from_floats([1.0, 2.0, 3.0], &y.device()).unsqueeze()).sum()
}

fn text<B: Backend, const D: usize>(x: &Array<B, D>) -> String {
    format!("{:?}", x.val().into_data().iter::<f32>().collect::<Vec<_>>())
}

fn list<B: Backend, const D: usize>(x: Tensor<B, D, Int>) -> Vec<i64> {
    x.into_data().iter::<i64>().collect()
}

/// Returns an array with values at [`INDICES`] and zeros elsewhere.
fn at_maxima(values: [f32; 3]) -> String {
    let mut all = [0.0; 12];
    INDICES.iter().zip(values).for_each(|(i, value)| all[*i as usize] = value);
    format!("{all:?}")
}

fn values_propagate_nan<B: Backend>() {
    assert_eq!(text(&jit(pool::<Traced>).call::<B>(images())), MAXIMA, "jit");
    let y = pool(Images::<Autodiff<B>>::new(Tensor::<Autodiff<B>, 4>::from_inner(images::<B>().val())));
    assert_eq!(text(&y), MAXIMA, "on the tape");
    let two = Array::<B, 5>::new(Tensor::stack(vec![images::<B>().val().neg(), images::<B>().val()], 0));
    let mapped = vmap(pool::<Traced>).call::<B, _>(two);
    assert_eq!(text(&mapped), "[NaN, -2.0, NaN, NaN, 8.0, NaN]", "vmap");
}

#[test]
fn values_propagate_nan_flex() {
    values_propagate_nan::<Flex>();
}

#[test]
fn values_propagate_nan_candle() {
    values_propagate_nan::<Candle>();
}

/// The first NaN of a window gets the gradient. On candle, Burn has neither indices nor derivatives.
#[test]
fn the_first_nan_is_the_maximum() {
    let (y, indices) = jit(pool_with_indices::<Traced>).call::<Flex>(images());
    assert_eq!((text(&y), list(indices.val())), (MAXIMA.to_owned(), INDICES.to_vec()), "jit");
    let on_tape = || Tensor::<Autodiff<Flex>, 4>::from_inner(images::<Flex>().val()).require_grad();
    let lifted = || Images::<Autodiff<Flex>>::new(on_tape());
    let (y, indices) = pool_with_indices(lifted());
    assert_eq!((text(&y), list(indices.val())), (MAXIMA.to_owned(), INDICES.to_vec()), "on the tape");
    assert_eq!(text(&pool(lifted())), MAXIMA, "on the tape");

    let expected = at_maxima([1.0, 2.0, 3.0]);
    assert_eq!(text(&grad(&images::<Flex>(), loss)), expected, "grad");
    assert_eq!(text(&jit(|x: Images<Traced>| grad(&x, loss)).call::<Flex>(images())), expected, "jit(grad)");
    let two = Array::<Flex, 5>::new(images::<Flex>().val().unsqueeze::<5>().repeat_dim(0, 2));
    let mapped = vmap(|x: Images<Traced>| grad(&x, loss)).call::<Flex, _>(two);
    let second = Array::<Flex, 4>::new(mapped.val().narrow(0, 1, 1).squeeze_dim(0));
    assert_eq!(text(&second), expected, "vmap(grad)");

    let along = || Images::<Flex>::new(Tensor::<Flex, 1, Int>::arange(0..12, &Default::default()).float().unsqueeze());
    let (y, tangent) = jvp(pool::<Traced>, &images::<Flex>(), &along());
    assert_eq!((text(&y).as_str(), text(&tangent).as_str()), (MAXIMA, "[1.0, 7.0, 10.0]"), "jvp");
    let (_, derivative) = linearize(pool::<Traced>, &images::<Flex>());
    assert_eq!(text(&derivative.call(&along())), "[1.0, 7.0, 10.0]", "linearize");
}

#[test]
fn sequences_propagate_nan_on_the_tape() {
    let x = Tensor::<Autodiff<Flex>, 3>::from_floats([[VALUES]], &Default::default());
    let (y, indices) = max_pool1d_with_indices(x.clone(), 4, 4, 0, 1, false);
    assert_eq!((text(&Array::new(y)), list(indices)), (MAXIMA.to_owned(), INDICES.to_vec()));
    assert_eq!(text(&Array::new(max_pool1d(x.clone(), 4, 4, 0, 1, false))), MAXIMA);
    let x = x.require_grad();
    let y = max_pool1d(x.clone(), 4, 4, 0, 1, false);
    assert_eq!(text(&Array::new(y.clone())), MAXIMA);
    let dx = x.grad(&y.sum().backward()).expect("a gradient");
    assert_eq!(text(&Array::new(dx)), at_maxima([1.0; 3]));
}
