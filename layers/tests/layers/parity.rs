//! Layers and their gradients against torch. Fixture: tools/fixtures/layers.py.

use crate::common;
use burn::tensor::{Int, Tensor, TensorData};
use grove_backend::{Autodiff, Backend, Conv2dOptions, Pool2dOptions};
use grove_layers::{
    Activation, AttentionMask, BatchNorm, Conv1d, Conv1dOptions, Conv2d, Embedding, LayerNorm, Linear, attend, loss,
    max_pool,
};
use grove_transform::value_and_grad_aux;
use grove_tree::{Array, Key, Tree, leaves};

use crate::case::Case;

impl Case {
    fn new(name: &'static str) -> Self {
        Self::of("layers", name)
    }

    fn ids<B: Backend>(&self, part: &str, device: &B::Device) -> Array<B, 2, Int> {
        Array::new(Tensor::from_data(self.data(part), device))
    }

    fn linear<B: Backend>(&self, prefix: &str, device: &B::Device) -> Linear<B> {
        let bias = format!("{prefix}bias");
        Linear::from_arrays(
            self.floats(&format!("{prefix}weight"), device),
            self.find(&bias).map(|_| self.floats(&bias, device)),
        )
    }

    /// Compares the output, with and without differentiation, and the gradients. `names` are the fixture's names of the
    /// tree's leaves, in order.
    fn check<B: Backend, T: Tree<B>, const D: usize>(
        &self,
        names: &[&str],
        tree: T,
        plain: impl FnOnce(T) -> Tensor<B, D>,
        tracked: impl FnOnce(T::On<Autodiff<B>>) -> Tensor<Autodiff<B>, D>,
    ) {
        let y = plain(tree.clone());
        let device = y.device();
        let backend = B::name(&device);
        let close = |part: &str, found: TensorData, tolerance| {
            let what = format!("{backend} {} {part}", self.name);
            assert_close(&what, found, self.data(part.split(' ').next().unwrap()), tolerance);
        };
        close("y", y.into_data(), 1e-4);
        let (_, grads, y) = value_and_grad_aux(&tree, |tree| {
            let y = tracked(tree);
            let dy = Tensor::<Autodiff<B>, D>::from_data(self.data("dy"), &device);
            ((y.clone() * dy).sum(), Array::<_, D>::new(y))
        });
        close("y under differentiation", y.val().into_data(), 1e-4);
        let grads = leaves(&grads);
        assert_eq!(grads.len(), names.len(), "a name for each leaf");
        for ((_, grad), name) in grads.into_iter().zip(names) {
            if grad.dtype().is_float() {
                close(&format!("grad.{name}"), grad.into_data().unwrap(), 1e-3);
            }
        }
    }
}

/// Fails unless `max |a - b| <= tolerance * max |b|`.
fn assert_close(what: &str, a: TensorData, b: TensorData, tolerance: f64) {
    assert_eq!(a.shape, b.shape, "{what}");
    let (a, b): (Vec<f64>, Vec<f64>) = (a.iter().collect(), b.iter().collect());
    let (apart, largest) = common::distance(&a, &b);
    println!("{what}: apart by {:.1e} of the largest", apart / largest);
    assert!(apart <= tolerance * largest, "{what}: apart by {apart}, the largest is {largest}");
}

fn linear<B: Backend, const D: usize>((x, linear): (Array<B, D>, Linear<B>)) -> Tensor<B, D> {
    linear.forward(x.val())
}

fn linears<B: Backend>(device: B::Device) {
    let case = Case::new("linear2d");
    let tree = (case.floats("x", &device), case.linear("", &device));
    case.check(&["x", "weight", "bias"], tree, linear::<B, 2>, linear::<Autodiff<B>, 2>);

    let case = Case::new("linear3d");
    let tree = (case.floats("x", &device), case.linear("", &device));
    case.check(&["x", "weight", "bias"], tree, linear::<B, 3>, linear::<Autodiff<B>, 3>);

    let case = Case::new("linear_no_bias");
    let tree = (case.floats("x", &device), case.linear("", &device));
    case.check(&["x", "weight"], tree, linear::<B, 2>, linear::<Autodiff<B>, 2>);
}

fn embed<B: Backend>((ids, embedding): (Array<B, 2, Int>, Embedding<B>)) -> Tensor<B, 3> {
    embedding.forward(ids.val())
}

