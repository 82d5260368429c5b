//! Minimum cost of a row: operations, counted from its sizes, and bytes that must be moved.

use serde_json::Value;

use crate::work::{Text, VitSizes, Work, is_gpt2};

/// Minimum cost of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Floating-point operations of products and convolutions, where a multiply-add counts as two. Element-wise rows count an
    /// estimate per element.
    pub operations: f64,
    /// Bytes that must be read or written at least once, including weights and results, at four bytes per value.
    pub bytes: f64,
    /// Number of parameters.
    pub parameters: f64,
}

/// Approximate number of operations of an exponential and the arithmetic around it.
const EXPONENTIAL: f64 = 15.0;

impl Work {
    /// Returns the cost of the work.
    pub fn cost(&self) -> Cost {
        match self {
            &Self::Gemm { m, k, n } => product(m, k, n),
            &Self::Activation { rows, columns, .. } => passes(rows * columns, EXPONENTIAL, 2),
            &Self::Chain { rows, columns, .. } => passes(rows * columns, EXPONENTIAL + 3.0, 2),
            &Self::Softmax { rows, columns } => passes(rows * columns, EXPONENTIAL + 4.0, 2),
            &Self::LayerNorm { rows, columns } => passes(rows * columns, 8.0, 2),
            &Self::Ffn { rows, width, hidden, .. } => affine(rows, width, hidden) + affine(rows, hidden, width),
            &Self::FfnStep { rows, width, hidden, .. } => {
                // The gradient of the input is not computed.
                (affine(rows, width, hidden) + affine(rows, hidden, width)) * 3.0 - product(rows, width, hidden)
            }
            &Self::Attention { batch, heads, tokens, head_dim, causal } => {
                attention(batch, tokens, heads * head_dim, causal)
            }
            &Self::Mha { batch, tokens, width, causal, .. } => {
                let rows = batch * tokens;
                affine(rows, width, 3 * width) + affine(rows, width, width) + attention(batch, tokens, width, causal)
            }
            &Self::Conv { batch, inputs, outputs, size, kernel, stride, padding } => {
                conv(batch, inputs, outputs, size, kernel, stride, padding)
            }
            Self::Rnn { cell, batch, steps, inputs, hidden, lengths, train } => {
                let rows = lengths.as_ref().map_or(batch * steps, |lengths| lengths.iter().sum());
                let forward =
                    affine(rows, *inputs, cell.gates() * hidden) + affine(rows, *hidden, cell.gates() * hidden);
                // The gradient of the input is not computed.
                if *train { forward * 3.0 - product(rows, *inputs, cell.gates() * hidden) } else { forward }
            }
            &Self::While { steps } => passes(steps, 3.0, 0),
            &Self::Scan { steps, size, train } => {
                passes(steps * size, EXPONENTIAL + 2.0, 2) * if train { 2.0 } else { 1.0 }
            }
            Self::Resnet { depths, widths, classes, size, batch, train } => {
                step(resnet(depths, *widths, *classes, *size, *batch), *train)
            }
            Self::Vit { sizes, train } => step(vit(*sizes), *train),
            // Each example writes its own gradients, and there is no optimizer step.
            Self::VitPerExample(sizes) => {
                let (forward, cost) = (vit(*sizes), vit(*sizes) * 3.0);
                let bytes = cost.bytes + 4.0 * forward.parameters * sizes.batch as f64;
                Cost { bytes, parameters: forward.parameters, ..cost }
            }
            Self::Bert(text) => transformer(text, "num_hidden_layers", "hidden_size", 2, false),
            Self::Gpt2(text) => transformer(text, "n_layer", "n_embd", 2, true),
            Self::GptNeo(text) => transformer(text, "num_layers", "hidden_size", 2, true),
            Self::Llama(text) => transformer(text, "num_hidden_layers", "hidden_size", 3, true),
            Self::Decode { config, batch, prompt, new_tokens } => {
                let text = |tokens| Text { config: config.clone(), batch: *batch, tokens, train: false };
                let of = |tokens| match is_gpt2(config) {
                    true => transformer(&text(tokens), "n_layer", "n_embd", 2, true),
                    false => transformer(&text(tokens), "num_hidden_layers", "hidden_size", 3, true),
                };
                // The forward pass of the prompt gives the first new token and needs the logits of the last position only.
                let number = |name: &str| config[name].as_u64().unwrap_or_default() as usize;
                let width = number(if is_gpt2(config) { "n_embd" } else { "hidden_size" });
                let logits = |tokens: usize| product(batch * tokens, width, number("vocab_size"));
                let cost = of(1) * (*new_tokens as f64 - 1.0) + of(*prompt) - (logits(*prompt) - logits(1));
                Cost { parameters: of(1).parameters, ..cost }
            }
            Self::Optimizer { shapes } => {
                let parameters: usize = shapes.iter().map(|shape| shape.iter().product::<usize>()).sum();
                adamw(parameters as f64)
            }
            Self::Load { config, .. } => {
                let bytes = 4.0 * gpt2_parameters(config);
                Cost { operations: 0.0, bytes: 2.0 * bytes, parameters: bytes / 4.0 }
            }
            Self::Start { config, tokens, .. } => {
                let text = Text { config: config.clone(), batch: 1, tokens: *tokens, train: false };
                let bytes = 8.0 * gpt2_parameters(config);
                transformer(&text, "n_layer", "n_embd", 2, true) + Cost { bytes, ..Cost::default() }
            }
        }
    }
}

