//! Mistakes that plugins do not check, and that end the process or are misread: each is an error in grove. On the CPU plugin,
//! like `cpu.rs`.

use crate::common::{ADD, add, bytes, client, f32s, floats, started};
use grove_xla::{
    Argument, ArrayType, Buffer, Client, CompileOptions, ElementType, Executable, NamedValue, Program, XlaError,
};

#[test]
fn refuses_options_of_another_type() {
    let Some((plugin, _)) = started(1) else { return };
    let error =
        |name: &str, value: NamedValue| Client::new(&plugin, &[(name.to_owned(), value)]).unwrap_err().to_string();
    let count =
        |found: &str| format!("the option cpu_device_count is {found}; the plugin takes an integer from 1 to 1024");
    for (value, found) in [
        (NamedValue::String("2".into()), "the string \"2\""),
        (NamedValue::Float(2.0), "the floating-point number 2"),
        (NamedValue::Bool(true), "the boolean true"),
        (NamedValue::Ints(vec![2]), "the list of integers [2]"),
        (NamedValue::Int(-1), "the integer -1"),
        (NamedValue::Int(0), "the integer 0"),
        (NamedValue::Int(1025), "the integer 1025"),
        // The plugin reads only 32 bits of it.
        (NamedValue::Int((1 << 32) + 1), "the integer 4294967297"),
        (NamedValue::Int(i64::MAX), "the integer 9223372036854775807"),
    ] {
        assert_eq!(error("cpu_device_count", value), count(found));
    }
    let found = error("asynchronous", NamedValue::Int(1));
    assert_eq!(found, "the option asynchronous is the integer 1; the plugin takes a boolean");
    let found = error("visible_devices", NamedValue::Int(0));
    assert_eq!(found, "the option visible_devices is the integer 0; the plugin takes a list of integers");
}

#[test]
fn refuses_a_device_twice() {
    let Some(client) = client(2) else { return };
    let parameters = [f32s(&[4]), f32s(&[4])];
    for devices in [vec![1, 1], vec![0, 1, 0]] {
        let last = *devices.last().unwrap();
        let options = CompileOptions { devices, ..CompileOptions::default() };
        let error = client.compile(Program { text: ADD, parameters: &parameters }, &options).unwrap_err();
        assert_eq!(error, XlaError::DeviceTwice(last));
        assert!(error.to_string().contains(&format!("device {last} is listed twice")), "{error}");
    }
}

#[test]
fn refuses_arrays_and_devices_of_another_client() {
    let (Some(client), Some(other)) = (client(1), client(1)) else { return };
    let (device, array, program) = add(&client);
    let x = Buffer::from_host(&device, &array, &[0; 16]).unwrap();
    let foreign = || Buffer::from_host(&other.device(0).unwrap(), &array, &[0; 16]).unwrap();
    let y = foreign();
    for arguments in
        [vec![Argument::Keep(&x), Argument::Keep(&y)], vec![Argument::Keep(&x), Argument::Donate(foreign())]]
    {
        let error = program.run(arguments).unwrap_err();
        assert_eq!(error, XlaError::OtherClient("argument 1 of the program".into()));
    }
    let error = x.to_device(&other.device(0).unwrap()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the device for the copy belongs to another client: copy the array through the host, with to_host and from_host"
    );
    // A clone of a client's handle is the same client.
    let same = client.clone().device(0).unwrap();
    assert_eq!(floats(&x.to_device(&same).unwrap()), [0.0; 4]);
}

#[test]
fn refuses_arrays_on_another_device_than_the_program() {
    let Some(client) = client(2) else { return };
    let (_, array, program) = add(&client);
    let x = Buffer::from_host(&client.device(1).unwrap(), &array, &bytes(&[1.0; 4])).unwrap();
    let error = program.run(vec![Argument::Keep(&x), Argument::Keep(&x)]).unwrap_err().to_string();
    assert!(error.contains("argument 0") && error.contains("is on device"), "{error}");
}