fn embeddings<B: Backend>(device: B::Device) {
    let case = Case::new("embedding");
    let tree = (case.ids("input", &device), Embedding { weight: case.floats("weight", &device) });
    case.check(&["input", "weight"], tree, embed::<B>, embed::<Autodiff<B>>);
}

fn normalise<B: Backend, const D: usize>((x, norm): (Array<B, D>, LayerNorm<B>)) -> Tensor<B, D> {
    norm.forward(x.val())
}

fn layer_norms<B: Backend>(device: B::Device) {
    let norm = |case: &Case| LayerNorm {
        weight: case.floats("weight", &device),
        bias: Some(case.floats("bias", &device)),
        eps: 1e-5,
    };
    let case = Case::new("layer_norm");
    let tree = (case.floats("x", &device), norm(&case));
    case.check(&["x", "weight", "bias"], tree, normalise::<B, 3>, normalise::<Autodiff<B>, 3>);

    let case = Case::new("layer_norm_small_variance");
    let tree = (case.floats("x", &device), norm(&case));
    case.check(&["x", "weight", "bias"], tree, normalise::<B, 2>, normalise::<Autodiff<B>, 2>);
}

fn normalise_channels<B: Backend>((x, norm): (Array<B, 4>, LayerNorm<B>)) -> Tensor<B, 4> {
    norm.forward_channels(x.val())
}

fn channel_norms<B: Backend>(device: B::Device) {
    let case = Case::new("channel_norm");
    let (weight, bias) = (case.floats("weight", &device), Some(case.floats("bias", &device)));
    let tree = (case.floats("x", &device), LayerNorm { weight, bias, eps: 1e-5 });
    let (forward, differentiated) = (normalise_channels::<B>, normalise_channels::<Autodiff<B>>);
    case.check(&["x", "weight", "bias"], tree, forward, differentiated);
}

fn convolve_1d<B: Backend>((x, conv): (Array<B, 3>, Conv1d<B>)) -> Tensor<B, 3> {
    conv.forward(x.val())
}

fn convolutions_1d<B: Backend>(device: B::Device) {
    let strided = Conv1dOptions { stride: 2, padding: 1, ..Default::default() };
    let dilated = Conv1dOptions { padding: 4, dilation: 2, groups: 2, ..Default::default() };
    for (name, options) in [("conv1d", strided), ("conv1d_dilated", dilated)] {
        let case = Case::new(name);
        let (weight, bias) = (case.floats("weight", &device), Some(case.floats("bias", &device)));
        let tree = (case.floats("x", &device), Conv1d { weight, bias, options });
        case.check(&["x", "weight", "bias"], tree, convolve_1d::<B>, convolve_1d::<Autodiff<B>>);
    }
}

type Heads<B> = Array<B, 4>;

/// Attention of the last positions to all keys and values, with optional dropout.
fn attention<B: Backend>(
    (q, k, v): (Heads<B>, Heads<B>, Heads<B>),
    padding: &[usize],
    dropping: Option<(f64, Key)>,
) -> Tensor<B, 4> {
    let [_, _, t, head_dim] = q.shape();
    let seen = k.shape()[2] - t;
    let mask = AttentionMask::causal(t, seen, padding, &q.val().device());
    attend(q.val(), k.val(), v.val(), &mask, (head_dim as f64).powf(-0.5), dropping)
}

fn attentions<B: Backend>(device: B::Device) {
    // A rate this small drops nothing, but takes the training path.
    let none_dropped = Some((1e-9, Key::new(0)));
    for name in ["attention", "attention_cached"] {
        let case = Case::new(name);
        let tree = (case.floats("q", &device), case.floats("k", &device), case.floats("v", &device));
        for (padding, dropping) in [(&[][..], None), (&[], none_dropped), (&[0, 0], None)] {
            case.check(
                &["q", "k", "v"],
                tree.clone(),
                |tree| attention::<B>(tree, padding, dropping),
                |tree| attention::<Autodiff<B>>(tree, padding, dropping),
            );
        }
    }
}

