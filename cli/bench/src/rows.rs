//! Rows of the benchmark.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

use crate::work::{Cell, Function, Text, VitSizes, Work, bert, gpt_neo, gpt2, llama};

/// Row of the benchmark: a name, which `--only` searches, and the work to measure.
#[derive(Clone, Debug)]
pub struct Row {
    pub name: String,
    pub group: Group,
    pub work: Work,
    /// If true, the row is too large for a CPU.
    pub needs_gpu: bool,
}

/// Group of rows.
#[derive(ValueEnum, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Group {
    Operations,
    Recurrent,
    Models,
    Training,
    Rest,
}

impl Group {
    /// Returns the heading of the group.
    pub fn title(self) -> &'static str {
        match self {
            Self::Operations => "Operations",
            Self::Recurrent => "Recurrent layers",
            Self::Models => "Models, forward",
            Self::Training => "Training: a whole step with AdamW",
            Self::Rest => "Decoding, optimizer, loading",
        }
    }

    /// Returns rows of the group.
    fn rows(self, works: impl IntoIterator<Item = (impl Into<String>, Work)>) -> Vec<Row> {
        let row = |(name, work): (_, Work)| Row { name: Into::into(name), group: self, work, needs_gpu: false };
        works.into_iter().map(row).collect()
    }

    /// Returns rows of the group that are too large for a CPU.
    fn large_rows(self, works: impl IntoIterator<Item = (impl Into<String>, Work)>) -> Vec<Row> {
        self.rows(works).into_iter().map(|row| Row { needs_gpu: true, ..row }).collect()
    }
}

/// Returns all rows. With `tiny`, their sizes are tiny, for tests.
pub fn all(tiny: bool) -> Vec<Row> {
    let groups = [operations(), recurrent(), models(), training(), rest()];
    let rows = groups.into_iter().flatten();
    match tiny {
        true => rows.map(|row| Row { work: row.work.tiny(), needs_gpu: false, ..row }).collect(),
        false => rows.collect(),
    }
}

fn operations() -> Vec<Row> {
    let products = [[128, 768, 768], [512, 768, 3072], [512, 3072, 768], [3000, 3000, 3000], [1, 768, 50257]];
    let products = products.map(|[m, k, n]| (format!("gemm {m}x{k}x{n}"), Work::Gemm { m, k, n }));
    let (rows, columns) = (1024, 1024);
    let functions = [(Function::Gelu, "gelu"), (Function::Selu, "selu")].into_iter().flat_map(|(function, name)| {
        [
            (format!("{name} 1M"), Work::Activation { function, rows, columns }),
            (format!("{name} chain 1M"), Work::Chain { function, rows, columns, jit: false }),
            (format!("{name} chain 1M, jit"), Work::Chain { function, rows, columns, jit: true }),
        ]
    });
    let (heads, head_dim) = (12, 64);
    let attention = |batch, tokens, causal| Work::Attention { batch, heads, tokens, head_dim, causal };
    let mha = |batch, tokens, causal| Work::Mha { batch, tokens, width: 768, heads, causal };
    let rest = [
        ("softmax 1024x1024", Work::Softmax { rows, columns }),
        ("layer norm 4096x768", Work::LayerNorm { rows: 4096, columns: 768 }),
        ("ffn 512x768x3072", Work::Ffn { rows: 512, width: 768, hidden: 3072, jit: false }),
        // Sizes at which call overhead dominates.
        ("ffn 32x64x64", Work::Ffn { rows: 32, width: 64, hidden: 64, jit: false }),
        ("ffn 32x64x64, jit", Work::Ffn { rows: 32, width: 64, hidden: 64, jit: true }),
        ("ffn train step 32x64x64", Work::FfnStep { rows: 32, width: 64, hidden: 64, jit: false }),
        ("ffn train step 32x64x64, jit", Work::FfnStep { rows: 32, width: 64, hidden: 64, jit: true }),
        ("attention 4x12x128x64", attention(4, 128, false)),
        ("attention 1x12x1024x64 causal", attention(1, 1024, true)),
        ("mha 4x128x768", mha(4, 128, false)),
        ("mha 1x1024x768 causal", mha(1, 1024, true)),
    ];
    // Sizes at which the overhead of a step dominates.
    let loops = [
        ("while 100k", Work::While { steps: 100_000 }),
        ("scan 10k", Work::Scan { steps: 10_000, size: 3, train: false }),
        ("scan 10k gradient", Work::Scan { steps: 10_000, size: 3, train: true }),
    ];
    let conv = |batch, [inputs, outputs, size, kernel]: [usize; 4], stride| Work::Conv {
        batch,
        inputs,
        outputs,
        size,
        kernel,
        stride,
        padding: kernel / 2,
    };
    let convolutions = [
        ("conv 3x3, 1x64x56x56", conv(1, [64, 64, 56, 3], 1)),
        ("conv 3x3, 16x64x56x56", conv(16, [64, 64, 56, 3], 1)),
        ("conv 3x3, 16x512x7x7", conv(16, [512, 512, 7, 3], 1)),
        ("conv 1x1, 16x256x56x56 to 64", conv(16, [256, 64, 56, 1], 1)),
        ("conv 7x7 by 2, 16x3x224x224 to 64", conv(16, [3, 64, 224, 7], 2)),
    ];
    let named = |(name, work): (&str, Work)| (name.to_owned(), work);
    let works = products
        .into_iter()
        .chain(functions)
        .chain(rest.map(named))
        .chain(loops.map(named))
        .chain(convolutions.map(named));
    let size = 8192;
    let large = [
        ("gemm 8192x8192x8192", Work::Gemm { m: size, k: size, n: size }),
        ("attention 8x12x1024x64 causal", attention(8, 1024, true)),
        ("gelu 64M", Work::Activation { function: Function::Gelu, rows: size, columns: size }),
        ("softmax 8192x8192", Work::Softmax { rows: size, columns: size }),
    ];
    [Group::Operations.rows(works), Group::Operations.large_rows(large)].concat()
}

