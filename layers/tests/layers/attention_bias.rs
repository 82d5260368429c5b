//! Attention with an additive bias against torch at realistic sizes, and T5's self-attention and cross-attention with
//! caches against transformers, with gradients. Fixtures: tools/fixtures/attention.py.

use crate::common;
use burn::tensor::{Int, Tensor, TensorData};
use grove_backend::{Autodiff, Backend};
use grove_layers::{AttentionMask, CrossCache, Embedding, KvCache, Linear, attend};
use grove_transform::GradOptions;
use grove_tree::{Array, Tree, leaves};

use crate::case::Case;

/// The fixture holds every 61st element of a result.
const STRIDE: usize = 61;

fn assert_close(what: &str, found: &[f64], expected: &TensorData, tolerance: f64) {
    let expected: Vec<f64> = expected.iter().collect();
    assert_eq!(found.len(), expected.len(), "{what}");
    let (apart, largest) = common::distance(found, &expected);
    assert!(apart <= tolerance * largest, "{what}: apart by {apart}, the largest is {largest}");
}

/// Element i is `sin(a i + b) c`.
fn formula<B: Backend>([a, b, c]: [f64; 3], shape: [usize; 4], device: &B::Device) -> Tensor<B, 4> {
    let count: usize = shape.iter().product();
    let values: Vec<f32> = (0..count).map(|i| ((a * i as f64 + b).sin() * c) as f32).collect();
    Tensor::from_data(TensorData::new(values, shape), device)
}

/// Queries, keys, values and bias.
#[derive(Tree, Clone)]
struct Inputs<B: Backend> {
    q: Array<B, 4>,
    k: Array<B, 4>,
    v: Array<B, 4>,
    bias: Array<B, 4>,
}

fn biased<B: Backend>(
    name: &'static str,
    [b, heads, t, s, size]: [usize; 5],
    bias: [usize; 4],
    causal: bool,
    device: &B::Device,
) {
    let case = Case::of("attention", name);
    let inputs = Inputs::<B> {
        q: Array::new(formula([0.731, 0.1, 1.5], [b, heads, t, size], device)),
        k: Array::new(formula([0.517, 0.7, 1.5], [b, heads, s, size], device)),
        v: Array::new(formula([0.393, 1.3, 1.0], [b, heads, s, size], device)),
        bias: Array::new(formula([0.911, 0.4, 2.0], bias, device)),
    };
    let scale = (size as f64).powf(-0.5);
    let some = |data: TensorData| data.iter::<f64>().step_by(STRIDE).collect::<Vec<_>>();
    let close = |part: &str, data: TensorData| {
        assert_close(&format!("{} {name} {part}", B::name(device)), &some(data), &case.data(part), 2e-5);
    };
    let mask = if causal { AttentionMask::Causal } else { AttentionMask::Full }.with_bias(inputs.bias.val());
    let y = attend(inputs.q.val(), inputs.k.val(), inputs.v.val(), &mask, scale, None);
    close("y", y.into_data());
    let (_, grads, ()) = GradOptions::new().value_and_grad_aux(&inputs, |inputs: Inputs<Autodiff<B>>| {
        let mask = if causal { AttentionMask::Causal } else { AttentionMask::Full }.with_bias(inputs.bias.val());
        let y = attend(inputs.q.val(), inputs.k.val(), inputs.v.val(), &mask, scale, None);
        ((y * formula([0.277, 0.9, 1.0], [b, heads, t, size], device)).sum(), ())
    });
    for (path, grad) in leaves(&grads) {
        close(&format!("grad.{path}"), grad.into_data().unwrap());
    }
}

fn torch_with_bias<B: Backend>(device: B::Device) {
    biased::<B>("bias.per_head", [2, 8, 96, 96, 64], [1, 8, 96, 96], false, &device);
    biased::<B>("bias.causal", [2, 6, 40, 130, 48], [1, 6, 40, 130], true, &device);
    biased::<B>("bias.of_keys", [3, 4, 1, 200, 64], [3, 1, 1, 200], false, &device);
}

/// The projections of T5's attention, without biases and without a scale.
#[derive(Tree, Clone)]
struct T5Attention<B: Backend> {
    q: Linear<B>,
    k: Linear<B>,
    v: Linear<B>,
    o: Linear<B>,
    /// `[buckets, n_head]`; `None` in cross-attention.
    relative_attention_bias: Option<Embedding<B>>,
}

const N_HEAD: usize = 3;

impl<B: Backend> T5Attention<B> {
    fn of(case: &Case, part: &str, device: &B::Device) -> Self {
        let linear = |name: &str| Linear::from_arrays(case.floats(&format!("{part}.{name}"), device), None);
        let bias = format!("{part}.relative_attention_bias");
        Self {
            q: linear("q"),
            k: linear("k"),
            v: linear("v"),
            o: linear("o"),
            relative_attention_bias: case.find(&bias).map(|_| Embedding { weight: case.floats(&bias, device) }),
        }
    }

