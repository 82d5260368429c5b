use burn::tensor::Tensor;
use grove_backend::{Backend, ops};
use grove_layers::{Activation, Linear, MaybeQuantized, QuantLinear};
use grove_tree::{Init, Tree};

use super::LlamaConfig;

/// Gated feed-forward layer: Shazeer, "GLU Variants Improve Transformer" (2020).
#[derive(Tree, Clone, Debug)]
pub struct Mlp<B: Backend> {
    /// Gate projection, `hidden_size` to `intermediate_size`; its output is activated.
    pub gate_proj: QuantLinear<B>,
    /// Up projection, `hidden_size` to `intermediate_size`; its output is multiplied by the gate.
    pub up_proj: QuantLinear<B>,
    /// Down projection, `intermediate_size` to `hidden_size`.
    pub down_proj: QuantLinear<B>,
    /// Activation of the gate.
    #[tree(static)]
    pub activation: Activation,
}

impl<B: Backend> Mlp<B> {
    pub(super) fn new(config: &LlamaConfig, activation: Activation, init: &Init<B>) -> Self {
        let (hidden, inner, std) = (config.hidden_size, config.intermediate_size, config.initializer_range);
        let bias = config.mlp_bias;
        Self {
            gate_proj: linear(hidden, inner, std, bias, &init.named("gate_proj")),
            up_proj: linear(hidden, inner, std, bias, &init.named("up_proj")),
            down_proj: linear(inner, hidden, std, bias, &init.named("down_proj")),
            activation,
        }
    }

    /// Applies the layer.
    ///
    /// # Shapes
    /// - x, output `[b, t, hidden_size]`
    pub fn forward(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        let (gate, up) = (self.gate_proj.forward(x.clone()), self.up_proj.forward(x));
        let inner = match self.activation {
            Activation::Silu => ops::swiglu(gate, up),
            other => other.forward(gate) * up,
        };
        self.down_proj.forward(inner)
    }
}

/// Creates a linear layer with the published initialisation, and a zero bias if it has one.
pub(super) fn linear<B: Backend>(
    inputs: usize,
    outputs: usize,
    std: f64,
    bias: bool,
    init: &Init<B>,
) -> QuantLinear<B> {
    let linear = Linear::normal(inputs, outputs, std, init);
    MaybeQuantized::Dense(if bias { linear } else { Linear { bias: None, ..linear } })
}
