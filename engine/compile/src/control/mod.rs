//! Control flow, and functions with derivatives of their own: operations with sub-graphs, and the rules of the transformations.
//!
//! | module | content |
//! |---|---|
//! | `cond`, `while_loop`, `scan`, `fori_loop`, `layers`, `associative` | the functions that users call |
//! | `nested` | functions on any backend as sub-graphs, with what they capture of the trace around them |
//! | `function` | operations on any backend: run, recorded or differentiated |
//! | `gradient` | gradients of functions of users, as sub-graphs |
//! | `vjp`, `jvp`, `vmap` | the rules of the transformations |
//! | `passes`, `print`, `cost`, `check` | sub-graphs in passes over graphs, their text, their cost, and checks of files |

mod associative;
mod check;
mod checkpoint;
mod cond;
mod cost;
mod debug_print;
mod fori_loop;
mod function;
mod gradient;
mod jvp;
mod layers;
mod nested;
mod passes;
mod print;
mod scan;
mod stop_gradient;
mod vjp;
mod vmap;
mod while_loop;

pub(crate) use associative::associative;
pub use associative::associative_scan;
pub use checkpoint::checkpoint;
pub use cond::{cond, switch};
pub(crate) use debug_print::printed;
pub use debug_print::{debug_print, debug_text};
pub use fori_loop::fori_loop;
#[cfg(test)]
pub(crate) use function::step_by_step;
pub(crate) use function::{apply, from_traced, is_traced, to_traced};
pub(crate) use jvp::duals;
pub use layers::scan_layers;
pub(crate) use nested::pruned;
pub(crate) use passes::prune;
pub use scan::{scan, scan_with};
pub use stop_gradient::stop_gradient;
pub(crate) use stop_gradient::stopped;
pub(crate) use vmap::higher_order as batched;
pub use while_loop::while_loop;
