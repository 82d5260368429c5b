//! Row operations: kernels and exact backward passes against the same mathematics composed of Burn's operations, which Burn
//! differentiates. (Comparisons with torch are in the crates of the layers.)
#![cfg(all(feature = "flex", feature = "candle"))]

use crate::common;
use burn::tensor::{Bool, Int, Tensor, TensorData, activation};
use grove_backend::{
    AnyTensor, Autodiff, Backend, KeyRanges,
    ops::{self, RowNorm},
};

/// Returns pseudo-random values, the same on every backend.
fn numbers<B: Backend, const D: usize>(shape: [usize; D], seed: u64, device: &B::Device) -> Tensor<B, D> {
    let count = shape.iter().product::<usize>() as u64;
    let hash = |i: u64| (i + seed).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
    let values: Vec<f32> = (0..count).map(|i| hash(i) as f32 / (1 << 23) as f32 * 3.0 - 3.0).collect();
    Tensor::from_data(TensorData::new(values, shape), device)
}

/// Compares values and gradients of two functions of one tensor, which is also passed transposed and with an offset.
fn compare<B: Backend, const D: usize>(
    what: &str,
    x: Tensor<Autodiff<B>, D>,
    ours: impl Fn(Tensor<Autodiff<B>, D>) -> Tensor<Autodiff<B>, 1>,
    theirs: impl Fn(Tensor<Autodiff<B>, D>) -> Tensor<Autodiff<B>, 1>,
) {
    let run = |f: &dyn Fn(Tensor<Autodiff<B>, D>) -> Tensor<Autodiff<B>, 1>| {
        let x = x.clone().require_grad();
        let y = f(x.clone());
        let factors = numbers::<Autodiff<B>, 1>(y.dims(), 77, &x.device());
        let grad = x.grad(&(y.clone() * factors).sum().backward()).expect("a gradient");
        [y.inner().into_data().iter::<f64>().collect::<Vec<_>>(), grad.into_data().iter().collect()]
    };
    for (part, (a, b)) in ["values", "gradient"].iter().zip(run(&ours).iter().zip(&run(&theirs))) {
        let (apart, largest) = common::distance(a, b);
        assert!(apart <= 1e-5 * largest.max(1.0), "{what}, {part}: apart by {apart}, largest {largest}");
    }
}

fn masked_softmax<B: Backend>(device: B::Device) {
    for (shape, causal) in [
        ([1, 1, 1, 1], true),
        ([2, 3, 5, 5], true),
        ([2, 1, 3, 9], true),
        ([2, 2, 4, 33], false),
        ([1, 2, 70, 70], true),
    ] {
        let [_, _, t, s] = shape;
        let ours = |x: Tensor<Autodiff<B>, 4>| {
            let weights = ops::masked_softmax(x, 0.3, &KeyRanges::new(causal));
            weights.clone().reshape([weights.shape().num_elements()])
        };
        let theirs = |x: Tensor<Autodiff<B>, 4>| {
            let hidden: Vec<i64> = (0..t * s).map(|i| i64::from(causal && i % s > i / s + s - t)).collect();
            let hidden = Tensor::<Autodiff<B>, 4, Int>::from_data(TensorData::new(hidden, [1, 1, t, s]), &x.device());
            let hidden: Tensor<Autodiff<B>, 4, Bool> = hidden.equal_elem(1).expand(x.dims());
            let weights = activation::softmax(x.mul_scalar(0.3).mask_fill(hidden, f32::NEG_INFINITY), 3);
            weights.clone().reshape([weights.shape().num_elements()])
        };
        compare(&format!("{shape:?}"), numbers::<Autodiff<B>, 4>(shape, 1, &device), ours, theirs);
        if t == s {
            let transposed = |x: Tensor<Autodiff<B>, 4>| x.swap_dims(2, 3);
            let x = numbers::<Autodiff<B>, 4>(shape, 2, &device);
            compare("transposed", x, |x| ours(transposed(x)), |x| theirs(transposed(x)));
        }
    }
}