fn recurrent() -> Vec<Row> {
    let (batch, steps, size) = (32, 50, 256);
    // Varied lengths, like those of sentences.
    let lengths: Vec<usize> = (0..batch).map(|i| 1 + (i * 7919 + 13) * 104_729 % steps).collect();
    let mut works = Vec::new();
    // A single sequence is bound by reading the weights, a wide layer by its matrix products.
    for (batch, size, train) in [(1, 256, false), (32, 1024, false), (32, 1024, true)] {
        let cell = Cell::Lstm;
        let work = Work::Rnn { cell, batch, steps, inputs: size, hidden: size, lengths: None, train };
        let pass = if train { "gradients" } else { "forward" };
        works.push((format!("lstm {steps}x{batch}x{size} padded, {pass}"), work));
    }
    for (cell, name) in [(Cell::Lstm, "lstm"), (Cell::Gru, "gru")] {
        for (lengths, form) in [(None, "padded"), (Some(&lengths), "packed")] {
            for (train, pass) in [(false, "forward"), (true, "gradients")] {
                let lengths = lengths.cloned();
                let work = Work::Rnn { cell, batch, steps, inputs: size, hidden: size, lengths, train };
                works.push((format!("{name} 50x32x256 {form}, {pass}"), work));
            }
        }
    }
    Group::Recurrent.rows(works)
}

fn resnet50(batch: usize, train: bool) -> Work {
    Work::Resnet { depths: vec![3, 4, 6, 3], widths: 64, classes: 1000, size: 224, batch, train }
}

fn vit_b_16(batch: usize, train: bool) -> Work {
    let sizes = VitSizes { size: 224, patch: 16, width: 768, depth: 12, heads: 12, mlp: 3072, classes: 1000, batch };
    Work::Vit { sizes, train }
}

/// ViT with the widths of ViT-Ti and half of its depth.
fn vit_per_example() -> Work {
    let sizes = VitSizes { size: 64, patch: 8, width: 192, depth: 6, heads: 3, mlp: 768, classes: 100, batch: 16 };
    Work::VitPerExample(sizes)
}

fn text(config: serde_json::Value, batch: usize, tokens: usize, train: bool) -> Text {
    Text { config, batch, tokens, train }
}

fn bert_base() -> serde_json::Value {
    bert(30522, 768, 12, 12, 3072, 512)
}

fn gpt2_small() -> serde_json::Value {
    gpt2(50257, 1024, 768, 12, 12)
}

/// Configuration with the sizes of SmolLM2-135M.
fn llama_135m() -> serde_json::Value {
    llama(49152, 576, 1536, 30, [9, 3], 2048)
}

/// Configuration with the sizes of LLaMA-3.2-1B.
fn llama_1b() -> serde_json::Value {
    llama(128_256, 2048, 8192, 16, [32, 8], 8192)
}

