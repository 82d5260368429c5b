//! Measurements, as written to `results.json`.

use grove_terminal::Precision;
use serde::{Deserialize, Serialize};

use crate::{
    cost::Cost,
    rows::{Group, Row},
    worker::ErrorKind,
};

/// A whole run.
#[derive(Serialize, Deserialize, Debug)]
pub struct Results {
    pub date: String,
    pub command: String,
    pub dtype: String,
    /// Precision of products in f32, where one was asked for.
    pub precision: Option<Precision>,
    pub machine: Machine,
    pub rows: Vec<RowResult>,
}

/// The machine of the measurements.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub struct Machine {
    /// Name and driver of the GPU, if the rows were computed on one.
    pub gpu: Option<String>,
    pub cpu: String,
    pub threads: usize,
    pub memory_bytes: u64,
    pub system: String,
    /// Bytes a second that all threads together read from memory.
    pub bytes_per_second: f64,
    /// Floating-point operations a second of the fastest product that any program of this run computed.
    pub operations_per_second: f64,
}

/// A row of the table.
#[derive(Serialize, Deserialize, Debug)]
pub struct RowResult {
    pub name: String,
    pub group: Group,
    pub operations: f64,
    pub bytes: f64,
    pub columns: Vec<ColumnResult>,
}

/// A program's figures in a row, or why there are none.
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

/// Seconds and bytes.
#[derive(Serialize, Deserialize, Clone, Debug, Default)]
pub struct Measured {
    pub version: String,
    /// From the process's start to its first result.
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
    /// Adds a row at its place in the table.
    pub fn add(&mut self, row: RowResult, order: &[Row]) {
        let machine = &mut self.machine;
        machine.operations_per_second = machine.operations_per_second.max(operations_per_second([&row]));
        self.rows.push(row);
        self.rows.sort_by_key(|row| order.iter().position(|known| known.name == row.name));
    }
}

impl Measured {
    /// With the steady state of these runs.
    pub fn steady(self, mut seconds: Vec<f64>) -> Self {
        seconds.sort_by(f64::total_cmp);
        // Of an even number of runs the lower one of the two in the middle: a time that was measured.
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
    /// The most memory: on a GPU its own, as far as the program tells.
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
    /// A row without figures yet.
    pub fn new(name: String, group: Group, cost: Cost) -> Self {
        Self { name, group, operations: cost.operations, bytes: cost.bytes, columns: Vec::new() }
    }

    /// The first of grove's columns.
    pub fn grove(&self) -> Option<&ColumnResult> {
        self.columns.iter().find(|column| column.is_grove)
    }

    /// The peer whose steady state is the fastest.
    pub fn fastest_peer(&self) -> Option<(&ColumnResult, &Measured)> {
        let peers = self.columns.iter().filter(|column| !column.is_grove);
        let measured = peers.filter_map(|column| Some((column, column.measured()?)));
        measured.min_by(|(_, a), (_, b)| a.median_seconds.total_cmp(&b.median_seconds))
    }

    /// The least memory that a peer took.
    pub fn least_memory(&self) -> Option<u64> {
        let peers = self.columns.iter().filter(|column| !column.is_grove);
        peers.filter_map(ColumnResult::memory).min()
    }

    /// Fraction of the machine's peak that a time reaches; more than 1 where the data stays in the caches.
    pub fn of_roofline(&self, seconds: f64, machine: &Machine) -> f64 {
        let least = (self.operations / machine.operations_per_second).max(self.bytes / machine.bytes_per_second);
        least / seconds
    }
}

/// Operations a second of the fastest program in the fastest product.
pub fn operations_per_second<'a>(rows: impl IntoIterator<Item = &'a RowResult>) -> f64 {
    let products = rows.into_iter().filter(|row| row.name.starts_with("gemm"));
    let speed = |row: &RowResult| {
        let times = row.columns.iter().filter_map(|column| Some(column.measured()?.median_seconds));
        times.map(|seconds| row.operations / seconds).fold(0.0, f64::max)
    };
    products.map(speed).fold(0.0, f64::max)
}
