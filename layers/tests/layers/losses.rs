//! Losses and their gradients against optax and torch. Fixture: tools/fixtures/losses.py.

use crate::common;
use burn::tensor::{DType, Int, Tensor, TensorData};
use grove_backend::{Autodiff, Backend};
use grove_layers::loss::{self, CrossEntropy, IGNORE_INDEX};
use grove_transform::{value_and_grad, value_and_grad_aux};
use grove_tree::Array;

use crate::case::Case;

impl Case {
    fn of_loss(name: &'static str) -> Self {
        Self::of("losses", name)
    }

    fn integers<B: Backend, const D: usize>(&self, part: &str, device: &B::Device) -> Tensor<B, D, Int> {
        Tensor::from_data(self.data(part), device)
    }

    fn close<B: Backend>(&self, part: &str, found: TensorData, tolerance: f64, device: &B::Device) {
        assert_close(&format!("{} {} {part}", B::name(device), self.name), found, self.data(part), tolerance);
    }

    /// Compares the losses of two inputs, with and without differentiation, and the gradients of both inputs, or of the
    /// first only if the reference has no second gradient.
    fn check_loss<B: Backend, const D: usize>(
        &self,
        names: [&str; 2],
        device: &B::Device,
        plain: impl FnOnce(Tensor<B, D>, Tensor<B, D>) -> Tensor<B, D>,
        tracked: impl FnOnce(Tensor<Autodiff<B>, D>, Tensor<Autodiff<B>, D>) -> Tensor<Autodiff<B>, D>,
    ) {
        let inputs: [Array<B, D>; 2] = names.map(|name| self.floats(name, device));
        let y = plain(inputs[0].val(), inputs[1].val());
        self.close::<B>("y", y.into_data(), 1e-5, device);
        let (_, grads, y) = value_and_grad_aux(&inputs, |[a, b]| {
            let y = tracked(a.val(), b.val());
            let dy = Tensor::from_data(self.data("dy"), device);
            ((y.clone() * dy).sum(), Array::<_, D>::new(y))
        });
        self.close::<B>("y", y.val().into_data(), 1e-5, device);
        for (i, (name, grad)) in names.into_iter().zip(grads).enumerate() {
            let part = format!("grad.{name}");
            if i == 0 || self.find(&part).is_some() {
                self.close::<B>(&part, grad.val().into_data(), 1e-5, device);
            }
        }
    }

    /// Does the same for losses of integer labels.
    fn check_integers<B: Backend, const D: usize, const L: usize, const O: usize>(
        &self,
        device: &B::Device,
        plain: impl FnOnce(Tensor<B, D>, Tensor<B, L, Int>) -> Tensor<B, O>,
        tracked: impl FnOnce(Tensor<Autodiff<B>, D>, Tensor<Autodiff<B>, L, Int>) -> Tensor<Autodiff<B>, O>,
    ) {
        let logits: Array<B, D> = self.floats("logits", device);
        let y = plain(logits.val(), self.integers("labels", device));
        self.close::<B>("y", y.into_data(), 1e-5, device);
        let (_, grad) = value_and_grad(&logits, |logits| {
            let y = tracked(logits.val(), self.integers("labels", device));
            (y * Tensor::from_data(self.data("dy"), device)).sum()
        });
        self.close::<B>("grad.logits", grad.val().into_data(), 1e-5, device);
    }
}

/// Fails unless `max |a - b| <= tolerance * max |b|`.
fn assert_close(what: &str, a: TensorData, b: TensorData, tolerance: f64) {
    assert_eq!(a.shape, b.shape, "{what}");
    let (a, b): (Vec<f64>, Vec<f64>) = (a.iter().collect(), b.iter().collect());
    let (apart, largest) = common::distance(&a, &b);
    println!("{what}: apart by {:.1e} of the largest", apart / largest);
    assert!(apart <= tolerance * largest, "{what}: {a:?} for {b:?}, apart by {apart}");
}

