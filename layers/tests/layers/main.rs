//! The tests of this crate as one program, which is linked once. Tests that change process-wide settings, measure memory or
//! abort the process are separate programs in the files beside this folder.
#![recursion_limit = "256"]

#[macro_use]
#[path = "../../../engine/backend/tests/common/mod.rs"]
mod common;
#[path = "../case/mod.rs"]
mod case;
#[path = "../location/mod.rs"]
mod location;

mod attention;
mod attention_bias;
mod callers;
mod losses;
mod parity;
mod precision;
mod rnn;
