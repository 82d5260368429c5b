//! Sub-graphs that are traced on demand.

use serde::{Deserialize, Deserializer, Serialize, Serializer, ser::Error};
use std::{
    cell::Cell,
    fmt,
    sync::{Arc, OnceLock},
};

use super::graph::SubGraph;
use crate::Graph;

/// The graph of a differentiation rule. It is traced on first use, because a rule may call its own function.
#[derive(Clone)]
pub struct LazyGraph(Arc<Inner>);

struct Inner {
    graph: OnceLock<SubGraph>,
    make: Box<dyn Fn() -> Graph + Send + Sync>,
}

impl LazyGraph {
    pub(crate) fn new(make: impl Fn() -> Graph + Send + Sync + 'static) -> Self {
        Self(Arc::new(Inner { graph: OnceLock::new(), make: Box::new(make) }))
    }

    /// Returns the graph.
    pub fn get(&self) -> &SubGraph {
        self.0.graph.get_or_init(|| SubGraph::new((self.0.make)()))
    }

    /// Creates a graph that is derived from this graph on demand.
    pub(crate) fn map(&self, f: impl Fn(&SubGraph) -> Graph + Send + Sync + 'static) -> Self {
        let graph = self.clone();
        Self::new(move || f(graph.get()))
    }
}

thread_local! {
    /// Number of enclosing rules of the rule that is being serialised.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// Maximum nesting of rules in a file. A rule that calls its own function would nest without end.
const MAX_DEPTH: usize = 8;

impl Serialize for LazyGraph {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct Leave;
        impl Drop for Leave {
            fn drop(&mut self) {
                DEPTH.set(DEPTH.get() - 1);
            }
        }
        DEPTH.set(DEPTH.get() + 1);
        let _leave = Leave;
        if DEPTH.get() > MAX_DEPTH {
            return Err(S::Error::custom(
                "a differentiation rule that calls its own function cannot be stored: let the rule call a function \
                 without a rule",
            ));
        }
        self.get().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for LazyGraph {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let graph = SubGraph::deserialize(deserializer)?;
        let known = OnceLock::from(graph.clone());
        Ok(Self(Arc::new(Inner { graph: known, make: Box::new(move || (*graph).clone()) })))
    }
}

/// Two lazy graphs are equal only if they are the same object; their contents are not compared.
impl PartialEq for LazyGraph {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for LazyGraph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LazyGraph")
    }
}
