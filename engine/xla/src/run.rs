//! Programs on OpenXLA's devices.

use grove_backend::{BackendName, DeviceError, DeviceSpec, Program};
use grove_communicator::{Communicator, local_rank};
use std::sync::OnceLock;

use crate::{
    NamedValue, NotFound, Platform, Xla,
    client::{Client, Device},
    discovery::find_of_ranks,
};

/// Probes for a device of any backend, OpenXLA's among them, then runs the program on it.
///
/// # Errors
/// The backend is not compiled in, its driver, plugin or hardware is missing, or it has no such device.
pub fn run<P: Program>(spec: DeviceSpec, program: P) -> Result<P::Output, DeviceError> {
    if !spec.backend.is_xla() {
        return spec.run(program);
    }
    spec.probe()?;
    Ok(program.run::<Xla>(device(spec)?.lazy()))
}

/// Starts the plugin of a backend and gives one of its devices.
///
/// # Errors
/// No plugin starts, or it has no such device.
pub fn device(spec: DeviceSpec) -> Result<Device, DeviceError> {
    device_of_ranks(spec, RANKS.get().unwrap_or(&Communicator::single()))
}

/// The ranks of this program, if it has said so.
static RANKS: OnceLock<Communicator> = OnceLock::new();

/// Has [`device`] and [`run`] from here on start clients that all ranks make together, where the platform has such ones. Every rank
/// calls it, once, and then starts the same devices.
pub fn use_ranks(ranks: &Communicator) {
    let _ = RANKS.set(ranks.clone());
}

/// As [`device`], of a client that all ranks of a job make together where the platform has such ones; see [`Client::of_ranks`]. Every
/// rank calls it for the same backend. The ranks of a machine take its GPUs in turn; an index above 0 is that of one GPU.
///
/// # Errors
/// No plugin starts, on this rank or another one, or it has no such device.
pub fn device_of_ranks(spec: DeviceSpec, ranks: &Communicator) -> Result<Device, DeviceError> {
    let DeviceSpec { backend, index } = spec;
    let client = start(platform(backend), index + 1, ranks)
        .map_err(|error| DeviceError::Unavailable { backend, reason: error.to_string() })?;
    let place = if ranks.is_shared() && client.platform() == "cuda" { 0 } else { index };
    client.device(place).map_err(|_| DeviceError::Index { backend, count: client.devices().len(), index })
}

/// Returns the platform that a backend's name asks for, if it does.
pub fn platform(backend: BackendName) -> Option<Platform> {
    match backend {
        BackendName::XlaTpu => Some(Platform::Tpu),
        BackendName::XlaCuda => Some(Platform::Cuda),
        BackendName::XlaCpu => Some(Platform::Cpu),
        _ => None,
    }
}

/// The GPU that a rank takes, among those that it sees: its only one, that of an index above 0, or by its number on its machine.
fn own_gpu(index: usize) -> i64 {
    // A launcher may have given each rank its own.
    let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
    let given = visible.is_some_and(|list| !list.contains(','));
    (if given || index > 0 { index } else { local_rank() }) as i64
}

/// Starts the first plugin that works, of one platform or of any. The processor is as many devices as are asked for.
fn start(platform: Option<Platform>, devices: usize, ranks: &Communicator) -> Result<Client, NotFound> {
    let mut tried = Vec::new();
    for one in Platform::ALL.into_iter().filter(|one| platform.is_none_or(|platform| platform == *one)) {
        let count = ("cpu_device_count".to_owned(), NamedValue::Int(devices as i64));
        let options = match one {
            Platform::Cpu => vec![count],
            // Each rank takes a GPU's memory, and only of its own.
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
    // A library that is of no platform was tried for each.
    let mut known = Vec::new();
    tried.retain(|(candidate, _)| {
        !known.contains(&candidate.path) && {
            known.push(candidate.path.clone());
            true
        }
    });
    Err(NotFound { platform, tried })
}
