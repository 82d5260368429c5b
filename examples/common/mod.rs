//! Code shared by all examples: options that mean the same everywhere, and the end of a program.

#[allow(dead_code)] // Not every example reads a text.
pub mod input;
mod kernels;
#[allow(dead_code)] // Small models fit everywhere.
pub mod memory;
mod panics;

use clap::{Args, ValueEnum};
use grove::{
    backend::{
        AutotuneLevel, BackendName, DeviceError, DeviceSpec, MatmulPrecision, set_autotune_level, set_matmul_precision,
    },
    tensor::{DType, FloatDType},
    text::printable::{error_message, printable},
    weights::{HubOptions, Source, Wanted},
};
use serde::{Deserialize, Serialize};
use std::{
    borrow::Cow,
    io::{IsTerminal, Write},
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    process::ExitCode,
    sync::atomic::{AtomicBool, Ordering},
};

/// Device, dtype, and options of a GPU's kernels.
#[derive(Args, Debug, Clone)]
pub struct DeviceArgs {
    /// Backend: flex, candle, cuda, wgpu or rocm
    #[arg(long, value_name = "NAME", default_value = "flex", help_heading = "Device")]
    pub backend: String,

    /// Index of the backend's device, from 0
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Device")]
    pub device_index: usize,

    /// Type of the model's numbers
    #[arg(long, value_enum, value_name = "TYPE", default_value_t = Dtype::F32, help_heading = "Device")]
    pub dtype: Dtype,

    #[command(flatten)]
    pub kernels: KernelArgs,
}

/// Precision of a GPU's kernels, and the effort of choosing among them.
#[derive(Args, Debug, Clone)]
pub struct KernelArgs {
    /// Precision of matrix products and convolutions of f32 on GPUs [default: GROVE_MATMUL_PRECISION, or highest]
    #[arg(long, value_enum, value_name = "NAME", help_heading = "Device")]
    pub precision: Option<Precision>,

    /// Effort of choosing the fastest kernels on GPUs, at their first use [default: as CubeCL is configured, or balanced]
    #[arg(long, value_enum, value_name = "LEVEL", help_heading = "Device")]
    pub autotune: Option<Autotune>,
}

impl KernelArgs {
    /// Has the devices that are probed from here on compute so.
    pub fn set(&self) {
        if let Some(precision) = self.precision {
            set_matmul_precision(precision.into());
        }
        if let Some(level) = self.autotune {
            set_autotune_level(level.into());
        }
    }
}

impl DeviceArgs {
    /// The device, which may turn out not to be there; it will compute as the options say.
    pub fn spec(&self) -> Result<DeviceSpec, Exit> {
        self.kernels.set();
        let device = DeviceSpec::new(self.backend.parse()?, self.device_index);
        device.computes_in(self.dtype.into()).map_err(|error| Exit::Usage(format!("--dtype: {error}")))?;
        if device.backend == BackendName::Cuda {
            kernels::show_compiling();
        }
        Ok(device)
    }
}

/// A type of floating-point numbers.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dtype {
    F32,
    F16,
    Bf16,
    /// As the file has them, where the model is made for that; else f32
    Auto,
}

impl Dtype {
    /// Its name on the command line.
    #[allow(dead_code)] // For runs.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::Auto => "auto",
        }
    }

    /// The type that was asked for, if one was.
    #[allow(dead_code)] // For the large models.
    pub fn wanted(self) -> Option<DType> {
        (self != Self::Auto).then(|| self.into())
    }
}

impl From<Dtype> for FloatDType {
    fn from(dtype: Dtype) -> Self {
        match dtype {
            Dtype::F32 | Dtype::Auto => Self::F32,
            Dtype::F16 => Self::F16,
            Dtype::Bf16 => Self::BF16,
        }
    }
}

impl From<Dtype> for DType {
    fn from(dtype: Dtype) -> Self {
        FloatDType::from(dtype).into()
    }
}

/// Precision of matrix products and convolutions of f32, as `torch.set_float32_matmul_precision` has it.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Precision {
    /// Computed in f32
    Highest,
    /// Factors may be rounded to TF32 where a GPU has tensor cores for it
    High,
}

impl Precision {
    /// Its name on the command line.
    #[allow(dead_code)] // For reports.
    pub fn name(self) -> &'static str {
        MatmulPrecision::from(self).as_str()
    }
}

impl From<Precision> for MatmulPrecision {
    fn from(precision: Precision) -> Self {
        match precision {
            Precision::Highest => Self::Highest,
            Precision::High => Self::High,
        }
    }
}

/// Effort of autotuning.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Autotune {
    /// The first kernel that runs: the quickest start
    Minimal,
    /// The fastest of those that are likely to be fast
    Balanced,
    /// The fastest of those that may be fast too
    Extensive,
    /// The fastest of all
    Full,
}

