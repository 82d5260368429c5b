//! The worker's side of the protocol, and its messages. The candle peer includes this file; `benches/peers/protocol.py` is the same
//! in Python.
//!
//! A worker writes one JSON object per line: after the first run, after the second run, with the times of the runs that each
//! request asks for, and at the end with its peak memory. Requests on standard input are JSON lines too.

use serde::{Deserialize, Serialize};
use std::{
    io::{BufRead, Write},
    time::Instant,
};

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

/// Measures a prepared row: its first two runs, then those of the requests, until standard input ends.
///
/// - `begun`: start of the preparation
/// - `version`: name and version of the library
pub fn answer(begun: Instant, version: &str, mut run: impl FnMut() -> Result<(), String>) -> Result<(), String> {
    let mut timed = || -> Result<f64, String> {
        let begun = Instant::now();
        run()?;
        Ok(begun.elapsed().as_secs_f64())
    };
    let setup_seconds = begun.elapsed().as_secs_f64();
    let seconds = timed()?;
    say(&Event::First { seconds, setup_seconds, version: version.to_owned() })?;
    say(&Event::Second { seconds: timed()? })?;
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|error| error.to_string())?;
        match serde_json::from_str(&line).map_err(|error| format!("{line}: {error}"))? {
            Request::Run { run_seconds, max_runs } => {
                let mut seconds = vec![timed()?];
                while seconds.len() < max_runs && seconds.iter().sum::<f64>() < run_seconds {
                    seconds.push(timed()?);
                }
                say(&Event::Times { seconds })?;
            }
            Request::Quit { .. } => break,
        }
    }
    say(&Event::End { peak_bytes: peak_bytes(), device_peak_bytes: None })
}

/// Writes a message.
pub fn say(event: &Event) -> Result<(), String> {
    let line = serde_json::to_string(event).map_err(|error| error.to_string())?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(|error| format!("nobody listens: {error}"))
}

/// Returns the peak resident memory of this process in bytes, if /proc is available.
fn peak_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}
