//! The benchmark: rows of operations, layers and models, measured in turn with other libraries.
//!
//! [`Options`] is its command line and [`run`] the program; `cargo run --example bench` and `grove bench` run it. Rows
//! are in `rows`, the computations of grove in `compute`, those of the other libraries in `benches/peers` and
//! `benches/candle`. [`parity`] compares the results of a device with those of the CPU.
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
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use grove_terminal::{
    Autotune, DeviceArgs, Dtype, Exit, KernelArgs, Precision, failure, in_repository, write_json, write_line,
};
use measure::Plan;
use only::Only;
use program::{Column, Peer, Start};
use results::Results;
use rows::{Group, Row};

/// Answers how fast grove is here, and against what: operations, layers, models, training steps, loading.
///
/// Each program computes each row in a process of its own, on random numbers; those of one row take turns. Tables
/// (Markdown), all figures (JSON) and an image (SVG) are written to --output. The whole table takes about an hour with
/// PyTorch and JAX; --only picks rows. Peers: pip install -r benches/requirements.txt
#[derive(Parser, Debug)]
#[command(name = "bench", version)]
pub struct Options {
    /// Backends of grove, one or more of: flex, candle, cuda, wgpu, rocm, xla, xla:cpu, xla:cuda, xla:tpu
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "flex")]
    backend: Vec<String>,

    /// Index of the backend's device, from 0
    #[arg(long, value_name = "N", default_value_t = 0)]
    device_index: usize,

    /// Type of the numbers
    #[arg(long, value_enum, value_name = "TYPE", default_value_t = Dtype::F32)]
    dtype: Dtype,

    /// Precision of everyone's matrix products and convolutions of f32 [default: grove's highest, the peers' as they have it]
    #[arg(long, value_enum, value_name = "NAME")]
    precision: Option<Precision>,

    /// Effort of choosing grove's fastest kernels on GPUs [default: as CubeCL is configured, or balanced]
    #[arg(long, value_enum, value_name = "LEVEL")]
    autotune: Option<Autotune>,

    /// Libraries to compare with
    #[arg(long, value_enum, value_name = "NAMES", value_delimiter = ',')]
    peers: Vec<Peer>,

    /// Python that has the peers' packages
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    python: PathBuf,

    /// candle's side; by default the one that is built from benches/candle
    #[arg(long, value_name = "PROGRAM")]
    candle: Option<PathBuf>,

    /// Rows by name.
    #[command(flatten)]
    only: Only,

    /// Only rows of these parts of the table
    #[arg(long, value_enum, value_name = "NAMES", value_delimiter = ',')]
    group: Vec<Group>,

    /// Threads of each program; as many as there are cores by default
    #[arg(long, value_name = "N")]
    threads: Option<usize>,

    /// Seconds that each program computes in each row, after two runs that are told apart
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0)]
    seconds: f64,

    /// Turns that these are divided into
    #[arg(long, value_name = "N", default_value_t = 5)]
    rounds: usize,

    /// Seconds after which a program that gives no answer is ended
    #[arg(long, value_name = "SECONDS", default_value_t = 900)]
    timeout: u64,

    /// Begin no row after so many seconds; with --resume another run measures the others
    #[arg(long, value_name = "SECONDS")]
    limit: Option<u64>,

    /// Keep the rows that results.json in --output has, and measure the others
    #[arg(long)]
    resume: bool,

    /// Directory for results.md, results.json and results.svg
    #[arg(long, value_name = "DIR", default_value = "target/bench")]
    output: PathBuf,

    /// List the rows with their operations and bytes, and measure nothing
    #[arg(long)]
    dry_run: bool,

    /// Run every row in tiny sizes, to see whether it runs
    #[arg(long)]
    smoke: bool,

    /// Write one JSON object to standard output: all results, or with --dry-run the rows
    #[arg(long)]
    json: bool,

    /// Compute one row, described in JSON, and answer questions on standard input
    #[arg(long, value_name = "JSON", hide = true)]
    worker: Option<String>,
}

