//! Graphs inside of operations: control flow, and functions with derivatives of their own.

mod graph;
mod lazy;
mod memo;
mod operation;

pub use graph::SubGraph;
pub use lazy::LazyGraph;
pub use operation::HigherOrder;
pub(crate) use operation::{is_float, stacked};
