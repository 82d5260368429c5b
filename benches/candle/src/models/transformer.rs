//! Transformer blocks of GPT-2 and of the trainable vision transformer.

use candle_core::{Module, Tensor};
use candle_nn::{Activation, Init, Linear, VarBuilder};

use crate::ops::{Pass, attend, merge_heads, split_heads};

/// Layer normalisation with candle's kernel, or in training with its plain operations.
pub(super) struct Norm {
    weight: Tensor,
    bias: Tensor,
    eps: f32,
    pass: Pass,
}

impl Norm {
    pub(super) fn load(sizes: &Sizes, vb: VarBuilder) -> candle_core::Result<Self> {
        let weight = vb.get_with_hints(sizes.width, "weight", Init::Const(1.0))?;
        let bias = vb.get_with_hints(sizes.width, "bias", Init::Const(0.0))?;
        Ok(Self { weight, bias, eps: sizes.eps, pass: sizes.pass })
    }
}

impl Module for Norm {
    fn forward(&self, x: &Tensor) -> candle_core::Result<Tensor> {
        match self.pass {
            Pass::Forward => candle_nn::ops::layer_norm(x, &self.weight, &self.bias, self.eps),
            Pass::Train => candle_nn::ops::layer_norm_slow(x, &self.weight, &self.bias, self.eps),
        }
    }
}

/// Sizes of the blocks of a transformer.
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    pub(super) width: usize,
    pub(super) heads: usize,
    pub(super) inner: usize,
    pub(super) eps: f32,
    pub(super) activation: Activation,
    pub(super) pass: Pass,
}

/// Pre-norm transformer block, with GPT-2's names and order of axes.
pub(super) struct Block {
    ln_1: Norm,
    c_attn: Linear,
    c_proj: Linear,
    ln_2: Norm,
    mlp_fc: Linear,
    mlp_proj: Linear,
    sizes: Sizes,
}

/// KV cache of one block.
pub(super) type Memory = Option<(Tensor, Tensor)>;

impl Block {
    pub(super) fn load(sizes: &Sizes, vb: VarBuilder) -> candle_core::Result<Self> {
        let Sizes { width, inner, .. } = *sizes;
        Ok(Self {
            ln_1: Norm::load(sizes, vb.pp("ln_1"))?,
            c_attn: conv_1d(width, 3 * width, vb.pp("attn.c_attn"))?,
            c_proj: conv_1d(width, width, vb.pp("attn.c_proj"))?,
            ln_2: Norm::load(sizes, vb.pp("ln_2"))?,
            mlp_fc: conv_1d(width, inner, vb.pp("mlp.c_fc"))?,
            mlp_proj: conv_1d(inner, width, vb.pp("mlp.c_proj"))?,
            sizes: *sizes,
        })
    }

    pub(super) fn forward(
        &self,
        x: &Tensor,
        mask: Option<&Tensor>,
        memory: Option<&mut Memory>,
    ) -> candle_core::Result<Tensor> {
        let [q, mut k, mut v] = split_heads(&x.apply(&self.ln_1)?.apply(&self.c_attn)?, self.sizes.heads)?;
        if let Some(memory) = memory {
            if let Some((old_k, old_v)) = memory {
                (k, v) = (Tensor::cat(&[&*old_k, &k], 2)?, Tensor::cat(&[&*old_v, &v], 2)?);
            }
            *memory = Some((k.clone(), v.clone()));
        }
        let mixed = merge_heads(&attend(&q, &k, &v, mask, self.sizes.pass)?)?;
        let x = (x + mixed.apply(&self.c_proj)?)?;
        let inner = x.apply(&self.ln_2)?.apply(&self.mlp_fc)?.apply(&self.sizes.activation)?;
        x + inner.apply(&self.mlp_proj)?
    }
}

/// Linear layer with weights `[inputs, outputs]`, as in GPT-2.
fn conv_1d(inputs: usize, outputs: usize, vb: VarBuilder) -> candle_core::Result<Linear> {
    let weight = vb.get_with_hints((inputs, outputs), "weight", NORMAL)?;
    Ok(Linear::new(weight.t()?, Some(vb.get(outputs, "bias")?)))
}

/// Initialization of GPT-2's weights.
pub(super) const NORMAL: Init = Init::Randn { mean: 0.0, stdev: 0.02 };
