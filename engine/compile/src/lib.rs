//! Tracing: functions of trees become programs that can be printed, costed, transformed and compiled.
//!
//! [`trace`] calls a function once, with arrays that have shapes but no values, and returns the [`Graph`] of the recorded
//! operations. A graph prints like a jaxpr. [`jit`] caches the graphs of a function and runs them.
//!
//! | module | content |
//! |---|---|
//! | `traced` | the recording backend [`Traced`] |
//! | `primitive` | the operations of a graph |
//! | `elementwise` | element-wise functions with their rules |
//! | `graph` | graphs, their text, and passes over them |
//! | `sub_graph` | operations that contain graphs |
//! | `eval` | running graphs on a backend |
//! | `plan` | loops over small arrays, run without tensors |
//! | `trace`, `jit`, `vmap`, `jvp` | the transformations |
//! | `control` | control flow: [`cond`], [`switch`], [`while_loop`], [`fori_loop`], [`scan`](scan()), [`associative_scan`] |
//! | `custom` | functions with custom derivatives: [`custom_vjp`], [`custom_jvp`] |
//!
//! ```
//! use burn::tensor::Tensor;
//! use grove_compile::trace;
//! use grove_tree::Array;
//! # type B = burn_flex::Flex;
//! let x = Array::<B, 1>::new(Tensor::from_floats([1.0, 2.0], &Default::default()));
//! let graph = trace(|x| Array::<_, 1>::new(x.val().exp() * 2.0), &x);
//! assert_eq!(graph.to_string(), "{ lambda ; a:f32[2] . let\n    b:f32[2] = exp a\n    c:f32[2] = mul b 2.0\n  in (c,) }");
//! ```
#![warn(missing_docs)]
#![recursion_limit = "256"]

mod control;
mod custom;
mod elementwise;
mod eval;
mod fused;
mod graph;
mod jit;
mod jvp;
mod log;
mod plan;
pub mod primitive;
mod same_type;
mod scalar;
mod sub_graph;
mod target;
mod trace;
mod traced;
mod tree_arrays;
mod types;
mod vmap;
mod words;

#[doc(hidden)]
pub use control::debug_text;
pub use control::{
    associative_scan, cond, debug_print, fori_loop, remat, scan, scan_layers, scan_with, stop_gradient, switch,
    while_loop,
};
pub use custom::{CustomJvp, CustomVjp, custom_jvp, custom_vjp};
pub use fused::Fused;
pub use graph::{Cost, Equation, Graph, GraphError, Keys, OperationCost, PathCosts, Var};
pub use jit::{Jit, JitOn, jit};
pub use jvp::{Jacobian, Linearized, hessian, hvp, jacfwd, jacrev, jvp, linearize};
pub use log::logs_compiles;
pub use primitive::Primitive;
pub use trace::{Traceable, trace, trace_skeleton};
pub use traced::{
    DeviceArray, Engine, Executable, RunError, TraceChannel, TraceClient, TraceDevice, Traced, array_of, lazy_array,
    lazy_device,
};
pub use vmap::{Mapped, MappedLeaf, Over, Shared, Vmap, per_example_grads, vmap};
