//! Derivatives of Burn's operations at ordinary and special arguments: reverse, forward and jitted mode against known values.

use burn::tensor::{DType, Int, Tensor, TensorData, activation};
use grove_backend::{Autodiff, Backend, Flex, InputPrecision, Quantization, ops};
use grove_compile::{Traced, cond, hessian, jacfwd, jit, jvp, stop_gradient, vmap};
use grove_transform::{grad, value_and_grad};
use grove_tree::Array;

type F = Flex;
type A1<B> = Array<B, 1>;

fn array<B: Backend>(values: &[f32]) -> A1<B> {
    Array::new(Tensor::from_floats(values, &Default::default()))
}

fn floats<B: Backend, const D: usize>(x: &Array<B, D>) -> Vec<f32> {
    x.val().into_data().iter::<f32>().collect()
}

fn close(what: &str, found: &[f32], expected: &[f32]) {
    let near = |(x, y): (&f32, &f32)| x == y || (x - y).abs() <= 2e-5 * y.abs().max(1.0);
    assert!(
        found.len() == expected.len() && found.iter().zip(expected).all(near),
        "{what}: {found:?}, and right is {expected:?}"
    );
}

/// Checks the sum of the results of a function of one array, and its gradient in reverse and forward mode and jitted.
macro_rules! check {
    ($what:expr, $f:expr, $x:expr, $value:expr, $gradient:expr) => {{
        fn f<B: Backend>(x: A1<B>) -> Tensor<B, 1> {
            let f: fn(Tensor<B, 1>) -> Tensor<B, 1> = $f;
            f(x.val()).sum()
        }
        let x = || array::<F>(&$x);
        let (value, gradient) = value_and_grad(&x(), f::<Autodiff<F>>);
        close(&format!("{}: value", $what), &floats(&A1::<F>::new(value)), &[$value]);
        close(&format!("{}: plain value", $what), &floats(&A1::<F>::new(f(x()))), &[$value]);
        close(&format!("{}: reverse mode", $what), &floats(&gradient), &$gradient);
        let jitted = jit(|x: A1<Traced>| grad(&x, f::<Autodiff<Traced>>)).call::<F>(x());
        close(&format!("{}: reverse mode, jitted", $what), &floats(&jitted), &$gradient);
        let forward = jacfwd(|x: A1<Traced>| A1::<Traced>::new(f(x)), &x()).array::<2>();
        close(&format!("{}: forward mode", $what), &floats(&forward), &$gradient);
    }};
}

#[test]
fn repetition() {
    check!(
        "repeat",
        |x| x.repeat(&[2]) * Tensor::from_floats([1.0, 10.0, 100.0, 1000.0], &Default::default()),
        [1.0, 2.0],
        2121.0,
        [101.0, 1010.0]
    );
}

#[test]
fn products() {
    check!("prod", |x| x.prod(), [1.0, -2.0, 3.0], -6.0, [-6.0, 3.0, -2.0]);
    check!("prod with a zero", |x| x.prod(), [2.0, 0.0, 3.0, 4.0], 0.0, [0.0, 24.0, 0.0, 0.0]);
    check!("prod with zeros", |x| x.prod(), [2.0, 0.0, 0.0, 4.0], 0.0, [0.0; 4]);
    check!(
        "prod_dim",
        |x| x.reshape([2, 3]).prod_dim(1).flatten(0, 1),
        [1.0, -2.0, 3.0, 5.0, 0.0, 6.0],
        -6.0,
        [-6.0, 3.0, -2.0, 0.0, 30.0, 0.0]
    );
    // 2 + 0 + 0 + 0: the second factor is part of three products, with the cofactors 2, -6 and 12.
    check!("cumprod", |x| x.cumprod(0), [2.0, 0.0, -3.0, -2.0], 2.0, [1.0, 8.0, 0.0, 0.0]);
    let hessian = hessian(|x: A1<_>| x.val().prod(), &array::<F>(&[2.0, 0.0, 3.0])).array::<2>();
    close("hessian of prod", &floats(&hessian), &[0.0, 3.0, 0.0, 3.0, 0.0, 2.0, 0.0, 2.0, 0.0]);
    let hessian =
        grove_compile::hessian(|x: A1<_>| x.val().cumprod(0).sum(), &array::<F>(&[2.0, 0.0, 3.0])).array::<2>();
    close("hessian of cumprod", &floats(&hessian), &[0.0, 4.0, 0.0, 4.0, 0.0, 2.0, 0.0, 2.0, 0.0]);
}