impl std::ops::Add for Cost {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            operations: self.operations + other.operations,
            bytes: self.bytes + other.bytes,
            parameters: self.parameters + other.parameters,
        }
    }
}

impl std::ops::Sub for Cost {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        self + other * -1.0
    }
}

impl std::ops::Mul<f64> for Cost {
    type Output = Self;

    fn mul(self, times: f64) -> Self {
        Self { operations: self.operations * times, bytes: self.bytes * times, parameters: self.parameters * times }
    }
}

/// Cost of element-wise work: operations per element, and passes over memory.
fn passes(elements: usize, operations: f64, passes: usize) -> Cost {
    let elements = elements as f64;
    Cost { operations: elements * operations, bytes: 4.0 * elements * passes as f64, parameters: 0.0 }
}

fn product(m: usize, k: usize, n: usize) -> Cost {
    let [m, k, n] = [m, k, n].map(|size| size as f64);
    Cost { operations: 2.0 * m * k * n, bytes: 4.0 * (m * k + k * n + m * n), parameters: 0.0 }
}

fn affine(rows: usize, inputs: usize, outputs: usize) -> Cost {
    Cost { parameters: (inputs * outputs + outputs) as f64, ..product(rows, inputs, outputs) }
}

/// Cost of both matrix products of attention. A causal mask halves the scores, which are not written to memory.
fn attention(batch: usize, tokens: usize, width: usize, causal: bool) -> Cost {
    let [rows, tokens, width] = [batch * tokens, tokens, width].map(|size| size as f64);
    let seen = if causal { (tokens + 1.0) / 2.0 } else { tokens };
    Cost { operations: 4.0 * rows * seen * width, bytes: 16.0 * rows * width, parameters: 0.0 }
}

fn conv(
    batch: usize,
    inputs: usize,
    outputs: usize,
    size: usize,
    kernel: usize,
    stride: usize,
    padding: usize,
) -> Cost {
    let out = (size + 2 * padding).saturating_sub(kernel) / stride + 1;
    let [read, written] = [batch * inputs * size * size, batch * outputs * out * out].map(|count| count as f64);
    let window = (inputs * kernel * kernel) as f64;
    let weights = window * outputs as f64;
    Cost { operations: 2.0 * written * window, bytes: 4.0 * (read + written + weights), parameters: weights }
}

fn resnet(depths: &[usize], widths: usize, classes: usize, size: usize, batch: usize) -> Cost {
    let mut cost = conv(batch, 3, widths, size, 7, 2, 3);
    let (mut channels, mut size) = (widths, size.div_ceil(4));
    for (stage, &depth) in depths.iter().enumerate() {
        let inner = widths << stage;
        for i in 0..depth {
            let stride = if i == 0 && stage > 0 { 2 } else { 1 };
            cost = cost + conv(batch, channels, inner, size, 1, 1, 0) + conv(batch, inner, inner, size, 3, stride, 1);
            if i == 0 {
                cost = cost + conv(batch, channels, 4 * inner, size, 1, stride, 0);
            }
            size = size.div_ceil(stride);
            cost = cost + conv(batch, inner, 4 * inner, size, 1, 1, 0);
            channels = 4 * inner;
        }
    }
    cost + affine(batch, channels, classes)
}