/// Normalises all rows of `[rows + 2, size]` except the last two, which are scale and shift, so that all of them have
/// gradients.
fn row_norm<B: Backend>(device: B::Device) {
    for (shape, centred) in
        [[1, 1], [3, 5], [33, 192], [7, 17], [150, 35]].into_iter().flat_map(|shape| [(shape, true), (shape, false)])
    {
        let [rows, size] = shape;
        let split = |x: Tensor<Autodiff<B>, 2>| {
            let vector = |row: usize| x.clone().slice([row..row + 1, 0..size]).reshape([size]);
            (x.clone().slice([0..rows, 0..size]), vector(rows), vector(rows + 1))
        };
        let options = RowNorm { centred, eps: 1e-5 };
        let ours = |x: Tensor<Autodiff<B>, 2>, shifts: bool| {
            let (x, weight, bias) = split(x);
            let (y, _) = ops::row_norm(x, weight, shifts.then_some(bias), options);
            y.reshape([rows * size])
        };
        let theirs = |x: Tensor<Autodiff<B>, 2>, shifts: bool| {
            let (x, weight, bias) = split(x);
            let centred = if centred { x.clone() - x.mean_dim(1) } else { x };
            let root = centred.clone().powi_scalar(2).mean_dim(1).add_scalar(1e-5).sqrt();
            let y = centred / root * weight.unsqueeze();
            let y = if shifts { y + bias.unsqueeze() } else { y };
            y.reshape([rows * size])
        };
        for shifts in [true, false] {
            let what = format!("{shape:?}, {centred}, {shifts}");
            let x = numbers::<Autodiff<B>, 2>([rows + 2, size], 3, &device);
            compare(&what, x, |x| ours(x, shifts), |x| theirs(x, shifts));
            let part = |x: Tensor<Autodiff<B>, 2>| x.swap_dims(0, 1).slice([2..4 + rows, 1..1 + size]);
            let x = numbers::<Autodiff<B>, 2>([size + 2, rows + 5], 4, &device);
            compare(&format!("a part, {what}"), x, |x| ours(part(x), shifts), |x| theirs(part(x), shifts));
        }
    }
}

fn selu<B: Backend>(device: B::Device) {
    for shape in [[1, 1], [3, 5], [130, 193]] {
        let flat = |x: Tensor<Autodiff<B>, 2>| x.reshape([shape[0] * shape[1]]);
        let ours = |x: Tensor<Autodiff<B>, 2>| flat(ops::selu(x.swap_dims(0, 1)));
        // Klambauer et al. (2017)
        let theirs = |x: Tensor<Autodiff<B>, 2>| {
            let x = x.swap_dims(0, 1);
            let below = (x.clone().clamp_max(0.0).exp() - 1.0) * 1.673_263_242_354_377_2;
            flat((x.clamp_min(0.0) + below) * 1.050_700_987_355_480_5)
        };
        compare(&format!("{shape:?}"), numbers::<Autodiff<B>, 2>(shape, 9, &device), ours, theirs);
    }
}

/// A step with distinct hyperparameters, against the formula.
fn adam_step<B: Backend>(device: B::Device) {
    let numbers_of_step = [0.8f32, 0.25, 0.99, 0.02, 1e-3, 1e-4, 0.3, 0.05, 0.1, 0.2];
    for shape in [[1, 1], [3, 5], [130, 193]] {
        // Transposed, and thus not contiguous.
        let leaf = |seed: u64| numbers::<B, 2>([shape[1], shape[0]], seed, &device).swap_dims(0, 1);
        let leaf = [leaf(1), leaf(2), leaf(3), leaf(4).abs()];
        let leaves = vec![leaf.clone().map(AnyTensor::from)];
        let numbers = Tensor::<B, 1>::from_floats(numbers_of_step, &device);
        let after = ops::adam_step(leaves, numbers).remove(0).map(AnyTensor::into_data);
        let [p, g, mu, nu] = leaf.map(|x| x.into_data().iter::<f64>().collect::<Vec<_>>());
        let [b1, c1, b2, c2, eps, below, first, second, rate, decay] = numbers_of_step.map(f64::from);
        let mu: Vec<f64> = mu.iter().zip(&g).map(|(mu, g)| b1 * mu + c1 * g).collect();
        let nu: Vec<f64> = nu.iter().zip(&g).map(|(nu, g)| b2 * nu + c2 * g * g).collect();
        let update = |i: usize| mu[i] / first / ((nu[i] / second + below).sqrt() + eps) + decay * p[i];
        let p: Vec<f64> = (0..p.len()).map(|i| p[i] - rate * update(i)).collect();
        for (ours, exact) in after.into_iter().zip([p, mu, nu]) {
            let (apart, largest) = common::distance(&ours.iter::<f64>().collect::<Vec<_>>(), &exact);
            assert!(apart <= 1e-5 * largest, "{shape:?}: apart by {apart}");
        }
        let x = self::numbers::<B, 2>(shape, 11, &device);
        let exact: f64 = x.clone().into_data().iter::<f64>().map(|x| x * x).sum();
        let ours = ops::sum_of_squares::<B>(vec![x.swap_dims(0, 1).into()]).expect("a sum").into_data();
        assert!((ours.iter::<f64>().next().unwrap() - exact).abs() < 1e-5 * exact);
    }
}

