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

/// A compiled program and its cache key.
struct Known {
    identity: Identity,
    graph: Graph,
    layouts: Vec<String>,
    donated: Vec<bool>,
    program: Arc<dyn Executable>,
}

impl Programs {
    /// Returns the program of a graph; compiles it if it is not cached.
    pub fn get(
        &mut self,
        engine: &dyn Engine,
        graph: Graph,
        inputs: &[DeviceArray],
        donated: Vec<bool>,
    ) -> Result<Arc<dyn Executable>, String> {
        let layouts: Vec<String> = inputs.iter().map(|array| engine.layout(array)).collect();
        let identity = graph.identity();
        let is_same = |known: &Known| {
            (&known.identity, &known.layouts, &known.donated) == (&identity, &layouts, &donated)
                && known.graph.has_same_parts(&graph)
        };
        let found = self.0.iter().position(is_same);
        if let Some(known) = found.and_then(|i| self.0.remove(i)) {
            let program = known.program.clone();
            self.0.push_front(known);
            return Ok(program);
        }
        let start = Instant::now();
        let program = engine.compile(&graph, inputs, &donated)?;
        if logs_compiles() {
            let (equations, time) = (graph.equations().len(), start.elapsed());
            eprintln!(
                "xla: a program of {equations} equations, {} arguments and {} results compiled in {time:.1?}",
                graph.inputs().len(),
                graph.outputs().len()
            );
        }
        self.0.push_front(Known { identity, graph, layouts, donated, program: program.clone() });
        self.0.truncate(CAPACITY);
        Ok(program)
    }
}
