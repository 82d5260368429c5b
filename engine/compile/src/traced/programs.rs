//! Compiled programs of a lazy device.

use std::{collections::VecDeque, sync::Arc, time::Instant};

use super::engine::{DeviceArray, Engine, Executable};
use crate::{
    graph::{Graph, Identity},
    log::logs_compiles,
};

/// Maximum number of cached programs.
const CAPACITY: usize = 256;

/// Compiled programs, the most recently used first.
#[derive(Default)]
pub(super) struct Programs(VecDeque<Known>);

/// A compiled program and its cache key: the graph, the layout of each input, and true for each input that is donated.
struct Known {
    source: Arc<Source>,
    layouts: Vec<String>,
    donated: Vec<bool>,
    program: Arc<dyn Executable>,
}

/// A graph with its identity.
pub(super) struct Source {
    pub graph: Graph,
    identity: Identity,
}

impl Source {
    pub fn new(graph: Graph) -> Arc<Self> {
        Arc::new(Self { identity: graph.identity(), graph })
    }

    fn is_same(self: &Arc<Self>, other: &Arc<Self>) -> bool {
        Arc::ptr_eq(self, other) || self.identity == other.identity && self.graph.has_same_parts(&other.graph)
    }
}

impl Programs {
    /// Returns the program of a graph for inputs with the layouts of these arrays; compiles it if it is not cached. Inputs
    /// after those in `donated` are not donated.
    pub fn get(
        &mut self,
        engine: &dyn Engine,
        source: &Arc<Source>,
        inputs: &[DeviceArray],
        mut donated: Vec<bool>,
    ) -> Result<Arc<dyn Executable>, String> {
        donated.resize(inputs.len(), false);
        let layouts: Vec<String> = inputs.iter().map(|array| engine.layout(array)).collect();
        let is_same =
            |known: &Known| (&known.layouts, &known.donated) == (&layouts, &donated) && known.source.is_same(source);
        let found = self.0.iter().position(is_same);
        if let Some(known) = found.and_then(|i| self.0.remove(i)) {
            let program = known.program.clone();
            self.0.push_front(known);
            return Ok(program);
        }
        let graph = &source.graph;
        let start = Instant::now();
        let program = engine.compile(graph, inputs, &donated)?;
        if logs_compiles() {
            let (equations, time) = (graph.equations().len(), start.elapsed());
            eprintln!(
                "xla: a program of {equations} equations, {} arguments and {} results compiled in {time:.1?}",
                graph.inputs().len(),
                graph.outputs().len()
            );
        }
        self.0.push_front(Known { source: source.clone(), layouts, donated, program: program.clone() });
        self.0.truncate(CAPACITY);
        Ok(program)
    }
}