fn softmax_cross_entropies<B: Backend>(device: B::Device) {
    let names = ["logits", "labels"];
    let dense = loss::softmax_cross_entropy::<B, 3>;
    Case::of_loss("softmax_cross_entropy").check_loss(names, &device, dense, loss::softmax_cross_entropy);
    Case::of_loss("one_hot").check_loss(
        names,
        &device,
        loss::softmax_cross_entropy::<B, 2>,
        loss::softmax_cross_entropy,
    );
    Case::of_loss("smooth_labels").check_loss(
        names,
        &device,
        |x: Tensor<B, 2>, y| loss::softmax_cross_entropy(x, loss::smooth_labels(y, 0.15)),
        |x, y| loss::softmax_cross_entropy(x, loss::smooth_labels(y, 0.15)),
    );
    let integers = loss::softmax_cross_entropy_with_integer_labels::<B, 2, 1>;
    let tracked = loss::softmax_cross_entropy_with_integer_labels::<Autodiff<B>, 2, 1>;
    Case::of_loss("integer_labels").check_integers(&device, integers, tracked);
    let integers = loss::softmax_cross_entropy_with_integer_labels::<B, 3, 2>;
    let tracked = loss::softmax_cross_entropy_with_integer_labels::<Autodiff<B>, 3, 2>;
    Case::of_loss("integer_labels3d").check_integers(&device, integers, tracked);
}

fn torch_cross_entropies<B: Backend>(device: B::Device) {
    let rows = |x: Tensor<B, 3>, y: Tensor<_, 2, Int>| loss::cross_entropy(x.flatten(0, 1), y.flatten(0, 1));
    let tracked =
        |x: Tensor<Autodiff<B>, 3>, y: Tensor<_, 2, Int>| loss::cross_entropy(x.flatten(0, 1), y.flatten(0, 1));
    Case::of_loss("torch_mean").check_integers(&device, rows, tracked);
    let smooth = CrossEntropy { label_smoothing: 0.2, ..Default::default() };
    let tracked = |x: Tensor<Autodiff<B>, 3>, y: Tensor<_, 2, Int>| smooth.mean(x, y);
    Case::of_loss("torch_smooth").check_integers(
        &device,
        |x: Tensor<B, 3>, y: Tensor<_, 2, Int>| smooth.mean(x, y),
        tracked,
    );
    let tracked = |x: Tensor<Autodiff<B>, 3>, y: Tensor<_, 2, Int>| smooth.per_example(x, y);
    let each = |x: Tensor<B, 3>, y: Tensor<_, 2, Int>| smooth.per_example(x, y);
    Case::of_loss("torch_smooth_each").check_integers(&device, each, tracked);
    let other = CrossEntropy { label_smoothing: 0.1, ignore_index: 3 };
    let tracked = |x: Tensor<Autodiff<B>, 3>, y: Tensor<_, 2, Int>| other.mean(x, y);
    Case::of_loss("torch_ignore_3").check_integers(
        &device,
        |x: Tensor<B, 3>, y: Tensor<_, 2, Int>| other.mean(x, y),
        tracked,
    );
    // As in PyTorch, the loss is infinite if any class is impossible, the label's own or another one.
    let logits = Tensor::<B, 2>::from_floats([[0.0, f32::NEG_INFINITY, 1.0], [0.0, f32::NEG_INFINITY, 1.0]], &device);
    let labels = Tensor::<B, 1, Int>::from_ints([1, 2], &device);
    let losses = smooth.per_example(logits, labels).into_data().iter::<f32>().collect::<Vec<_>>();
    assert_eq!(losses, [f32::INFINITY; 2]);
}

fn binary<B: Backend>(device: B::Device) {
    let names = ["logits", "labels"];
    for case in ["binary_hard", "binary_soft"] {
        let plain = loss::sigmoid_binary_cross_entropy::<B, 2>;
        Case::of_loss(case).check_loss(names, &device, plain, loss::sigmoid_binary_cross_entropy);
    }
    for (case, alpha, gamma) in
        [("focal_hard", None, 2.0), ("focal_hard_alpha", Some(0.25), 2.0), ("focal_soft", Some(0.7), 0.5)]
    {
        Case::of_loss(case).check_loss(
            names,
            &device,
            |x: Tensor<B, 2>, y| loss::sigmoid_focal_loss(x, y, alpha, gamma),
            |x, y| loss::sigmoid_focal_loss(x, y, alpha, gamma),
        );
    }
}

