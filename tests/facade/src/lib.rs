//! Code as a user writes it in a crate of their own, which depends on `grove` alone.

use grove::{layers::Linear, prelude::*};

/// A gated MLP (Shazeer, 2020), `down(silu(gate x) * up x)`.
#[derive(Tree, Clone, Debug)]
pub struct GatedMlp<B: Backend> {
    /// `[in, hidden]`
    pub gate: Linear<B>,
    /// `[in, hidden]`
    pub up: Linear<B>,
    /// `[hidden, in]`
    pub down: Linear<B>,
    /// If true, the input is added to the output.
    #[tree(static)]
    pub residual: bool,
}

impl<B: Backend> GatedMlp<B> {
    /// Uniform weights, PyTorch's default.
    pub fn init(size: usize, hidden: usize, init: &Init<B>) -> Self {
        let linear = |name: &str, inputs, outputs| Linear::torch_default(inputs, outputs, &init.named(name));
        Self {
            gate: linear("gate", size, hidden),
            up: linear("up", size, hidden),
            down: linear("down", hidden, size),
            residual: true,
        }
    }

    /// # Shapes
    /// - input and output `[b, in]`
    pub fn forward(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        let gate = grove::tensor::activation::silu(self.gate.forward(x.clone()));
        let y = self.down.forward(gate * self.up.forward(x.clone()));
        if self.residual { x + y } else { y }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use grove::{
        optim::{GradientTransformation, adamw, apply_updates},
        tensor::TensorData,
    };

    #[test]
    fn a_derived_model_trains() {
        let device = Default::default();
        let mut model = GatedMlp::<Flex>::init(4, 16, &Init::new(Key::new(0), &device));
        let x = TensorData::new(Key::new(1).normal_vec(32 * 4), [32, 4]);
        let optimizer = adamw(1e-2, Default::default());
        let mut state = optimizer.init(&model);
        let loss = |model: &GatedMlp<Autodiff<Flex>>| {
            let x = Tensor::from_data(x.clone(), &Default::default());
            let target = x.clone().flip([1]);
            (model.forward(x) - target).square().mean()
        };
        let mut losses = Vec::new();
        for _ in 0..60 {
            let (value, grads) = value_and_grad(&model, |model| loss(&model));
            let (updates, next) = optimizer.update(grads, state, &model);
            (model, state) = (apply_updates(model, updates), next);
            losses.push(value.into_scalar());
        }
        assert!(losses[59] < losses[0] / 4.0, "{losses:?}");
        assert_eq!(
            tree::structure::<Flex, _>(&model).to_string(),
            "GatedMlp { gate: Linear { weight: *, bias: *, low_rank: None }, up: Linear { weight: *, bias: *, low_rank: \
             None }, down: Linear { weight: *, bias: *, low_rank: None }, residual: true }"
        );
    }
}
