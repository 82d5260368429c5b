//! Custom calls from compiled programs to Rust functions. On the CPU plugin, like `cpu.rs`.

mod common;

use common::{bytes, f32s, floats, started};
use grove_xla::{
    Argument, ArrayType, Buffer, Client, CompileOptions, ElementType, Executable, Platform, Program, XlaError,
};
use std::{sync::Mutex, thread, time::Duration};

/// Compiles a program that passes a vector of four numbers to a function and returns the negated result.
fn calling(client: &Client, name: &str) -> Result<Executable, XlaError> {
    let text = format!(
        "func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {{
            %y = stablehlo.custom_call @{name}(%x) {{api_version = 4 : i32}} : (tensor<4xf32>) -> tensor<4xf32>
            %z = stablehlo.negate %y : tensor<4xf32>
            return %z : tensor<4xf32>
        }}"
    );
    client.compile(Program { text: &text, parameters: &[f32s(&[4])] }, &CompileOptions::default())
}

fn upload(client: &Client, values: &[f32]) -> Buffer {
    Buffer::from_host(&client.device(0).unwrap(), &f32s(&[values.len()]), &bytes(values)).unwrap()
}

#[test]
fn programs_call_closures() {
    let Some((plugin, client)) = started(1) else { return };
    for (name, factor) in [("test_double", 2.0), ("test_triple", 3.0)] {
        let scale = move |arguments: &[grove_xla::FfiBuffer<'_>], results: &mut [grove_xla::FfiBufferMut<'_>]| {
            for (y, x) in results[0].values_mut::<f32>()?.iter_mut().zip(arguments[0].values::<f32>()?) {
                *y = factor * x;
            }
            Ok(())
        };
        plugin.register_ffi(name, Platform::Cpu, scale).unwrap();
    }
    let x = upload(&client, &[1.0, 2.0, 3.0, 4.0]);
    let double = calling(&client, "test_double").unwrap();
    let triple = calling(&client, "test_triple").unwrap();
    assert_eq!(floats(&double.run(vec![Argument::Keep(&x)]).unwrap()[0]), [-2.0, -4.0, -6.0, -8.0]);
    assert_eq!(floats(&triple.run(vec![Argument::Keep(&x)]).unwrap()[0]), [-3.0, -6.0, -9.0, -12.0]);
    // A stored program also calls the function.
    let stored = client.load(&double.serialize().unwrap(), double.parameters(), 1).unwrap();
    assert_eq!(floats(&stored.run(vec![Argument::Keep(&x)]).unwrap()[0]), [-2.0, -4.0, -6.0, -8.0]);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..100 {
                    let y = triple.run(vec![Argument::Keep(&x)]).unwrap();
                    assert_eq!(floats(&y[0]), [-3.0, -6.0, -9.0, -12.0]);
                }
            });
        }
    });
}

/// Arrays of several types and ranks, one of them empty, and a handler with state.
#[test]
fn handlers_see_types_and_shapes() {
    static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let Some((plugin, client)) = started(1) else { return };
    plugin
        .register_ffi("test_shapes", Platform::Cpu, |arguments, results| {
            let types = arguments.iter().map(|argument| argument.array_type());
            let mut seen = SEEN.lock().unwrap();
            seen.extend(types.chain(results.iter().map(|result| result.array_type())).map(ArrayType::to_string));
            seen.push(arguments[1].values::<f32>().unwrap_err());
            seen.push(results[0].values_mut::<i32>().unwrap_err());
            assert!(arguments[2].bytes().is_empty() && arguments[2].values::<f64>()?.is_empty());
            assert_eq!(arguments[3].bytes(), [1, 0]);
            results[0].values_mut::<i64>()?[0] = arguments[1].values::<i32>()?.iter().copied().map(i64::from).sum();
            results[1].bytes_mut().copy_from_slice(arguments[0].bytes());
            Ok(())
        })
        .unwrap();
    let text = "func.func @main(%a: tensor<bf16>, %b: tensor<2x3xi32>, %c: tensor<0x2xf64>, %d: tensor<2xi1>)
        -> (tensor<i64>, tensor<bf16>) {
        %r:2 = stablehlo.custom_call @test_shapes(%a, %b, %c, %d) {api_version = 4 : i32}
            : (tensor<bf16>, tensor<2x3xi32>, tensor<0x2xf64>, tensor<2xi1>) -> (tensor<i64>, tensor<bf16>)
        return %r#0, %r#1 : tensor<i64>, tensor<bf16>
    }";
    use ElementType::{BF16, Bool, F64, I32};
    let parameters = [(BF16, vec![]), (I32, vec![2, 3]), (F64, vec![0, 2]), (Bool, vec![2])];
    let parameters = parameters.map(|(element, dims)| ArrayType::new(element, dims));
    let program = client.compile(Program { text, parameters: &parameters }, &CompileOptions::default()).unwrap();
    let integers: Vec<u8> = [1, -2, 3, 4, 5, 6_i32].iter().flat_map(|x| x.to_le_bytes()).collect();
    let data: [&[u8]; 4] = [&[0x80, 0x3f], &integers, &[], &[1, 0]];
    let device = client.device(0).unwrap();
    let arguments = parameters.iter().zip(data).map(|(array, data)| Buffer::from_host(&device, array, data).unwrap());
    let results = program.run(arguments.map(Argument::Donate).collect()).unwrap();
    assert_eq!(results[0].to_host().unwrap(), 17_i64.to_le_bytes());
    assert_eq!(results[1].to_host().unwrap(), [0x80, 0x3f]);
    let seen = [
        "bf16[]",
        "i32[2,3]",
        "f64[0,2]",
        "pred[2]",
        "i64[]",
        "bf16[]",
        "the array is i32[2,3], but its elements were requested as f32",
        "the array is i64[], but its elements were requested as i32",
    ];
    assert_eq!(*SEEN.lock().unwrap(), seen);
}

