//! The candle peer of the benchmark in `cli/bench`: `candle-peer '<SPEC JSON>'` computes one row.
//!
//! The rows and the protocol are files of the benchmark. candle takes its number of threads from the environment variable
//! RAYON_NUM_THREADS, which the benchmark sets.

mod models;
mod ops;
#[path = "../../../cli/bench/src/protocol.rs"]
mod protocol;
#[allow(dead_code, reason = "the benchmark chooses the sizes of the rows")]
#[path = "../../../cli/bench/src/work.rs"]
mod work;

use anyhow::Result;
use protocol::{ErrorKind, Event, answer, say};
use serde::Deserialize;
use std::{fmt, process::ExitCode, time::Instant};
use work::Work;

/// One run of a row. On the CPU, candle computes synchronously.
pub type Run = Box<dyn FnMut() -> Result<()>>;

/// Arguments of this process. They include the number of threads, but candle reads that from the environment.
#[derive(Deserialize)]
struct Spec {
    row: Work,
    form: String,
    device: String,
    dtype: String,
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
    match say(&Event::Error { kind, message: one_line(&error) }) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Computes a row and answers requests until there are no more.
fn serve(spec: &str, begun: Instant) -> Result<()> {
    // A row of another kind was added after this program was built.
    let spec: Spec =
        serde_json::from_str(spec).map_err(|error| unsupported(format!("the row's description: {error}")))?;
    if spec.form != "eager" || spec.device != "cpu" || spec.dtype != "f32" {
        return Err(unsupported("candle computes eagerly here, in f32 on the CPU"));
    }
    let mut run = match ops::prepare(&spec.row)? {
        Some(run) => run,
        None => models::prepare(&spec.row)?,
    };
    answer(begun, "candle 0.10.2", || run().map_err(|error| one_line(&error))).map_err(anyhow::Error::msg)
}

/// Returns the message of an error. Errors of candle and anyhow may have several lines.
fn one_line(error: &anyhow::Error) -> String {
    format!("{error:#}").lines().next().unwrap_or_default().to_owned()
}
