//! Running programs on OpenXLA's devices.

use grove_backend::{BackendName, DeviceError, DeviceSpec, Program};
use grove_communicator::{Communicator, local_rank};
use std::sync::OnceLock;

use crate::{
    NamedValue, NotFound, Platform, Xla,
    client::{Client, Device},
    discovery::find_of_ranks,
};

/// Probes for a device of any backend, including OpenXLA's, then runs the program on it.
///
/// # Errors
/// If the backend is not compiled in, if its driver, plugin or hardware is missing, or if the device does not exist.
pub fn run<P: Program>(spec: DeviceSpec, program: P) -> Result<P::Output, DeviceError> {
    if !spec.backend.is_xla() {
        return spec.run(program);
    }
    spec.probe()?;
    Ok(program.run::<Xla>(device(spec)?.lazy()))
}

/// Starts the plugin of a backend and returns one of its devices.
///
/// # Errors
/// If no plugin starts, or if the device does not exist.
pub fn device(spec: DeviceSpec) -> Result<Device, DeviceError> {
    device_of_ranks(spec, RANKS.get().unwrap_or(&Communicator::single()))
}

/// The ranks of this program, if [`use_ranks`] was called.
static RANKS: OnceLock<Communicator> = OnceLock::new();

/// Makes later calls of [`device`] and [`run`] start clients that all ranks create together, if the platform supports such
/// clients. Every rank must call this function once, and then start the same devices.
pub fn use_ranks(ranks: &Communicator) {
    let _ = RANKS.set(ranks.clone());
}

/// Like [`device`], but with a client that all ranks of a job create together if the platform supports such clients; see
/// [`Client::of_ranks`]. Every rank must call this function with the same backend. The ranks of a machine use its GPUs in turn;
/// an index above 0 selects a particular GPU.
///
/// # Errors
/// If no plugin starts, on this rank or another one, or if the device does not exist.
pub fn device_of_ranks(spec: DeviceSpec, ranks: &Communicator) -> Result<Device, DeviceError> {
    let DeviceSpec { backend, index } = spec;
    let client = start(platform(backend), index + 1, ranks)
        .map_err(|error| DeviceError::Unavailable { backend, reason: error.to_string() })?;
    let place = if ranks.is_shared() && client.platform() == "cuda" { 0 } else { index };
    client.device(place).map_err(|_| DeviceError::Index { backend, count: client.devices().len(), index })
}

/// Returns the platform of a backend's name; `None` if the name selects no platform.
pub fn platform(backend: BackendName) -> Option<Platform> {
    match backend {
        BackendName::XlaTpu => Some(Platform::Tpu),
        BackendName::XlaCuda => Some(Platform::Cuda),
        BackendName::XlaCpu => Some(Platform::Cpu),
        _ => None,
    }
}

/// Returns the GPU of a rank among its visible GPUs: the only one, that of an index above 0, or the one at its local rank.
fn own_gpu(index: usize) -> i64 {
    // A launcher may have given each rank its own GPU.
    let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
    let given = visible.is_some_and(|list| !list.contains(','));
    (if given || index > 0 { index } else { local_rank() }) as i64
}

/// Starts the first working plugin, of one platform or of any. The CPU provides the requested number of devices.
fn start(platform: Option<Platform>, devices: usize, ranks: &Communicator) -> Result<Client, NotFound> {
    let mut tried = Vec::new();
    for one in Platform::ALL.into_iter().filter(|one| platform.is_none_or(|platform| platform == *one)) {
        let count = ("cpu_device_count".to_owned(), NamedValue::Int(devices as i64));
        let options = match one {
            Platform::Cpu => vec![count],
            // A rank would reserve the memory of all visible GPUs, so each sees only its own.
            Platform::Cuda if ranks.is_shared() => {
                vec![("visible_devices".to_owned(), NamedValue::Ints(vec![own_gpu(devices - 1)]))]
            }
            _ => vec![],
        };
        match find_of_ranks(one, &options, ranks) {
            Ok((_, _, client)) => return Ok(client),
            Err(error) => tried.extend(error.tried),
        }
    }
    // A library without a platform was tried for each platform.
    let mut known = Vec::new();
    tried.retain(|(candidate, _)| {
        !known.contains(&candidate.path) && {
            known.push(candidate.path.clone());
            true
        }
    });
    Err(NotFound { platform, tried })
}