fn nll<B: Backend>(device: B::Device) {
    for shape in [[1, 1], [4, 7], [130, 61], [2, 3000]] {
        let labels: Vec<i64> = (0..shape[0] as i64).map(|i| i * 31 % shape[1] as i64).collect();
        let labels = Tensor::<Autodiff<B>, 1, Int>::from_data(TensorData::new(labels, [shape[0]]), &device);
        let ours = |x: Tensor<Autodiff<B>, 2>| ops::nll(x, labels.clone()).0;
        let theirs = |x: Tensor<Autodiff<B>, 2>| {
            let labels = labels.clone().reshape([shape[0], 1]);
            activation::log_softmax(x, 1).gather(1, labels).neg().reshape([shape[0]])
        };
        compare(&format!("{shape:?}"), numbers::<Autodiff<B>, 2>(shape, 5, &device).mul_scalar(3.0), ours, theirs);
        let turned = numbers::<Autodiff<B>, 2>([shape[1], shape[0]], 6, &device);
        compare("transposed", turned, |x| ours(x.swap_dims(0, 1)), |x| theirs(x.swap_dims(0, 1)));
    }
}

/// An out-of-range label is an error on a CPU. On a GPU, which cannot abort, the loss of that row is NaN, and nothing outside
/// of the logits is read.
fn nll_of_no_class<B: Backend>(device: B::Device) {
    for wrong in [3, -1, i64::from(i32::MIN), i64::from(i32::MAX)] {
        let losses = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let labels = Tensor::<B, 1, Int>::from_data(TensorData::new(vec![0, wrong, 2], [3]), &device);
            let (losses, _) = ops::nll(Tensor::<B, 2>::zeros([3, 3], &device), labels);
            losses.into_data().iter::<f32>().collect::<Vec<_>>()
        }));
        if let Ok(losses) = losses {
            assert!(losses[1].is_nan(), "label {wrong}: {losses:?}");
            assert!(
                [losses[0], losses[2]].iter().all(|loss| (loss - 3f32.ln()).abs() < 1e-6),
                "label {wrong}: {losses:?}"
            );
        }
    }
}

/// Embedding lookup against a product with a one-hot matrix. The table is used once, or also as an output layer that computes
/// its gradient before or after.
fn embedding<B: Backend>(device: B::Device) {
    let (symbols, size, ids) = (11usize, 6usize, [3i64, 0, 10, 3, 3, 7, 0, 1]);
    let numbers_of = Tensor::<Autodiff<B>, 2, Int>::from_data(TensorData::new(ids.to_vec(), [2, 4]), &device);
    let ones: Vec<f32> =
        ids.iter().flat_map(|&id| (0..symbols).map(move |i| f32::from(u8::from(i as i64 == id)))).collect();
    let ones = Tensor::<Autodiff<B>, 2>::from_data(TensorData::new(ones, [8, symbols]), &device);
    let output = |rows: Tensor<Autodiff<B>, 2>, table: Tensor<Autodiff<B>, 2>| {
        ops::linear(rows, table.transpose(), None).reshape([8 * symbols])
    };
    let looked_up = |table: Tensor<Autodiff<B>, 2>| ops::embedding(table, numbers_of.clone()).reshape([8, size]);
    let plain = |table: Tensor<Autodiff<B>, 2>| ones.clone().matmul(table);
    let x = || numbers::<Autodiff<B>, 2>([symbols, size], 7, &device);
    compare("once", x(), |x| looked_up(x).reshape([8 * size]), |x| plain(x).reshape([8 * size]));
    compare("twice", x(), |x| output(looked_up(x.clone()), x), |x| output(plain(x.clone()), x));
    compare(
        "three times",
        x(),
        |x| output(looked_up(x.clone()) * looked_up(x.clone()).tanh(), x),
        |x| output(plain(x.clone()) * plain(x.clone()).tanh(), x),
    );
}

