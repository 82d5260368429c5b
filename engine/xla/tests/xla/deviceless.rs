//! Compilation for a GPU that need not exist, by the CUDA plugin if it is installed. With `GROVE_REQUIRE_PJRT_CUDA=1` its absence
//! is a failure.

use crate::gpu::{options, plugin};
use grove_xla::{ArrayType, Client, CompileOptions, ElementType, NamedValue, Platform, Program, Topology};

#[test]
fn programs_compile_for_gpus_that_are_not_there() {
    let Some((plugin, path)) = plugin() else { return };
    assert!(plugin.version().1 >= 81);
    // Without a GPU, creating a client is an error, and does not end the process.
    if let Err(error) = Client::new(&plugin, &[]) {
        assert!(error.to_string().contains("GPU") || error.to_string().contains("CUDA"), "{error}");
    }
    let error = Topology::new(&plugin, "", &[("topology".to_owned(), NamedValue::Int(1))]).unwrap_err();
    assert_eq!(error.to_string(), "the option topology is the integer 1; the plugin takes a string");
    // Checks the plugin's versions of the structs of custom calls, for the parts of a GPU program that run on the host.
    plugin.register_ffi("deviceless_test", Platform::Cpu, |_, _| Ok(())).unwrap();
    let topology = Topology::new(&plugin, "", &options(&path, "1x1x1")).unwrap();
    let array = ArrayType::new(ElementType::F32, [256, 256]);
    let text = "func.func @main(%x: tensor<256x256xf32>, %y: tensor<256x256xf32>) -> tensor<256x256xf32> {
        %z = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0]
            : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
        %e = stablehlo.exponential %z : tensor<256x256xf32>
        return %e : tensor<256x256xf32>
    }";
    let one = Program { text, parameters: std::slice::from_ref(&array) };
    let error = topology.compile(one, &CompileOptions::default()).unwrap_err();
    assert_eq!(error.to_string(), "the program takes 2 parameters, not 1");
    let program = Program { text, parameters: &[array.clone(), array] };
    let compiled = topology.compile(program, &CompileOptions::default()).unwrap();
    let memory = compiled.memory().unwrap();
    assert_eq!((memory.arguments, memory.outputs), (2 * 256 * 256 * 4, 256 * 256 * 4));
    let error =
        topology.compile(Program { text: "nonsense", parameters: &[] }, &CompileOptions::default()).unwrap_err();
    assert!(error.to_string().contains("1:1"), "{error}");
}