fn regression<B: Backend>(device: B::Device) {
    let names = ["predictions", "targets"];
    Case::of_loss("squared_error").check_loss(names, &device, loss::squared_error::<B, 2>, loss::squared_error);
    Case::of_loss("l2_loss").check_loss(names, &device, loss::l2_loss::<B, 2>, loss::l2_loss);
    Case::of_loss("log_cosh").check_loss(names, &device, loss::log_cosh::<B, 2>, loss::log_cosh);
    for (case, delta) in [("huber_loss", 1.0), ("huber_loss_delta", 0.3)] {
        Case::of_loss(case).check_loss(
            names,
            &device,
            |x: Tensor<B, 2>, y| loss::huber_loss(x, y, delta),
            |x, y| loss::huber_loss(x, y, delta),
        );
    }
}

fn divergences<B: Backend>(device: B::Device) {
    let names = ["log_predictions", "targets"];
    Case::of_loss("kl_divergence").check_loss(names, &device, loss::kl_divergence::<B, 3>, loss::kl_divergence);
    Case::of_loss("kl_divergence_zeros").check_loss(names, &device, loss::kl_divergence::<B, 2>, loss::kl_divergence);
    let names = ["log_predictions", "log_targets"];
    let plain = loss::kl_divergence_with_log_targets::<B, 3>;
    Case::of_loss("kl_divergence_with_log_targets").check_loss(
        names,
        &device,
        plain,
        loss::kl_divergence_with_log_targets,
    );
}

fn cosines<B: Backend>(device: B::Device) {
    let names = ["predictions", "targets"];
    Case::of_loss("cosine_similarity").check_loss(
        names,
        &device,
        |x: Tensor<B, 3>, y| loss::cosine_similarity(x, y, 0.0),
        |x, y| loss::cosine_similarity(x, y, 0.0),
    );
    Case::of_loss("cosine_distance").check_loss(
        names,
        &device,
        |x: Tensor<B, 3>, y| loss::cosine_distance(x, y, 0.0),
        |x, y| loss::cosine_distance(x, y, 0.0),
    );
    Case::of_loss("cosine_epsilon").check_loss(
        names,
        &device,
        |x: Tensor<B, 2>, y| loss::cosine_similarity(x, y, 0.5),
        |x, y| loss::cosine_similarity(x, y, 0.5),
    );
}

/// Losses and gradients of the first input at values for which a naive formula overflows or gives NaN. The expected values
/// follow from the definition.
fn at<B: Backend, const N: usize, const M: usize>(
    what: &str,
    device: &B::Device,
    [x, fixed]: [[f32; N]; 2],
    (values, slopes): ([f32; M], [f32; N]),
    f: impl FnOnce(Tensor<Autodiff<B>, 1>, Tensor<Autodiff<B>, 1>) -> Tensor<Autodiff<B>, 1>,
) {
    let x = Array::<B, 1>::new(Tensor::from_data(x, device));
    let (_, grad, y) = value_and_grad_aux(&x, |x| {
        let y = f(x.val(), Tensor::from_data(fixed, device));
        (y.clone().sum(), Array::<_, 1>::new(y))
    });
    assert_each(&format!("{what}, values"), y.val().into_data(), &values);
    assert_each(&format!("{what}, gradients"), grad.val().into_data(), &slopes);
}

/// Asserts that each value is within 1e-5 of the expected one, relative if the expected value is larger than 1.
fn assert_each(what: &str, found: TensorData, expected: &[f32]) {
    let found: Vec<f32> = found.iter().collect();
    assert_eq!(found.len(), expected.len(), "{what}");
    let close = |(a, b): (&f32, &f32)| a == b || (a - b).abs() <= 1e-5 * b.abs().max(1.0);
    assert!(found.iter().zip(expected).all(close), "{what}: {found:?} for {expected:?}");
}

