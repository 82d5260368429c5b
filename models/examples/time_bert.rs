//! Times BERT of MiniLM's size with random weights on flex: a forward pass, and one with all gradients, with and without
//! dropout. `cargo run -p grove-models --example time_bert -- --texts 32 --tokens 64`
#![recursion_limit = "256"]

use std::{error::Error, time::Instant};

use burn_flex::Flex;
use clap::Parser;
use grove_backend::Autodiff;
use grove_models::bert::{Bert, BertConfig, TextBatch};
use grove_transform::value_and_grad;
use grove_tree::Key;

#[derive(Parser)]
struct Options {
    /// Texts in a batch
    #[arg(long, default_value_t = 32)]
    texts: usize,

    /// Tokens of the longest text
    #[arg(long, default_value_t = 24)]
    tokens: usize,

    /// Tokens by which each text is shorter than the one before it, down to half
    #[arg(long, default_value_t = 0)]
    shorter: usize,

    /// Time that a measurement may take, in seconds
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,

    /// What to time: any of forward, both, dropout
    #[arg(long, value_delimiter = ',', default_value = "forward,both,dropout")]
    passes: Vec<String>,
}

/// The median and the least of several runs after a first one, in milliseconds.
fn measure(seconds: f64, mut run: impl FnMut()) -> [f64; 2] {
    run();
    let mut times = vec![];
    while times.iter().sum::<f64>() < seconds * 1e3 || times.len() < 3 {
        let begun = Instant::now();
        run();
        times.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    [times[times.len() / 2], times[0]]
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse();
    let config = BertConfig {
        hidden_size: 384,
        num_hidden_layers: 6,
        num_attention_heads: 12,
        intermediate_size: 1536,
        ..Default::default()
    };
    let model = Bert::<Flex>::init(&config, Key::new(0), &Default::default())?;
    let length = |i: usize| (options.tokens - (i * options.shorter).min(options.tokens / 2)).max(1);
    let text = |i: usize| (0..length(i)).map(|j| 1000 + ((i * 7919 + j * 104_729) % 20_000) as u32).collect::<Vec<_>>();
    let texts = model.batch(&(0..options.texts).map(|i| text(i).into()).collect::<Vec<_>>())?;
    for pass in &options.passes {
        let key = (pass == "dropout").then(|| Key::new(1));
        let [median, least] = measure(options.seconds, || {
            if pass == "forward" {
                std::hint::black_box(model.forward(&texts, None));
                return;
            }
            let texts = TextBatch::<Autodiff<Flex>>::from_inner(texts.clone());
            let loss = |model: Bert<Autodiff<Flex>>| model.forward(&texts, key).powi_scalar(2).mean();
            std::hint::black_box(value_and_grad(&model, loss));
        });
        println!("grove   {pass:8} {}x{}: median {median:.1} ms, least {least:.1} ms", options.texts, options.tokens);
    }
    Ok(())
}
