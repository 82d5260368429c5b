//! Text of higher-order operations, in the style of a jaxpr.

use crate::sub_graph::{HigherOrder, ScanLoop, SubGraph, WhileLoop};

impl HigherOrder {
    /// Formats the static parameters, one per line, for an equation that is indented by four spaces.
    pub(crate) fn parameters(&self) -> String {
        let mut text = String::new();
        let mut line = |name: &str, value: &str| text.push_str(&format!("\n      {name}={value}"));
        match self {
            Self::Cond { branches } => {
                let branches: Vec<_> =
                    branches.iter().map(|branch| format!("\n        {}", indented(branch, 8))).collect();
                line("branches", &format!("({}\n      )", branches.concat()));
            }
            Self::While(WhileLoop { cond, body, consts }) => {
                line("body_jaxpr", &indented(body, 6));
                line("cond_jaxpr", &indented(cond, 6));
                line("nconsts", &consts.to_string());
            }
            Self::Scan(ScanLoop { body, length, reverse, consts, carries }) => {
                line("jaxpr", &indented(body, 6));
                line("length", &length.to_string());
                line("num_carry", &carries.to_string());
                line("num_consts", &consts.to_string());
                line("reverse", &reverse.to_string());
            }
            Self::CustomJvp { name, function, .. } | Self::CustomVjp { name, function, .. } => {
                line("name", name);
                line("call_jaxpr", &indented(function, 6));
            }
        }
        text.push_str("\n    ");
        text
    }
}

/// Formats a graph with its lines after the first indented.
fn indented(graph: &SubGraph, spaces: usize) -> String {
    graph.to_string().replace('\n', &format!("\n{}", " ".repeat(spaces)))
}

impl HigherOrder {
    /// Formats the sub-graphs in the Graphviz language. Each sub-graph is a cluster, and the equation with the given index
    /// points to it.
    pub(crate) fn to_dot(&self, equation: usize) -> Vec<String> {
        let mut lines = Vec::new();
        for (i, (role, graph)) in self.sub_graphs().into_iter().enumerate() {
            let prefix = format!("equation{equation}_{i}_");
            lines.push(format!("  subgraph cluster_{prefix} {{\n  label=\"{role} of equation {equation}\""));
            let text = graph.to_dot();
            // Node names come first in a line and after an arrow.
            let inner = text.lines().skip(2).filter(|line| *line != "}");
            lines.extend(inner.map(|line| prefixed(line, &prefix)));
            lines.push("  }".to_owned());
            let first = if graph.inputs.is_empty() { "output0" } else { "input0" };
            lines.push(format!("  equation{equation} -> {prefix}{first} [style=dotted]"));
        }
        lines
    }
}

/// Adds a prefix to the node names of a Graphviz line.
fn prefixed(line: &str, prefix: &str) -> String {
    let Some(rest) = line.strip_prefix("  ") else { return line.to_owned() };
    if rest.starts_with("label=") || rest.starts_with('}') {
        return line.to_owned();
    }
    if let Some(frame) = rest.strip_prefix("subgraph cluster_") {
        return format!("  subgraph cluster_{prefix}{frame}");
    }
    // In an edge, the arrow comes before any label.
    match rest.split_once(" -> ") {
        Some((from, to)) if !from.contains('[') => format!("  {prefix}{from} -> {prefix}{to}"),
        _ => format!("  {prefix}{rest}"),
    }
}
