//! Operations that contain graphs: control flow, and functions with custom derivatives.

mod graph;
mod lazy;
mod memo;
mod operation;

pub use graph::SubGraph;
pub use lazy::LazyGraph;
pub use operation::{HigherOrder, ScanLoop, WhileLoop};
pub(crate) use operation::{is_float, stacked};