    fn heads(layer: &Linear<B>, x: Tensor<B, 3>) -> Tensor<B, 4> {
        let [b, t, _] = x.dims();
        let y = layer.forward(x);
        let size = y.dims()[2];
        y.reshape([b, t, N_HEAD, size / N_HEAD]).swap_dims(1, 2)
    }

    fn output(&self, y: Tensor<B, 4>) -> Tensor<B, 3> {
        let [b, _, t, size] = y.dims();
        self.o.forward(y.swap_dims(1, 2).reshape([b, t, N_HEAD * size]))
    }

    /// `[1, n_head, t, t]`.
    fn bias(&self, buckets: Tensor<B, 2, Int>) -> Tensor<B, 4> {
        let table = self.relative_attention_bias.as_ref().expect("a bias");
        table.forward(buckets).permute([2, 0, 1]).unsqueeze_dim(0)
    }

    fn cross_cache(&self, states: Tensor<B, 3>) -> CrossCache<B> {
        CrossCache::new(Self::heads(&self.k, states.clone()), Self::heads(&self.v, states))
    }
}

/// Attention layers of a decoder block and their inputs.
#[derive(Tree, Clone)]
struct T5<B: Backend> {
    own: T5Attention<B>,
    cross: T5Attention<B>,
    x: Array<B, 3>,
    states: Array<B, 3>,
}

impl<B: Backend> T5<B> {
    /// Outputs of self-attention and cross-attention, all positions at once.
    fn outputs(&self, buckets: Tensor<B, 2, Int>, lengths: &[usize]) -> [Tensor<B, 3>; 2] {
        let x = self.x.val();
        let [q, k, v] = [&self.own.q, &self.own.k, &self.own.v].map(|layer| T5Attention::heads(layer, x.clone()));
        let mask = AttentionMask::Causal.with_bias(self.own.bias(buckets));
        let own = self.own.output(attend(q, k, v, &mask, 1.0, None));
        let cache = self.cross.cross_cache(self.states.val());
        let mask = AttentionMask::to_lengths(lengths, cache.len(), &x.device());
        let q = T5Attention::heads(&self.cross.q, x);
        [own, self.cross.output(cache.attend(q, &mask, 1.0, None))]
    }

    /// The same outputs, one position at a time with caches.
    fn decoded(&self, buckets: Tensor<B, 2, Int>, lengths: &[usize]) -> [Tensor<B, 3>; 2] {
        let bias = self.own.bias(buckets);
        let encoder = self.cross.cross_cache(self.states.val());
        let to_encoder = AttentionMask::to_lengths(lengths, encoder.len(), &bias.device());
        let (mut cache, mut own, mut cross) = (KvCache::new(), vec![], vec![]);
        for i in 0..self.x.shape()[1] {
            let x = self.x.val().narrow(1, i, 1);
            let [q, k, v] = [&self.own.q, &self.own.k, &self.own.v].map(|layer| T5Attention::heads(layer, x.clone()));
            let (k, v, next) = cache.append(k, v);
            cache = next;
            let row = bias.clone().narrow(2, i, 1).narrow(3, 0, i + 1);
            let mask = AttentionMask::causal(1, i, &[], &x.device()).with_bias(row);
            own.push(self.own.output(attend(q, k, v, &mask, 1.0, None)));
            let q = T5Attention::heads(&self.cross.q, x);
            cross.push(self.cross.output(encoder.attend(q, &to_encoder, 1.0, None)));
        }
        [own, cross].map(|steps| Tensor::cat(steps, 1))
    }
}

fn t5_decoder<B: Backend>(device: B::Device) {
    let case = Case::of("attention", "t5");
    let model = T5::<B> {
        own: T5Attention::of(&case, "own", &device),
        cross: T5Attention::of(&case, "cross", &device),
        x: case.floats("x", &device),
        states: case.floats("states", &device),
    };
    let lengths: Vec<usize> = case.data("lengths").iter::<i64>().map(|length| length as usize).collect();
    let close = |what: &str, found: TensorData, part: &str| {
        let found: Vec<f64> = found.iter().collect();
        assert_close(&format!("{} {what} {part}", B::name(&device)), &found, &case.data(part), 2e-5);
    };
    let buckets = || Tensor::<B, 2, Int>::from_data(case.data("buckets"), &device);
    for (what, [own, cross]) in
        [("at once", model.outputs(buckets(), &lengths)), ("decoded", model.decoded(buckets(), &lengths))]
    {
        close(what, own.into_data(), "own");
        close(what, cross.into_data(), "cross");
    }
    let (_, grads, ()) = GradOptions::new().value_and_grad_aux(&model, |model: T5<Autodiff<B>>| {
        let buckets = Tensor::from_data(case.data("buckets"), &device);
        let [own, cross] = model.outputs(buckets, &lengths);
        (own.powf_scalar(2.0).sum() + cross.powf_scalar(2.0).sum(), ())
    });
    let grads = leaves(&grads);
    assert_eq!(grads.len(), 4 + 4 + 1 + 2);
    for (path, grad) in grads {
        close("gradient", grad.into_data().unwrap(), &format!("grad.{}", path.trim_end_matches(".weight")));
    }
}

on_each_backend!(torch_with_bias, t5_decoder);