fn extremes<B: Backend>(device: B::Device) {
    let logits = [-100.0, 100.0, -1e4, 1e4, 0.0, 1e30];
    let (no, yes) = ([0.0; 6], [1.0; 6]);
    let ln2 = std::f32::consts::LN_2;
    let expected = ([0.0, 100.0, 0.0, 1e4, ln2, 1e30], [0.0, 1.0, 0.0, 1.0, 0.5, 1.0]);
    at::<B, 6, 6>("binary, no", &device, [logits, no], expected, loss::sigmoid_binary_cross_entropy);
    let expected = ([100.0, 0.0, 1e4, 0.0, ln2, 0.0], [-1.0, 0.0, -1.0, 0.0, -0.5, 0.0]);
    at::<B, 6, 6>("binary, yes", &device, [logits, yes], expected, loss::sigmoid_binary_cross_entropy);

    // At 0: p = 1/2, the loss is 2^-gamma ln 2 and its slope -(2^-(gamma + 1)) (1 + gamma ln 2).
    for gamma in [0.0f32, 0.5, 2.0] {
        let at_zero = ((-gamma).exp2() * ln2, -(-gamma - 1.0).exp2() * (1.0 + gamma * ln2));
        let expected = ([100.0, 0.0, 1e4, 0.0, at_zero.0, 0.0], [-1.0, 0.0, -1.0, 0.0, at_zero.1, 0.0]);
        at::<B, 6, 6>("focal, yes", &device, [logits, yes], expected, |x, y| {
            loss::sigmoid_focal_loss(x, y, None, gamma.into())
        });
        let expected = ([0.0, 100.0, 0.0, 1e4, at_zero.0, 1e30], [0.0, 1.0, 0.0, 1.0, -at_zero.1, 1.0]);
        at::<B, 6, 6>("focal, no", &device, [logits, no], expected, |x, y| {
            loss::sigmoid_focal_loss(x, y, None, gamma.into())
        });
    }

    let errors = [[0.5, -0.5, 0.0, 3.0, -1e20], [0.0; 5]];
    let expected = ([0.125, 0.125, 0.0, 1.375, 5e19], [0.5, -0.5, 0.0, 0.5, -0.5]);
    at::<B, 5, 5>("huber at delta", &device, errors, expected, |x, y| loss::huber_loss(x, y, 0.5));
    let expected = ([1000.0 - ln2, 1e20, 0.0], [1.0, -1.0, 0.0]);
    at::<B, 3, 3>("log cosh", &device, [[1000.0, -1e20, 0.0], [0.0; 3]], expected, loss::log_cosh);

    let never = f32::NEG_INFINITY;
    let halves = [never, -ln2, -ln2];
    let expected = ([0.0], [0.0, -0.5, -0.5]);
    at::<B, 3, 1>("kl, zero target", &device, [halves, [0.0, 0.5, 0.5]], expected, loss::kl_divergence);
    at::<B, 3, 1>("kl, zero log target", &device, [halves, halves], expected, loss::kl_divergence_with_log_targets);
    // Gradient of the targets: the derivative of t log t is 1 + log t.
    let targets = [[0.0, 0.5, 0.5], [-1.0, -ln2, -ln2]];
    at::<B, 3, 1>("kl of targets", &device, targets, ([0.0], [0.0, 1.0, 1.0]), |t, p| loss::kl_divergence(p, t));
    let expected = ([0.0], [0.0, 0.5, 0.5]);
    at::<B, 3, 1>("kl of log targets", &device, [halves, [-1.0, -ln2, -ln2]], expected, |t, p| {
        loss::kl_divergence_with_log_targets(p, t)
    });

    at::<B, 2, 1>("cosine of zero", &device, [[0.0; 2], [3.0, 4.0]], ([0.0], [0.6, 0.8]), |a, b| {
        loss::cosine_similarity(a, b, 0.0)
    });
    at::<B, 2, 1>("cosine of zero, epsilon", &device, [[0.0; 2], [3.0, 4.0]], ([1.0], [-6.0, -8.0]), |a, b| {
        loss::cosine_distance(a, b, 0.01)
    });
    at::<B, 2, 1>("cosine to zero", &device, [[3.0, 4.0], [0.0; 2]], ([1.0], [0.0; 2]), |a, b| {
        loss::cosine_distance(a, b, 0.0)
    });

    let logits = [never, 1e30, 0.0];
    at::<B, 3, 1>("masked class", &device, [logits, [0.0, 1.0, 0.0]], ([0.0], [0.0; 3]), loss::softmax_cross_entropy);
    at::<B, 3, 1>("masked class, integer", &device, [logits, [0.0; 3]], ([1e30], [0.0, 1.0, -1.0]), |x, _| {
        loss::cross_entropy(x.unsqueeze::<2>(), Tensor::from_data([2i64], &device))
    });
    at::<B, 3, 1>(
        "impossible label",
        &device,
        [[never, 0.0, 0.0], [0.0; 3]],
        ([f32::INFINITY], [-1.0, 0.5, 0.5]),
        |x, _| loss::cross_entropy(x.unsqueeze::<2>(), Tensor::from_data([0i64], &device)),
    );
}

