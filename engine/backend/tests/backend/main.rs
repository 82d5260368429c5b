//! The tests of this crate as one program, which is linked once. Tests that change process-wide settings, measure memory or
//! abort the process are separate programs in the files beside this folder.
#![recursion_limit = "256"]

#[macro_use]
#[allow(dead_code)]
#[path = "../common/mod.rs"]
mod common;
#[allow(dead_code)] // Not every file uses all of it.
#[path = "../against/mod.rs"]
mod against;

mod any_tensor;
mod attention;
mod device;
mod gelu;
mod images;
mod large;
mod leaves;
mod masked;
mod matmul;
mod nccl;
mod nested;
mod precision;
mod random;
mod ranges;
mod read;
mod recurrent;
mod rows;
mod shapes;
mod windows;