fn vit(VitSizes { size, patch, width, depth, mlp, classes, batch, .. }: VitSizes) -> Cost {
    let tokens = (size / patch) * (size / patch);
    let patches = affine(batch * tokens, 3 * patch * patch, width);
    let blocks = block(batch, tokens + 1, width, width, mlp, 2, false) * depth as f64;
    patches + blocks + affine(batch, width, classes)
}

/// Cost of a transformer block with `matrices` matrices in its feed-forward layer. Only the weights count as bytes, because
/// activations between operations can stay in the caches.
fn block(batch: usize, tokens: usize, width: usize, kv: usize, inner: usize, matrices: usize, causal: bool) -> Cost {
    let rows = batch * tokens;
    let mut cost = affine(rows, width, 2 * width + 2 * kv) + attention(batch, tokens, width, causal);
    for _ in 0..matrices {
        cost = cost + affine(rows, width, inner);
    }
    Cost { bytes: 4.0 * cost.parameters, ..cost }
}

fn transformer(text: &Text, layers: &str, width: &str, matrices: usize, head: bool) -> Cost {
    let number = |name: &str| text.config[name].as_u64().map(|number| number as usize);
    let width = number(width).unwrap_or_default();
    let inner = number("intermediate_size").unwrap_or(4 * width);
    let kv = match (number("num_key_value_heads"), number("num_attention_heads")) {
        (Some(keys), Some(queries)) => width / queries * keys,
        _ => width,
    };
    let layers = number(layers).unwrap_or_default() as f64;
    let mut cost = block(text.batch, text.tokens, width, kv, inner, matrices, head) * layers;
    let vocabulary = number("vocab_size").unwrap_or_default();
    let embedding = (vocabulary * width) as f64;
    if head {
        let logits = product(text.batch * text.tokens, width, vocabulary);
        cost = cost + Cost { parameters: embedding, ..logits };
        if text.config["tie_word_embeddings"] == Value::Bool(false) {
            cost.parameters += embedding;
        }
    } else {
        cost.parameters += embedding;
    }
    step(cost, text.train)
}

fn gpt2_parameters(config: &Value) -> f64 {
    let text = Text { config: config.clone(), batch: 1, tokens: 1, train: false };
    transformer(&text, "n_layer", "n_embd", 2, true).parameters
}

/// Cost of an AdamW step, which reads weights, gradients and both moments, and writes weights and moments.
fn adamw(parameters: f64) -> Cost {
    Cost { operations: 12.0 * parameters, bytes: 7.0 * 4.0 * parameters, parameters }
}

/// Cost of a training step if `train` is true, else of the forward pass. The backward pass has two products per forward product.
fn step(forward: Cost, train: bool) -> Cost {
    let parameters = forward.parameters;
    if train { Cost { parameters, ..forward * 3.0 + adamw(parameters) } } else { forward }
}

#[cfg(test)]
mod tests {
    use crate::rows;

    /// Tolerances cover the parts that the published values leave out.
    #[test]
    fn published_networks_cost_what_is_published() {
        let rows = rows::all(false);
        let of = |name: &str| rows.iter().find(|row| row.name == name).expect(name).work.cost();
        // torchvision: 4.09 and 17.56 billion multiply-adds; 25.6 and 86.6 million parameters.
        let known = [
            ("resnet-50, batch 1", 8.18e9, 25.56e6),
            ("vit-b/16, batch 1", 35.1e9, 86.57e6),
            ("gpt2 small, 1x128", 2.0 * 128.0 * 123.5e6, 124.4e6),
            ("llama 135m, 1x128", 2.0 * 128.0 * 134.5e6, 134.5e6),
        ];
        for (name, operations, parameters) in known {
            let cost = of(name);
            assert!((cost.operations / operations - 1.0).abs() < 0.04, "{name}: {} operations", cost.operations);
            assert!((cost.parameters / parameters - 1.0).abs() < 0.02, "{name}: {} parameters", cost.parameters);
        }
        let optimizer = of("adamw step, gpt2 small");
        assert_eq!(optimizer.parameters, 124_439_808.0);
    }
}