#[test]
fn powers() {
    fn powers<B: Backend, const N: usize>(x: Tensor<B, 1>, exponents: [f32; N]) -> Tensor<B, 1> {
        let exponents = Tensor::from_floats(exponents, &x.device());
        x.powf(exponents)
    }
    check!("powf", |x| powers(x, [0.0, 0.0, 1.0]), [10.0, 0.0, 0.0], 2.0, [0.0, 0.0, 1.0]);
    check!("polynomial", |x| powers(x.expand([3]), [0.0, 1.0, 2.0]), [0.0], 1.0, [1.0]);
    check!("negative base", |x| powers(x, [2.0, 3.0]), [-2.0, -3.0], -23.0, [-4.0, 27.0]);
    // A power of 0 does not depend on its exponent.
    check!(
        "exponent",
        |p| Tensor::from_floats([0.0, 1.0, 2.0], &p.device()).powf(p),
        [2.0, 2.0, 2.0],
        5.0,
        [0.0, 0.0, 4.0 * std::f32::consts::LN_2]
    );
    check!("both", |x| x.clone().powf(x), [2.0], 4.0, [4.0 + 4.0 * std::f32::consts::LN_2]);
    check!(
        "broadcast",
        |x| x.reshape([2, 1]).powf(Tensor::from_floats([[1.0, 2.0, 0.0]], &Default::default())).flatten(0, 1),
        [3.0, 0.0],
        14.0,
        [7.0, 1.0]
    );
}

#[test]
fn ties() {
    check!("max", |x| x.max(), [1.0, 3.0, 3.0, 2.0], 3.0, [0.0, 0.5, 0.5, 0.0]);
    check!("min", |x| x.min(), [4.0, 3.0, 3.0, 3.0], 3.0, [0.0, 1.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0]);
    check!("max_abs", |x| x.max_abs(), [1.0, -3.0, 3.0, 2.0], 3.0, [0.0, -0.5, 0.5, 0.0]);
    check!("max_dim", |x| x.reshape([2, 2]).max_dim(1).flatten(0, 1), [1.0, 1.0, 3.0, 2.0], 4.0, [0.5, 0.5, 1.0, 0.0]);
    check!(
        "cummax",
        |x| x.cummax(0) * Tensor::from_floats([1.0, 10.0, 100.0, 1000.0], &Default::default()),
        [2.0, 2.0, 1.0, 3.0],
        3222.0,
        [1.0, 110.0, 0.0, 1000.0]
    );
    check!(
        "cummin",
        |x| x.cummin(0) * Tensor::from_floats([1.0, 10.0, 100.0], &Default::default()),
        [2.0, 3.0, 2.0],
        222.0,
        [11.0, 0.0, 100.0]
    );
    check!("min_dim", |x| x.reshape([2, 2]).min_dim(0).flatten(0, 1), [1.0, 1.0, 3.0, 1.0], 2.0, [1.0, 0.5, 0.0, 0.5]);
}

