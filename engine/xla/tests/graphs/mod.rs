//! Graphs on OpenXLA's CPU plugin.
#![allow(dead_code)] // Each test uses a part of this module.

#[path = "../common/mod.rs"]
pub mod common;
#[path = "../common/gpu.rs"]
pub mod gpu;

use burn::tensor::TensorData;
use grove_backend::{AnyTensor, Flex};
use grove_compile::{Graph, Traced, trace};
use grove_tree::{AnyArray, Key, Path, Tree, key::traced::take_keys};
use grove_xla::{
    Argument, ArrayType, Buffer, Client, CompileOptions, Executable, LowerOptions, Program, Topology, lower,
};
use std::{env, sync::OnceLock};

/// Returns the client of one device that the tests of a program share.
pub fn shared() -> Option<&'static Client> {
    static CLIENT: OnceLock<Option<Client>> = OnceLock::new();
    CLIENT.get_or_init(|| common::client(1)).as_ref()
}

/// Returns the present arrays of a tree.
pub fn arrays<T: Tree<Flex>>(tree: &T) -> Vec<TensorData> {
    let mut values: Vec<AnyTensor<Flex>> = Vec::new();
    tree.visit(&mut Path::root(), &mut |_: &Path, leaf: &AnyArray<Flex>| values.extend(leaf.value().cloned()));
    values.into_iter().map(AnyTensor::into_data).collect()
}

/// Runs a function of a tree on flex and through XLA, and compares the results.
pub fn check<A: Tree<Flex>, O: Tree<Traced>>(
    what: &str,
    f: impl FnOnce(A::On<Traced>) -> O,
    args: &A,
    tolerance: f64,
) -> Option<Graph> {
    let client = shared()?;
    let graph = trace(f, args);
    let expected: Vec<TensorData> = graph.eval::<Flex, _>(args).into_iter().map(AnyTensor::into_data).collect();
    let found = run(client, &graph, &arrays(args), &keys(args));
    compile_for_gpu(what, &graph);
    if let Some(folder) = env::var_os("GROVE_STABLEHLO_OUT") {
        write_case(std::path::Path::new(&folder), what, &graph, (&arrays(args), &keys(args)), &expected, tolerance);
    }
    for ((found, expected), (path, _)) in found.iter().zip(&expected).zip(graph.outputs()) {
        // Integers and booleans are exact.
        let tolerance = if expected.dtype.is_float() { tolerance } else { 0.0 };
        close(&format!("{what}, {path}"), found, expected, tolerance, 1e-3);
    }
    Some(graph)
}

/// Compiles a program for a GPU that need not exist, if the environment requests it.
fn compile_for_gpu(what: &str, graph: &Graph) {
    static GPU: OnceLock<Option<Topology>> = OnceLock::new();
    if env::var_os("GROVE_REQUIRE_PJRT_CUDA").is_none() {
        return;
    }
    let topology = GPU.get_or_init(gpu::one).as_ref().unwrap();
    let lowered = lower(graph, &LowerOptions::default()).unwrap();
    let program = Program { text: &lowered.text, parameters: &lowered.parameters };
    let compiled =
        topology.compile(program, &CompileOptions::default()).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(compiled.memory().unwrap().outputs > 0, "{what}");
}

