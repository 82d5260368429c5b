//! A gated MLP (Shazeer, 2020), `down(silu(gate x) * up x)`.

use grove::{prelude::*, tensor::activation::silu};

/// Gated MLP. If `residual` is true, the input is added to the output.
#[derive(Tree, Clone, Debug)]
#[allow(missing_docs)]
pub struct GatedMlp<B: Backend> {
    pub gate: Linear<B>,
    pub up: Linear<B>,
    pub down: Linear<B>,
    pub residual: bool,
}

impl<B: Backend> GatedMlp<B> {
    /// Creates the layers with PyTorch's default initialisation.
    pub fn new(size: usize, hidden: usize, init: &Init<B>) -> Self {
        let [gate, up] = ["gate", "up"].map(|name| Linear::new(size, hidden, init.named(name)));
        let down = Linear::new(hidden, size, init.named("down"));
        Self { gate, up, down, residual: true }
    }

    /// Maps `[b, size]` to `[b, size]`.
    pub fn forward(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        let y = self.down.forward(silu(self.gate.forward(x.clone())) * self.up.forward(x.clone()));
        if self.residual { x + y } else { y }
    }
}