#[test]
fn largest_elements_and_order() {
    let weigh = |x: &[f32]| -> f32 { x.iter().zip([1.0, 10.0, 100.0]).map(|(x, w)| x * w).sum() };
    assert_eq!(weigh(&[3.0, 2.0]), 23.0);
    check!(
        "topk",
        |x| x.topk(2, 0) * Tensor::from_floats([1.0, 10.0], &Default::default()),
        [1.0, 3.0, 2.0],
        23.0,
        [0.0, 1.0, 10.0]
    );
    // Elements that were not selected yet come before those already selected.
    check!(
        "topk of infinities",
        |x| x.topk(2, 0).exp(),
        [f32::NEG_INFINITY, 0.0, f32::NEG_INFINITY],
        1.0,
        [0.0, 1.0, 0.0]
    );
    let x = || array::<F>(&[f32::NEG_INFINITY, 3.0, f32::NEG_INFINITY, f32::NEG_INFINITY]);
    let tangent = array::<F>(&[1.0, 10.0, 100.0, 1000.0]);
    let (_, tangent) = jvp(|x: A1<Traced>| A1::<Traced>::new(x.val().topk(3, 0)), &x(), &tangent);
    close("tangents of topk", &floats(&tangent), &[10.0, 1.0, 100.0]);

    fn sorted<B: Backend>(x: A1<B>) -> Tensor<B, 1> {
        (x.val().sort(0) * Tensor::from_floats([1.0, 10.0, 100.0], &Default::default())).sum()
    }
    close("sort", &floats(&grad(&array::<F>(&[2.0, 3.0, 1.0]), sorted::<Autodiff<F>>)), &[10.0, 100.0, 1.0]);
}

#[test]
fn a_quotient_in_f64() {
    let x = Array::<F, 1>::new(Tensor::from_data(TensorData::from([1.0_f64]), (&Default::default(), DType::F64)));
    let gradient = grad(&x, |x: A1<Autodiff<F>>| (x.val() / 3.0).sum()).val().into_data();
    assert_eq!(gradient.to_vec::<f64>().unwrap(), [1.0 / 3.0]);
}

/// Arguments near the ends of the f32 range, in fused chains.
#[test]
fn functions_at_the_ends_of_their_ranges() {
    for x in [88.0_f32, 88.3, 88.5, 88.7, -20.0, 20.0] {
        let f = |x: A1<Traced>| (A1::<Traced>::new(x.val().exp() * 0.5), A1::<Traced>::new(x.val().tanh() * 2.0));
        let (exp, tanh) = jit(f).call::<F>(array(&[x]));
        let expected = (f64::from(x).exp() * 0.5) as f32;
        assert!((floats(&exp)[0] - expected).abs() <= 1e-6 * expected, "{x}: {exp}, and right is {expected}");
        assert!((floats(&tanh)[0] - 2.0 * x.tanh()).abs() < 1e-7, "{x}: {tanh}");
    }
}

#[test]
fn selu_at_zero() {
    fn selu<B: Backend>(x: A1<B>) -> A1<B> {
        Array::new(grove_backend::ops::selu(x.val()))
    }
    const SLOPE: f32 = 1.758_099_3;
    close("reverse", &floats(&grad(&array::<F>(&[0.0]), |x| selu(x).val().sum())), &[SLOPE]);
    close("forward", &floats(&jacfwd(selu::<Traced>, &array::<F>(&[0.0])).array::<2>()), &[SLOPE]);
}

