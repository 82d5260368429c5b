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

/// Returns a reproducible generator (xorshift) of numbers below a bound.
pub fn fixed_sequence() -> impl FnMut(usize) -> usize {
    let mut random = 0x2545_F491_4F6C_DD1Du64;
    move |below| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random % below as u64) as usize
    }
}
