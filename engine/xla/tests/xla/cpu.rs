//! The CPU plugin, if it is installed: in `GROVE_PJRT_PLUGIN` or an active virtual environment. With `GROVE_REQUIRE_PJRT=1` its
//! absence is a failure.

use crate::common::{ADD, add, bytes, client, f32s, floats};
use grove_xla::{Argument, ArrayType, Buffer, CompileOptions, ElementType, Flag, Plugin, Program, XlaError};
use std::{fs, path::Path, sync::Arc, thread};

#[test]
fn programs_run_with_and_without_donation() {
    let Some(client) = client(1) else { return };
    assert_eq!(client.platform(), "cpu");
    let (device, array, program) = add(&client);
    let x = Buffer::from_host(&device, &array, &bytes(&[1.0, 2.0, 3.0, 4.0])).unwrap();
    let y = Buffer::from_host(&device, &array, &bytes(&[0.5; 4])).unwrap();
    for _ in 0..2 {
        let z = program.run(vec![Argument::Keep(&x), Argument::Keep(&y)]).unwrap();
        assert_eq!(floats(&z[0]), [1.5, 2.5, 3.5, 4.5]);
    }
    // One array as both arguments.
    assert_eq!(floats(&program.run(vec![Argument::Keep(&x), Argument::Keep(&x)]).unwrap()[0]), [2.0, 4.0, 6.0, 8.0]);
    let mut sum = x;
    for _ in 0..100 {
        sum = program.run(vec![Argument::Donate(sum), Argument::Keep(&y)]).unwrap().remove(0);
    }
    // Buffers keep their client alive.
    drop((client, device, program));
    assert_eq!(floats(&sum), [51.0, 52.0, 53.0, 54.0]);
    assert_eq!(sum.device_bytes().unwrap(), 16);
}

#[test]
fn every_type_comes_back_as_it_went() {
    use ElementType::*;
    let Some(client) = client(2) else { return };
    let devices = client.devices();
    for element in [Bool, I8, I16, I32, I64, U8, U16, U32, U64, F16, BF16, F32, F64] {
        for dims in [vec![], vec![0, 3], vec![2, 3, 5]] {
            let array = ArrayType::new(element, dims);
            let data: Vec<u8> =
                (0..array.bytes().unwrap()).map(|i| if element == Bool { i % 2 } else { i } as u8).collect();
            let buffer = Buffer::from_host(&devices[0], &array, &data).unwrap();
            buffer.wait().unwrap();
            assert_eq!(buffer.to_host().unwrap(), data, "{array}");
            assert_eq!(buffer.to_device(&devices[1]).unwrap().to_host().unwrap(), data, "{array}");
        }
    }
    let error = Buffer::from_host(&devices[0], &f32s(&[3]), &[0; 8]).unwrap_err();
    assert_eq!(error.to_string(), "8 bytes were given instead of f32[3]");
    let error = client.device(2).unwrap_err();
    assert_eq!(error.to_string(), "there is no device 2: the cpu plugin has 2");
}