#[test]
fn a_branch_that_an_example_does_not_take_has_no_derivative_there() {
    fn log_or_zero<B: Backend>(x: A1<B>) -> A1<B> {
        cond(x.val().greater_elem(0.0), |x: A1<B>| A1::new(x.val().log()), |x| A1::new(x.val().zeros_like()), x)
    }
    type A2<B> = Array<B, 2>;
    let xs = || A2::<F>::new(Tensor::from_floats([[0.0], [1.0], [4.0]], &Default::default()));
    let mapped = |xs: A2<Autodiff<F>>| vmap(log_or_zero::<Traced>).call::<Autodiff<F>, _>(xs).val().sum();
    close("grad of vmap", &floats(&grad(&xs(), mapped)), &[0.0, 1.0, 0.25]);
    let jitted =
        jit(|xs: A2<Traced>| grad(&xs, |xs| vmap(log_or_zero::<Traced>).call::<Autodiff<Traced>, _>(xs).val().sum()));
    close("grad of vmap, jitted", &floats(&jitted.call::<F>(xs())), &[0.0, 1.0, 0.25]);
    let program = jit(|xs: A2<Traced>| vmap(log_or_zero::<Traced>).call::<Traced, _>(xs));
    close(
        "grad of a jitted vmap",
        &floats(&grad(&xs(), |xs| program.call::<Autodiff<F>>(xs).val().sum())),
        &[0.0, 1.0, 0.25],
    );
    let (_, tangent) = jvp(
        |xs: A2<Traced>| vmap(log_or_zero::<Traced>).call::<Traced, _>(xs),
        &xs(),
        &Array::new(xs().val().ones_like()),
    );
    close("jvp of vmap", &floats(&tangent), &[0.0, 1.0, 0.25]);
}

#[test]
fn no_derivative_flows_through_a_stopped_value() {
    fn f<B: Backend>(x: A1<B>) -> Tensor<B, 1> {
        (stop_gradient(x.clone()).val() * x.val()).sum()
    }
    let x = || array::<F>(&[3.0]);
    close("reverse", &floats(&grad(&x(), f::<Autodiff<F>>)), &[3.0]);
    close("forward", &floats(&jacfwd(|x: A1<Traced>| A1::<Traced>::new(f(x)), &x()).array::<2>()), &[3.0]);
    let program = jit(|x: A1<Traced>| A1::<Traced>::new(f(x)));
    close("of a program", &floats(&grad(&x(), |x| program.call::<Autodiff<F>>(x).val())), &[3.0]);
    close(
        "second",
        &floats(&grad(&x(), |x: A1<Autodiff<F>>| grad(&x, f::<Autodiff<Autodiff<F>>>).val().sum())),
        &[0.0],
    );
}

#[test]
fn sums_and_products_over_nothing() {
    let x = Array::<F, 2>::new(Tensor::zeros([0, 3], &Default::default()));
    let (value, tangent) =
        jvp(|x: Array<Traced, 2>| Array::<Traced, 2>::new(x.val().prod_dim(0)), &x.clone(), &x.clone());
    assert_eq!((floats(&value), floats(&tangent)), (vec![1.0; 3], vec![0.0; 3]));
    assert_eq!(grad(&x, |x: Array<Autodiff<F>, 2>| x.val().prod_dim(0).sum()).shape(), [0, 3]);
}

/// The graph of the derivative of a cumulative product grows with the logarithm of its length.
#[test]
fn cumulative_products_do_not_unroll() {
    let count = |n: usize| {
        let f = |x: A1<Traced>| A1::<Traced>::new(x.val().cumprod(0));
        let x = || Array::<Traced, 1>::new(Tensor::ones([n], &Default::default()));
        let graph = grove_compile::trace(|_: A1<Traced>| jvp(f, &x(), &x()), &array::<F>(&[1.0]));
        graph.equations().len()
    };
    let (short, long) = (count(64), count(4096));
    assert!(long <= 3 * short, "{short} {long}");
}

#[test]
fn sigmoids_far_from_zero() {
    for x in [-100.0_f32, -90.0, -88.5, -20.0, 0.0, 20.0, 100.0] {
        let f = |x: A1<Traced>| {
            (A1::<Traced>::new(activation::sigmoid(x.val())), A1::<Traced>::new(activation::silu(x.val())))
        };
        let wide = f64::from(x);
        let sigmoid = 1.0 / (1.0 + (-wide).exp());
        let slopes = [sigmoid * (1.0 - sigmoid), sigmoid * (1.0 + wide * (1.0 - sigmoid))].map(|x| x as f32);
        let one = || array::<F>(&[1.0]);
        let (_, tangents) = jvp(f, &array::<F>(&[x]), &one());
        close(&format!("{x}"), &[floats(&tangents.0)[0], floats(&tangents.1)[0]], &slopes);
        let jitted = jit(move |x: A1<Traced>| jvp(f, &x.clone(), &A1::new(x.val().ones_like())).1);
        let tangents = jitted.call::<F>(array(&[x]));
        close(&format!("{x}, jitted"), &[floats(&tangents.0)[0], floats(&tangents.1)[0]], &slopes);
    }
}

