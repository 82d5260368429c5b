//! Compilation for a GPU that is not there, by the CUDA plugin where it is installed. With `GROVE_REQUIRE_PJRT_CUDA=1` its absence is
//! a failure.

use grove_xla::{
    ArrayType, Client, CompileOptions, ElementType, NamedValue, Platform, Plugin, Program, Topology, candidates,
};
use std::{env, fs, path::Path, sync::Arc};

/// The plugin and its file; `None`, which is said, where there is none.
fn plugin() -> Option<(Arc<Plugin>, std::path::PathBuf)> {
    let found = candidates(Some(Platform::Cuda), |name| env::var(name).ok()).into_iter();
    let Some(candidate) = found.into_iter().find(|candidate| candidate.platform == Some(Platform::Cuda)) else {
        assert!(env::var_os("GROVE_REQUIRE_PJRT_CUDA").is_none(), "no CUDA plugin: {}", Platform::Cuda.install());
        eprintln!("skipped: no CUDA plugin is installed");
        return None;
    };
    Some((Plugin::load(&candidate.path).unwrap(), candidate.path))
}

/// The description of an H200 that the plugin has in itself, as text.
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

#[test]
fn programs_compile_for_gpus_that_are_not_there() {
    let Some((plugin, path)) = plugin() else { return };
    assert!(plugin.version().1 >= 81);
    // Without a GPU there is no client, which is an error and no end of the process.
    if let Err(error) = Client::new(&plugin, &[]) {
        assert!(error.to_string().contains("GPU") || error.to_string().contains("CUDA"), "{error}");
    }
    let options = |topology: &str| {
        let text = |name: &str, value: &str| (name.to_owned(), NamedValue::String(value.to_owned()));
        [text("target_config", &h200(&path)), text("topology", topology)]
    };
    let error = Topology::new(&plugin, "", &[("topology".to_owned(), NamedValue::Int(1))]).unwrap_err();
    assert_eq!(error.to_string(), "the option topology is the integer 1, and the plugin takes a string");
    // Its versions of the structs of custom calls, for what a GPU's program computes on the host.
    plugin.register_ffi("deviceless_test", Platform::Cpu, |_, _| Ok(())).unwrap();
    let topology = Topology::new(&plugin, "", &options("1x1x1")).unwrap();
    let array = ArrayType::new(ElementType::F32, [256, 256]);
    let text = "func.func @main(%x: tensor<256x256xf32>, %y: tensor<256x256xf32>) -> tensor<256x256xf32> {
        %z = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0]
            : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
        %e = stablehlo.exponential %z : tensor<256x256xf32>
        return %e : tensor<256x256xf32>
    }";
    let one = Program { text, parameters: std::slice::from_ref(&array) };
    let error = topology.compile(one, &CompileOptions::default()).unwrap_err();
    assert_eq!(error.to_string(), "the program takes 2 parameters, and 1 are given");
    let program = Program { text, parameters: &[array.clone(), array] };
    let compiled = topology.compile(program, &CompileOptions::default()).unwrap();
    let memory = compiled.memory().unwrap();
    assert_eq!((memory.arguments, memory.outputs), (2 * 256 * 256 * 4, 256 * 256 * 4));
    let error =
        topology.compile(Program { text: "nonsense", parameters: &[] }, &CompileOptions::default()).unwrap_err();
    assert!(error.to_string().contains("1:1"), "{error}");
}
