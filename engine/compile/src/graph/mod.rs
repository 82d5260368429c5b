//! Graphs: programs as lists of equations.

mod chart;
mod check;
mod cost;
mod decompose;
mod error;
mod expected;
mod fold;
mod fuse;
mod identities;
mod identity;
mod json;
mod keys;
mod module_rules;
mod movement_rules;
mod owners;
mod passes;
mod precise;
mod print;
mod rules;
mod sigmoid;
mod split;

use burn::tensor::{DType, Shape, TensorData};
use grove_backend::ops::Spec;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use crate::{Primitive, types::Types};
pub use cost::{Cost, OperationCost, PathCosts};
pub use error::GraphError;
pub(crate) use expected::require;
pub(crate) use identity::{Digest, Identity};
pub use keys::Keys;
pub(crate) use keys::{KeyMap, as_key, keys_in, keys_of};

/// A variable of a graph: the index of its shape and dtype.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Var(pub(crate) u32);

impl Var {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// One operation of a graph.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Equation {
    /// The operation.
    pub primitive: Primitive,
    /// Inputs by position; `None` for an optional input that is absent.
    pub inputs: Vec<Option<Var>>,
    /// Outputs by position; `None` for an output that is absent.
    pub outputs: Vec<Option<Var>>,
}

/// A program: a list of [equations](Equation) over variables, each of which is assigned once.
///
/// A graph corresponds to a jaxpr and prints like one. [`trace`](crate::trace) creates the graph of a function of trees.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Graph {
    pub(crate) variables: Vec<Spec>,
    pub(crate) inputs: Vec<(String, Var)>,
    #[serde(with = "json::constants")]
    pub(crate) constants: Vec<(Var, TensorData)>,
    pub(crate) equations: Vec<Equation>,
    pub(crate) outputs: Vec<(String, Var)>,
    /// Random keys. They are not variables: the host computes them before the equations run.
    pub(crate) keys: Keys,
    /// Default dtypes of the backend for which the graph was recorded.
    pub(crate) types: Types,
}

impl Graph {
    /// Returns the equations. Each comes after the equations whose outputs it uses.
    pub fn equations(&self) -> &[Equation] {
        &self.equations
    }

    /// Returns true if any equation [communicates with other ranks](Primitive::meets_ranks).
    pub fn meets_ranks(&self) -> bool {
        self.equations.iter().any(|equation| equation.primitive.meets_ranks())
    }

    /// Returns the arguments, with their paths in the tree of arguments.
    pub fn inputs(&self) -> &[(String, Var)] {
        &self.inputs
    }

    /// Returns the results, with their paths in the tree of results.
    pub fn outputs(&self) -> &[(String, Var)] {
        &self.outputs
    }

    /// Returns the constant arrays of the graph.
    pub fn constants(&self) -> &[(Var, TensorData)] {
        &self.constants
    }

    /// Returns the random keys.
    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Returns the paths of the arguments that are random keys.
    pub fn key_inputs(&self) -> impl Iterator<Item = &str> {
        self.keys.inputs.iter().map(|(path, _)| path.as_str())
    }

    /// Returns the shape of a variable.
    pub fn shape(&self, var: Var) -> &Shape {
        &self.variables[var.index()].shape
    }

    /// Returns the dtype of a variable.
    pub fn dtype(&self, var: Var) -> DType {
        self.variables[var.index()].dtype
    }

    /// Adds a variable.
    pub(crate) fn add_variable(&mut self, spec: Spec) -> Var {
        self.variables.push(spec);
        Var(self.variables.len() as u32 - 1)
    }

    /// Returns the number of occurrences of each operation, by name.
    pub fn counts(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for equation in &self.equations {
            *counts.entry(equation.primitive.name()).or_default() += 1;
        }
        counts
    }
}