/// A sum over an array in four parts, which requires a collective.
#[test]
fn partitioned_programs_run_on_several_devices() {
    let Some(client) = client(4) else { return };
    let text = "module attributes {mhlo.num_partitions = 4 : i32} {
        sdy.mesh @mesh = <[\"data\"=4]>
        func.func @main(%x: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{\"data\"}]>})
            -> (tensor<f32> {sdy.sharding = #sdy.sharding<@mesh, []>}) {
            %zero = stablehlo.constant dense<0.0> : tensor<f32>
            %sum = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0]
                : (tensor<8xf32>, tensor<f32>) -> tensor<f32>
            return %sum : tensor<f32>
        }
    }";
    let devices = client.devices();
    let ids = devices.iter().map(|device| device.id().unwrap()).collect();
    let options = CompileOptions { devices: ids, shardy: true, ..CompileOptions::default() };
    let part = f32s(&[2]);
    let program = client.compile(Program { text, parameters: std::slice::from_ref(&part) }, &options).unwrap();
    let parts: Vec<Buffer> =
        (0..4).map(|i| Buffer::from_host(&devices[i], &part, &bytes(&[i as f32, 10.0 * i as f32])).unwrap()).collect();
    let results = program.execute(parts.iter().map(|part| vec![Argument::Keep(part)]).collect()).unwrap();
    assert_eq!(results.iter().map(|list| floats(&list[0])[0]).collect::<Vec<_>>(), [66.0; 4]);
    let error = program.run(vec![Argument::Keep(&parts[0])]).unwrap_err();
    assert_eq!(error.to_string(), "the program takes 4 lists of arguments, one for each device, not 1");
    let optimized = String::from_utf8_lossy(&program.compiled().optimized_program().unwrap()).into_owned();
    assert!(optimized.contains("all-reduce"));
}

#[test]
fn rejects_wrong_arguments_and_programs() {
    let Some(client) = client(1) else { return };
    let (device, array) = (client.device(0).unwrap(), f32s(&[4]));
    let compile = |text: &str, options: &CompileOptions| {
        client.compile(Program { text, parameters: &[array.clone(), array.clone()] }, options)
    };
    let program = compile(ADD, &CompileOptions::default()).unwrap();
    let x = Buffer::from_host(&device, &array, &[0; 16]).unwrap();
    let other = Buffer::from_host(&device, &f32s(&[2, 2]), &[0; 16]).unwrap();
    let error = program.run(vec![Argument::Keep(&x)]).unwrap_err();
    assert_eq!(error.to_string(), "the program takes 2 arguments, not 1");
    let error = program.run(vec![Argument::Keep(&x), Argument::Keep(&other)]).unwrap_err();
    assert_eq!(error.to_string(), "argument 1 of the program is f32[2,2]; the program takes f32[4]");
    let error = compile("func.func @main() {\n  nonsense\n}", &CompileOptions::default()).unwrap_err().to_string();
    assert!(error.contains("2:3"), "{error}");
    let flags = [("xla_no_such_flag".to_owned(), Flag::Bool(true))].into();
    let error = compile(ADD, &CompileOptions { flags, ..CompileOptions::default() }).unwrap_err().to_string();
    assert!(error.contains("xla_no_such_flag"), "{error}");
    assert!(compile(ADD, &CompileOptions { devices: vec![7], ..CompileOptions::default() }).is_err());
}

#[test]
fn executables_are_stored_and_damaged_ones_refused() {
    let Some(client) = client(1) else { return };
    let (device, array, program) = add(&client);
    let memory = program.compiled().memory().unwrap();
    assert_eq!((memory.arguments, memory.outputs, memory.aliased), (32, 16, 16));
    assert!(program.compiled().cost().unwrap().iter().any(|(name, _)| name == "flops"));
    let stored = program.serialize().unwrap();
    drop(program);
    let x = Buffer::from_host(&device, &array, &bytes(&[1.0; 4])).unwrap();
    let load = |stored: &[u8]| client.load(stored, &[array.clone(), array.clone()], 1);
    let loaded = load(&stored).unwrap();
    assert_eq!(floats(&loaded.run(vec![Argument::Keep(&x), Argument::Keep(&x)]).unwrap()[0]), [2.0; 4]);
    for cut in [0, 7, 8, 39, 40, stored.len() / 2, stored.len() - 1] {
        assert_eq!(load(&stored[..cut]).unwrap_err(), XlaError::Stored, "{cut}");
    }
    for at in [0, 8, 40, stored.len() / 2, stored.len() - 1] {
        let mut damaged = stored.clone();
        damaged[at] ^= 1;
        assert_eq!(load(&damaged).unwrap_err(), XlaError::Stored, "{at}");
    }
}

#[test]
fn threads_run_one_program_together() {
    let Some(client) = client(1) else { return };
    let (device, array, program) = add(&client);
    let program = Arc::new(program);
    let threads: Vec<_> = (0..4)
        .map(|i| {
            let (program, device, array) = (program.clone(), device.clone(), array.clone());
            thread::spawn(move || {
                let step = Buffer::from_host(&device, &array, &bytes(&[i as f32; 4])).unwrap();
                let mut sum = Buffer::from_host(&device, &array, &[0; 16]).unwrap();
                for _ in 0..200 {
                    sum = program.run(vec![Argument::Donate(sum), Argument::Keep(&step)]).unwrap().remove(0);
                }
                floats(&sum)[0]
            })
        })
        .collect();
    let sums: Vec<f32> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    assert_eq!(sums, [0.0, 200.0, 400.0, 600.0]);
}

#[test]
fn other_files_are_not_plugins() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("text.so");
    fs::write(&text, "not a library").unwrap();
    let missing = folder.path().join("missing.so");
    for (path, reason) in
        [(&*missing, "the file does not exist"), (&*text, "text.so"), (Path::new("/"), "does not exist")]
    {
        let error = Plugin::load(path).unwrap_err().to_string();
        assert!(error.contains("not a PJRT plugin") && error.contains(reason), "{error}");
    }
    let library = Path::new("/lib/x86_64-linux-gnu/libm.so.6");
    if library.exists() {
        let error = Plugin::load(library).unwrap_err().to_string();
        assert!(error.contains("it has no function GetPjrtApi"), "{error}");
    }
}