fn models() -> Vec<Row> {
    let rows = [
        ("resnet-50, batch 1", resnet50(1, false)),
        ("resnet-50, batch 16", resnet50(16, false)),
        ("vit-b/16, batch 1", vit_b_16(1, false)),
        ("vit-b/16, batch 16", vit_b_16(16, false)),
        ("bert-base, 1x128", Work::Bert(text(bert_base(), 1, 128, false))),
        ("bert-base, 8x128", Work::Bert(text(bert_base(), 8, 128, false))),
        ("gpt2 small, 1x128", Work::Gpt2(text(gpt2_small(), 1, 128, false))),
        ("gpt2 small, 4x256", Work::Gpt2(text(gpt2_small(), 4, 256, false))),
        ("gpt-neo 1.3b, 1x64", Work::GptNeo(text(gpt_neo(50257, 2048, 2048, 24, 16, 256), 1, 64, false))),
        ("llama 135m, 1x128", Work::Llama(text(llama_135m(), 1, 128, false))),
        ("llama 135m, 4x256", Work::Llama(text(llama_135m(), 4, 256, false))),
    ];
    // The sizes of LLaMA-3.1-8B, with a shorter context.
    let mut llama_8b = llama(128_256, 4096, 14_336, 32, [32, 8], 8192);
    llama_8b["tie_word_embeddings"] = false.into();
    let large = [
        ("resnet-50, batch 128", resnet50(128, false)),
        ("vit-b/16, batch 128", vit_b_16(128, false)),
        ("bert-base, 32x512", Work::Bert(text(bert_base(), 32, 512, false))),
        ("gpt2 small, 8x1024", Work::Gpt2(text(gpt2_small(), 8, 1024, false))),
        ("llama 8b, 1x128", Work::Llama(text(llama_8b, 1, 128, false))),
    ];
    [Group::Models.rows(rows), Group::Models.large_rows(large)].concat()
}

fn training() -> Vec<Row> {
    let rows = [
        ("train resnet-50, batch 8", resnet50(8, true)),
        ("train vit-b/16, batch 4", vit_b_16(4, true)),
        ("vit 64x64, per-example gradients of 16", vit_per_example()),
        ("train bert-base, 4x128", Work::Bert(text(bert_base(), 4, 128, true))),
        ("train gpt2 small, 2x128", Work::Gpt2(text(gpt2_small(), 2, 128, true))),
        ("train gpt2 of 11.6m, 8x256", Work::Gpt2(text(gpt2(2048, 256, 384, 6, 6), 8, 256, true))),
        ("train llama 135m, 2x128", Work::Llama(text(llama_135m(), 2, 128, true))),
    ];
    let large = [
        ("train resnet-50, batch 64", resnet50(64, true)),
        ("train vit-b/16, batch 64", vit_b_16(64, true)),
        ("train bert-base, 32x128", Work::Bert(text(bert_base(), 32, 128, true))),
        ("train gpt2 small, 8x1024", Work::Gpt2(text(gpt2_small(), 8, 1024, true))),
    ];
    [Group::Training.rows(rows), Group::Training.large_rows(large)].concat()
}

fn rest() -> Vec<Row> {
    let [vocab, positions, width, layers] = [50257, 1024, 768, 12];
    let mut shapes = vec![vec![vocab, width], vec![positions, width], vec![width], vec![width]];
    for _ in 0..layers {
        for wide in [3 * width, width, 4 * width] {
            shapes.extend([vec![width, wide], vec![wide]]);
        }
        shapes.extend([vec![4 * width, width], vec![width]]);
        shapes.extend(vec![vec![width]; 4]);
    }
    let (path, config) = (PathBuf::new(), gpt2_small());
    let rows = [
        (
            "gpt2 small, 64 tokens after 16",
            Work::Decode { config: config.clone(), batch: 1, prompt: 16, new_tokens: 64 },
        ),
        ("adamw step, gpt2 small", Work::Optimizer { shapes }),
        ("load gpt2 small", Work::Load { path: path.clone(), config: config.clone() }),
        ("start gpt2 small: load, logits of 16", Work::Start { path, config, tokens: 16 }),
    ];
    let mut large = Vec::new();
    for (name, config) in [("gpt2 small", gpt2_small()), ("llama 1b", llama_1b())] {
        for batch in [1, 16] {
            let work = Work::Decode { config: config.clone(), batch, prompt: 64, new_tokens: 128 };
            large.push((format!("{name}, {batch} x 128 tokens after 64"), work));
        }
    }
    [Group::Rest.rows(rows), Group::Rest.large_rows(large)].concat()
}
