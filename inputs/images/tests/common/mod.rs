//! Helpers shared by the tests.
#![allow(dead_code)]

use std::path::{Path, PathBuf};

use grove_images::{Limits, RgbImage, open};
use serde_json::Value;

pub fn fixture(name: &str) -> PathBuf {
    Path::new("tests/fixtures").join(name)
}

pub fn image(name: &str) -> RgbImage {
    open(fixture(name), &Limits::default()).unwrap()
}

pub fn json(name: &str) -> Value {
    serde_json::from_str(&std::fs::read_to_string(fixture(name)).unwrap()).unwrap()
}

pub fn text<'a>(case: &'a Value, key: &str) -> &'a str {
    case[key].as_str().unwrap_or_else(|| panic!("`{key}` of {case}"))
}

/// Returns the largest and the mean difference, in levels.
pub fn difference(name: &str, a: &RgbImage, b: &RgbImage) -> (u8, f64) {
    assert_eq!(a.dimensions(), b.dimensions(), "{name}");
    let levels = || a.as_raw().iter().zip(b.as_raw()).map(|(a, b)| a.abs_diff(*b));
    let mean = levels().map(f64::from).sum::<f64>() / a.as_raw().len() as f64;
    (levels().max().unwrap_or(0), mean)
}
