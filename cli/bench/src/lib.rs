//! Benchmark of operations, layers and models against other libraries.
//!
//! [`Options`] is the command line and [`run`] the program of `cargo run --example bench` and `grove bench`. The module `rows`
//! defines the rows, `compute` their computation in grove; `benches/peers` and `benches/candle` have the computation in the
//! other libraries. [`parity`] compares a device's results with the CPU's.
#![warn(missing_docs)]

mod chart;
mod compute;
mod cost;
mod machine;
mod markdown;
mod measure;
mod only;
pub mod parity;
mod program;
mod protocol;
mod recurrent;
mod results;
mod rows;
mod work;
mod worker;

pub use recurrent::CompareArgs;
pub use worker::Serve;

use clap::Parser;
use grove::{backend::DeviceError, files::write_atomically, prelude::*};
use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use grove_terminal::{DeviceArgs, Dtype, Exit, KernelArgs, failure, in_repository, usage, write_json, write_line};
use measure::Plan;
use only::Only;
use program::{Column, Peer, Start};
use protocol::ErrorKind;
use results::{Outcome, Results};
use rows::{Group, Row};

/// Measures the speed of grove on this machine, alone or against PyTorch, JAX and candle: operations, layers, models, training
/// steps, loading.
///
/// Each library computes each row in its own process, on random inputs; the processes of a row take turns. Tables (Markdown),
/// all measurements (JSON) and a chart (SVG) are written to --output. All rows with PyTorch and JAX take about an hour; --only
/// selects rows. To install the peers: pip install -r benches/requirements.txt
#[derive(Parser, Debug)]
#[command(
    name = "bench",
    version,
    mut_arg("precision", |arg| arg.help(
        "Precision of f32 matrix products and convolutions, in all libraries [default: highest for grove, the peers' own default]"
    )),
)]
pub struct Options {
    /// Backends of grove, one or more of: flex, candle, cuda, wgpu, rocm, xla, xla:cpu, xla:cuda, xla:tpu
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "flex")]
    backend: Vec<String>,

    /// Index of the backend's device, from 0
    #[arg(long, value_name = "N", default_value_t = 0)]
    device_index: usize,

    /// Type of the weights and of the computation: f32 or bf16
    #[arg(long, value_enum, value_name = "TYPE", default_value_t = Dtype::F32)]
    dtype: Dtype,

    /// Precision, in all libraries, and autotuning of grove's kernels.
    #[command(flatten)]
    kernels: KernelArgs,

    /// Libraries to compare with
    #[arg(long, value_enum, value_name = "NAMES", value_delimiter = ',')]
    peers: Vec<Peer>,

    /// Python interpreter with the peers' packages
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    python: PathBuf,

    /// Program that measures candle [default: the one built in benches/candle]
    #[arg(long, value_name = "PROGRAM")]
    candle: Option<PathBuf>,

    /// Rows by name.
    #[command(flatten)]
    only: Only,

    /// Only rows of these groups
    #[arg(long, value_enum, value_name = "NAMES", value_delimiter = ',')]
    group: Vec<Group>,

    /// Number of threads of each process [default: the number of cores]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,

    /// Seconds of steady-state runs of each library in each row, after the first two runs, which are reported separately
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0)]
    seconds: f64,

    /// Number of turns that --seconds is divided into
    #[arg(long, value_name = "N", default_value_t = 5)]
    rounds: usize,

    /// Seconds to wait for an answer of a process before it is killed
    #[arg(long, value_name = "SECONDS", default_value_t = 900)]
    timeout: u64,

    /// Start no row after this many seconds; --resume measures the remaining rows later
    #[arg(long, value_name = "SECONDS")]
    limit: Option<u64>,

    /// Keep the rows in --output/results.json and measure only the others
    #[arg(long)]
    resume: bool,

    /// Directory for results.md, results.json and results.svg
    #[arg(long, value_name = "DIR", default_value = "target/bench")]
    output: PathBuf,

    /// List the rows with their operations and bytes, without measuring
    #[arg(long)]
    dry_run: bool,

    /// Run every row with tiny sizes, as a test
    #[arg(long)]
    smoke: bool,

    /// Print one JSON object: all results, or the rows with --dry-run
    #[arg(long)]
    json: bool,

    /// Compute one row, described in JSON, and answer requests on standard input
    #[arg(long, value_name = "JSON", hide = true)]
    worker: Option<String>,
}

