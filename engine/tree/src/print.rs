use grove_backend::Backend;
use std::fmt::Write as _;

use crate::{AnyArray, Node, Path, StaticValue, Tree, Visitor};

/// Formats a tree in one line: `Linear { weight: f32[768,3072], bias: f32[3072] }`.
pub fn display<B: Backend, T: Tree<B>>(tree: &T) -> String {
    let mut printer = Printer::default();
    tree.visit(&mut Path::root(), &mut printer);
    printer.text
}

/// Visitor that formats a tree.
#[derive(Default)]
struct Printer {
    text: String,
    /// The enclosing nodes: whether their fields are named, and the number of fields written so far.
    around: Vec<(bool, usize)>,
}

impl Printer {
    /// Writes the text before an element: a comma from the second element on, and the field's name.
    fn begin(&mut self, path: &Path) {
        if let Some((named, count)) = self.around.last_mut() {
            if *count > 0 {
                self.text.push_str(", ");
            }
            *count += 1;
            if *named {
                self.text.push_str(path.last());
                self.text.push_str(": ");
            }
        }
    }

    fn brackets(node: Node<'_>) -> (&'static str, &'static str) {
        match node {
            Node::Leaf => ("", ""),
            Node::Struct("") | Node::Map => ("{ ", " }"),
            Node::Struct(_) => (" { ", " }"),
            Node::Tuple(_) => ("(", ")"),
            Node::Sequence => ("[", "]"),
        }
    }
}

impl<B: Backend> Visitor<B> for Printer {
    fn leaf(&mut self, path: &Path, leaf: &AnyArray<B>) {
        self.begin(path);
        // Writing to a string cannot fail.
        let _ = write!(self.text, "{leaf}");
    }

    fn constant(&mut self, path: &Path, value: &dyn StaticValue) {
        self.begin(path);
        let _ = write!(self.text, "{value:?}");
    }

    fn enter(&mut self, path: &Path, node: Node<'_>) {
        if node == Node::Leaf {
            return;
        }
        self.begin(path);
        if let Node::Struct(name) | Node::Tuple(name) = node {
            self.text.push_str(name);
        }
        self.text.push_str(Self::brackets(node).0);
        self.around.push((matches!(node, Node::Struct(_) | Node::Map), 0));
    }

    fn exit(&mut self, _: &Path, node: Node<'_>) {
        if node != Node::Leaf {
            self.around.pop();
            self.text.push_str(Self::brackets(node).1);
        }
    }
}
