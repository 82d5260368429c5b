//! Vision transformer: candle-transformers' model, and a trainable one.

use candle_core::{Module, Tensor};
use candle_nn::{Activation, Linear, VarBuilder};
use candle_transformers::models::vit;

use super::transformer::{Block, NORMAL, Norm, Sizes};
use crate::{
    ops::{Pass, weights},
    work::VitSizes,
};

/// Creates candle-transformers' model, which is for inference only.
pub(super) fn published(sizes: &VitSizes) -> candle_core::Result<vit::Model> {
    let config = vit::Config {
        hidden_size: sizes.width,
        num_hidden_layers: sizes.depth,
        num_attention_heads: sizes.heads,
        intermediate_size: sizes.mlp,
        hidden_act: Activation::Gelu,
        layer_norm_eps: 1e-6,
        image_size: sizes.size,
        patch_size: sizes.patch,
        num_channels: 3,
        qkv_bias: true,
    };
    vit::Model::new(&config, sizes.classes, weights())
}

/// Trainable vision transformer.
pub(super) struct Vit {
    patches: candle_nn::Conv2d,
    class: Tensor,
    positions: Tensor,
    blocks: Vec<Block>,
    norm: Norm,
    head: Linear,
}

impl Vit {
    pub(super) fn load(row: &VitSizes, vb: VarBuilder) -> candle_core::Result<Self> {
        let (width, heads, inner) = (row.width, row.heads, row.mlp);
        let sizes = Sizes { width, heads, inner, eps: 1e-6, activation: Activation::Gelu, pass: Pass::Train };
        let tokens = 1 + (row.size / row.patch).pow(2);
        let config = candle_nn::Conv2dConfig { stride: row.patch, ..Default::default() };
        Ok(Self {
            patches: candle_nn::conv2d(3, width, row.patch, config, vb.pp("patches"))?,
            class: vb.get_with_hints((1, 1, width), "class", NORMAL)?,
            positions: vb.get_with_hints((1, tokens, width), "positions", NORMAL)?,
            blocks: (0..row.depth).map(|i| Block::load(&sizes, vb.pp("h").pp(i))).collect::<Result<_, _>>()?,
            norm: Norm::load(&sizes, vb.pp("norm"))?,
            head: candle_nn::linear(width, row.classes, vb.pp("head"))?,
        })
    }
}

impl Module for Vit {
    fn forward(&self, x: &Tensor) -> candle_core::Result<Tensor> {
        let patches = x.apply(&self.patches)?.flatten_from(2)?.transpose(1, 2)?;
        let (batch, _, width) = patches.dims3()?;
        let class = self.class.broadcast_as((batch, 1, width))?;
        let mut x = Tensor::cat(&[class, patches], 1)?.broadcast_add(&self.positions)?;
        for block in &self.blocks {
            x = block.forward(&x, None, None)?;
        }
        x.narrow(1, 0, 1)?.squeeze(1)?.apply(&self.norm)?.apply(&self.head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        models::{random_ids, tests::moves_every_variable, trained},
        ops::randn,
    };

    #[test]
    fn training_moves_every_variable_of_a_vit() {
        let [size, patch, width, depth, heads, mlp, classes, batch] = [16, 4, 12, 2, 3, 20, 5, 2];
        let sizes = VitSizes { size, patch, width, depth, heads, mlp, classes, batch };
        let random = trained();
        let model = Vit::load(&sizes, random.builder()).expect("a model");
        let x = randn(&sizes.images()).expect("images");
        moves_every_variable(&random, random_ids(5, &[2]).expect("ids"), move || model.forward(&x));
    }
}