/// An error or a panic of a handler is the error of everything that depends on it, and affects nothing else.
#[test]
fn failures_are_errors_of_the_results() {
    let Some((plugin, client)) = started(1) else { return };
    plugin
        .register_ffi("test_error", Platform::Cpu, |_, _| {
            // The program has started by this time.
            thread::sleep(Duration::from_millis(20));
            Err("no route\0to host".into())
        })
        .unwrap();
    plugin.register_ffi("test_panic", Platform::Cpu, |arguments, _| panic!("{} arguments", arguments.len())).unwrap();
    plugin
        .register_ffi("test_fine", Platform::Cpu, |_, results| {
            results[0].bytes_mut().fill(0);
            Ok(())
        })
        .unwrap();
    let x = upload(&client, &[1.0; 4]);
    let fine = calling(&client, "test_fine").unwrap();
    for (name, text) in [("test_error", "no route to host"), ("test_panic", "the handler panicked: 1 arguments")] {
        let program = calling(&client, name).unwrap();
        let fails = |result: Result<(), XlaError>| {
            let error = result.unwrap_err();
            assert!(error.to_string().contains(text), "{error}");
        };
        let run = |x: Argument<'_>| program.run(vec![x]).map(|mut results| results.remove(0));
        match run(Argument::Keep(&x)) {
            Err(error) => fails(Err(error)),
            Ok(y) => {
                fails(y.wait());
                fails(y.to_host().map(drop));
                fails(y.to_device(&client.device(0).unwrap()).and_then(|z| z.to_host()).map(drop));
                fails(fine.run(vec![Argument::Keep(&y)]).and_then(|z| z[0].to_host()).map(drop));
                fails(fine.run(vec![Argument::Donate(y)]).and_then(|z| z[0].wait()));
            }
        }
        // Results that are never read, and a donated argument.
        drop(run(Argument::Keep(&x)));
        fails(run(Argument::Donate(upload(&client, &[1.0; 4]))).and_then(|y| y.to_host()).map(drop));
        // Independent programs continue.
        assert_eq!(floats(&fine.run(vec![Argument::Keep(&x)]).unwrap()[0]), [0.0; 4]);
    }
    assert_eq!(floats(&x), [1.0; 4]);
}

/// A call whose result reuses the memory of its argument would give the handler the same memory twice.
#[test]
fn refuses_results_in_the_memory_of_arguments() {
    let Some((plugin, client)) = started(1) else { return };
    plugin.register_ffi("test_alias", Platform::Cpu, |_, _| panic!("it is not called")).unwrap();
    let text = "func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
        %y = stablehlo.negate %x : tensor<4xf32>
        %z = stablehlo.custom_call @test_alias(%y) {
            api_version = 4 : i32,
            output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [], operand_index = 0,
                operand_tuple_indices = []>]
        } : (tensor<4xf32>) -> tensor<4xf32>
        return %z : tensor<4xf32>
    }";
    let program = client.compile(Program { text, parameters: &[f32s(&[4])] }, &CompileOptions::default()).unwrap();
    let results = program.run(vec![Argument::Donate(upload(&client, &[1.0; 4]))]);
    let error = results.and_then(|results| results[0].to_host()).unwrap_err().to_string();
    assert!(error.contains("result 0, f32[4], overlaps the memory of another array"), "{error}");
}

#[test]
fn refuses_registered_and_unknown_names() {
    let Some((plugin, client)) = started(1) else { return };
    plugin.register_ffi("test_once", Platform::Cpu, |_, _| Ok(())).unwrap();
    let error = plugin.register_ffi("test_once", Platform::Cpu, |_, _| Ok(())).unwrap_err().to_string();
    assert_eq!(
        error,
        "the function for custom calls @test_once cannot be registered: a function of this name is already registered"
    );
    let error = calling(&client, "test_never").unwrap_err().to_string();
    assert!(error.contains("test_never"), "{error}");
    let error = plugin.register_ffi("test_gpu", Platform::Cuda, |_, _| Ok(())).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the function for custom calls @test_gpu cannot be registered: a custom call reads host memory, but arrays of \
         cuda are in device memory"
    );
}
