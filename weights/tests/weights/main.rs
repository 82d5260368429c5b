//! The tests of this crate in one program, which is linked once. Tests that set process-wide state, measure memory or
//! kill a process are separate programs, in the files beside this folder.

#[path = "../server/mod.rs"]
mod server;

mod checkpoint;
mod gguf;
mod hub;
mod hub_hostile;
mod loading;
