//! Rows of single operations or layers, forward only, and the optimizer step.

use anyhow::Result;
use candle_core::{D, DType, Device, Shape, Tensor, Var};
use candle_nn::{
    AdamW, Init, Module, Optimizer, ParamsAdamW, VarBuilder, VarMap,
    rnn::{GRUConfig, LSTMConfig, RNN},
    var_builder::SimpleBackend,
};
use std::hint::black_box;

use crate::{
    Run, unsupported,
    work::{Cell, Function, Work},
};

/// Creates the inputs and weights of an operation and returns its run; `None` for other rows.
pub fn prepare(row: &Work) -> Result<Option<Run>> {
    Ok(Some(match *row {
        Work::Gemm { m, k, n } => {
            let (a, b) = (randn((m, k))?, randn((k, n))?);
            run(move || a.matmul(&b))
        }
        Work::Activation { function, rows, columns } => {
            let x = randn((rows, columns))?;
            run(move || activate(function, &x))
        }
        Work::Chain { function, rows, columns, .. } => {
            let (x, scale, shift) = (randn((rows, columns))?, randn(columns)?, randn(columns)?);
            run(move || activate(function, &x.broadcast_mul(&scale)?.broadcast_add(&shift)?)? + &x)
        }
        Work::Softmax { rows, columns } => {
            let x = randn((rows, columns))?;
            run(move || candle_nn::ops::softmax_last_dim(&x))
        }
        Work::LayerNorm { rows, columns } => {
            let x = randn((rows, columns))?;
            let norm = candle_nn::LayerNorm::new(randn(columns)?, randn(columns)?, 1e-5);
            run(move || norm.forward(&x))
        }
        Work::Ffn { rows, width, hidden, .. } => {
            let x = randn((rows, width))?;
            let up = candle_nn::linear(width, hidden, weights())?;
            let down = candle_nn::linear(hidden, width, weights())?;
            run(move || x.apply(&up)?.gelu_erf()?.apply(&down))
        }
        Work::Mha { batch, tokens, width, heads, causal } => {
            let x = randn((batch, tokens, width))?;
            let mask = causal.then(|| causal_mask(tokens)).transpose()?;
            let qkv = candle_nn::linear(width, 3 * width, weights())?;
            let out = candle_nn::linear(width, width, weights())?;
            run(move || {
                let [q, k, v] = split_heads(&x.apply(&qkv)?, heads)?;
                merge_heads(&attend(&q, &k, &v, mask.as_ref(), Pass::Forward)?)?.apply(&out)
            })
        }
        Work::Attention { batch, heads, tokens, head_dim, causal } => {
            let shape = (batch, heads, tokens, head_dim);
            let (q, k, v) = (randn(shape)?, randn(shape)?, randn(shape)?);
            let mask = causal.then(|| causal_mask(tokens)).transpose()?;
            run(move || attend(&q, &k, &v, mask.as_ref(), Pass::Forward))
        }
        Work::Conv { batch, inputs, outputs, size, kernel, stride, padding } => {
            let x = randn((batch, inputs, size, size))?;
            let config = candle_nn::Conv2dConfig { stride, padding, ..Default::default() };
            let conv = candle_nn::conv2d_no_bias(inputs, outputs, kernel, config, weights())?;
            run(move || conv.forward(&x))
        }
        Work::Rnn { lengths: Some(_), .. } => return Err(unsupported("candle's recurrent layers take no lengths")),
        Work::Rnn { train: true, .. } => {
            return Err(unsupported("candle's recurrent layers are measured forward only"));
        }
        Work::Rnn { cell, batch, steps, inputs, hidden, .. } => {
            // candle expects `[batch, steps, inputs]`.
            let x = randn((batch, steps, inputs))?;
            match cell {
                Cell::Lstm => states(candle_nn::rnn::lstm(inputs, hidden, LSTMConfig::default(), weights())?, x),
                Cell::Gru => states(candle_nn::rnn::gru(inputs, hidden, GRUConfig::default(), weights())?, x),
            }
        }
        Work::Optimizer { ref shapes } => optimizer(shapes)?,
        _ => return Ok(None),
    }))
}

/// Returns a run that computes a tensor and drops it.
pub fn run(mut compute: impl FnMut() -> candle_core::Result<Tensor> + 'static) -> Run {
    Box::new(move || {
        black_box(compute()?);
        Ok(())
    })
}

/// Returns a tensor of normally distributed values.
pub fn randn(shape: impl Into<Shape>) -> candle_core::Result<Tensor> {
    Tensor::randn(0f32, 1f32, shape, &Device::Cpu)
}

/// Source of random weights for layers.
///
/// Layers are initialised as in candle, except that constant parameters, such as biases and scales, get a small random
/// spread: zeros may be faster. Frozen weights are not variables, because candle keeps all intermediate results of
/// variables.
#[derive(Clone, Default)]
pub struct Random {
    /// Variables, in training.
    pub variables: Option<VarMap>,
}

