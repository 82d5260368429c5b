//! Worker process that computes one row. It uses the same protocol as the programs in `benches/peers`.
//!
//! A worker writes one JSON object per line: after the first run, after the second run, with the times of the runs that each
//! request asks for, and at the end with its peak memory. Requests on standard input are JSON lines too.

use grove::{backend::DeviceError, prelude::*};
use serde::{Deserialize, Serialize};
use std::{
    io::{BufRead, Write},
    time::Instant,
};

use grove_terminal::{Dtype, Exit, KernelArgs, failure, usage};

use crate::{
    compute::{Place, prepare},
    work::Work,
};

/// Arguments of a worker.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub struct Spec {
    pub row: Work,
    /// Mode of the program; the name of the backend for grove.
    pub form: String,
    pub threads: usize,
    /// `cpu` or `cuda`.
    pub device: String,
    pub device_index: usize,
    pub dtype: String,
    /// Precision of f32 products, where `None` is the library's default, and effort of autotuning kernels, which peers ignore.
    #[serde(flatten)]
    pub kernels: KernelArgs,
}

/// Requests to a worker.
#[derive(Serialize, Deserialize, Clone, Copy, Debug)]
#[serde(untagged)]
pub enum Request {
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

/// Kind of reason why a row has no measurement.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    OutOfMemory,
    Unsupported,
    Failed,
}

/// Computes a row and answers requests until standard input ends.
pub fn serve(
    spec: &str,
    run: impl FnOnce(DeviceSpec, Serve<'_>) -> Result<Result<(), String>, DeviceError>,
) -> Result<(), Exit> {
    let begun = Instant::now();
    let spec: Spec = serde_json::from_str(spec).map_err(|error| usage(format!("--worker: {error}")))?;
    let backend: BackendName = spec.form.parse()?;
    spec.kernels.set();
    let result = run(DeviceSpec::new(backend, spec.device_index), Serve { spec: &spec, begun })?;
    match result {
        Ok(()) => Ok(()),
        Err(message) => say(&Event::Error { kind: ErrorKind::Failed, message }),
    }
}

/// Worker on the chosen backend, which computes a row and answers requests.
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
                Request::Run { run_seconds, max_runs } => {
                    let mut seconds = vec![timed()?];
                    while seconds.len() < max_runs && seconds.iter().sum::<f64>() < run_seconds {
                        seconds.push(timed()?);
                    }
                    say(Event::Times { seconds })?;
                }
                Request::Quit { .. } => break,
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

/// Returns the peak resident memory of this process in bytes, if /proc is available.
fn peak_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}