/// Ignored rows may hold any finite value or `-inf`. If all rows are ignored, the mean is NaN.
fn ignored<B: Backend>(device: B::Device) {
    let never = f32::NEG_INFINITY;
    let rows = [[0.0, 3f32.ln()], [never, 0.0], [9.0, 1e30]];
    let logits = Array::<B, 2>::new(Tensor::from_data(rows, &device));
    let labels = |labels: [i64; 3]| Tensor::<B, 1, Int>::from_data(labels, &device);
    let (mean, grad) = value_and_grad(&logits, |x| {
        loss::cross_entropy(x.val(), Tensor::from_data([0i64, IGNORE_INDEX, IGNORE_INDEX], &device))
    });
    assert_each("mean", mean.into_data(), &[4f32.ln()]);
    assert_each("gradient", grad.val().into_data(), &[-0.75, 0.75, 0.0, 0.0, 0.0, 0.0]);

    let each = CrossEntropy::default().per_example(logits.val(), labels([IGNORE_INDEX, 1, IGNORE_INDEX]));
    assert_each("each", each.into_data(), &[0.0; 3]);
    let nothing = loss::cross_entropy(logits.val(), labels([IGNORE_INDEX; 3]));
    assert!(nothing.into_data().iter::<f32>().all(f32::is_nan), "torch gives NaN");
}

/// bf16 has an 8-bit significand: ln 3000 = 8.00637 would be 8, and a sum of 3000 ones about 256. In f16, for devices without
/// bf16, they would be 8.0078 and 2048.
fn half_precision<B: Backend>(device: B::Device) {
    let dtype = if B::supports_dtype(&device, DType::BF16) { DType::BF16 } else { DType::F16 };
    let logits = Array::<B, 2>::new(Tensor::<B, 2>::zeros([2, 3000], &device).cast(dtype));
    let (mean, grad) =
        value_and_grad(&logits, |x| loss::cross_entropy(x.val(), Tensor::from_data([7i64, 2999], &device)));
    assert_eq!(mean.dtype(), DType::F32);
    assert_each("mean", mean.into_data(), &[3000f32.ln()]);
    assert_eq!(grad.val().dtype(), dtype);
    let grad: Vec<f32> = grad.val().cast(DType::F32).into_data().iter().collect();
    assert!((grad[7] + 0.5).abs() < 1e-2 && (grad[0] * 6000.0 - 1.0).abs() < 1e-2, "{} {}", grad[7], grad[0]);

    let half = |x: f32| Tensor::<B, 1>::from_data([x], &device).cast(dtype);
    let squared = loss::squared_error(half(1.0), half(1.5));
    assert_eq!((squared.dtype(), squared.into_data()), (DType::F32, TensorData::from([0.25f32])));
}

on_each_backend!(
    softmax_cross_entropies,
    torch_cross_entropies,
    binary,
    regression,
    divergences,
    cosines,
    extremes,
    ignored,
    half_precision
);

#[test]
#[should_panic(expected = "predictions [3, 1] and targets [3, 3] need one shape")]
fn nothing_is_broadcast() {
    let zeros = |shape: [usize; 2]| Tensor::<grove_backend::Flex, 2>::zeros(shape, &Default::default());
    loss::l2_loss(zeros([3, 1]), zeros([3, 3]));
}

#[test]
#[should_panic(expected = "labels [4] do not fit logits [3, 5]")]
fn labels_fit_logits() {
    let logits = Tensor::<grove_backend::Flex, 2>::zeros([3, 5], &Default::default());
    loss::cross_entropy(logits, Tensor::from_data([0i64, 1, 2, 3], &Default::default()));
}