/// Products with a quantized matrix are linear in the other factor, in every mode. Rounding is not differentiated.
#[test]
fn products_with_quantized_weights() {
    products_with_quantized_weights_by::<false>();
    products_with_quantized_weights_by::<true>();
}

fn products_with_quantized_weights_by<const ROUNDED: bool>() {
    /// Three rows of one block of q8_0: a scale of 1 (f16) and 32 integers.
    fn blocks<B: Backend>() -> Array<B, 2, Int> {
        let row = |i: i32| [0, 60].into_iter().chain((0..32).map(move |j| (i * 32 + j) % 7)).collect::<Vec<_>>();
        let bytes: Vec<u8> = (0..3).flat_map(row).map(|byte| byte as u8).collect();
        Array::new(Tensor::from_data(TensorData::new(bytes, [3, 34]), (&Default::default(), DType::U8)))
    }
    fn product<B: Backend, const ROUNDED: bool>((x, blocks): (Array<B, 2>, Array<B, 2, Int>)) -> Array<B, 2> {
        let precision = if ROUNDED { InputPrecision::Int8 } else { InputPrecision::F32 };
        Array::new(ops::quantized_linear(x.val(), blocks.val(), Quantization::Q8_0, precision))
    }
    let x = || Array::<F, 2>::new((Tensor::<F, 1, Int>::arange(0..32, &Default::default()).float() / 8.0).unsqueeze());
    let weight = |i: usize, j: usize| ((i * 32 + j) % 7) as f32;
    // The largest value is 31/8.
    let read = |j: usize| if ROUNDED { (j as f32 * 127.0 / 31.0).round() * 31.0 / 127.0 / 8.0 } else { j as f32 / 8.0 };
    let expected: Vec<f32> = (0..3).map(|i| (0..32).map(|j| weight(i, j) * read(j)).sum()).collect();
    let columns: Vec<f32> = (0..32).map(|j| (0..3).map(|i| weight(i, j)).sum()).collect();

    close("eager", &floats(&product::<_, ROUNDED>((x(), blocks()))), &expected);
    close("jit", &floats(&jit(product::<Traced, ROUNDED>).call::<F>((x(), blocks()))), &expected);
    let gradient =
        |x: &Array<F, 2>| grad(x, |x: Array<Autodiff<F>, 2>| product::<_, ROUNDED>((x, blocks())).val().sum());
    close("reverse mode", &floats(&gradient(&x())), &columns);
    let jitted = jit(|(x, blocks): (Array<Traced, 2>, Array<Traced, 2, Int>)| {
        grad(&x, |x| {
            product::<Autodiff<Traced>, ROUNDED>((x, Array::new(Tensor::from_inner(blocks.val())))).val().sum()
        })
    });
    close("reverse mode, jitted", &floats(&jitted.call::<F>((x(), blocks()))), &columns);
    let ones = Array::<F, 2>::new(x().val().ones_like());
    let sums: Vec<f32> = (0..3).map(|i| (0..32).map(|j| weight(i, j)).sum()).collect();
    let (_, tangent) = jvp(product::<Traced, ROUNDED>, &(x(), blocks()), &(ones, Array::absent([3, 34])));
    close("forward mode", &floats(&tangent), &sums);
    let three = Array::<F, 3>::new(Tensor::cat(vec![x().val().unsqueeze::<3>(); 2], 0));
    let mapped = vmap(product::<Traced, ROUNDED>).call::<F, _>((three, grove_compile::Shared(blocks())));
    close("vmap", &floats(&mapped), &[&expected[..], &expected[..]].concat());
}

