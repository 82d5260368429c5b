//! Graph passes over sub-graphs.

use grove_backend::ops::Spec;
use std::collections::HashSet;

use crate::{
    Graph,
    graph::{Equation, Var},
    primitive::Primitive,
    sub_graph::{HigherOrder, LazyGraph, ScanLoop, SubGraph, WhileLoop},
};

impl HigherOrder {
    /// Returns the sub-graphs that are executed at run time, with their roles.
    pub(crate) fn sub_graphs(&self) -> Vec<(&'static str, &SubGraph)> {
        match self {
            Self::Cond { branches } => branches.iter().map(|branch| ("branch", branch)).collect(),
            Self::While(WhileLoop { cond, body, .. }) => vec![("cond", cond), ("body", body)],
            Self::Scan(ScanLoop { body, .. }) => vec![("body", body)],
            Self::CustomJvp { function, .. } | Self::CustomVjp { function, .. } => vec![("function", function)],
        }
    }

    /// Replaces the sub-graphs that are executed at run time, in the order of [`sub_graphs`](Self::sub_graphs).
    pub(crate) fn with_sub_graphs(mut self, mut new: impl FnMut(&SubGraph) -> SubGraph) -> Self {
        match &mut self {
            Self::Cond { branches } => branches.iter_mut().for_each(|branch| *branch = new(branch)),
            Self::While(WhileLoop { cond, body, .. }) => {
                *cond = new(cond);
                *body = new(body);
            }
            Self::Scan(ScanLoop { body, .. }) => *body = new(body),
            Self::CustomJvp { function, .. } | Self::CustomVjp { function, .. } => *function = new(function),
        }
        self
    }

    /// Applies a function to all sub-graphs, including those of differentiation rules. The results of the graphs must stay the
    /// same.
    pub(crate) fn map_graphs(&self, f: impl Fn(Graph) -> Graph + Clone + Send + Sync + 'static) -> Self {
        let new = |graph: &SubGraph| SubGraph::new(f((**graph).clone()));
        let later = |graph: &LazyGraph| {
            let f = f.clone();
            graph.map(move |graph| f((**graph).clone()))
        };
        let mut op = self.clone().with_sub_graphs(new);
        match &mut op {
            Self::CustomJvp { jvp, .. } => *jvp = later(jvp),
            Self::CustomVjp { forward, backward, .. } => {
                *forward = new(forward);
                *backward = later(backward);
            }
            Self::Cond { .. } | Self::While(_) | Self::Scan(_) => {}
        }
        op
    }

    /// Returns the operation with the [forward passes](Graph::with_forward_passes) of functions with a reverse-mode rule in its
    /// sub-graphs.
    pub(crate) fn with_forward_passes(&self) -> Self {
        if self.has_reverse_mode_rules() { self.map_graphs(Graph::with_forward_passes) } else { self.clone() }
    }

    /// Returns true if a function with a reverse-mode rule is called in the sub-graphs.
    fn has_reverse_mode_rules(&self) -> bool {
        let has = |graph: &SubGraph| {
            graph.equations.iter().any(|equation| match &equation.primitive {
                Primitive::HigherOrder(op) => matches!(op, Self::CustomVjp { .. }) || op.has_reverse_mode_rules(),
                _ => false,
            })
        };
        self.sub_graphs().into_iter().any(|(_, graph)| has(graph))
    }

    /// Fuses chains of element-wise operations in the sub-graphs that run without differentiation.
    pub(crate) fn fused(&self) -> Self {
        self.clone().with_sub_graphs(|graph| SubGraph::new((**graph).clone().fused()))
    }
}

/// An operation without unused results, and for each input and output of the original operation true if it remains.
type Pruned = (HigherOrder, Vec<bool>, Vec<bool>);

