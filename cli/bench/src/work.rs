//! Computation of a row. Peers read it as JSON, so names and fields must match `benches/peers`.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::path::PathBuf;

/// Computation with all its sizes.
#[derive(Serialize, Deserialize, Clone, Debug)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Work {
    /// Matrix product of `[m, k]` and `[k, n]`.
    Gemm { m: usize, k: usize, n: usize },
    /// Activation function of the library.
    Activation { function: Function, rows: usize, columns: usize },
    /// `f(x * scale + shift) + x`. `jit` compiles it in grove; JAX and `torch.compile` always compile it.
    Chain { function: Function, rows: usize, columns: usize, jit: bool },
    /// Softmax over the last axis.
    Softmax { rows: usize, columns: usize },
    /// Layer normalisation with scale and shift.
    LayerNorm { rows: usize, columns: usize },
    /// Linear, exact GELU, linear, with biases. `jit` compiles it in grove.
    Ffn { rows: usize, width: usize, hidden: usize, jit: bool },
    /// Training step of `Ffn`: mean squared error, AdamW, and reading the loss. `jit` compiles it in grove.
    FfnStep { rows: usize, width: usize, hidden: usize, jit: bool },
    /// Multi-head self-attention with its projections.
    Mha { batch: usize, tokens: usize, width: usize, heads: usize, causal: bool },
    /// Scaled dot-product attention without projections.
    Attention { batch: usize, heads: usize, tokens: usize, head_dim: usize, causal: bool },
    /// 2D convolution without bias.
    Conv {
        batch: usize,
        #[serde(rename = "in")]
        inputs: usize,
        #[serde(rename = "out")]
        outputs: usize,
        size: usize,
        kernel: usize,
        stride: usize,
        padding: usize,
    },
    /// Unidirectional recurrent layer, time first; the input is packed if there are lengths.
    Rnn {
        cell: Cell,
        batch: usize,
        steps: usize,
        inputs: usize,
        hidden: usize,
        lengths: Option<Vec<usize>>,
        train: bool,
    },
    /// `x * 0.999 + 0.5` of a scalar, repeated in a while loop as `jax.lax.while_loop`, in one program.
    While { steps: usize },
    /// `tanh(c / 2 + x)` of a carry and each row, as `jax.lax.scan`, in one program; with `train`, the gradients of the sum of the
    /// results.
    Scan { steps: usize, size: usize, train: bool },
    /// ResNet of bottleneck blocks, as torchvision's.
    Resnet { depths: Vec<usize>, widths: usize, classes: usize, size: usize, batch: usize, train: bool },
    /// ViT, as torchvision's.
    Vit {
        #[serde(flatten)]
        sizes: VitSizes,
        train: bool,
    },
    /// Per-example gradients of a ViT: `jax.vmap(jax.grad(loss), in_axes=(None, 0, 0))`.
    VitPerExample(VitSizes),
    /// BERT encoder with its pooler; training uses a head with two labels.
    Bert(Text),
    /// Logits of a GPT-2 at all positions.
    Gpt2(Text),
    /// Logits of a GPT-Neo at all positions.
    GptNeo(Text),
    /// Logits of a LLaMA at all positions.
    Llama(Text),
    /// Greedy decoding of a GPT-2 or LLaMA with a key-value cache, from prompts of equal length.
    Decode { config: Value, batch: usize, prompt: usize, new_tokens: usize },
    /// AdamW step without a model.
    Optimizer { shapes: Vec<Vec<usize>> },
    /// Loading of a GPT-2 from a directory.
    Load { path: PathBuf, config: Value },
    /// Loading of a GPT-2, and the logits of one sequence.
    Start { path: PathBuf, config: Value, tokens: usize },
}

/// Sizes of a ViT and its batch.
#[derive(Serialize, Deserialize, Clone, Copy, Debug)]
pub struct VitSizes {
    pub size: usize,
    pub patch: usize,
    pub width: usize,
    pub depth: usize,
    pub heads: usize,
    pub mlp: usize,
    pub classes: usize,
    pub batch: usize,
}

/// Configuration of a language model, with the published names of fields, and its input.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub struct Text {
    pub config: Value,
    pub batch: usize,
    pub tokens: usize,
    pub train: bool,
}

#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Function {
    Selu,
    Gelu,
}

