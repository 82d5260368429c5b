//! The tests of this crate in one program, which is linked once. Those that set what a whole process shares, measure its memory or
//! kill it are programs of their own, in the files beside this folder.
#![recursion_limit = "256"]

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/programs.rs"]
mod programs;

mod all_reduce;
mod control_flow;
mod cost;
mod custom_rules;
mod decode;
mod fuse;
mod json;
mod jvp;
mod keys;
mod layers;
mod lazy;
mod passes;
mod scan;
mod trace;
mod vmap;