/// A convolution whose stride leaves a remainder of the height but not of the width.
#[test]
fn strided_convolutions_of_any_size() {
    fn loss<B: Backend>((x, w): (Array<B, 4>, Array<B, 4>)) -> Tensor<B, 1> {
        let options = grove_backend::Conv2dOptions { stride: [2, 2], padding: [1, 1], dilation: [1, 1], groups: 1 };
        grove_backend::ops::conv2d(x.val(), w.val(), options).powf_scalar(2.0).sum()
    }
    let key = grove_tree::Key::new(5);
    let images = || Array::<F, 4>::new(key.normal([2, 3, 6, 5], &Default::default()));
    let weight = || Array::<F, 4>::new(key.fold_in(1).normal([4, 3, 3, 3], &Default::default()));
    let eager = grad(&(images(), weight()), loss::<Autodiff<F>>);
    let jitted = jit(|args: (Array<Traced, 4>, Array<Traced, 4>)| grad(&args, loss::<Autodiff<Traced>>))
        .call((images(), weight()));
    close("of images, jitted", &floats::<F, 4>(&jitted.0), &floats(&eager.0));
    close("of the weight, jitted", &floats(&jitted.1), &floats(&eager.1));
    let per_example = vmap(|(x, w): (Array<Traced, 3>, Array<Traced, 4>)| {
        let x = Array::<Traced, 4>::new(x.val().unsqueeze());
        Array::<_, 3>::new(grad(&x, |x| loss((x, Array::new(Tensor::from_inner(w.val()))))).val().squeeze_dim(0))
    });
    let found = per_example.call::<F, _>((images(), grove_compile::Shared(weight())));
    close("of each image", &floats(&found), &floats(&eager.0));
    // The function is quadratic in x, so the Hessian-vector product with x equals the gradient.
    let product = grove_compile::hvp(
        |x: Array<Autodiff<Traced>, 4>| {
            let w = Array::new(Tensor::from_data(weight().val().into_data(), &Default::default()));
            loss((x, w))
        },
        &images(),
        &images(),
    );
    close("hvp", &floats(&product), &floats(&eager.0));
}

/// Axes of size 0, which must not be confused with Burn's 0 in a reshape (keep the size).
#[test]
fn results_without_elements() {
    let none = jit(|x: Array<Traced, 2>| {
        vmap(|x: A1<Traced>| A1::<Traced>::new(x.val().slice_dim(0, 0..0) * 2.0)).call::<Traced, _>(x)
    });
    assert_eq!(none.call::<F>(Array::new(Tensor::zeros([3, 4], &Default::default()))).shape(), [3, 0]);
    let wide =
        vmap(|x: A1<Traced>| Array::<Traced, 2>::new(Tensor::zeros([0, 5], &x.val().device()) + x.val().unsqueeze()));
    assert_eq!(wide.call::<F, _>(Array::<F, 2>::new(Tensor::zeros([3, 5], &Default::default()))).shape(), [3, 0, 5]);
    let product = vmap(|(x, w): (Array<Traced, 2>, Array<Traced, 2>)| Array::<Traced, 2>::new(x.val().matmul(w.val())));
    let x = Array::<F, 3>::new(Tensor::zeros([4, 2, 0], &Default::default()));
    let w = Array::<F, 2>::new(Tensor::zeros([0, 3], &Default::default()));
    assert_eq!(floats(&product.call::<F, _>((x, grove_compile::Shared(w)))), [0.0; 24]);
}

