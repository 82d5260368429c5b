//! Helpers of the tests.
#![allow(dead_code)]

use std::path::{Path, PathBuf};

use serde_json::Value;

pub fn fixture(name: &str) -> PathBuf {
    Path::new("tests/fixtures").join(name)
}

pub fn json(name: &str) -> Value {
    serde_json::from_str(&std::fs::read_to_string(fixture(name)).unwrap()).unwrap()
}

pub fn texts(value: &Value) -> Vec<&str> {
    value.as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect()
}
