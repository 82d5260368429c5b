//! Text of graphs, in the style of a jaxpr.

use std::fmt;

use super::{Graph, Var};
use crate::{Primitive, primitive::Number, words::dtype_name};

/// Returns the name of the variable with this index in print order: `a`, …, `z`, `ba`, …
fn letters(mut index: usize) -> String {
    let mut name = Vec::new();
    loop {
        name.push(b'a' + (index % 26) as u8);
        index /= 26;
        if index == 0 {
            break;
        }
    }
    name.iter().rev().map(|c| char::from(*c)).collect()
}

impl Graph {
    /// Formats the graph with the paths of the arguments as their names.
    pub fn to_string_with_paths(&self) -> String {
        Printed { graph: self, paths: true }.to_string()
    }

    /// Formats the graph in the Graphviz language: arguments, constants, operations and results are nodes, and arrays are edges
    /// labelled with their types. `dot -Tsvg` renders the graph.
    pub fn to_dot(&self) -> String {
        let quoted = |text: &str| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
        let mut lines = vec!["digraph {".to_owned(), "  node [shape=box, fontname=monospace]".to_owned()];
        let mut sources = vec![String::new(); self.variables.len()];
        let mut clusters = Vec::new();
        let mut node = |name: String, label: &str, look: &str, gives: &[Option<Var>]| {
            lines.push(format!("  {name} [label={}{look}]", quoted(label)));
            gives.iter().flatten().for_each(|var| sources[var.index()].clone_from(&name));
        };
        for (i, (path, var)) in self.inputs.iter().enumerate() {
            let label = if path.is_empty() { "argument" } else { path };
            node(format!("input{i}"), label, ", shape=ellipse", &[Some(*var)]);
        }
        for (i, (var, _)) in self.constants.iter().enumerate() {
            node(format!("constant{i}"), "constant", ", shape=ellipse, style=dashed", &[Some(*var)]);
        }
        for (i, equation) in self.equations.iter().enumerate() {
            let (name, mut parameters) = (equation.primitive.name(), equation.primitive.parameters());
            if let Primitive::HigherOrder(op) = &equation.primitive {
                // Sub-graphs are drawn as separate clusters.
                clusters.extend(op.to_dot(i));
                parameters.clear();
            }
            let label = if parameters.is_empty() { name } else { format!("{name} {parameters}") };
            node(format!("equation{i}"), &label, "", &equation.outputs);
        }
        for (i, (path, _)) in self.outputs.iter().enumerate() {
            let label = if path.is_empty() { "result" } else { path };
            node(format!("output{i}"), label, ", shape=ellipse", &[]);
        }
        let mut edge = |var: Var, target: String| {
            let label = format!("{}{:?}", dtype_name(self.dtype(var)), &self.shape(var)[..]);
            lines.push(format!("  {} -> {target} [label={}]", sources[var.index()], quoted(&label)));
        };
        for (i, equation) in self.equations.iter().enumerate() {
            equation.inputs.iter().flatten().for_each(|var| edge(*var, format!("equation{i}")));
        }
        self.outputs.iter().enumerate().for_each(|(i, (_, var))| edge(*var, format!("output{i}")));
        lines.extend(clusters);
        lines.push("}\n".to_owned());
        lines.join("\n")
    }
}

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Printed { graph: self, paths: false }.fmt(f)
    }
}

struct Printed<'a> {
    graph: &'a Graph,
    paths: bool,
}

impl fmt::Display for Printed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let graph = self.graph;
        let mut names = vec![String::new(); graph.variables.len()];
        let mut count = 0;
        let mut fresh = |var: Var| {
            if names[var.index()].is_empty() {
                names[var.index()] = letters(count);
                count += 1;
            }
        };
        let constants = graph.constants.iter().map(|(var, _)| *var);
        constants.for_each(&mut fresh);
        if !self.paths {
            graph.inputs.iter().for_each(|(_, var)| fresh(*var));
        }
        graph.equations.iter().flat_map(|equation| equation.outputs.iter().flatten()).for_each(|var| fresh(*var));
        if self.paths {
            for (path, var) in &graph.inputs {
                names[var.index()] = if path.is_empty() { "arg".into() } else { path.clone() };
            }
        }
        let keys = graph.named_keys(|i| match graph.keys.inputs.get(i) {
            Some((path, _)) if self.paths => {
                if path.is_empty() {
                    "key".into()
                } else {
                    path.clone()
                }
            }
            _ => format!("{}'", letters(i)),
        });
        let typed = |var: Var| {
            let spec = &graph.variables[var.index()];
            let sizes: Vec<_> = spec.shape.iter().map(usize::to_string).collect();
            format!("{}:{}[{}]", names[var.index()], dtype_name(spec.dtype), sizes.join(","))
        };
        f.write_str("{ lambda")?;
        graph.constants.iter().try_for_each(|(var, _)| write!(f, " {}", typed(*var)))?;
        f.write_str(" ;")?;
        graph.inputs.iter().try_for_each(|(_, var)| write!(f, " {}", typed(*var)))?;
        let inputs = keys.iter().filter(|key| key.source.is_none());
        inputs.into_iter().try_for_each(|key| write!(f, " {}:key[]", key.name))?;
        f.write_str(" . let\n")?;
        for key in &keys {
            if let Some((parent, index)) = &key.source {
                writeln!(f, "    {}:key[] = random_fold_in[data={index}] {parent}", key.name)?;
            }
        }
        for equation in &graph.equations {
            let outputs: Vec<_> = equation.outputs.iter().map(|var| var.map_or_else(|| "_".into(), typed)).collect();
            write!(f, "    {} = {}", outputs.join(" "), equation.primitive.name())?;
            let mut parameters = equation.primitive.parameters();
            if parameters.contains("key: [") {
                keys.iter().for_each(|key| parameters = parameters.replace(&key.words, &key.name));
            }
            if !parameters.is_empty() {
                write!(f, "[{parameters}]")?;
            }
            for input in &equation.inputs {
                match input {
                    Some(var) => write!(f, " {}", names[var.index()])?,
                    None => f.write_str(" _")?,
                }
            }
            if let Primitive::BinaryScalar(_, value) = &equation.primitive {
                write!(f, " {}", Number(*value))?;
            }
            f.write_str("\n")?;
        }
        let mut outputs: Vec<_> = graph.outputs.iter().map(|(_, var)| names[var.index()].clone()).collect();
        outputs.extend(graph.keys.outputs.iter().map(|(_, key)| {
            let words = format!("{:?}", key.words());
            keys.iter().find(|key| key.words == words).map_or(words, |key| key.name.clone())
        }));
        let comma = if outputs.len() == 1 { "," } else { "" };
        write!(f, "  in ({}{comma}) }}", outputs.join(", "))
    }
}