fn multi_head<B: Backend>((x, c_attn, c_proj): (Array<B, 3>, Linear<B>, Linear<B>)) -> Tensor<B, 3> {
    let [b, t, c] = x.shape();
    let split = |part: Tensor<B, 3>| part.reshape([b, t, 3, c / 3]).swap_dims(1, 2); // [b, n_head, t, head_dim]
    let qkv = c_attn.forward(x.val());
    let [q, k, v] = [0, 1, 2].map(|i| split(qkv.clone().narrow(2, i * c, c)));
    let y = attend(q, k, v, &AttentionMask::Causal, (c as f64 / 3.0).powf(-0.5), None);
    c_proj.forward(y.swap_dims(1, 2).reshape([b, t, c]))
}

fn multi_head_attention<B: Backend>(device: B::Device) {
    let case = Case::new("multi_head_attention");
    let tree = (case.floats("x", &device), case.linear("c_attn_", &device), case.linear("c_proj_", &device));
    let names = ["x", "c_attn_weight", "c_attn_bias", "c_proj_weight", "c_proj_bias"];
    case.check(&names, tree, multi_head::<B>, multi_head::<Autodiff<B>>);
}

fn entropy<B: Backend>((logits, labels): (Array<B, 3>, Array<B, 2, Int>)) -> Tensor<B, 1> {
    let [b, t, classes] = logits.shape();
    loss::cross_entropy(logits.val().reshape([b * t, classes]), labels.val().reshape([b * t]))
}

fn cross_entropy<B: Backend>(device: B::Device) {
    let case = Case::new("cross_entropy");
    let tree = (case.floats("logits", &device), case.ids("labels", &device));
    case.check(&["logits", "labels"], tree, entropy::<B>, entropy::<Autodiff<B>>);
}

fn convolutions<B: Backend>(device: B::Device) {
    type Parts<B> = (Array<B, 4>, Array<B, 4>, Array<B, 1>);
    fn convolve<B: Backend>((x, weight, bias): Parts<B>, options: Conv2dOptions) -> Tensor<B, 4> {
        Conv2d { weight, bias: Some(bias), options }.forward(x.val())
    }
    let options = |stride, padding, dilation, groups| Conv2dOptions {
        stride: [stride; 2],
        padding: [padding; 2],
        dilation: [dilation; 2],
        groups,
    };
    let cases = [
        ("conv", options(2, 1, 1, 1)),
        ("conv_grouped", options(1, 1, 1, 3)),
        ("conv_dilated", options(1, 2, 2, 1)),
        ("conv_depthwise", options(2, 0, 1, 4)),
        ("conv_pointwise", options(1, 0, 1, 1)),
        ("conv_halving", options(2, 0, 1, 1)),
        ("conv_halving_even", options(2, 0, 1, 1)),
    ];
    for (name, options) in cases {
        let case = Case::new(name);
        let tree = (case.floats("x", &device), case.floats("weight", &device), case.floats("bias", &device));
        let names = ["x", "weight", "bias"];
        case.check(&names, tree, |tree| convolve::<B>(tree, options), |tree| convolve::<Autodiff<B>>(tree, options));
    }
}

fn batch_norms<B: Backend>(device: B::Device) {
    type Parts<B> = (Array<B, 4>, Array<B, 1>, Array<B, 1>, Array<B, 4>);
    fn norm<B: Backend>(weight: Array<B, 1>, bias: Array<B, 1>, statistics: [Array<B, 1>; 2]) -> BatchNorm<B> {
        let [running_mean, running_var] = statistics;
        BatchNorm { weight, bias, running_mean, running_var, eps: 1e-5, momentum: 0.1, ranks: None }
    }
    fn train<B: Backend>((x, weight, bias, residual): Parts<B>) -> (Tensor<B, 4>, BatchNorm<B>) {
        let device = residual.val().device();
        let statistics = [Tensor::zeros([4], &device), Tensor::ones([4], &device)].map(Array::new);
        norm(weight, bias, statistics).train(x.val(), Some(residual.val()), true)
    }
    let case = Case::new("batch_norm");
    let tree = (case.floats("x", &device), case.floats("weight", &device), case.floats("bias", &device));
    let of = ["running_mean", "running_var"];
    let statistics = || of.map(|name| case.floats::<B, 1>(name, &device));
    let tracked = || of.map(|name| case.floats::<Autodiff<B>, 1>(name, &device));
    type Inference<B> = (Array<B, 4>, Array<B, 1>, Array<B, 1>);
    case.check(
        &["x", "weight", "bias"],
        tree,
        |(x, weight, bias): Inference<B>| norm(weight, bias, statistics()).forward(x.val()),
        |(x, weight, bias): Inference<Autodiff<B>>| norm(weight, bias, tracked()).forward(x.val()),
    );

    let case = Case::new("batch_norm_training");
    let floats = |name: &str| case.floats::<B, 1>(name, &device);
    let tree = (case.floats("x", &device), floats("weight"), floats("bias"), case.floats("residual", &device));
    let (_, successor) = train::<B>(tree.clone());
    for (name, found) in [("after_mean", successor.running_mean), ("after_var", successor.running_var)] {
        assert_close(name, found.val().into_data(), case.data(name), 1e-4);
    }
    let names = ["x", "weight", "bias", "residual"];
    case.check(&names, tree, |tree| train::<B>(tree).0, |tree| train::<Autodiff<B>>(tree).0);
}