#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Cell {
    Lstm,
    Gru,
}

impl Cell {
    /// Returns the number of gates of the cell.
    pub fn gates(self) -> usize {
        match self {
            Self::Lstm => 4,
            Self::Gru => 3,
        }
    }
}

impl VitSizes {
    const TINY: Self = Self { size: 16, patch: 4, width: 12, depth: 2, heads: 3, mlp: 20, classes: 5, batch: 2 };

    /// Returns the shape of the images, `[b, 3, h, w]`.
    pub fn images(self) -> [usize; 4] {
        [self.batch, 3, self.size, self.size]
    }
}

impl Work {
    /// Returns the same work with tiny sizes, for tests.
    pub fn tiny(self) -> Self {
        let text = |config: Value, text: Text| Text { config, batch: 2, tokens: 5, train: text.train };
        match self {
            Self::Gemm { m, .. } => Self::Gemm { m: m.min(17), k: 19, n: 23 },
            Self::Activation { function, .. } => Self::Activation { function, rows: 3, columns: 37 },
            Self::Chain { function, jit, .. } => Self::Chain { function, rows: 3, columns: 37, jit },
            Self::Softmax { .. } => Self::Softmax { rows: 3, columns: 37 },
            Self::LayerNorm { .. } => Self::LayerNorm { rows: 3, columns: 37 },
            Self::Ffn { jit, .. } => Self::Ffn { rows: 5, width: 12, hidden: 20, jit },
            Self::FfnStep { jit, .. } => Self::FfnStep { rows: 5, width: 12, hidden: 20, jit },
            Self::Mha { causal, .. } => Self::Mha { batch: 2, tokens: 7, width: 12, heads: 3, causal },
            Self::Attention { causal, .. } => Self::Attention { batch: 2, heads: 3, tokens: 7, head_dim: 4, causal },
            Self::Conv { kernel, stride, padding, .. } => {
                Self::Conv { batch: 2, inputs: 3, outputs: 5, size: 9, kernel, stride, padding }
            }
            Self::Rnn { cell, lengths, train, .. } => {
                let lengths = lengths.map(|_| vec![4, 6, 1]);
                Self::Rnn { cell, batch: 3, steps: 6, inputs: 5, hidden: 5, lengths, train }
            }
            Self::While { .. } => Self::While { steps: 5 },
            Self::Scan { train, .. } => Self::Scan { steps: 5, size: 3, train },
            Self::Resnet { train, .. } => {
                Self::Resnet { depths: vec![1, 1, 1, 1], widths: 8, classes: 5, size: 64, batch: 2, train }
            }
            Self::Vit { train, .. } => Self::Vit { sizes: VitSizes::TINY, train },
            Self::VitPerExample(_) => Self::VitPerExample(VitSizes::TINY),
            Self::Bert(row) => Self::Bert(text(bert(97, 24, 2, 3, 40, 16), row)),
            Self::Gpt2(row) => Self::Gpt2(text(gpt2(97, 16, 24, 2, 3), row)),
            Self::GptNeo(row) => Self::GptNeo(text(gpt_neo(97, 16, 24, 2, 3, 3), row)),
            Self::Llama(row) => Self::Llama(text(llama(97, 24, 40, 2, [4, 2], 16), row)),
            Self::Decode { config, batch, .. } => {
                let tiny = if is_gpt2(&config) { gpt2(97, 16, 24, 2, 3) } else { llama(97, 24, 40, 2, [4, 2], 16) };
                Self::Decode { config: tiny, batch: batch.min(2), prompt: 4, new_tokens: 5 }
            }
            Self::Optimizer { .. } => Self::Optimizer { shapes: vec![vec![5, 7], vec![7]] },
            Self::Load { path, .. } => Self::Load { path, config: gpt2(97, 16, 24, 2, 3) },
            Self::Start { path, .. } => Self::Start { path, config: gpt2(97, 16, 24, 2, 3), tokens: 5 },
        }
    }

