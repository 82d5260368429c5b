//! Operations with sub-graphs: control flow, and functions with derivatives of their own.
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
mod lazy;
mod nested;
mod passes;
mod print;
mod scan;
mod stop_gradient;
mod vjp;
mod vmap;
mod while_loop;

use grove_backend::ops::Spec;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use std::{
    fmt,
    ops::Deref,
    sync::{Arc, OnceLock},
};

use crate::{Cost, Graph, eval::Program, graph::Identity, plan::PlanOf, traced::WithoutNumbers};

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
pub use lazy::LazyGraph;
pub(crate) use nested::pruned;
pub(crate) use passes::prune;
pub use scan::{scan, scan_with};
pub use stop_gradient::stop_gradient;
pub(crate) use stop_gradient::stopped;
pub(crate) use vmap::higher_order as batched;
pub use while_loop::while_loop;

/// A graph inside of an operation. It uses nothing but its arguments.
#[derive(Clone)]
pub struct SubGraph(Arc<Inner>);

struct Inner {
    program: Program,
    identity: OnceLock<Identity>,
    cost: OnceLock<Cost>,
    plan: OnceLock<PlanOf>,
    without_numbers: OnceLock<Option<WithoutNumbers>>,
}

impl SubGraph {
    pub(crate) fn new(graph: Graph) -> Self {
        Self::as_it_is(graph.without_common_subexpressions())
    }

    fn as_it_is(graph: Graph) -> Self {
        let program = Program::new(graph);
        Self(Arc::new(Inner {
            program,
            identity: OnceLock::new(),
            cost: OnceLock::new(),
            plan: OnceLock::new(),
            without_numbers: OnceLock::new(),
        }))
    }

    pub(crate) fn program(&self) -> &Program {
        &self.0.program
    }

    /// [`Graph::identity`], which is computed once.
    pub(crate) fn identity(&self) -> &Identity {
        self.0.identity.get_or_init(|| self.program().graph().identity())
    }

    /// True if two are one.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// [`Graph::cost`], which is computed once.
    pub(crate) fn cost(&self) -> &Cost {
        self.0.cost.get_or_init(|| self.program().graph().cost())
    }

    /// The plan of the loop whose body it is.
    pub(crate) fn plan(&self) -> &OnceLock<PlanOf> {
        &self.0.plan
    }

    /// The graph with its numbers as arguments, if it has any; it is made once.
    pub(crate) fn without_numbers(&self) -> Option<&WithoutNumbers> {
        self.0.without_numbers.get_or_init(|| WithoutNumbers::of(self)).as_ref()
    }

    /// Shapes and types of the arguments.
    pub(crate) fn input_specs(&self) -> Vec<Spec> {
        self.inputs.iter().map(|(_, var)| self.variables[var.index()].clone()).collect()
    }

    /// Shapes and types of the results.
    pub(crate) fn output_specs(&self) -> Vec<Spec> {
        self.outputs.iter().map(|(_, var)| self.variables[var.index()].clone()).collect()
    }
}

impl Deref for SubGraph {
    type Target = Graph;

    fn deref(&self) -> &Graph {
        self.program().graph()
    }
}

impl PartialEq for SubGraph {
    fn eq(&self, other: &Self) -> bool {
        self.is_same(other) || **self == **other
    }
}

impl fmt::Debug for SubGraph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl Serialize for SubGraph {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (**self).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for SubGraph {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let graph = Graph::deserialize(deserializer)?;
        graph.check().map_err(|error| D::Error::custom(format!("a sub-graph: {error}")))?;
        Ok(Self::as_it_is(graph))
    }
}

/// An operation with sub-graphs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum HigherOrder {
    /// One of several branches, all of which take the same operands: inputs are a truth value (the second branch where it is true)
    /// or the index of a branch, `[1]`, which is clamped to the branches that there are, and the operands.
    Cond {
        /// The branches.
        branches: Vec<SubGraph>,
    },
    /// A loop while a condition holds: inputs are constants and the carry, which is the result too.
    While {
        /// From constants and carry to a truth value, `[1]`.
        cond: SubGraph,
        /// From constants and carry to the next carry.
        body: SubGraph,
        /// Number of constants.
        consts: usize,
    },
    /// A loop over the first axis of arrays: inputs are constants, the carry and arrays; results are the last carry and arrays.
    Scan {
        /// From constants, carry and one step of the arrays to the next carry and one step of the results.
        body: SubGraph,
        /// Number of steps.
        length: usize,
        /// True if the last step comes first.
        reverse: bool,
        /// Number of constants.
        consts: usize,
        /// Number of arrays in the carry.
        carries: usize,
    },
    /// A function with a rule of forward-mode differentiation.
    CustomJvp {
        /// Name of the function.
        name: String,
        /// The function.
        function: SubGraph,
        /// From arguments and the tangents of those that are floating-point to results and the tangents of those that are.
        jvp: LazyGraph,
    },
    /// A function with a rule of reverse-mode differentiation.
    CustomVjp {
        /// Name of the function.
        name: String,
        /// The function.
        function: SubGraph,
        /// From arguments to results and residuals.
        forward: SubGraph,
        /// From residuals and the gradients of floating-point results to those of floating-point arguments.
        backward: LazyGraph,
    },
}

impl HigherOrder {
    /// Returns the name of the operation, as in `jax.lax`.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            // A single branch is always taken: it is there to be computed again.
            Self::Cond { branches } if branches.len() == 1 => "checkpoint",
            Self::Cond { .. } => "cond",
            Self::While { .. } => "while",
            Self::Scan { .. } => "scan",
            Self::CustomJvp { .. } => "custom_jvp_call",
            Self::CustomVjp { .. } => "custom_vjp_call",
        }
    }

    /// Shapes and types of the results.
    pub(crate) fn output_specs(&self) -> Vec<Spec> {
        match self {
            Self::Cond { branches } => branches.first().map(SubGraph::output_specs).unwrap_or_default(),
            Self::While { body, .. } => body.output_specs(),
            Self::Scan { body, length, carries, .. } => {
                let specs = body.output_specs().into_iter().enumerate();
                specs.map(|(i, spec)| if i < *carries { spec } else { stacked(&spec, *length) }).collect()
            }
            Self::CustomJvp { function, .. } | Self::CustomVjp { function, .. } => function.output_specs(),
        }
    }
}

/// An array of so many steps.
pub(crate) fn stacked(spec: &Spec, length: usize) -> Spec {
    Spec { shape: [&[length], &spec.shape[..]].concat().into(), dtype: spec.dtype }
}

/// True for arrays that have derivatives.
pub(crate) fn is_float(spec: &Spec) -> bool {
    spec.dtype.is_float()
}