fn pools<B: Backend>(device: B::Device) {
    fn pool<B: Backend>(x: Array<B, 4>, options: Pool2dOptions, rectified: bool) -> Tensor<B, 4> {
        max_pool(if rectified { Activation::Relu.forward(x.val()) } else { x.val() }, options)
    }
    let rectified = Pool2dOptions { kernel: [3, 3], stride: [2, 2], padding: [1, 1] };
    let wide = Pool2dOptions { kernel: [2, 3], stride: [3, 1], padding: [0, 0] };
    for (name, options) in [("max_pool", rectified), ("max_pool_wide", wide)] {
        let case = Case::new(name);
        let first = name == "max_pool";
        case.check(
            &["x"],
            case.floats("x", &device),
            |x| pool::<B>(x, options, first),
            |x| pool::<Autodiff<B>>(x, options, first),
        );
    }
}

/// Every function of transformers' table and its derivative. Fixture: tools/fixtures/activations.py.
fn activations<B: Backend>(device: B::Device) {
    let text = std::fs::read_to_string("tests/fixtures/activations.json").unwrap();
    let mut cases: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&text).unwrap();
    let numbers = |value: &serde_json::Value| -> Vec<f32> { serde_json::from_value(value.clone()).unwrap() };
    let x = numbers(&cases.remove("x").unwrap());
    assert!(cases.len() > 20);
    for (name, case) in cases {
        let activation: Activation = name.parse().unwrap();
        let array = Array::<B, 1>::new(Tensor::from_floats(&x[..], &device));
        let loss = |x: Array<Autodiff<B>, 1>| {
            let y = activation.forward(x.val());
            (y.clone().sum(), Array::new(y))
        };
        let (_, derivatives, values) = value_and_grad_aux(&array, loss);
        for (part, found) in [("values", values), ("derivatives", derivatives)] {
            let found: Vec<f32> = found.val().into_data().iter().collect();
            for ((x, found), expected) in x.iter().zip(found).zip(numbers(&case[part])) {
                let near = (found - expected).abs() <= 1e-5 * expected.abs().max(1e-1);
                assert!(near, "{name}: {part} at {x}: {found}, not {expected}");
            }
        }
    }
}

/// As in torch: the values of an ignored row do not matter, and the mean over ignored rows only is NaN.
fn ignored_rows<B: Backend>(device: B::Device) {
    let masked = f32::NEG_INFINITY; // logit of a masked token
    let logits = Array::<B, 2>::new(Tensor::from_data([[0.0, 3f32.ln()], [masked, 0.0], [9.0, 1e30]], &device));
    let (value, grad, ()) = value_and_grad_aux(&logits, |logits| {
        let labels = Tensor::from_data([0i64, loss::IGNORE_INDEX, loss::IGNORE_INDEX], &device);
        (loss::cross_entropy(logits.val(), labels), ())
    });
    assert_close("one row", value.into_data(), TensorData::from([4f32.ln()]), 1e-5);
    let expected = TensorData::from([[-0.75f32, 0.75], [0.0, 0.0], [0.0, 0.0]]);
    assert_close("gradient of one row", grad.val().into_data(), expected, 1e-5);

    let labels = Tensor::from_data([loss::IGNORE_INDEX; 3], &device);
    let nothing = loss::cross_entropy(logits.val(), labels).into_data();
    assert!(nothing.iter::<f32>().all(f32::is_nan));
}

on_each_backend!(
    activations,
    ignored_rows,
    linears,
    embeddings,
    layer_norms,
    attentions,
    multi_head_attention,
    cross_entropy,
    convolutions,
    convolutions_1d,
    channel_norms,
    batch_norms,
    pools,
);