impl SimpleBackend for Random {
    fn get(&self, shape: Shape, name: &str, hint: Init, dtype: DType, device: &Device) -> candle_core::Result<Tensor> {
        let hint = match hint {
            Init::Const(mean) => Init::Randn { mean, stdev: 0.02 },
            other => other,
        };
        match &self.variables {
            Some(variables) => variables.get(shape, name, hint, dtype, device),
            None => Ok(hint.var(shape, dtype, device)?.as_detached_tensor()),
        }
    }

    fn get_unchecked(&self, name: &str, _: DType, _: &Device) -> candle_core::Result<Tensor> {
        candle_core::bail!("{name}: random weights need a shape")
    }

    fn contains_tensor(&self, _: &str) -> bool {
        true
    }
}

impl Random {
    /// Returns a builder of layers.
    pub fn builder(&self) -> VarBuilder<'static> {
        VarBuilder::from_backend(Box::new(self.clone()), DType::F32, Device::Cpu)
    }
}

/// Returns a source of frozen random weights.
pub fn weights() -> VarBuilder<'static> {
    Random::default().builder()
}

fn activate(function: Function, x: &Tensor) -> candle_core::Result<Tensor> {
    const SELU_ALPHA: f32 = 1.673_263_2;
    const SELU_GAMMA: f32 = 1.050_701;
    match function {
        Function::Gelu => x.gelu_erf(),
        Function::Selu => candle_nn::ops::selu(x, SELU_ALPHA, SELU_GAMMA),
    }
}

/// Inference or training. candle's fused kernels of softmax and layer normalisation have no backward pass, and silently
/// give no gradients. Training therefore uses plain operations.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    Forward,
    Train,
}

/// Scaled dot-product attention of `[batch, heads, tokens, head_dim]`, written as in candle-transformers' models.
pub fn attend(q: &Tensor, k: &Tensor, v: &Tensor, mask: Option<&Tensor>, pass: Pass) -> candle_core::Result<Tensor> {
    let scores = (q.matmul(&k.t()?)? / (q.dim(D::Minus1)? as f64).sqrt())?;
    let scores = match mask {
        Some(mask) => scores.broadcast_add(mask)?,
        None => scores,
    };
    let shares = match pass {
        Pass::Forward => candle_nn::ops::softmax_last_dim(&scores)?,
        Pass::Train => candle_nn::ops::softmax(&scores, D::Minus1)?,
    };
    shares.matmul(v)
}

/// Returns a causal mask that is added to attention scores.
pub fn causal_mask(tokens: usize) -> candle_core::Result<Tensor> {
    let mask = (0..tokens).flat_map(|i| (0..tokens).map(move |j| if j > i { f32::NEG_INFINITY } else { 0.0 }));
    Tensor::from_vec(mask.collect(), (tokens, tokens), &Device::Cpu)
}

/// Splits `[batch, tokens, 3 * width]` into queries, keys and values, each `[batch, heads, tokens, head_dim]`.
pub fn split_heads(qkv: &Tensor, heads: usize) -> candle_core::Result<[Tensor; 3]> {
    let (batch, tokens, wide) = qkv.dims3()?;
    let qkv = qkv.reshape((batch, tokens, 3, heads, wide / 3 / heads))?.permute((2, 0, 3, 1, 4))?.contiguous()?;
    Ok([qkv.get(0)?, qkv.get(1)?, qkv.get(2)?])
}

/// Merges heads: `[batch, heads, tokens, head_dim]` to `[batch, tokens, width]`.
pub fn merge_heads(x: &Tensor) -> candle_core::Result<Tensor> {
    x.transpose(1, 2)?.flatten_from(2)
}

/// Returns a run of a recurrent layer that computes the hidden states of all steps.
fn states(layer: impl RNN + 'static, x: Tensor) -> Run {
    run(move || layer.states_to_tensor(&layer.seq(&x)?))
}

/// Returns the optimizer of all training rows.
pub fn adamw(variables: Vec<Var>) -> candle_core::Result<AdamW> {
    AdamW::new(variables, ParamsAdamW { lr: 1e-4, beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.01 })
}

/// Returns a run of one optimizer step over tensors of these shapes, with given gradients.
fn optimizer(shapes: &[Vec<usize>]) -> Result<Run> {
    // candle creates gradient stores only in backward passes; the gradient of this one is not used.
    let mut gradients = Var::new(0f32, &Device::Cpu)?.backward()?;
    let mut variables = Vec::new();
    for shape in shapes {
        let variable = Var::from_tensor(&randn(shape.as_slice())?)?;
        gradients.insert(&variable, randn(shape.as_slice())?);
        variables.push(variable);
    }
    let mut adamw = adamw(variables)?;
    Ok(Box::new(move || Ok(adamw.step(&gradients)?)))
}
