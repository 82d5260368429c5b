//! Worker process that computes one row. It uses the same protocol as the programs in `benches/peers`.

use grove::{backend::DeviceError, prelude::*};
use serde::{Deserialize, Serialize};
use std::time::Instant;

use grove_terminal::{Dtype, Exit, KernelArgs, usage};

use crate::{
    compute::{Place, prepare},
    protocol::{ErrorKind, Event, answer, say},
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
    result.or_else(|message| say(&Event::Error { kind: ErrorKind::Failed, message })).map_err(Exit::Failure)
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
        answer(self.begun, concat!("grove ", env!("CARGO_PKG_VERSION")), || run().map(drop))
    }
}