#[test]
fn refuses_parameters_that_are_not_the_programs() {
    let Some(client) = client(1) else { return };
    let array = f32s(&[4]);
    let compile = |parameters: &[ArrayType]| {
        client.compile(Program { text: ADD, parameters }, &CompileOptions::default()).map(drop).unwrap_err().to_string()
    };
    let pair = |second: ArrayType| compile(&[array.clone(), second]);
    let parameters = [array.clone(), array.clone(), array.clone()];
    assert_eq!(compile(&[]), "the program takes 2 parameters, not 0");
    assert_eq!(compile(&parameters[..1]), "the program takes 2 parameters, not 1");
    assert_eq!(compile(&parameters), "the program takes 2 parameters, not 3");
    // The same number of bytes, which is all that the plugin checks.
    let error = "parameter 1 is declared as i32[4]; the program has f32[4]";
    assert_eq!(pair(ArrayType::new(ElementType::I32, [4])), error);
    assert_eq!(pair(f32s(&[2, 2])), "parameter 1 is declared as f32[2,2]; the program has f32[4]");
    let (.., program) = add(&client);
    let stored = program.serialize().unwrap();
    let load = |parameters: &[ArrayType]| client.load(&stored, parameters, 1);
    assert_eq!(load(&parameters[..1]).unwrap_err().to_string(), "the program takes 2 parameters, not 1");
    assert!(load(program.parameters()).is_ok());
}

/// A program that returns its parameters unchanged, one of each type.
#[test]
fn reads_parameters_of_every_type() {
    use ElementType::*;
    let Some(client) = client(1) else { return };
    for (element, name) in [
        (Bool, "i1"),
        (I8, "i8"),
        (I16, "i16"),
        (I32, "i32"),
        (I64, "i64"),
        (U8, "ui8"),
        (U16, "ui16"),
        (U32, "ui32"),
        (U64, "ui64"),
        (F16, "f16"),
        (BF16, "bf16"),
        (F32, "f32"),
        (F64, "f64"),
    ] {
        for (dims, text) in
            [(vec![], name.to_owned()), (vec![0, 3], format!("0x3x{name}")), (vec![2], format!("2x{name}"))]
        {
            let text =
                format!("func.func @main(%x: tensor<{text}>) -> tensor<{text}> {{ return %x : tensor<{text}> }}");
            let array = ArrayType::new(element, dims);
            let program = Program { text: &text, parameters: std::slice::from_ref(&array) };
            let program = client.compile(program, &CompileOptions::default()).unwrap();
            let data = vec![1; array.bytes().unwrap()];
            let x = Buffer::from_host(&client.device(0).unwrap(), &array, &data).unwrap();
            let y = program.run(vec![Argument::Keep(&x)]).unwrap();
            assert_eq!((y[0].array_type(), y[0].to_host().unwrap()), (&array, data));
        }
    }
}

#[test]
fn programs_without_arguments_or_results_run() {
    let Some(client) = client(2) else { return };
    let array = f32s(&[4]);
    let x = Buffer::from_host(&client.device(0).unwrap(), &array, &[0; 16]).unwrap();
    let compile = |text: &str, parameters: &[ArrayType]| -> Executable {
        client.compile(Program { text, parameters }, &CompileOptions::default()).unwrap()
    };
    let program = compile(
        "func.func @main() -> tensor<2xf32> {
            %one = stablehlo.constant dense<1.0> : tensor<2xf32>
            return %one : tensor<2xf32>
        }",
        &[],
    );
    assert_eq!(floats(&program.run(vec![]).unwrap()[0]), [1.0; 2]);
    assert!(program.execute(vec![]).is_err());
    assert!(compile("func.func @main() { return }", &[]).run(vec![]).unwrap().is_empty());
    let program = compile("func.func @main(%x: tensor<4xf32>) { return }", &[array]);
    assert!(program.run(vec![Argument::Keep(&x)]).unwrap().is_empty());
    assert!(program.run(vec![Argument::Donate(x)]).unwrap().is_empty());
}
