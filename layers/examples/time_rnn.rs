//! Times LSTM and GRU of one layer and one direction on flex: grove's side of `benches/rnn.sh`, which explains rows and
//! output. `cargo run -p grove-layers --example time_rnn -- --rows lstm,256,32,50`
#![recursion_limit = "256"]

use std::{error::Error, fs::File, io::Write, path::PathBuf, str::FromStr, time::Instant};

use burn::tensor::Tensor;
use burn_flex::Flex;
use clap::Parser;
use grove_backend::{Autodiff, Backend};
use grove_layers::rnn::{Cell, Gru, Lstm, Recurrent, RnnOptions};
use grove_transform::value_and_grad;
use grove_tree::{Init, Key, Tree};
use serde_json::json;

#[derive(Parser)]
struct Options {
    /// KIND,HIDDEN,BATCH,STEPS, and perhaps `equal` or `random` and `forward` or `both`
    #[arg(long, num_args = 1.., required = true)]
    rows: Vec<Row>,

    /// Time that a measurement may take
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,

    /// Threads
    #[arg(long, default_value_t = 2)]
    threads: usize,

    /// Write the lines to this file too
    #[arg(long)]
    json: Option<PathBuf>,
}

#[derive(Clone)]
struct Row {
    lstm: bool,
    hidden: usize,
    batch: usize,
    steps: usize,
    only: Vec<String>,
}

impl FromStr for Row {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text} is not KIND,HIDDEN,BATCH,STEPS");
        let fields: Vec<&str> = text.split(',').collect();
        let number = |i: usize| fields.get(i).and_then(|field| field.parse().ok()).filter(|&n| n > 0).ok_or_else(wrong);
        if !["lstm", "gru"].contains(&fields[0]) {
            return Err(wrong());
        }
        let only = fields.iter().skip(4).map(|word| word.to_string()).collect();
        Ok(Self { lstm: fields[0] == "lstm", hidden: number(1)?, batch: number(2)?, steps: number(3)?, only })
    }
}

/// Largest resident size since the last reset, in MiB.
fn peak_mib() -> f64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse::<f64>().unwrap_or(f64::NAN) / 1024.0
}

/// Milliseconds, sorted: all runs but a first one, unless one run takes longer than the time there is.
fn measure(seconds: f64, mut run: impl FnMut()) -> Vec<f64> {
    let mut timed = || {
        let begun = Instant::now();
        run();
        begun.elapsed().as_secs_f64() * 1e3
    };
    let mut times = vec![timed()];
    if times[0] > seconds * 1e3 {
        times.push(timed());
    } else {
        times.clear();
        while times.iter().sum::<f64>() < seconds * 1e3 || times.len() < 3 {
            times.push(timed());
        }
    }
    times.sort_by(f64::total_cmp);
    times
}

/// Packing and padding are part of it where there are lengths.
fn run<B: Backend, C: Cell<B, S>, const S: usize>(
    layers: &Recurrent<C>,
    x: Tensor<B, 3>,
    lengths: Option<&[usize]>,
) -> Tensor<B, 3> {
    match lengths {
        None => layers.forward(x, None, None).0,
        Some(lengths) => layers.forward_lengths(x, lengths, None, None).expect("lengths of the batch").0,
    }
}

fn time<C, const S: usize>(
    row: &Row,
    layers: &Recurrent<C>,
    lengths: Option<&[usize]>,
    both: bool,
    seconds: f64,
) -> Vec<f64>
where
    C: Cell<Flex, S>,
    C::On<Autodiff<Flex>>: Cell<Autodiff<Flex>, S>,
{
    let device = Default::default();
    let shape = [row.steps, row.batch, row.hidden];
    let x = Key::new(1).normal::<Flex, 3>(shape, &device);
    let dy = Key::new(2).normal::<Flex, 3>(shape, &device);
    measure(seconds, || {
        if both {
            let loss = |layers: <Recurrent<C> as Tree<Flex>>::On<Autodiff<Flex>>| {
                (run(&layers, Tensor::from_inner(x.clone()), lengths) * Tensor::from_inner(dy.clone())).sum()
            };
            std::hint::black_box(value_and_grad(layers, loss));
        } else {
            std::hint::black_box(run(layers, x.clone(), lengths));
        }
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse();
    rayon::ThreadPoolBuilder::new().num_threads(options.threads).build_global()?;
    let mut file = options.json.as_ref().map(File::create).transpose()?;
    for row in &options.rows {
        let init = Init::<Flex>::new(Key::new(0), &Default::default());
        let all_lengths: Vec<usize> = (0..row.batch).map(|i| 1 + (i * 7919 + 13) * 104_729 % row.steps).collect();
        let lstm = Lstm::new(row.hidden, row.hidden, &RnnOptions::default(), &init);
        let gru = Gru::new(row.hidden, row.hidden, &RnnOptions::default(), &init);
        for (name, lengths) in [("equal", None), ("random", Some(&all_lengths[..]))] {
            for (pass, both) in [("forward", false), ("both", true)] {
                if !row.only.iter().all(|only| [name, pass].contains(&only.as_str())) {
                    continue;
                }
                // What earlier rows took does not count.
                let _ = std::fs::write("/proc/self/clear_refs", "5");
                let times = match row.lstm {
                    true => time(row, &lstm, lengths, both, options.seconds),
                    false => time(row, &gru, lengths, both, options.seconds),
                };
                let line = json!({
                    "peer": "grove", "framework": "grove, flex", "kind": if row.lstm { "lstm" } else { "gru" },
                    "hidden": row.hidden, "batch": row.batch, "steps": row.steps, "lengths": name,
                    "form": if lengths.is_some() { "packed" } else { "padded" }, "pass": pass,
                    "min_ms": times[0], "median_ms": times[times.len() / 2], "runs": times.len(),
                    "peak_mib": peak_mib(),
                });
                println!("{line}");
                if let Some(file) = &mut file {
                    writeln!(file, "{line}")?;
                }
            }
        }
    }
    Ok(())
}
