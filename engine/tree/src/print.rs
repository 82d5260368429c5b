use burn::tensor::{BoolStore, DType};
use grove_backend::Backend;
use std::fmt::Write as _;

use crate::{AnyArray, Node, Path, StaticValue, Tree, Visitor};

/// The short name of a dtype, as in JAX: `f32`, `bf16`, `i64`, `bool`.
pub(crate) fn dtype_name(dtype: DType) -> &'static str {
    match dtype {
        DType::F64 => "f64",
        DType::F32 => "f32",
        DType::Flex32 => "flex32",
        DType::F16 => "f16",
        DType::BF16 => "bf16",
        DType::I64 => "i64",
        DType::I32 => "i32",
        DType::I16 => "i16",
        DType::I8 => "i8",
        DType::U64 => "u64",
        DType::U32 => "u32",
        DType::U16 => "u16",
        DType::U8 => "u8",
        DType::Bool(BoolStore::Native | BoolStore::U8 | BoolStore::U32) => "bool",
        DType::QFloat(_) => "quantized",
    }
}

/// `f32[3,4]`
pub(crate) fn type_name(shape: &[usize], dtype: DType) -> String {
    let sizes: Vec<String> = shape.iter().map(usize::to_string).collect();
    format!("{}[{}]", dtype_name(dtype), sizes.join(","))
}

/// A tree in one line: `Linear { weight: f32[768,3072], bias: f32[3072] }`.
pub fn display<B: Backend, T: Tree<B>>(tree: &T) -> String {
    let mut printer = Printer::default();
    tree.visit(&mut Path::root(), &mut printer);
    printer.text
}

/// Writes a tree as it is visited.
#[derive(Default)]
struct Printer {
    text: String,
    /// The enclosing nodes: true if their fields are named, and the number of fields written so far.
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