/// Removes unused results from an equation with sub-graphs, and the arguments that only these results need.
pub(crate) fn prune(equation: &mut Equation, live: &HashSet<Var>) {
    let Primitive::HigherOrder(op) = &equation.primitive else { return };
    let used = equation.outputs.iter().map(|var| var.is_some_and(|var| live.contains(&var))).collect();
    let pruned = match op {
        HigherOrder::Cond { branches } => pruned_cond(branches, used),
        HigherOrder::Scan(scan) => pruned_scan(scan, used),
        HigherOrder::While(_) | HigherOrder::CustomJvp { .. } | HigherOrder::CustomVjp { .. } => None,
    };
    let Some((op, inputs, outputs)) = pruned else { return };
    let retained = |flags: &[bool], vars: &[Option<Var>]| -> Vec<Option<Var>> {
        vars.iter().zip(flags).filter(|(_, keep)| **keep).map(|(var, _)| *var).collect()
    };
    equation.inputs = retained(&inputs, &equation.inputs);
    equation.outputs = retained(&outputs, &equation.outputs);
    equation.primitive = Primitive::HigherOrder(op);
}

/// Returns `None` if nothing is unused.
fn pruned_cond(branches: &[SubGraph], used: Vec<bool>) -> Option<Pruned> {
    let graphs: Vec<Graph> = branches.iter().map(|branch| with_outputs(branch, &used)).collect();
    let is_needed = |i: usize| graphs.iter().any(|graph| uses(graph, graph.inputs[i].1));
    let needed: Vec<bool> = (0..branches[0].inputs.len()).map(is_needed).collect();
    if used.iter().chain(&needed).all(|needed| *needed) {
        return None;
    }
    let branches = graphs.into_iter().map(|graph| SubGraph::new(with_inputs(graph, &needed))).collect();
    let inputs = std::iter::once(true).chain(needed).collect();
    Some((HigherOrder::Cond { branches }, inputs, used))
}

/// Returns `None` if nothing is unused.
fn pruned_scan(scan: &ScanLoop, used: Vec<bool>) -> Option<Pruned> {
    let (consts, carries) = (scan.consts, scan.carries);
    // A carry is needed if its final value is used or a needed value depends on it.
    let mut keep = used;
    let graph = loop {
        let graph = with_outputs(&scan.body, &keep);
        let mut grown = false;
        for (i, keep) in keep.iter_mut().take(carries).enumerate() {
            if !*keep && uses(&graph, graph.inputs[consts + i].1) {
                (*keep, grown) = (true, true);
            }
        }
        if !grown {
            break graph;
        }
    };
    let is_needed = |i: usize| match i.checked_sub(consts) {
        Some(carry) if carry < carries => keep[carry],
        _ => uses(&graph, graph.inputs[i].1),
    };
    let needed: Vec<bool> = (0..graph.inputs.len()).map(is_needed).collect();
    if keep.iter().chain(&needed).all(|needed| *needed) {
        return None;
    }
    let count = |flags: &[bool]| flags.iter().filter(|flag| **flag).count();
    let op = ScanLoop {
        body: SubGraph::new(with_inputs(graph, &needed)),
        consts: count(&needed[..consts]),
        carries: count(&keep[..carries]),
        ..scan.clone()
    };
    Some((HigherOrder::Scan(op), needed, keep))
}

/// Returns the graph with a subset of its outputs, without dead code.
fn with_outputs(graph: &SubGraph, keep: &[bool]) -> Graph {
    let mut graph = (**graph).clone();
    let mut flags = keep.iter();
    graph.outputs.retain(|_| flags.next().copied().unwrap_or(true));
    graph.without_dead_code()
}

/// Returns the graph with a subset of its inputs. The removed inputs must be unused.
fn with_inputs(mut graph: Graph, keep: &[bool]) -> Graph {
    let mut flags = keep.iter();
    graph.inputs.retain(|_| flags.next().copied().unwrap_or(true));
    graph
}

/// Returns true if a graph without dead code uses a variable.
fn uses(graph: &Graph, var: Var) -> bool {
    let inputs = graph.equations.iter().flat_map(|equation| equation.inputs.iter().flatten());
    inputs.chain(graph.outputs.iter().map(|(_, var)| var)).any(|used| *used == var)
}

/// Adds an unused input.
pub(super) fn with_unused_input(graph: &mut Graph, spec: Spec) {
    let var = graph.add_variable(spec);
    graph.inputs.push(("unused".into(), var));
}