    /// Returns the same work with the same widths but few layers, positions and classes, so that a CPU needs about a second.
    pub fn shallow(self) -> Self {
        let text = |mut row: Text| {
            for (name, value) in [("n_layer", 2), ("num_hidden_layers", 2), ("num_layers", 2), ("vocab_size", 1999)] {
                if row.config.get(name).is_some() {
                    row.config[name] = value.into();
                }
            }
            if row.config.get("attention_types").is_some() {
                row.config["attention_types"] = json!([[["global", "local"], 1]]);
            }
            Text { batch: row.batch.min(2), tokens: row.tokens.min(70), ..row }
        };
        let vit = |sizes: VitSizes| VitSizes { depth: 2, batch: sizes.batch.min(2), classes: 10, ..sizes };
        match self {
            Self::Resnet { widths, batch, train, .. } => {
                // Batch normalisation over few values is ill-conditioned: the last stage has at least 8 per image and channel.
                Self::Resnet { depths: vec![1, 1, 1, 1], widths, classes: 10, size: 128, batch: batch.min(8), train }
            }
            Self::Vit { sizes, train } => Self::Vit { sizes: vit(sizes), train },
            Self::VitPerExample(sizes) => Self::VitPerExample(vit(sizes)),
            Self::Bert(row) => Self::Bert(text(row)),
            Self::Gpt2(row) => Self::Gpt2(text(row)),
            Self::GptNeo(row) => Self::GptNeo(text(row)),
            Self::Llama(row) => Self::Llama(text(row)),
            Self::Optimizer { .. } => Self::Optimizer { shapes: vec![vec![1000, 768], vec![768]] },
            other => other,
        }
    }

    /// Returns true if the work computes gradients or updates weights.
    pub fn trains(&self) -> bool {
        match self {
            Self::Rnn { train, .. } | Self::Resnet { train, .. } | Self::Vit { train, .. } => *train,
            Self::Bert(text) | Self::Gpt2(text) | Self::GptNeo(text) | Self::Llama(text) => text.train,
            Self::Optimizer { .. } | Self::FfnStep { .. } | Self::VitPerExample(_) => true,
            _ => false,
        }
    }

    /// Returns true for loops of many small steps, which are slow on a device.
    pub fn is_loop(&self) -> bool {
        matches!(self, Self::While { .. } | Self::Scan { .. })
    }

    /// Returns the directory and configuration of the model that must be written before the work starts, if it needs one.
    pub fn reads(&mut self) -> Option<(&mut PathBuf, &Value)> {
        match self {
            Self::Load { path, config } | Self::Start { path, config, .. } => Some((path, config)),
            _ => None,
        }
    }
}

/// Returns true if a configuration has the field names of GPT-2.
pub fn is_gpt2(config: &Value) -> bool {
    config.get("n_embd").is_some()
}

/// Returns the `config.json` of a BERT: vocabulary size, width, layers, heads, feed-forward width, positions.
pub fn bert(vocab: usize, width: usize, layers: usize, heads: usize, inner: usize, positions: usize) -> Value {
    json!({
        "vocab_size": vocab, "hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads,
        "intermediate_size": inner, "max_position_embeddings": positions, "type_vocab_size": 2,
    })
}

/// Returns the `config.json` of a GPT-2: vocabulary size, positions, width, layers, heads.
pub fn gpt2(vocab: usize, positions: usize, width: usize, layers: usize, heads: usize) -> Value {
    json!({"vocab_size": vocab, "n_positions": positions, "n_embd": width, "n_layer": layers, "n_head": heads})
}

/// Returns the `config.json` of a GPT-Neo: vocabulary size, positions, width, layers (an even number), heads, window.
pub fn gpt_neo(vocab: usize, positions: usize, width: usize, layers: usize, heads: usize, window: usize) -> Value {
    json!({
        "vocab_size": vocab, "max_position_embeddings": positions, "hidden_size": width, "num_layers": layers,
        "num_heads": heads, "intermediate_size": 4 * width, "window_size": window,
        "attention_types": [[["global", "local"], layers / 2]],
    })
}

/// Returns the `config.json` of a LLaMA: vocabulary size, width, feed-forward width, layers, query and key-value heads, positions.
pub fn llama(vocab: usize, width: usize, inner: usize, layers: usize, heads: [usize; 2], positions: usize) -> Value {
    json!({
        "vocab_size": vocab, "hidden_size": width, "intermediate_size": inner, "num_hidden_layers": layers,
        "num_attention_heads": heads[0], "num_key_value_heads": heads[1], "max_position_embeddings": positions,
        "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": true,
    })
}