/// Runs the benchmark, or one of its workers.
///
/// Workers are processes of the same executable, started with `--worker` and the description of a row. `subcommand` is the name
/// of the benchmark's command if the executable has several. `serve` runs a worker on a device. The caller passes it, so that this
/// crate is compiled for every backend only in executables that run the benchmark.
pub fn run(
    options: &Options,
    subcommand: Option<&str>,
    serve: impl FnOnce(DeviceSpec, Serve<'_>) -> Result<Result<(), String>, DeviceError>,
) -> Result<(), Exit> {
    match &options.worker {
        Some(spec) => worker::serve(spec, serve),
        None => options.run(subcommand),
    }
}

impl Options {
    fn run(&self, subcommand: Option<&str>) -> Result<(), Exit> {
        let rows = self.rows()?;
        if self.dry_run {
            return self.list(&rows);
        }
        self.check()?;
        let begun = Instant::now();
        let columns = self.columns(subcommand)?;
        let threads = self.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
        let (seconds, rounds) = if self.smoke { (0.0, 1) } else { (self.seconds, self.rounds) };
        let plan = Plan {
            columns,
            threads,
            device_index: self.device_index,
            dtype: self.dtype.name(),
            kernels: self.kernels,
            seconds,
            rounds,
            timeout: Duration::from_secs(self.timeout),
            until: self.limit.map(|limit| begun + Duration::from_secs(limit)),
        };
        let mut results = match self.resumed(&plan)? {
            Some(results) => results,
            None => self.begin(&plan, command_line(subcommand))?,
        };
        let mut left = rows;
        left.retain(|row| !results.rows.iter().any(|measured| measured.name == row.name));
        let order = rows::all(self.smoke);
        let number = plan.measure(&mut left, |row| {
            results.add(row, &order);
            self.save(&results)
        })?;
        if number == 0 {
            self.save(&results)?;
        }
        self.tell(&results)?;
        if !left.is_empty() {
            let names: Vec<&str> = left.iter().map(|row| &*row.name).collect();
            eprintln!("not measured within --limit: {}; --resume continues with them", names.join("; "));
        }
        match self.broken(&results) {
            Some(message) if self.smoke => Err(Exit::Failure(message)),
            _ => Ok(()),
        }
    }

    /// Returns results without rows. On a CPU, measures the matrix product that defines the machine's peak speed.
    fn begin(&self, plan: &Plan, command: String) -> Result<Results, Exit> {
        let mut machine = machine::describe(plan.threads, self.on_gpu());
        let work = machine::product();
        let mut reference = vec![Row { name: "gemm".into(), group: Group::Operations, work, needs_gpu: false }];
        if self.smoke || self.on_gpu() {
            reference.clear();
        }
        plan.measure(&mut reference, |row| {
            machine.operations_per_second = row.operations_per_second();
            Ok(())
        })?;
        let (dtype, precision) = (plan.dtype.clone(), plan.kernels.precision);
        Ok(Results { date: today(), command, dtype, precision, machine, rows: Vec::new() })
    }

    /// Returns the results in `--output` that `--resume` keeps, or `None`.
    fn resumed(&self, plan: &Plan) -> Result<Option<Results>, Exit> {
        let path = self.output.join("results.json");
        if !self.resume || !path.exists() {
            return Ok(None);
        }
        let named = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let text = std::fs::read_to_string(&path).map_err(|error| failure(named(&error)))?;
        let results: Results = serde_json::from_str(&text)
            .map_err(|error| failure(named(&format!("these are not results that can be resumed ({error})"))))?;
        if (&results.dtype, results.precision) != (&plan.dtype, plan.kernels.precision) {
            let precision = results
                .precision
                .map_or("no --precision".to_owned(), |precision| format!("--precision {}", precision.name()));
            return Err(usage(named(&format!(
                "it was measured with --dtype {} and {precision}: give --resume the same options, or another --output",
                results.dtype
            ))));
        }
        let works = rows::all(self.smoke);
        for row in &results.rows {
            let Some(known) = works.iter().find(|known| known.name == row.name) else { continue };
            // Compared with a tolerance, because JSON may lose the last digit.
            if (known.work.cost().bytes / row.bytes - 1.0).abs() > 1e-9 {
                return Err(usage(named(&format!(
                    "'{}' was measured with other sizes there (--smoke): give another --output",
                    row.name
                ))));
            }
            let columns = plan.columns.iter().filter(|column| column.has(&known.work)).map(|column| &column.name);
            if !columns.eq(row.columns.iter().map(|column| &column.name)) {
                return Err(usage(named(&format!(
                    "it has other programs in '{}': give --resume the same --backend and --peers, or another --output",
                    row.name
                ))));
            }
        }
        Ok(Some(results))
    }

    /// Returns the rows selected by the options.
    fn rows(&self) -> Result<Vec<Row>, Exit> {
        let mut rows = rows::all(self.smoke);
        self.only.keep(&mut rows, |row| &row.name, "row has that in its name; --dry-run lists them")?;
        rows.retain(|row| self.group.is_empty() || self.group.contains(&row.group));
        if rows.is_empty() {
            return Err(usage("--only and --group have no row in common; --dry-run lists the rows"));
        }
        rows.retain(|row| self.on_gpu() || !row.needs_gpu || self.dry_run);
        if rows.is_empty() {
            return Err(usage("these rows are for a GPU only: choose one with --backend"));
        }
        Ok(rows)
    }

    /// Returns true if the first backend uses a GPU that PyTorch and JAX support. The peers then use it too.
    fn on_gpu(&self) -> bool {
        self.backend.first().is_some_and(|name| name == "cuda" || name == "rocm")
    }

    fn check(&self) -> Result<(), Exit> {
        let counts = [Some(self.rounds), self.threads, Some(self.timeout as usize)];
        if counts.contains(&Some(0)) || !(self.seconds >= 0.0 && self.seconds.is_finite()) {
            return Err(usage("--rounds, --threads and --timeout must be at least 1, --seconds at least 0"));
        }
        if self.dtype != Dtype::F32 && self.dtype != Dtype::Bf16 {
            return Err(usage("--dtype is f32 or bf16 here"));
        }
        Ok(())
    }

    /// Returns the columns of grove and of the peers. Fails if a device or a peer is missing.
    fn columns(&self, subcommand: Option<&str>) -> Result<Vec<Column>, Exit> {
        let own = std::env::current_exe().map_err(failure)?;
        let mut columns = Vec::new();
        for name in &self.backend {
            let (backend, device_index) = (name.clone(), Some(self.device_index));
            let device = DeviceArgs { backend, device_index, dtype: self.dtype, kernels: self.kernels };
            let spec = device.spec()?;
            spec.probe()?;
            columns.push(Column {
                name: format!("grove, {name}"),
                peer: None,
                form: name.clone(),
                start: Start::new(&own, subcommand.into_iter().chain(["--worker"]).map(str::to_owned)),
                on_gpu: !matches!(spec.backend, BackendName::Flex | BackendName::Candle | BackendName::XlaCpu),
            });
        }
        let on_gpu = self.on_gpu();
        let peers = in_repository("benches/peers");
        let built = || in_repository("benches/candle/target/release/candle-peer");
        let candle = self.candle.clone().unwrap_or_else(built);
        for &peer in &self.peers {
            peer.check(&self.python, &candle)?;
            columns.extend(peer.columns(&self.python, &peers, &candle, on_gpu));
        }
        Ok(columns)
    }

    fn list(&self, rows: &[Row]) -> Result<(), Exit> {
        if self.json {
            let row = |row: &Row| serde_json::json!({"name": row.name, "work": row.work, "operations": row.work.cost().operations, "bytes": row.work.cost().bytes});
            return write_json(&serde_json::json!({"rows": rows.iter().map(row).collect::<Vec<_>>()}));
        }
        for row in rows {
            let cost = row.work.cost();
            let gpu = if row.needs_gpu { "  (on a GPU only)" } else { "" };
            let (operations, bytes) = (cost.operations / 1e9, cost.bytes / 1e6);
            write_line(&format!("{:<40} {operations:>10.3} GFLOP {bytes:>10.1} MB{gpu}", row.name))?;
        }
        Ok(())
    }

    /// Writes results.md, results.json and results.svg.
    fn save(&self, results: &Results) -> Result<(), Exit> {
        let json = serde_json::to_value(results).map_err(failure)?;
        let image = chart::draw(results, |_| true).map_err(failure)?;
        let files = [
            ("results.md", markdown::report(results).map_err(failure)?),
            ("results.json", format!("{json:#}\n")),
            ("results.svg", image),
        ];
        for (name, text) in &files {
            let path = self.output.join(name);
            write_atomically(&path, |file| file.write_all(text.as_bytes())).map_err(failure)?;
        }
        Ok(())
    }

    /// Prints the summary table, or all results as JSON.
    fn tell(&self, results: &Results) -> Result<(), Exit> {
        if self.json {
            return write_json(&serde_json::to_value(results).map_err(failure)?);
        }
        let mut table = String::new();
        markdown::summary(&mut table, results).map_err(failure)?;
        write_line(&table)?;
        eprintln!("everything is in {}", self.output.display());
        Ok(())
    }

    /// Returns the message of the first failed measurement. Unsupported rows and rows out of memory are not failures.
    fn broken(&self, results: &Results) -> Option<String> {
        let mut columns = results.rows.iter().flat_map(|row| row.columns.iter().map(|column| (&row.name, column)));
        columns.find_map(|(row, column)| match &column.outcome {
            Outcome::Nothing { error: ErrorKind::Failed, message } => {
                Some(format!("{row}, {}: {message}", column.name))
            }
            _ => None,
        })
    }
}

fn today() -> String {
    jiff::Zoned::now().strftime("%-d %B %Y").to_string()
}

/// Returns the command line that started the benchmark.
fn command_line(subcommand: Option<&str>) -> String {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let program = if subcommand.is_some() { "grove" } else { "cargo run --example bench --" };
    format!("{program} {}", arguments.join(" "))
}