/// Average pooling is linear: the gradient of a result with respect to a pixel equals the result for an image with only that
/// pixel.
#[test]
fn average_pooling_that_ends_beyond_the_image() {
    use burn::tensor::module::avg_pool2d;
    for (size, padding, counts_padding) in
        [([3, 3], [0, 0], true), ([3, 3], [0, 0], false), ([5, 4], [1, 1], true), ([5, 4], [1, 1], false)]
    {
        let [h, w] = size;
        let pooled =
            |x: Tensor<F, 1>| avg_pool2d(x.reshape([1, 1, h, w]), [2, 2], [2, 2], padding, counts_padding, true);
        let weights = |pooled: [usize; 4]| {
            let count = pooled.iter().product::<usize>();
            (0..count).map(|i| (i * i % 11) as f32 - 3.0).collect::<Vec<_>>()
        };
        let basis = |i: usize| {
            let mut pixels = vec![0.0; h * w];
            pixels[i] = 1.0;
            let y = pooled(Tensor::from_floats(&pixels[..], &Default::default()));
            let weights = weights(y.dims());
            y.into_data().iter::<f32>().zip(weights).map(|(y, w)| y * w).sum::<f32>()
        };
        let expected: Vec<f32> = (0..h * w).map(basis).collect();
        fn loss<B: Backend>(
            x: A1<B>,
            size: [usize; 2],
            padding: [usize; 2],
            counts_padding: bool,
            weights: &[f32],
        ) -> Tensor<B, 1> {
            let x = x.val().reshape([1, 1, size[0], size[1]]);
            let y = avg_pool2d(x, [2, 2], [2, 2], padding, counts_padding, true);
            (y.flatten::<1>(0, 3) * Tensor::from_floats(weights, &Default::default())).sum()
        }
        let x = || array::<F>(&vec![0.5; h * w]);
        let weights = weights(pooled(x().val()).dims());
        let what = format!("{size:?}, {padding:?}, {counts_padding}");
        let reverse = grad(&x(), |x: A1<Autodiff<F>>| loss(x, size, padding, counts_padding, &weights));
        close(&format!("{what}: reverse mode"), &floats(&reverse), &expected);
        let forward = jacfwd(|x: A1<Traced>| A1::<Traced>::new(loss(x, size, padding, counts_padding, &weights)), &x());
        close(&format!("{what}: forward mode"), &floats(&forward.array::<2>()), &expected);
    }
}

/// A grouped conv1d whose stride leaves a remainder equals separate convolutions of the groups.
#[test]
fn strided_convolutions_of_groups() {
    use burn::tensor::{module::conv1d, ops::ConvOptions};
    fn conv<B: Backend>(x: Tensor<B, 3>, w: Tensor<B, 3>, groups: usize) -> Tensor<B, 3> {
        conv1d(x, w, None, ConvOptions::new([2], [1], [1], groups))
    }
    type Args<B> = (Array<B, 3>, Array<B, 3>);
    fn whole<B: Backend>((x, w): Args<B>) -> Tensor<B, 1> {
        conv(x.val(), w.val(), 2).powf_scalar(2.0).sum()
    }
    fn apart<B: Backend>((x, w): Args<B>) -> Tensor<B, 1> {
        let (x, w) = (x.val().chunk(2, 1), w.val().chunk(2, 0));
        let parts = x.into_iter().zip(w).map(|(x, w)| conv(x, w, 1)).collect();
        Tensor::cat(parts, 1).powf_scalar(2.0).sum()
    }
    let key = grove_tree::Key::new(2);
    let x = || Array::<F, 3>::new(key.normal([2, 4, 12], &Default::default()));
    let w = || Array::<F, 3>::new(key.fold_in(1).normal([6, 2, 3], &Default::default()));
    let expected = grad(&(x(), w()), apart::<Autodiff<F>>);
    let eager = grad(&(x(), w()), whole::<Autodiff<F>>);
    let jitted = jit(|args: Args<Traced>| grad(&args, whole::<Autodiff<Traced>>)).call::<F>((x(), w()));
    for (what, found) in [("eager", eager), ("jit", jitted)] {
        close(&format!("{what}: x"), &floats(&found.0), &floats(&expected.0));
        close(&format!("{what}: weight"), &floats(&found.1), &floats(&expected.1));
    }
}
