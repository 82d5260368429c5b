//! The candle peer of the benchmark in `cli/bench`: `candle-peer '<SPEC JSON>'` computes one row.
//!
//! It prints one JSON object per line: after the first run, after the second, then the times of as many runs as
//! requested on standard input, and at the end its peak memory. candle takes its number of threads from the environment
//! variable RAYON_NUM_THREADS, which the benchmark sets.

mod models;
mod ops;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{
    fmt,
    io::{BufRead, Write},
    path::PathBuf,
    process::ExitCode,
    time::Instant,
};

/// One run of a row. On the CPU, candle computes synchronously.
pub type Run = Box<dyn FnMut() -> Result<()>>;

/// Arguments of this process. They include the number of threads, but candle reads that from the environment.
#[derive(Deserialize)]
struct Spec {
    row: Row,
    form: String,
    device: String,
    dtype: String,
}

/// Computation of a row, with the names and fields of `cli/bench/src/work.rs`.
#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Row {
    Gemm {
        m: usize,
        k: usize,
        n: usize,
    },
    Activation {
        function: Function,
        rows: usize,
        columns: usize,
    },
    Chain {
        function: Function,
        rows: usize,
        columns: usize,
    },
    Softmax {
        rows: usize,
        columns: usize,
    },
    LayerNorm {
        rows: usize,
        columns: usize,
    },
    Ffn {
        rows: usize,
        width: usize,
        hidden: usize,
    },
    Mha {
        batch: usize,
        tokens: usize,
        width: usize,
        heads: usize,
        causal: bool,
    },
    Attention {
        batch: usize,
        heads: usize,
        tokens: usize,
        head_dim: usize,
        causal: bool,
    },
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
    Rnn {
        cell: Cell,
        batch: usize,
        steps: usize,
        inputs: usize,
        hidden: usize,
        lengths: Option<Vec<usize>>,
        train: bool,
    },
    Resnet {
        depths: Vec<usize>,
        widths: usize,
        classes: usize,
        size: usize,
        batch: usize,
        train: bool,
    },
    Vit(models::VitRow),
    Bert(Text),
    Gpt2(Text),
    GptNeo(Text),
    Llama(Text),
    Decode {
        config: Value,
        prompt: usize,
        new_tokens: usize,
    },
    Optimizer {
        shapes: Vec<Vec<usize>>,
    },
    Load {
        path: PathBuf,
        config: Value,
    },
    Start {
        path: PathBuf,
        config: Value,
        tokens: usize,
    },
    /// A kind added after this program was built.
    #[serde(other)]
    Unknown,
}

/// Text model: its published configuration and its input.
#[derive(Deserialize)]
pub struct Text {
    pub config: Value,
    pub batch: usize,
    pub tokens: usize,
    pub train: bool,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "snake_case")]
pub enum Function {
    Selu,
    Gelu,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "snake_case")]
pub enum Cell {
    Lstm,
    Gru,
}

/// Requests to this process.
#[derive(Deserialize)]
#[serde(untagged)]
enum Question {
    Run {
        run_seconds: f64,
        max_runs: usize,
    },
    Quit {
        #[serde(rename = "quit")]
        _quit: bool,
    },
}

/// Messages of this process.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Event {
    First { seconds: f64, setup_seconds: f64, version: &'static str },
    Second { seconds: f64 },
    Times { seconds: Vec<f64> },
    End { peak_bytes: Option<u64>, device_peak_bytes: Option<u64> },
    Error { kind: ErrorKind, message: String },
}

/// Kind of an error. Out of memory is missing, because it aborts a Rust program.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum ErrorKind {
    Unsupported,
    Failed,
}

/// A row or form that candle does not support, with the reason.
#[derive(Debug)]
struct Unsupported(String);

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unsupported {}

/// Returns the error of a row that candle does not support.
pub fn unsupported(why: impl Into<String>) -> anyhow::Error {
    Unsupported(why.into()).into()
}

fn main() -> ExitCode {
    let begun = Instant::now();
    let Some(spec) = std::env::args().nth(1) else {
        eprintln!("give a row as JSON; the benchmark in cli/bench starts this program");
        return ExitCode::from(2);
    };
    let Err(error) = serve(&spec, begun) else { return ExitCode::SUCCESS };
    let kind = if error.is::<Unsupported>() { ErrorKind::Unsupported } else { ErrorKind::Failed };
    // Errors of candle and anyhow may have several lines.
    let message = format!("{error:#}").lines().next().unwrap_or_default().to_owned();
    match say(&Event::Error { kind, message }) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Computes a row and answers requests until there are no more.
fn serve(spec: &str, begun: Instant) -> Result<()> {
    let spec: Spec = serde_json::from_str(spec).context("the row's description")?;
    if spec.form != "eager" || spec.device != "cpu" || spec.dtype != "f32" {
        return Err(unsupported("candle computes eagerly here, in f32 on the CPU"));
    }
    let mut run = match ops::prepare(&spec.row)? {
        Some(run) => run,
        None => models::prepare(&spec.row)?,
    };
    let mut timed = || -> Result<f64> {
        let begun = Instant::now();
        run()?;
        Ok(begun.elapsed().as_secs_f64())
    };
    let setup_seconds = begun.elapsed().as_secs_f64();
    let seconds = timed()?;
    say(&Event::First { seconds, setup_seconds, version: "candle 0.10.2" })?;
    say(&Event::Second { seconds: timed()? })?;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        match serde_json::from_str(&line).with_context(|| line.clone())? {
            Question::Run { run_seconds, max_runs } => {
                let mut seconds = vec![timed()?];
                while seconds.len() < max_runs && seconds.iter().sum::<f64>() < run_seconds {
                    seconds.push(timed()?);
                }
                say(&Event::Times { seconds })?;
            }
            Question::Quit { .. } => break,
        }
    }
    say(&Event::End { peak_bytes: peak_bytes(), device_peak_bytes: None })
}

fn say(event: &Event) -> Result<()> {
    let line = serde_json::to_string(event)?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).context("nobody listens")
}

/// Returns the peak resident size of this process in bytes, if the system reports it.
fn peak_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}
