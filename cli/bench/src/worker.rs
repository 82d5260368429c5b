//! The other side of a measurement: a process that computes one row, grove's as those in `benches/peers` are.
//!
//! It writes a JSON object a line: after the first run, after the second, then the times of as many runs as it is asked for,
//! and at its end the memory that it took. Its questions come the same way.

use grove::{backend::DeviceError, prelude::*};
use serde::{Deserialize, Serialize};
use std::{
    io::{BufRead, Write},
    time::Instant,
};

use grove_terminal::{Autotune, Dtype, Exit, KernelArgs, Precision, failure};

use crate::{
    compute::{Place, prepare},
    work::Work,
};

/// Arguments of a worker.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub struct Spec {
    pub row: Work,
    /// Mode of a program that has several; for grove the name of the backend.
    pub form: String,
    pub threads: usize,
    /// `cpu` or `cuda`.
    pub device: String,
    pub device_index: usize,
    pub dtype: String,
    /// Precision of products in f32: `highest`, `high`, or the library's own where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub precision: Option<Precision>,
    /// Effort of choosing kernels; not for peers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub autotune: Option<Autotune>,
}

/// Requests to a worker.
#[derive(Serialize, Deserialize, Clone, Copy, Debug)]
#[serde(untagged)]
pub enum Question {
    Run { run_seconds: f64, max_runs: usize },
    Quit { quit: bool },
}

/// Messages of a worker.
#[derive(Serialize, Deserialize, Clone, Debug)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    First { seconds: f64, setup_seconds: f64, version: String },
    Second { seconds: f64 },
    Times { seconds: Vec<f64> },
    End { peak_bytes: Option<u64>, device_peak_bytes: Option<u64> },
    Error { kind: ErrorKind, message: String },
}

/// Why a row has no figure.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    OutOfMemory,
    Unsupported,
    Failed,
}

/// Computes a row and answers questions until there are no more.
pub fn serve(
    spec: &str,
    run: impl FnOnce(DeviceSpec, Serve<'_>) -> Result<Result<(), String>, DeviceError>,
) -> Result<(), Exit> {
    let begun = Instant::now();
    let spec: Spec = serde_json::from_str(spec).map_err(|error| Exit::Usage(format!("--worker: {error}")))?;
    let backend: BackendName = spec.form.parse()?;
    KernelArgs { precision: spec.precision, autotune: spec.autotune }.set();
    let said = run(DeviceSpec::new(backend, spec.device_index), Serve { spec: &spec, begun })?;
    match said {
        Ok(()) => Ok(()),
        Err(message) => say(&Event::Error { kind: ErrorKind::Failed, message }),
    }
}

/// A worker, for whichever backend was chosen: computes a row and answers questions about it.
pub struct Serve<'a> {
    spec: &'a Spec,
    begun: Instant,
}

impl Program for Serve<'_> {
    type Output = Result<(), String>;

    fn run<B: Backend>(self, device: B::Device) -> Result<(), String> {
        let dtype = if self.spec.dtype == "bf16" { Dtype::Bf16 } else { Dtype::F32 };
        let mut run = prepare(&self.spec.row, Place::<B> { device, dtype: dtype.into(), rounding: None })?;
        let mut timed = || -> Result<f64, String> {
            let begun = Instant::now();
            run()?;
            Ok(begun.elapsed().as_secs_f64())
        };
        let say = |event: Event| say(&event).map_err(|_| "nobody listens".to_owned());
        let setup_seconds = self.begun.elapsed().as_secs_f64();
        let seconds = timed()?;
        say(Event::First { seconds, setup_seconds, version: format!("grove {}", env!("CARGO_PKG_VERSION")) })?;
        say(Event::Second { seconds: timed()? })?;
        for line in std::io::stdin().lock().lines() {
            let line = line.map_err(|error| error.to_string())?;
            match serde_json::from_str(&line).map_err(|error| format!("{line}: {error}"))? {
                Question::Run { run_seconds, max_runs } => {
                    let mut seconds = vec![timed()?];
                    while seconds.len() < max_runs && seconds.iter().sum::<f64>() < run_seconds {
                        seconds.push(timed()?);
                    }
                    say(Event::Times { seconds })?;
                }
                Question::Quit { .. } => break,
            }
        }
        say(Event::End { peak_bytes: peak_bytes(), device_peak_bytes: None })
    }
}

fn say(event: &Event) -> Result<(), Exit> {
    let line = serde_json::to_string(event).map_err(failure)?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(failure)
}

/// The largest resident size of this process so far, where the system tells.
fn peak_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}
