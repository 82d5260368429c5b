//! The tests of this crate in one program, which is linked once. Those that set what a whole process shares, measure its memory or
//! kill it are programs of their own, in the files beside this folder.
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
