//! Tests of this crate, linked into one program. Tests that change process-wide state, measure memory or kill the
//! process are separate programs, in the files next to this folder.
#![recursion_limit = "256"]

#[macro_use]
#[path = "../../../engine/backend/tests/common/mod.rs"]
mod common;

mod checkpoint;
mod data;
mod dtype;
mod fit;
mod log;
mod parity;
mod runs;
