//! `grove devices`: the devices of each backend, or the reason why it has none.

use clap::Args;
use grove::{
    backend::{BackendName, DeviceError, DeviceSpec},
    train::Ended,
};
use serde_json::{Value, json};

use crate::{Exit, program::report, quiet_plugins};

/// Options of `grove devices`.
#[derive(Args, Debug)]
#[command(about = None)]
pub struct Options {
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// A device of a backend, or the reason why the backend has none.
struct Line {
    backend: BackendName,
    found: Result<String, String>,
}

/// Prints the devices.
pub fn list(options: &Options) -> Result<Ended, Exit> {
    quiet_plugins();
    let lines: Vec<Line> = BackendName::ALL.into_iter().flat_map(of_backend).collect();
    let object: Vec<Value> = lines
        .iter()
        .map(|Line { backend, found }| match found {
            Ok(device) => {
                let mut object = json!({ "backend": backend.as_str(), "device": device });
                note(*backend).into_iter().for_each(|note| object["note"] = note.into());
                object
            }
            Err(reason) => json!({ "backend": backend.as_str(), "missing": reason }),
        })
        .collect();
    let text = lines.iter().map(|Line { backend, found }| match found {
        Ok(device) => {
            let note = note(*backend).map(|note| format!(" ({note})")).unwrap_or_default();
            format!("{:<9} {device}{note}\n", backend.as_str())
        }
        Err(reason) => format!("{:<9} none: {}\n", backend.as_str(), reason.replace('\n', "\n          ")),
    });
    report(options.json, &json!({ "devices": object }), text.collect::<String>().trim_end())
}

/// Returns the reason why a backend is slower than possible, if there is one.
fn note(backend: BackendName) -> Option<String> {
    #[cfg(feature = "cuda")]
    if backend == BackendName::Cuda {
        return grove::backend::without_cublas().map(|reason| format!("matrix products run without cuBLAS: {reason}"));
    }
    let _ = backend;
    None
}

fn of_backend(backend: BackendName) -> Vec<Line> {
    let line = |found| Line { backend, found };
    if !backend.is_compiled() {
        return match backend.is_xla() {
            true => vec![],
            false => vec![line(Err(DeviceError::NotCompiled { backend }.to_string()))],
        };
    }
    if backend.is_xla() {
        return of_xla(backend).into_iter().map(line).collect();
    }
    let probe = |index| DeviceSpec::new(backend, index).probe();
    match probe(0) {
        // No further device is probed.
        Err(error) => vec![line(Err(reason(error)))],
        Ok(()) => {
            let others = (1..).take_while(|index| probe(*index).is_ok());
            std::iter::once(0).chain(others).map(|index| line(Ok(format!("device {index}")))).collect()
        }
    }
}

/// Returns the message of an error without the backend's name.
fn reason(error: DeviceError) -> String {
    match error {
        DeviceError::Unavailable { reason, .. } => reason,
        other => other.to_string(),
    }
}

#[cfg(feature = "xla")]
fn of_xla(backend: BackendName) -> Vec<Result<String, String>> {
    use grove::xla::{NamedValue, find, platform};
    // `xla` without a platform has the devices of the other XLA backends.
    let Some(platform) = platform(backend) else { return vec![] };
    let options = match backend {
        BackendName::XlaCpu => vec![("cpu_device_count".to_owned(), NamedValue::Int(1))],
        _ => vec![],
    };
    let (candidate, plugin, client) = match find(Some(platform), &options) {
        Ok(found) => found,
        Err(missing) => return vec![Err(missing.short())],
    };
    let (major, minor) = plugin.version();
    let of_plugin = format!("{}, PJRT {major}.{minor}", candidate.path.display());
    let name = |device: grove::xla::Device| {
        let kind = device.kind().map_err(|error| error.to_string())?;
        Ok(format!("device {}: {kind} ({of_plugin})", device.index()))
    };
    client.devices().into_iter().map(name).collect()
}

#[cfg(not(feature = "xla"))]
fn of_xla(_: BackendName) -> Vec<Result<String, String>> {
    vec![]
}
