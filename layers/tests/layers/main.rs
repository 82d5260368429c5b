//! The tests of this crate in one program, which is linked once. Those that set what a whole process shares, measure its memory or
//! kill it are programs of their own, in the files beside this folder.
#![recursion_limit = "256"]

#[macro_use]
#[path = "../../../engine/backend/tests/common/mod.rs"]
mod common;
#[path = "../case/mod.rs"]
mod case;

mod attention;
mod attention_bias;
mod losses;
mod parity;
mod precision;
mod rnn;
