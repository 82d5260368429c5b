//! Computation of a row. Peers get it as JSON, so that names and fields are those of `benches/peers`.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::path::PathBuf;

/// One piece of work, with all its sizes.
#[derive(Serialize, Deserialize, Clone, Debug)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Work {
    /// `[m, k]` times `[k, n]`.
    Gemm { m: usize, k: usize, n: usize },
    /// An activation function, as the library has it.
    Activation { function: Function, rows: usize, columns: usize },
    /// `f(x * scale + shift) + x`; with `jit` as one program here, where JAX and `torch.compile` have one anyway.
    Chain { function: Function, rows: usize, columns: usize, jit: bool },
    /// Over the last axis.
    Softmax { rows: usize, columns: usize },
    /// With scale and shift.
    LayerNorm { rows: usize, columns: usize },
    /// Linear, exact GELU, linear, with biases; with `jit` as one program here.
    Ffn { rows: usize, width: usize, hidden: usize, jit: bool },
    /// A train step of the same: the mean of squared errors, AdamW, and the loss read; with `jit` as one program here.
    FfnStep { rows: usize, width: usize, hidden: usize, jit: bool },
    /// Self-attention with its projections.
    Mha { batch: usize, tokens: usize, width: usize, heads: usize, causal: bool },
    /// Scaled dot-product attention alone.
    Attention { batch: usize, heads: usize, tokens: usize, head_dim: usize, causal: bool },
    /// Of images, without a bias.
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
    /// One layer in one direction, time first; packed where there are lengths.
    Rnn {
        cell: Cell,
        batch: usize,
        steps: usize,
        inputs: usize,
        hidden: usize,
        lengths: Option<Vec<usize>>,
        train: bool,
    },
    /// `x * 0.999 + 0.5` of one number, so many times while a counter is below: `jax.lax.while_loop`, as one program.
    While { steps: usize },
    /// `tanh(c / 2 + x)` of a carry and each row, and its results: `jax.lax.scan`, as one program; or the gradients of their sum.
    Scan { steps: usize, size: usize, train: bool },
    /// Of bottleneck blocks, as torchvision's.
    Resnet { depths: Vec<usize>, widths: usize, classes: usize, size: usize, batch: usize, train: bool },
    /// As torchvision's.
    Vit {
        #[serde(flatten)]
        sizes: VitSizes,
        train: bool,
    },
    /// Gradients of a ViT for each image by itself: `jax.vmap(jax.grad(loss), in_axes=(None, 0, 0))`.
    VitPerExample(VitSizes),
    /// The encoder with its pooler; trained with a head for two labels.
    Bert(Text),
    /// Logits of all positions.
    Gpt2(Text),
    /// Logits of all positions.
    GptNeo(Text),
    /// Logits of all positions.
    Llama(Text),
    /// A GPT-2 or a LLaMA continues prompts of one length, greedily, with a cache.
    Decode { config: Value, batch: usize, prompt: usize, new_tokens: usize },
    /// AdamW's step alone.
    Optimizer { shapes: Vec<Vec<usize>> },
    /// Reads a GPT-2 from a directory.
    Load { path: PathBuf, config: Value },
    /// The same, and the logits of one text.
    Start { path: PathBuf, config: Value, tokens: usize },
}

/// Sizes of a ViT and of its batch.
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

/// A model of text: its published configuration and its input.
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
    /// Gates of a cell.
    pub fn gates(self) -> usize {
        match self {
            Self::Lstm => 4,
            Self::Gru => 3,
        }
    }
}

impl VitSizes {
    const TINY: Self = Self { size: 16, patch: 4, width: 12, depth: 2, heads: 3, mlp: 20, classes: 5, batch: 2 };

    /// Shape of its images.
    pub fn images(self) -> [usize; 4] {
        [self.batch, 3, self.size, self.size]
    }
}

impl Work {
    /// The same work so small that it only shows whether it runs.
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

    /// The same widths with few layers, positions and classes, so that a CPU computes it in a second.
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
                // Batch normalisation of a few values is ill-conditioned: the last stage has 8 of each image and channel or more.
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

    /// True for loops of many small steps, which take long on a device.
    pub fn is_loop(&self) -> bool {
        matches!(self, Self::While { .. } | Self::Scan { .. })
    }

    /// The directory of a model that has to be there before the work begins, and the model's configuration.
    pub fn reads(&mut self) -> Option<(&mut PathBuf, &Value)> {
        match self {
            Self::Load { path, config } | Self::Start { path, config, .. } => Some((path, config)),
            _ => None,
        }
    }
}

/// True if a configuration is a GPT-2's, whose fields have names of their own.
pub fn is_gpt2(config: &Value) -> bool {
    config.get("n_embd").is_some()
}

/// `config.json` of a BERT: vocabulary, width, layers, heads, inner width, positions.
pub fn bert(vocab: usize, width: usize, layers: usize, heads: usize, inner: usize, positions: usize) -> Value {
    json!({
        "vocab_size": vocab, "hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads,
        "intermediate_size": inner, "max_position_embeddings": positions, "type_vocab_size": 2,
    })
}

/// `config.json` of a GPT-2: vocabulary, positions, width, layers, heads.
pub fn gpt2(vocab: usize, positions: usize, width: usize, layers: usize, heads: usize) -> Value {
    json!({"vocab_size": vocab, "n_positions": positions, "n_embd": width, "n_layer": layers, "n_head": heads})
}

/// `config.json` of a GPT-Neo: vocabulary, positions, width, layers (an even number), heads, window.
pub fn gpt_neo(vocab: usize, positions: usize, width: usize, layers: usize, heads: usize, window: usize) -> Value {
    json!({
        "vocab_size": vocab, "max_position_embeddings": positions, "hidden_size": width, "num_layers": layers,
        "num_heads": heads, "intermediate_size": 4 * width, "window_size": window,
        "attention_types": [[["global", "local"], layers / 2]],
    })
}

/// `config.json` of a LLaMA: vocabulary, width, inner width, layers, heads of queries and of keys, positions.
pub fn llama(vocab: usize, width: usize, inner: usize, layers: usize, heads: [usize; 2], positions: usize) -> Value {
    json!({
        "vocab_size": vocab, "hidden_size": width, "intermediate_size": inner, "num_hidden_layers": layers,
        "num_attention_heads": heads[0], "num_key_value_heads": heads[1], "max_position_embeddings": positions,
        "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": true,
    })
}
