//! An NVIDIA H200, which need not exist, for the CUDA plugin if it is installed.
#![allow(dead_code)] // Each test uses a part of this module.

use grove_xla::{NamedValue, Platform, Plugin, Topology, candidates};
use std::{env, fs, path::Path, sync::Arc};

/// Returns the plugin and its file; prints a note and returns `None` if it is not installed.
pub fn plugin() -> Option<(Arc<Plugin>, std::path::PathBuf)> {
    let found = candidates(Some(Platform::Cuda), |name| env::var(name).ok()).into_iter();
    let Some(candidate) = found.into_iter().find(|candidate| candidate.platform == Some(Platform::Cuda)) else {
        assert!(env::var_os("GROVE_REQUIRE_PJRT_CUDA").is_none(), "no CUDA plugin: {}", Platform::Cuda.install());
        eprintln!("skipped: no CUDA plugin is installed");
        return None;
    };
    Some((Plugin::load(&candidate.path).unwrap(), candidate.path))
}

/// Returns the description of an H200 that the plugin contains, as text.
fn h200(plugin: &Path) -> String {
    let bytes = fs::read(plugin).unwrap();
    let position = |needle: &[u8], from: usize| {
        bytes[from..].windows(needle.len()).position(|window| window == needle).map(|at| from + at)
    };
    let name = position(b"device_description_str: \"NVIDIA H200 141GB HBM3e\"", 0).expect("an H200 in the plugin");
    let begin = b"\ngpu_device_info {";
    let start = bytes[..name].windows(begin.len()).rposition(|window| window == begin).expect("its description");
    let end = position(b"\0", name).expect("the end of a string");
    String::from_utf8(bytes[start..end].to_vec()).unwrap()
}

/// Returns the options of a topology of H200s, such as `1x1x1`.
pub fn options(plugin: &Path, topology: &str) -> [(String, NamedValue); 2] {
    let text = |name: &str, value: &str| (name.to_owned(), NamedValue::String(value.to_owned()));
    [text("target_config", &h200(plugin)), text("topology", topology)]
}

/// Returns the topology of one H200.
pub fn one() -> Option<Topology> {
    let (plugin, path) = plugin()?;
    Some(Topology::new(&plugin, "", &options(&path, "1x1x1")).unwrap())
}
