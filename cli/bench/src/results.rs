//! Results, as written to `results.json`.

use grove_terminal::Precision;
use serde::{Deserialize, Serialize};

use crate::{
    protocol::ErrorKind,
    rows::{Group, Row},
};

/// Results of a run of the benchmark.
#[derive(Serialize, Deserialize, Debug)]
pub struct Results {
    pub date: String,
    pub command: String,
    pub dtype: String,
    /// Precision of f32 products, if `--precision` is given.
    pub precision: Option<Precision>,
    pub machine: Machine,
    pub rows: Vec<RowResult>,
}

/// Machine of the measurements.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub struct Machine {
    /// Name and driver of the GPU, if the rows were computed on one.
    pub gpu: Option<String>,
    pub cpu: String,
    pub threads: usize,
    pub memory_bytes: u64,
    pub system: String,
    /// Memory bandwidth of all threads, in bytes per second.
    pub bytes_per_second: f64,
    /// Floating-point operations per second of the fastest matrix product of this run, by any program.
    pub operations_per_second: f64,
}

/// Results of a row.
#[derive(Serialize, Deserialize, Debug)]
pub struct RowResult {
    pub name: String,
    pub group: Group,
    pub operations: f64,
    pub bytes: f64,
    pub columns: Vec<ColumnResult>,
}

/// Measurement of a program in a row, or the reason why there is none.
#[derive(Serialize, Deserialize, Debug)]
pub struct ColumnResult {
    pub name: String,
    pub is_grove: bool,
    pub on_gpu: bool,
    #[serde(flatten)]
    pub outcome: Outcome,
}

#[derive(Serialize, Deserialize, Debug)]
#[serde(untagged)]
pub enum Outcome {
    Measured(Measured),
    Nothing { error: ErrorKind, message: String },
}

/// Measured times and memory.
#[derive(Serialize, Deserialize, Clone, Debug, Default)]
pub struct Measured {
    pub version: String,
    /// Time from the start of the process to the first result.
    pub start_seconds: f64,
    pub first_seconds: f64,
    pub second_seconds: f64,
    pub median_seconds: f64,
    pub lower_quartile_seconds: f64,
    pub upper_quartile_seconds: f64,
    pub runs: usize,
    pub peak_bytes: Option<u64>,
    pub device_peak_bytes: Option<u64>,
}

impl Results {
    /// Adds a row, in the order of the table.
    pub fn add(&mut self, row: RowResult, order: &[Row]) {
        let machine = &mut self.machine;
        machine.operations_per_second = machine.operations_per_second.max(row.operations_per_second());
        self.rows.push(row);
        self.rows.sort_by_key(|row| order.iter().position(|known| known.name == row.name));
    }
}

impl Measured {
    /// Sets the steady-state statistics from the times of the runs.
    pub fn steady(self, mut seconds: Vec<f64>) -> Self {
        seconds.sort_by(f64::total_cmp);
        // For an even number of runs, the lower of the two middle values, which is a measured time.
        let at =
            |part: f64| seconds.get(((seconds.len().max(1) - 1) as f64 * part) as usize).copied().unwrap_or(f64::NAN);
        Self {
            median_seconds: at(0.5),
            lower_quartile_seconds: at(0.25),
            upper_quartile_seconds: at(0.75),
            runs: seconds.len(),
            ..self
        }
    }
}

impl ColumnResult {
    /// Returns the peak memory in bytes: the device's on a GPU, if the program reports it.
    pub fn memory(&self) -> Option<u64> {
        let measured = self.measured()?;
        if self.on_gpu { measured.device_peak_bytes } else { measured.peak_bytes }
    }

    pub fn measured(&self) -> Option<&Measured> {
        match &self.outcome {
            Outcome::Measured(measured) => Some(measured),
            Outcome::Nothing { .. } => None,
        }
    }
}

impl RowResult {
    /// Returns the first column of grove.
    pub fn grove(&self) -> Option<&ColumnResult> {
        self.columns.iter().find(|column| column.is_grove)
    }

    /// Returns the peer with the lowest median time.
    pub fn fastest_peer(&self) -> Option<(&ColumnResult, &Measured)> {
        let peers = self.columns.iter().filter(|column| !column.is_grove);
        let measured = peers.filter_map(|column| Some((column, column.measured()?)));
        measured.min_by(|(_, a), (_, b)| a.median_seconds.total_cmp(&b.median_seconds))
    }

    /// Returns the lowest peak memory of a peer, in bytes.
    pub fn least_memory(&self) -> Option<u64> {
        let peers = self.columns.iter().filter(|column| !column.is_grove);
        peers.filter_map(ColumnResult::memory).min()
    }

    /// Returns the operations per second of the fastest program in a matrix product; 0 for other rows.
    pub fn operations_per_second(&self) -> f64 {
        let products = self.columns.iter().filter(|_| self.name.starts_with("gemm"));
        let times = products.filter_map(|column| Some(column.measured()?.median_seconds));
        times.map(|seconds| self.operations / seconds).fold(0.0, f64::max)
    }

    /// Returns the fraction of the machine's roofline that a time reaches. It exceeds 1 if the data stays in the caches.
    pub fn of_roofline(&self, seconds: f64, machine: &Machine) -> f64 {
        let least = (self.operations / machine.operations_per_second).max(self.bytes / machine.bytes_per_second);
        least / seconds
    }
}
