//! The tests of this crate in one program, which is linked once. Tests that set process-wide state, measure memory or kill a
//! process are separate programs, in the files beside this folder.
#![recursion_limit = "256"]

#[path = "../graphs/mod.rs"]
mod graphs;
use graphs::{common, gpu};
#[path = "../../../compile/tests/common/programs.rs"]
mod programs;

mod cpu;
mod deviceless;
mod integers_and_indices;
mod keys_and_loops;
mod lower;
mod mesh;
mod of_ranks;
mod operations;
mod refused;
mod shared;