/// Runs the benchmark, or one of its workers.
///
/// Workers are this same program, started with `--worker` and the description of their row; `subcommand` comes before it
/// where the benchmark is one of a program's commands. `serve` and `write` run a program on a device; they are given by the
/// caller so that this crate need not be compiled for every backend where nothing is measured.
pub fn run(
    options: &Options,
    subcommand: Option<&str>,
    serve: impl FnOnce(DeviceSpec, Serve<'_>) -> Result<Result<(), String>, DeviceError>,
    write: impl Fn(DeviceSpec, WriteModel<'_>) -> Result<Result<(), String>, DeviceError>,
) -> Result<(), Exit> {
    match &options.worker {
        Some(spec) => worker::serve(spec, serve),
        None => options.run(subcommand, &|config, directory| {
            write(DeviceSpec::default(), WriteModel { config, directory })?.map_err(Exit::Failure)
        }),
    }
}

impl Options {
    fn run(&self, subcommand: Option<&str>, write_model: WriteFn<'_>) -> Result<(), Exit> {
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
            precision: self.precision,
            autotune: self.autotune,
            seconds,
            rounds,
            patience: Duration::from_secs(self.timeout),
            until: self.limit.map(|limit| begun + Duration::from_secs(limit)),
        };
        let mut results = match self.resumed(&plan)? {
            Some(results) => results,
            None => self.begin(&plan, command_line(subcommand), write_model)?,
        };
        let mut left = rows;
        left.retain(|row| !results.rows.iter().any(|measured| measured.name == row.name));
        let order = rows::all(self.smoke);
        let number = plan.measure(&mut left, write_model, |row| {
            results.add(row, &order);
            self.save(&results)
        })?;
        if number == 0 {
            self.save(&results)?;
        }
        self.tell(&results)?;
        if !left.is_empty() {
            let names: Vec<&str> = left.iter().map(|row| &*row.name).collect();
            eprintln!("not measured within --limit: {}; --resume goes on with them", names.join("; "));
        }
        match self.broken(&results) {
            Some(message) if self.smoke => Err(Exit::Failure(message)),
            _ => Ok(()),
        }
    }

    /// Results without rows yet. The product that rows are compared with is of the CPU.
    fn begin(&self, plan: &Plan, command: String, write_model: WriteFn<'_>) -> Result<Results, Exit> {
        let mut machine = machine::describe(plan.threads, self.on_gpu());
        let work = machine::product();
        let mut reference = vec![Row { name: "gemm".into(), group: Group::Operations, work, needs_gpu: false }];
        if self.smoke || self.on_gpu() {
            reference.clear();
        }
        plan.measure(&mut reference, write_model, |row| {
            machine.operations_per_second = results::operations_per_second([&row]);
            Ok(())
        })?;
        let (dtype, precision) = (plan.dtype.clone(), plan.precision);
        Ok(Results { date: today(), command, dtype, precision, machine, rows: Vec::new() })
    }

    /// The results in --output that --resume keeps; `None` where there are none.
    fn resumed(&self, plan: &Plan) -> Result<Option<Results>, Exit> {
        let path = self.output.join("results.json");
        if !self.resume || !path.exists() {
            return Ok(None);
        }
        let named = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let text = std::fs::read_to_string(&path).map_err(|error| failure(named(&error)))?;
        let results: Results = serde_json::from_str(&text)
            .map_err(|error| failure(named(&format!("these are not results that can be resumed ({error})"))))?;
        if (&results.dtype, results.precision) != (&plan.dtype, plan.precision) {
            let precision = results
                .precision
                .map_or("no --precision".to_owned(), |precision| format!("--precision {}", precision.name()));
            return Err(Exit::Usage(named(&format!(
                "it was measured with --dtype {} and {precision}: give --resume the same options, or another --output",
                results.dtype
            ))));
        }
        let works = rows::all(self.smoke);
        for row in &results.rows {
            let Some(known) = works.iter().find(|known| known.name == row.name) else { continue };
            // Not equal to the last digit, which JSON may lose.
            if (known.work.cost().bytes / row.bytes - 1.0).abs() > 1e-9 {
                return Err(Exit::Usage(named(&format!(
                    "'{}' was measured with other sizes there (--smoke): give another --output",
                    row.name
                ))));
            }
            let columns = plan.columns.iter().filter(|column| column.has(&known.work)).map(|column| &column.name);
            if !columns.eq(row.columns.iter().map(|column| &column.name)) {
                return Err(Exit::Usage(named(&format!(
                    "it has other programs in '{}': give --resume the same --backend and --peers, or another --output",
                    row.name
                ))));
            }
        }
        Ok(Some(results))
    }

    /// The rows that were asked for.
    fn rows(&self) -> Result<Vec<Row>, Exit> {
        let mut rows = rows::all(self.smoke);
        self.only.keep(&mut rows, |row| &row.name, "row has that in its name; --dry-run lists them")?;
        rows.retain(|row| self.group.is_empty() || self.group.contains(&row.group));
        if rows.is_empty() {
            return Err(Exit::Usage("--only and --group have no row in common; --dry-run lists the rows".into()));
        }
        rows.retain(|row| self.on_gpu() || !row.needs_gpu || self.dry_run);
        if rows.is_empty() {
            return Err(Exit::Usage("these rows are for a GPU only: choose one with --backend".into()));
        }
        Ok(rows)
    }

    /// True if the first backend, and so the peers, compute on a GPU that PyTorch and JAX know.
    fn on_gpu(&self) -> bool {
        self.backend.first().is_some_and(|name| name == "cuda" || name == "rocm")
    }

    fn check(&self) -> Result<(), Exit> {
        let counts = [Some(self.rounds), self.threads, Some(self.timeout as usize)];
        if counts.contains(&Some(0)) || !(self.seconds >= 0.0 && self.seconds.is_finite()) {
            return Err(Exit::Usage("--rounds, --threads and --timeout begin at 1, --seconds at 0".into()));
        }
        if self.dtype != Dtype::F32 && self.dtype != Dtype::Bf16 {
            return Err(Exit::Usage("--dtype is f32 or bf16 here".into()));
        }
        Ok(())
    }

    /// grove's columns and those of the peers, all of which are there.
    fn columns(&self, subcommand: Option<&str>) -> Result<Vec<Column>, Exit> {
        let own = std::env::current_exe().map_err(failure)?;
        let mut columns = Vec::new();
        for name in &self.backend {
            let kernels = KernelArgs { precision: self.precision, autotune: self.autotune };
            let (backend, device_index) = (name.clone(), self.device_index);
            let device = DeviceArgs { backend, device_index: Some(device_index), dtype: self.dtype, kernels };
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
        for &peer in &self.peers {
            self.is_there(peer)?;
            columns.extend(peer.columns(&self.python, &peers, &self.candle(), on_gpu));
        }
        Ok(columns)
    }

    fn candle(&self) -> PathBuf {
        let built = || in_repository("benches/candle/target/release/candle-peer");
        self.candle.clone().unwrap_or_else(built)
    }

    fn is_there(&self, peer: Peer) -> Result<(), Exit> {
        let module = match peer {
            Peer::Torch => "torch",
            Peer::Jax => "jax",
            Peer::Candle if self.candle().is_file() => return Ok(()),
            Peer::Candle => {
                return Err(Exit::Usage(format!(
                    "{}: there is no such program; build it with `cargo build --release` in benches/candle, or name it \
                     with --candle",
                    self.candle().display()
                )));
            }
        };
        let find = format!("import importlib.util as u, sys; sys.exit(0 if u.find_spec('{module}') else 3)");
        let status = Command::new(&self.python).args(["-c", &find]).status();
        match status {
            Ok(status) if status.success() => Ok(()),
            Ok(_) => Err(Exit::Usage(format!(
                "{} has no module '{module}': run `{} -m pip install -r benches/requirements.txt`, or name another Python \
                 with --python",
                self.python.display(),
                self.python.display()
            ))),
            Err(error) => Err(Exit::Usage(format!("--python {}: {error}", self.python.display()))),
        }
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

    /// Writes all three files.
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

    /// Writes the table of rows, or all results as JSON, to standard output.
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

    /// The first thing that failed, as opposed to what is not there or has no memory.
    fn broken(&self, results: &Results) -> Option<String> {
        results.rows.iter().find_map(|row| {
            row.columns.iter().find_map(|column| match &column.outcome {
                results::Outcome::Nothing { error: worker::ErrorKind::Failed, message } => {
                    Some(format!("{}, {}: {message}", row.name, column.name))
                }
                _ => None,
            })
        })
    }
}

/// Writes a model of a configuration to a directory.
type WriteFn<'a> = &'a dyn Fn(&serde_json::Value, &Path) -> Result<(), Exit>;

/// A program that writes a model, for the rows that read one.
pub struct WriteModel<'a> {
    config: &'a serde_json::Value,
    directory: &'a Path,
}

impl Program for WriteModel<'_> {
    type Output = Result<(), String>;

    fn run<B: Backend>(self, device: B::Device) -> Result<(), String> {
        compute::write_gpt2::<B>(self.config, self.directory, &device)
    }
}

fn today() -> String {
    jiff::Zoned::now().strftime("%-d %B %Y").to_string()
}

/// The command that started the benchmark, as a person types it.
fn command_line(subcommand: Option<&str>) -> String {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let program = if subcommand.is_some() { "grove" } else { "cargo run --example bench --" };
    format!("{program} {}", arguments.join(" "))
}
