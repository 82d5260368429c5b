//! Batching rules of Burn's module operations.

use grove_backend::{AnyTensor, Backend};

use super::rules::{Batched, BatchingRules, Inputs, next};
use crate::{
    Primitive,
    eval::apply,
    primitive::{Binary, Conv, Module, Reduction},
};

impl<B: Backend> BatchingRules<'_, B> {
    pub(super) fn module(&self, module: &Module, mut inputs: Inputs<B>, outputs: usize) -> Vec<Option<AnyTensor<B>>> {
        let run = |inputs: Vec<AnyTensor<B>>| self.one(Primitive::Module(module.clone()), inputs);
        let y = match module {
            Module::Embedding => {
                let (weight, ids) = (next(&mut inputs), next(&mut inputs));
                let ids = match weight.batched {
                    true => Batched {
                        tensor: self.flat_positions(self.expanded(ids), weight.tensor.shape()[1]),
                        batched: true,
                    },
                    false => ids,
                };
                let weight = if weight.batched { self.folded(weight) } else { weight.tensor };
                self.unfolded(run(vec![weight, self.folded(ids)]))
            }
            Module::EmbeddingGrad => {
                let (weight, grad, ids) = (next(&mut inputs), next(&mut inputs), next(&mut inputs));
                let weight = Batched { tensor: self.expanded(weight), batched: true };
                let ids = self.flat_positions_of_updates(self.expanded(ids), weight.tensor.shape()[1]);
                let ids = self.folded(Batched { tensor: ids, batched: true });
                self.unfolded(run(vec![self.folded(weight), self.folded(grad), ids]))
            }
            Module::Linear => return vec![Some(self.linear(inputs))],
            Module::LinearInputGrad => {
                let (weight, grad) = (next(&mut inputs), next(&mut inputs));
                match weight.batched {
                    true => {
                        let weight = self.one(Primitive::SwapAxes(1, 2), [weight.tensor]);
                        self.product_of_rows(self.expanded(grad), weight)
                    }
                    false => run(vec![weight.tensor, grad.tensor]),
                }
            }
            Module::LinearWeightGrad => {
                let (x, grad) = (self.expanded(next(&mut inputs)), self.expanded(next(&mut inputs)));
                let x = self.one(Primitive::SwapAxes(1, 2), [self.as_rows(x)]);
                self.product(x, self.as_rows(grad))
            }
            Module::LinearBiasGrad => {
                let grad = self.as_rows(next(&mut inputs).tensor);
                let width = grad.shape()[2];
                self.one(Primitive::Reduce(Reduction::Sum, Some(1)), [grad]).reshape([self.examples, width])
            }
            Module::Conv(conv) => self.conv(conv, inputs),
            Module::ConvInputGrad(conv) => {
                let (x, weight, grad) = (next(&mut inputs), next(&mut inputs), next(&mut inputs));
                match weight.batched {
                    true => {
                        let inputs = [self.as_channels(x), self.folded(weight), self.as_channels(grad)];
                        self.out_of_channels(
                            self.one(Primitive::Module(Module::ConvInputGrad(self.grouped(conv))), inputs),
                        )
                    }
                    false => self.unfolded(run(vec![self.folded(x), weight.tensor, self.folded(grad)])),
                }
            }
            Module::ConvWeightGrad(conv) => {
                let (x, weight, grad) = (next(&mut inputs), next(&mut inputs), next(&mut inputs));
                let inputs = [self.as_channels(x), self.folded(weight), self.as_channels(grad)];
                self.unfolded(self.one(Primitive::Module(Module::ConvWeightGrad(self.grouped(conv))), inputs))
            }
            Module::ConvBiasGrad(_) => {
                let (x, bias, grad) = (next(&mut inputs), next(&mut inputs), next(&mut inputs));
                self.unfolded(run(vec![self.as_channels(x), self.folded(bias), self.as_channels(grad)]))
            }
            // Images are independent of each other, so the examples are folded into the batch.
            Module::AvgPool2d(_)
            | Module::AvgPool2dGrad(_)
            | Module::AdaptiveAvgPool2d(_)
            | Module::AdaptiveAvgPool2dGrad
            | Module::MaxPool2d(_)
            | Module::MaxPool2dGrad(_) => {
                let inputs = inputs.map(|x| Some(self.folded(x))).collect();
                let results = apply(&Primitive::Module(module.clone()), inputs, outputs, self.target);
                return results.into_iter().map(|y| y.map(|y| self.unfolded(y))).collect();
            }
        };
        vec![Some(y)]
    }

    fn linear(&self, mut inputs: Inputs<B>) -> AnyTensor<B> {
        let (x, weight, bias) = (next(&mut inputs), next(&mut inputs), inputs.next());
        if !weight.batched && !bias.as_ref().is_some_and(|bias| bias.batched) {
            let inputs = [x.tensor, weight.tensor].into_iter().chain(bias.map(|bias| bias.tensor));
            return self.one(Primitive::Module(Module::Linear), inputs);
        }
        let y = self.product_of_rows(self.expanded(x), self.expanded(weight));
        match bias {
            Some(bias) => {
                let bias = self.expanded(bias);
                let mut shape = vec![1; y.shape().num_dims()];
                (shape[0], shape[y.shape().num_dims() - 1]) = (self.examples, bias.shape()[1]);
                self.one(Primitive::Binary(Binary::Add), [y, bias.reshape(shape)])
            }
            None => y,
        }
    }

    /// Reshapes `[examples, ..., k]` to `[examples, rows, k]`.
    fn as_rows(&self, x: AnyTensor<B>) -> AnyTensor<B> {
        let shape = x.shape();
        let rows = shape[1..shape.num_dims() - 1].iter().product();
        x.reshape([self.examples, rows, shape[shape.num_dims() - 1]])
    }

    /// Multiplies `x` `[examples, ..., k]` by a weight `[examples, k, n]`.
    fn product_of_rows(&self, x: AnyTensor<B>, weight: AnyTensor<B>) -> AnyTensor<B> {
        let shape = x.shape();
        let n = weight.shape()[2];
        let y = self.product(self.as_rows(x), weight);
        y.reshape([&shape[..shape.num_dims() - 1], &[n]].concat())
    }

    /// Returns the parameters of a convolution that has each example as a group of channels.
    fn grouped(&self, conv: &Conv) -> Conv {
        Conv { groups: conv.groups * self.examples, ..conv.clone() }
    }

    fn conv(&self, conv: &Conv, mut inputs: Inputs<B>) -> AnyTensor<B> {
        let (x, weight, bias) = (next(&mut inputs), next(&mut inputs), inputs.next());
        let one_weight = !weight.batched && !bias.as_ref().is_some_and(|bias| bias.batched);
        let (conv, x) = match one_weight {
            true => (conv.clone(), self.folded(x)),
            false => (self.grouped(conv), self.as_channels(x)),
        };
        let part = |x: Batched<B>| if one_weight { x.tensor } else { self.folded(x) };
        let inputs: Vec<_> = [Some(x), Some(part(weight)), bias.map(part)].into_iter().flatten().collect();
        let y = self.one(Primitive::Module(Module::Conv(conv)), inputs);
        if one_weight { self.unfolded(y) } else { self.out_of_channels(y) }
    }
}
