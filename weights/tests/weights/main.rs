//! The tests of this crate in one program, which is linked once. Those that set what a whole process shares, measure its memory or
//! kill it are programs of their own, in the files beside this folder.

#[path = "../server/mod.rs"]
mod server;

mod checkpoint;
mod gguf;
mod hub;
mod hub_hostile;
mod loading;