/// Writes a program with its arguments and results, for `tools/stablehlo_jax.py`.
fn write_case(
    folder: &std::path::Path,
    what: &str,
    graph: &Graph,
    (arrays, keys): (&[TensorData], &[Key]),
    expected: &[TensorData],
    tolerance: f64,
) {
    std::fs::create_dir_all(folder).unwrap();
    let lowered = lower(graph, &LowerOptions::default()).unwrap();
    let name: String = what.chars().map(|c| if c.is_alphanumeric() { c } else { '_' }).collect();
    let file = |end: &str| folder.join(format!("{name}{end}"));
    let types = |list: &[grove_xla::ArrayType]| -> Vec<serde_json::Value> {
        list.iter().map(|array| serde_json::json!([array.element.to_string(), array.dims])).collect()
    };
    // Keys follow the compared results.
    let results = &lowered.results[..expected.len()];
    let spec = serde_json::json!({
        "arguments": types(&lowered.parameters), "results": types(results), "tolerance": tolerance
    });
    let words = keys.iter().flat_map(|key| key.words()).flat_map(u32::to_le_bytes);
    let bytes = |list: &[TensorData]| list.iter().flat_map(|data| data.as_bytes().to_vec()).collect::<Vec<u8>>();
    std::fs::write(file(".json"), spec.to_string()).unwrap();
    std::fs::write(file(".mlir"), &lowered.text).unwrap();
    std::fs::write(file(".in"), bytes(arrays).into_iter().chain(words).collect::<Vec<u8>>()).unwrap();
    std::fs::write(file(".out"), bytes(expected)).unwrap();
}

/// Returns the keys of a tree.
fn keys<T: Tree<Flex>>(tree: &T) -> Vec<Key> {
    take_keys(|| tree.clone().map(&mut Path::root(), &mut |_, leaf| leaf)).1
}

/// Returns the results of a graph of arrays and keys, compiled by XLA.
pub fn run(client: &Client, graph: &Graph, arrays: &[TensorData], keys: &[Key]) -> Vec<TensorData> {
    Compiled::new(client, graph).run(client, arrays, keys)
}

/// A graph compiled by XLA.
pub struct Compiled {
    program: Executable,
    parameters: Vec<ArrayType>,
}

impl Compiled {
    pub fn new(client: &Client, graph: &Graph) -> Self {
        let lowered = lower(graph, &LowerOptions::default()).unwrap();
        if env::var_os("GROVE_SHOW_STABLEHLO").is_some() {
            eprintln!("{}", lowered.text);
        }
        let program = Program { text: &lowered.text, parameters: &lowered.parameters };
        let program = client
            .compile(program, &CompileOptions::default())
            .unwrap_or_else(|error| panic!("{error}\n{}", lowered.text));
        Self { program, parameters: lowered.parameters }
    }

    /// Returns the results for arrays and keys.
    pub fn run(&self, client: &Client, arrays: &[TensorData], keys: &[Key]) -> Vec<TensorData> {
        let device = client.device(0).unwrap();
        let of_arrays = arrays.iter().map(|data| data.as_bytes().to_vec());
        let of_keys = keys.iter().map(|key| key.words().into_iter().flat_map(u32::to_le_bytes).collect());
        let buffers: Vec<Buffer> = of_arrays
            .chain(of_keys)
            .zip(&self.parameters)
            .map(|(bytes, array): (Vec<u8>, _)| Buffer::from_host(&device, array, &bytes).unwrap())
            .collect();
        let results = self.program.run(buffers.iter().map(Argument::Keep).collect()).unwrap();
        results.iter().map(data).collect()
    }
}

/// Returns the content of a buffer.
pub fn data(buffer: &Buffer) -> TensorData {
    let array = buffer.array_type();
    TensorData::from_bytes_vec(buffer.to_host().unwrap(), array.dims.clone(), array.element.dtype())
}

/// Panics unless two arrays have the same shape and agree up to `tolerance` times the largest element, which counts as at least
/// `least`.
pub fn close(what: &str, found: &TensorData, expected: &TensorData, tolerance: f64, least: f64) {
    assert_eq!(found.shape, expected.shape, "{what}");
    let (found, expected): (Vec<f64>, Vec<f64>) = (found.iter().collect(), expected.iter().collect());
    let largest = expected.iter().filter(|x| x.is_finite()).fold(least, |max, x| max.max(x.abs()));
    for (i, (a, b)) in found.iter().zip(&expected).enumerate() {
        let same = (a - b).abs() <= tolerance * largest || a == b || a.is_nan() && b.is_nan();
        assert!(same, "{what}, element {i}: {a} for {b}, of {largest}");
    }
}
