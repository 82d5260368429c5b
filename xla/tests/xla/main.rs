//! The tests of this crate in one program, which is linked once. Those that set what a whole process shares, measure its memory or
//! kill it are programs of their own, in the files beside this folder.
#![recursion_limit = "256"]

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/gpu.rs"]
mod gpu;
#[path = "../graphs/mod.rs"]
mod graphs;
#[path = "../../../compile/tests/common/programs.rs"]
mod programs;

mod cpu;
mod deviceless;
mod lower;
mod mesh;
mod of_ranks;
mod operations;
mod refused;
mod shared;
