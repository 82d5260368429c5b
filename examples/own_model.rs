//! A custom decoder: its definition, the names of its weights in files, training and generation. `cargo run --example
//! own_model` trains it for a few seconds on the bytes of the text that ships with grove.

use clap::Parser;
use grove::layers::{DecoderPass, Dropout, KvCache, LayerPass, activation::gelu, join_heads, split_heads};
use grove::prelude::*;
use grove::train::data::{TokenBatch, TokenStream, TokenWindows, read_text};
use grove::{models::Result, train::token_loss, weights::NameMap};
use serde::{Deserialize, Serialize};

/// Trains a small decoder on the bytes of a text, and generates text.
#[derive(Parser)]
#[command(name = "own_model", version)]
struct Options {
    /// Text for training; the default is a path in grove's own directory
    #[arg(long, default_value = "models/assets/gpt2-austen/held_out.txt")]
    data: std::path::PathBuf,
    /// Directory for the trained model
    #[arg(long)]
    output: Option<std::path::PathBuf>,
    /// Number of training steps, each on 16 windows of 64 bytes
    #[arg(long, default_value_t = 100)]
    steps: usize,
    /// Print one JSON object at the end
    #[arg(long)]
    json: bool,
}

const WIDTH: usize = 64;
const HEADS: usize = 4;
/// Model configuration, the content of `config.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Config {
    layers: usize,
}

impl PretrainedConfig for Config {}

/// Byte-level decoder. The output layer shares the token embedding, and there are no position embeddings: only the
/// causal mask encodes positions.
#[derive(Tree, Clone, Debug)]
struct Decoder<B: Backend> {
    tokens: Embedding<B>,
    blocks: Vec<Block<B>>,
    norm: RmsNorm<B>,
    #[tree(static)]
    config: Config,
}

/// Attention and a feed-forward layer, each added to the residual stream.
#[derive(Tree, Clone, Debug)]
struct Block<B: Backend> {
    norms: [RmsNorm<B>; 2],
    qkv: Linear<B>,
    out: Linear<B>,
    up: Linear<B>,
    down: Linear<B>,
}

impl<B: Backend> Block<B> {
    /// Maps `[b, t, WIDTH]` to `[b, t, WIDTH]`. With a cache, the positions follow those in it.
    fn forward(&self, x: Tensor<B, 3>, pass: &mut LayerPass<'_, B>) -> Tensor<B, 3> {
        let [q, k, v] = split_heads(self.qkv.forward(self.norms[0].forward(x.clone())), HEADS);
        let scale = (HEADS as f64 / WIDTH as f64).sqrt();
        let y = pass.attend(q, k, v, scale, Dropout::new(0.0)); // [b, HEADS, t, WIDTH / HEADS]
        let x = x + self.out.forward(join_heads(y));
        x.clone() + self.down.forward(gelu(self.up.forward(self.norms[1].forward(x))))
    }
}

impl<B: Backend> Pretrained<B> for Decoder<B> {
    type Config = Config;

    fn new(config: &Config, init: &Init<B>) -> Result<Self> {
        let (n, norm) = (WIDTH, || RmsNorm::new(WIDTH, 1e-6, init));
        let block = |i: usize| {
            let init = init.named("blocks").fold_in(i as u32);
            let sizes = [("qkv", n, 3 * n), ("out", n, n), ("up", n, 4 * n), ("down", 4 * n, n)];
            let [qkv, out, up, down] = sizes.map(|(name, from, to)| Linear::normal(from, to, 0.05, init.named(name)));
            Block { norms: [norm(), norm()], qkv, out, up, down }
        };
        let tokens = Embedding::normal(256, n, 0.05, init.named("tokens"));
        Ok(Self { tokens, blocks: (0..config.layers).map(block).collect(), norm: norm(), config: config.clone() })
    }

    fn config(&self) -> &Config {
        &self.config
    }

    /// Maps names in checkpoints to paths of leaves. A leaf without a rule has its path as its name.
    fn published_names(_: &Config) -> NameMap {
        NameMap::new().rule("wte", "tokens.weight").rule("layer.{i}.{part}.{leaf}", "blocks.{i}.{part}.{leaf}")
    }
}

impl<B: Backend> CausalLm<B> for Decoder<B> {
    type Cache = Vec<KvCache<B>>;

    fn forward_hidden(
        &self,
        ids: Tensor<B, 2, Int>,
        padding: &[usize],
        cache: Option<&mut Self::Cache>,
        key: Option<Key>, // for dropout
    ) -> Tensor<B, 3> {
        let mut pass = DecoderPass::new(&ids, padding, cache, key);
        let mut x = self.tokens.forward(ids); // [b, t, WIDTH]
        for (i, block) in self.blocks.iter().enumerate() {
            x = block.forward(x, &mut pass.layer(i));
        }
        self.norm.forward(x)
    }

    fn lm_head(&self, hidden: Tensor<B, 3>) -> Tensor<B, 3> {
        self.tokens.attend(hidden)
    }

    fn new_cache(&self, room: usize) -> Self::Cache {
        vec![KvCache::with_room(room); self.blocks.len()]
    }

    fn vocab_size(&self) -> usize {
        256
    }
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let (options, key, device) = (Options::parse(), Key::new(0), Default::default());
    let text = read_text(&options.data)?;
    let (text, rest) = TokenStream::new(text.bytes().map(u32::from).collect()).split(0.1)?;
    let data = TokenWindows::new(text, 64, 16, Some(key.fold_in(0)))?;
    let mut model = Decoder::<Flex>::init(&Config { layers: 2 }, key.fold_in(1), &device)?;
    let optimizer = adamw(3e-3, Adamw::default());
    let mut state = optimizer.init(&model);
    let loss = |model: Decoder<Autodiff<Flex>>, batch: &TokenBatch, key: Key| {
        model.next_token_loss(batch.inputs(&device), batch.targets(&device), Some(key))
    };
    let step = train_step(loss, &optimizer, StepOptions::default());
    for (i, batch) in (0..).flat_map(|pass| data.epoch(pass)).take(options.steps).enumerate() {
        (model, state, _) = step(model, state, &batch?, key.fold_in(2).fold_in(i as u32));
    }
    let (loss, _) = token_loss(&rest, 64, 16, &device, |ids, next| model.next_token_loss(ids, next, None), |_| ())?;
    if let Some(directory) = &options.output {
        model.save_pretrained(directory)?; // `Decoder::from_path` or `from_pretrained` loads it
    }
    let written = model.generate(&[b"She was ".map(u32::from).to_vec()], &GenerateOptions::default())?;
    let text: String = written[0].ids.iter().map(|&byte| byte as u8 as char).collect();
    match options.json {
        true => println!("{}", serde_json::json!({ "held_out_loss": loss, "text": text })),
        false => println!("She was {text}\n[held-out text: {loss:.3} nats a byte after {} steps]", options.steps),
    }
    Ok(())
}