impl From<Autotune> for AutotuneLevel {
    fn from(level: Autotune) -> Self {
        match level {
            Autotune::Minimal => Self::Minimal,
            Autotune::Balanced => Self::Balanced,
            Autotune::Extensive => Self::Extensive,
            Autotune::Full => Self::Full,
        }
    }
}

/// A file or directory that ships with grove, below `models/assets`.
#[allow(dead_code)] // Not every example has a model that ships.
pub fn shipped(name: &str) -> PathBuf {
    in_repository(&format!("models/assets/{name}"))
}

/// A file or directory of the repository, which is found from where cargo runs the program, or from where it was built.
pub fn in_repository(path: &str) -> PathBuf {
    let running = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let places = [running, Some(PathBuf::from(".")), Some(PathBuf::from(env!("CARGO_MANIFEST_DIR")))];
    let mut candidates = places.into_iter().flatten().map(|place| place.join(path));
    let first = candidates.next().unwrap_or_default();
    if first.exists() { first } else { candidates.find(|path| path.exists()).unwrap_or(first) }
}

/// Directory or file of the model: the one that `--model` names, downloaded if needed, or the one that ships.
#[allow(dead_code)] // Not every example has a model that ships.
pub fn resolve(model: Option<&str>, ships: &str, wanted: &Wanted) -> Result<PathBuf, Exit> {
    let Some(model) = model else {
        let path = shipped(ships);
        return match path.exists() {
            true => Ok(path),
            false => Err(failure(format!(
                "the model that ships with grove is not where it should be, {}: name another with --model",
                path.display()
            ))),
        };
    };
    resolve_named(model, wanted)
}

/// Directory or file of a named model, downloaded if needed.
pub fn resolve_named(model: &str, wanted: &Wanted) -> Result<PathBuf, Exit> {
    let source = Source::parse(model).map_err(failure)?;
    source.resolve(&HubOptions::from_env(), wanted).map_err(failure)
}

/// Why a program ends early: `Usage` (exit status 2) is for the command line, `Failure` (1) for everything else.
#[derive(Debug)]
pub enum Exit {
    Usage(String),
    Failure(String),
}

impl From<DeviceError> for Exit {
    fn from(error: DeviceError) -> Self {
        Self::Usage(error.to_string())
    }
}

/// Runs a program's body, prints the one sentence that says what went wrong, and gives the exit status. Before it, while
/// there are no threads, the allocator is told to keep freed memory.
pub fn finish(body: impl FnOnce() -> Result<(), Exit>) -> ExitCode {
    grove::backend::keep_freed_memory();
    panics::tell_in_one_sentence();
    // Nothing of the body is used after a panic, which has been told by then.
    let Ok(ended) = catch_unwind(AssertUnwindSafe(body)) else { return ExitCode::from(1) };
    kernels::clear();
    match ended {
        Ok(()) if panics::any() => ExitCode::from(1),
        Ok(()) => ExitCode::SUCCESS,
        Err(Exit::Usage(message)) => {
            say_error(&message);
            ExitCode::from(2)
        }
        Err(Exit::Failure(message)) => {
            say_error(&message);
            ExitCode::from(1)
        }
    }
}

/// True if the last output to the terminal did not end a line.
static WITHIN_LINE: AtomicBool = AtomicBool::new(false);

/// Prints an error, on a line of its own.
fn say_error(message: &str) {
    let begin = if WITHIN_LINE.load(Ordering::Relaxed) { "\n" } else { "" };
    eprintln!("{begin}error: {}", error_message(message));
}

/// For `map_err`: what went wrong, as a failure.
pub fn failure(error: impl std::fmt::Display) -> Exit {
    Exit::Failure(error.to_string())
}

/// Writes a piece of text to standard output at once. A terminal gets it without control characters: it may be a model's,
/// or a file's name.
pub fn show(text: &str) -> Result<(), Exit> {
    kernels::clear();
    let mut stdout = std::io::stdout().lock();
    let text = if stdout.is_terminal() {
        WITHIN_LINE.store(!text.ends_with('\n'), Ordering::Relaxed);
        printable(text)
    } else {
        Cow::Borrowed(text)
    };
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).map_err(broken_pipe)
}

/// Writes a line to standard output.
pub fn write_line(line: &str) -> Result<(), Exit> {
    show(&format!("{line}\n"))
}

/// Writes the one object that scripts read. JSON leaves some control characters as they are; they are escaped too.
pub fn write_json(value: &serde_json::Value) -> Result<(), Exit> {
    let mut text = String::new();
    for letter in value.to_string().chars() {
        match letter.is_control() {
            true => text.push_str(&format!("\\u{:04x}", u32::from(letter))),
            false => text.push(letter),
        }
    }
    write_line(&text)
}

/// The reader of our output went away, as `head` does: that is no failure of ours.
fn broken_pipe(error: std::io::Error) -> Exit {
    if error.kind() == std::io::ErrorKind::BrokenPipe {
        std::process::exit(0);
    }
    Exit::Failure(format!("standard output: {error}"))
}
