//! What plugins do not check, and end the process for or misread: each is an error of grove's. On the CPU plugin, as `cpu.rs`.

mod common;

use common::{ADD, client, f32s, started};
use grove_xla::{Client, CompileOptions, NamedValue, Program, XlaError};

#[test]
fn refuses_options_of_another_type() {
    let Some((plugin, _)) = started(1) else { return };
    let error =
        |name: &str, value: NamedValue| Client::new(&plugin, &[(name.to_owned(), value)]).unwrap_err().to_string();
    let count =
        |found: &str| format!("the option cpu_device_count is {found}, and the plugin takes an integer from 1 to 1024");
    for (value, found) in [
        (NamedValue::String("2".into()), "the string \"2\""),
        (NamedValue::Float(2.0), "the floating-point number 2"),
        (NamedValue::Bool(true), "the boolean true"),
        (NamedValue::Ints(vec![2]), "the list of integers [2]"),
        (NamedValue::Int(-1), "the integer -1"),
        (NamedValue::Int(0), "the integer 0"),
        (NamedValue::Int(1025), "the integer 1025"),
        // The plugin reads 32 bits of it.
        (NamedValue::Int((1 << 32) + 1), "the integer 4294967297"),
        (NamedValue::Int(i64::MAX), "the integer 9223372036854775807"),
    ] {
        assert_eq!(error("cpu_device_count", value), count(found));
    }
    let found = error("asynchronous", NamedValue::Int(1));
    assert_eq!(found, "the option asynchronous is the integer 1, and the plugin takes a boolean");
    let found = error("visible_devices", NamedValue::Int(0));
    assert_eq!(found, "the option visible_devices is the integer 0, and the plugin takes a list of integers");
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
        assert!(error.to_string().contains(&format!("device {last} is named twice")), "{error}");
    }
}