/// More positions than are searched at once, most of them with the same index, and rows wider than a cube.
fn embedding_of_many_places<B: Backend>(device: B::Device) {
    let (symbols, size, places) = (40usize, 300usize, 2500usize);
    let ids: Vec<i64> = (0..places as i64).map(|i| if i % 3 == 0 { i * 7 % 39 } else { 5 }).collect();
    let indices = Tensor::<Autodiff<B>, 2, Int>::from_data(TensorData::new(ids.clone(), [2, places / 2]), &device);
    let table = numbers::<Autodiff<B>, 2>([symbols, size], 1, &device).require_grad();
    let factors = numbers::<Autodiff<B>, 2>([places, size], 2, &device);
    let y = ops::embedding(table.clone(), indices).reshape([places, size]) * factors.clone();
    let found = table.grad(&y.sum().backward()).unwrap().into_data().iter::<f64>().collect::<Vec<_>>();
    let mut expected = vec![0.0; symbols * size];
    for (i, factor) in factors.into_data().iter::<f64>().enumerate() {
        expected[ids[i / size] as usize * size + i % size] += factor;
    }
    let (apart, largest) = common::distance(&found, &expected);
    assert!(apart <= 1e-5 * largest, "apart by {apart}, largest {largest}");
}

/// A kernel cannot be launched for no rows.
fn no_rows<B: Backend>(device: B::Device) {
    let scores = numbers::<Autodiff<B>, 4>([0, 2, 3, 3], 1, &device).require_grad();
    let x = numbers::<Autodiff<B>, 2>([0, 4], 1, &device).require_grad();
    let [weight, bias] = [2, 3].map(|seed| numbers::<Autodiff<B>, 1>([4], seed, &device).require_grad());
    let labels = Tensor::<Autodiff<B>, 1, Int>::from_data(TensorData::new(Vec::<i64>::new(), [0]), &device);
    let weights = ops::masked_softmax(scores.clone(), 0.5, &KeyRanges::new(true));
    let norm = RowNorm { centred: true, eps: 1e-5 };
    let (normed, _) = ops::row_norm(x.clone(), weight.clone(), Some(bias.clone()), norm);
    let (losses, _) = ops::nll(x.clone(), labels);
    assert_eq!((weights.dims(), normed.dims(), losses.dims()), ([0, 2, 3, 3], [0, 4], [0]));
    // Burn's kernels have no sum of no elements.
    assert_eq!(scores.grad(&weights.backward()).expect("a gradient").dims(), [0, 2, 3, 3]);
    let grads = normed.backward();
    assert_eq!(x.grad(&grads).expect("a gradient").dims(), [0, 4]);
    for parameter in [weight, bias] {
        let sums = parameter.grad(&grads).expect("a gradient");
        assert_eq!(sums.into_data().iter::<f64>().collect::<Vec<_>>(), [0.0; 4]);
    }
    assert_eq!(x.grad(&losses.backward()).expect("a gradient").dims(), [0, 4]);
}

on_each_backend!(masked_softmax, row_norm, selu, adam_step, embedding, embedding_of_many_places, nll, nll_of_no_class);

/// On CUDA, Burn 0.21 launches kernels of no blocks for arrays without elements, which the driver refuses.
mod no_rows {
    not_on_cuda!(no_rows);
}
