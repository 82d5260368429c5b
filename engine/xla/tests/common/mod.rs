//! Helpers of the tests on the CPU plugin.
#![allow(dead_code)] // No test file uses all of them.

use grove_xla::{
    ArrayType, Buffer, Client, CompileOptions, Device, ElementType, Executable, NamedValue, Platform, Plugin, Program,
    find,
};
use std::{env, sync::Arc};

/// Starts a client with `devices` virtual devices; prints a note and returns `None` if there is no plugin.
pub fn client(devices: i64) -> Option<Client> {
    Some(started(devices)?.1)
}

/// Starts a plugin, and a client of it with `devices` virtual devices.
pub fn started(devices: i64) -> Option<(Arc<Plugin>, Client)> {
    let options = [("cpu_device_count".to_owned(), NamedValue::Int(devices))];
    match find(Some(Platform::Cpu), &options) {
        Ok((_, plugin, client)) => Some((plugin, client)),
        Err(error) if env::var_os("GROVE_REQUIRE_PJRT").is_some() => panic!("{error}"),
        Err(error) => {
            eprintln!("skipped: {error}");
            None
        }
    }
}

pub fn f32s(dims: &[usize]) -> ArrayType {
    ArrayType::new(ElementType::F32, dims)
}

pub fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

pub fn floats(buffer: &Buffer) -> Vec<f32> {
    let data = buffer.to_host().unwrap();
    data.chunks_exact(4).map(|value| f32::from_le_bytes(value.try_into().unwrap())).collect()
}

/// `x + y` of vectors of four numbers; the result may reuse the memory of `x`.
pub const ADD: &str =
    "func.func @main(%x: tensor<4xf32> {tf.aliasing_output = 0 : i32}, %y: tensor<4xf32>) -> tensor<4xf32> {
    %z = stablehlo.add %x, %y : tensor<4xf32>
    return %z : tensor<4xf32>
}";

/// Returns the first device, the type of a vector of four numbers, and the program that adds two such vectors.
pub fn add(client: &Client) -> (Device, ArrayType, Executable) {
    let array = f32s(&[4]);
    let program = Program { text: ADD, parameters: &[array.clone(), array.clone()] };
    (client.device(0).unwrap(), array, client.compile(program, &CompileOptions::default()).unwrap())
}
