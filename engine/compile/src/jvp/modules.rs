//! Tangents of Burn's module operations.

use grove_backend::{AnyTensor, Backend};

use super::rules::{JvpRules, Tangent};
use crate::{Primitive, eval::apply, primitive::Module, target::missing};

impl<B: Backend> JvpRules<'_, B> {
    pub(super) fn module_tangent(
        &self,
        module: &Module,
        primitive: &Primitive,
        x: &[AnyTensor<B>],
        t: Vec<Tangent<B>>,
    ) -> Tangent<B> {
        match module {
            Module::Embedding => Some(self.linear(primitive, x, t, |i| i == 0)),
            Module::EmbeddingGrad | Module::AvgPool2dGrad(_) | Module::AdaptiveAvgPool2dGrad => {
                t[1].is_some().then(|| self.linear(primitive, x, t, |i| i == 1))
            }
            Module::ConvBiasGrad(_) | Module::MaxPool2dGrad(_) => {
                t[2].is_some().then(|| self.linear(primitive, x, t, |i| i == 2))
            }
            Module::LinearBiasGrad | Module::AvgPool2d(_) | Module::AdaptiveAvgPool2d(_) => {
                Some(self.linear(primitive, x, t, |_| true))
            }
            Module::LinearInputGrad | Module::LinearWeightGrad => self.bilinear(primitive, x, &t, [0, 1]),
            Module::ConvInputGrad(_) => self.bilinear(primitive, x, &t, [1, 2]),
            Module::ConvWeightGrad(_) => self.bilinear(primitive, x, &t, [0, 2]),
            Module::Linear | Module::Conv(_) => {
                let products = self.bilinear(primitive, &x[..2], &t[..2], [0, 1]);
                let bias = t.get(2).cloned().flatten().map(|bias| match module {
                    // One value per channel.
                    Module::Conv(conv) => {
                        let channels = bias.shape()[0];
                        let mut shape = vec![1; conv.stride.len() + 2];
                        shape[1] = channels;
                        bias.reshape(shape)
                    }
                    _ => {
                        let mut shape = vec![1; x[0].shape().num_dims()];
                        shape[x[0].shape().num_dims() - 1] = bias.shape()[0];
                        bias.reshape(shape)
                    }
                });
                self.sum(products, bias)
            }
            Module::MaxPool2d(_) => {
                let pooled = apply(primitive, vec![Some(x[0].clone())], 2, self.target);
                let [Some(y), Some(positions)] = <[_; 2]>::try_from(pooled).ok()? else { missing() };
                // Indices are relative to one channel of one image.
                let (shape, planes) = (x[0].shape(), y.shape());
                let t = t.into_iter().next()??.reshape([shape[0], shape[1], shape[2] * shape[3]]);
                let positions = positions.reshape([planes[0], planes[1], planes[2] * planes[3]]);
                Some(self.one(Primitive::Gather(2), [t, positions]).reshape(planes))
            }
        }
    }
}
