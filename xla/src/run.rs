//! Programs on OpenXLA's devices.

use grove_backend::{BackendName, DeviceError, DeviceSpec, Program};

use crate::{
    NamedValue, NotFound, Platform, Xla,
    client::{Client, Device},
    find,
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
    let DeviceSpec { backend, index } = spec;
    let client = start(platform(backend), index + 1)
        .map_err(|error| DeviceError::Unavailable { backend, reason: error.to_string() })?;
    client.device(index).map_err(|_| DeviceError::Index { backend, count: client.devices().len(), index })
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

/// Starts the first plugin that works, of one platform or of any. The processor is as many devices as are asked for.
fn start(platform: Option<Platform>, devices: usize) -> Result<Client, NotFound> {
    let mut tried = Vec::new();
    for one in Platform::ALL.into_iter().filter(|one| platform.is_none_or(|platform| platform == *one)) {
        let count = ("cpu_device_count".to_owned(), NamedValue::Int(devices as i64));
        let options = if one == Platform::Cpu { vec![count] } else { vec![] };
        match find(Some(one), &options) {
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
