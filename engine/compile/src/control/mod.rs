//! Control flow and functions with custom derivatives: higher-order operations and their transformation rules.
//!
//! | module | content |
//! |---|---|
//! | `cond`, `while_loop`, `scan`, `fori_loop`, `layers`, `associative`, … | public functions |
//! | `nested` | tracing functions of any backend into sub-graphs, with the arrays that they capture |
//! | `function` | running, recording and differentiating operations on any backend |
//! | `gradient` | gradients of user functions, as sub-graphs |
//! | `vjp`, `jvp`, `vmap` | transformation rules |
//! | `flagged` | tangents and batch axes of branches and loops |
//! | `passes`, `print`, `cost`, `check` | sub-graphs in graph passes, their text, their cost, and checks of loaded files |

mod associative;
mod check;
mod cond;
mod cost;
mod debug_print;
mod flagged;
mod fori_loop;
mod function;
mod gradient;
mod jvp;
mod layers;
mod nested;
mod passes;
mod print;
mod remat;
mod scan;
mod stop_gradient;
mod vjp;
mod vmap;
mod while_loop;

pub(crate) use associative::associative;
pub use associative::associative_scan;
pub use cond::{cond, switch};
pub(crate) use debug_print::printed;
pub use debug_print::{debug_print, debug_text};
pub use fori_loop::fori_loop;
#[cfg(test)]
pub(crate) use function::step_by_step;
pub(crate) use function::{apply, from_traced, if_recording, is_traced, to_traced};
pub(crate) use jvp::duals;
pub use layers::scan_layers;
pub(crate) use passes::prune;
pub use remat::remat;
pub use scan::{scan, scan_with};
pub use stop_gradient::stop_gradient;
pub(crate) use stop_gradient::stopped;
pub(crate) use vmap::higher_order as batched;
pub use while_loop::while_loop;
