//! Graphs inside operations.

use grove_backend::ops::Spec;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use std::{any::Any, fmt, ops::Deref, sync::Arc};

use super::memo::Memo;
use crate::Graph;

/// A graph inside an operation. It depends only on its arguments.
#[derive(Clone)]
pub struct SubGraph(Arc<Inner>);

struct Inner {
    graph: Arc<Graph>,
    memo: Memo,
}

impl SubGraph {
    pub(crate) fn new(graph: Graph) -> Self {
        Self::as_it_is(graph.without_common_subexpressions())
    }

    fn as_it_is(graph: Graph) -> Self {
        Self(Arc::new(Inner { graph: Arc::new(graph), memo: Memo::default() }))
    }

    /// Returns the graph.
    pub(crate) fn graph(&self) -> &Arc<Graph> {
        &self.0.graph
    }

    /// Returns a value of type `T` derived from the graph, computed once.
    pub(crate) fn memo<T: Any + Send + Sync>(&self, make: impl FnOnce() -> T) -> &T {
        self.0.memo.get_or_init(make)
    }

    /// Returns true if both are the same graph in memory.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns the types of the arguments.
    pub(crate) fn input_specs(&self) -> Vec<Spec> {
        self.inputs.iter().map(|(_, var)| self.variables[var.index()].clone()).collect()
    }

    /// Returns the types of the results.
    pub(crate) fn output_specs(&self) -> Vec<Spec> {
        self.outputs.iter().map(|(_, var)| self.variables[var.index()].clone()).collect()
    }
}

impl Deref for SubGraph {
    type Target = Graph;

    fn deref(&self) -> &Graph {
        &self.0.graph
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
