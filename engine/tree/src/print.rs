use grove_backend::Backend;

use crate::{AnyArray, Node, Path, StaticValue, Tree, Visitor};

/// Width of a line in characters. A node that does not fit gets a line for each field.
const WIDTH: usize = 100;
/// Indentation of a level.
const INDENT: &str = "  ";

/// Formats a tree with the types and shapes of its arrays and its static fields, as `equinox.tree_pformat` does. A tree
/// that fits into a line is one: `Linear { weight: f32[768,3072], bias: f32[3072] }`.
///
/// ```
/// use grove_tree::{Array, Tree, display};
/// # type B = burn_flex::Flex;
/// # use grove_backend::Backend;
///
/// #[derive(Tree, Clone)]
/// struct Dense<B: Backend> {
///     weight: Array<B, 2>,
///     #[tree(static)]
///     activation: String,
/// }
///
/// let dense = |size| Dense::<B> { weight: Array::absent([size, 3072]), activation: "gelu".into() };
/// assert_eq!(display(&dense(768)), r#"Dense { weight: f32[768,3072], activation: "gelu" }"#);
/// let both = r#"(
///   Dense { weight: f32[768,3072], activation: "gelu" },
///   Dense { weight: f32[12288,3072], activation: "gelu" },
/// )"#;
/// assert_eq!(display(&(dense(768), dense(12288))), both);
/// ```
pub fn display<B: Backend, T: Tree<B>>(tree: &T) -> String {
    let mut printer = Printer { open: vec![Group::default()] };
    tree.visit(&mut Path::root(), &mut printer);
    let root = printer.open.pop().unwrap_or_default();
    let mut text = String::new();
    root.items.iter().for_each(|item| item.write(&mut text, 0));
    text
}

/// An element of a tree: a leaf or a value with its text, or a node with its elements.
struct Item {
    /// Name of the field with a colon; empty for elements without a name.
    name: String,
    content: Content,
}

enum Content {
    Text(String),
    /// A static value: its text in one line, and in several.
    Value(String, String),
    Group(Group),
}

/// A node and its elements.
#[derive(Default)]
struct Group {
    /// Name of the struct, and the opening bracket.
    begin: String,
    end: &'static str,
    /// True if there is a space inside of the brackets.
    spaced: bool,
    items: Vec<Item>,
}

impl Item {
    /// The text in one line.
    fn line(&self) -> String {
        let content = match &self.content {
            Content::Text(text) | Content::Value(text, _) => text.clone(),
            Content::Group(group) => {
                let items: Vec<String> = group.items.iter().map(Self::line).collect();
                let space = if group.spaced && !items.is_empty() { " " } else { "" };
                format!("{}{space}{}{space}{}", group.begin, items.join(", "), group.end)
            }
        };
        format!("{}{content}", self.name)
    }

    /// Writes the text behind `depth` levels of indentation, in several lines if it does not fit into one.
    fn write(&self, text: &mut String, depth: usize) {
        let (line, indent) = (self.line(), INDENT.repeat(depth));
        let fits = indent.len() + line.chars().count() < WIDTH;
        match &self.content {
            Content::Group(group) if !fits && !group.items.is_empty() => {
                text.push_str(&self.name);
                text.push_str(&group.begin);
                text.push('\n');
                for item in &group.items {
                    text.push_str(&indent);
                    text.push_str(INDENT);
                    item.write(text, depth + 1);
                    text.push_str(",\n");
                }
                text.push_str(&indent);
                text.push_str(group.end);
            }
            Content::Value(_, lines) if !fits => {
                text.push_str(&self.name);
                text.push_str(&lines.replace('\n', &format!("\n{indent}")).replace("    ", INDENT));
            }
            _ => text.push_str(&line),
        }
    }
}

/// Collects the elements of a tree as it is visited.
struct Printer {
    /// The enclosing nodes, the innermost last.
    open: Vec<Group>,
}

impl Printer {
    fn push(&mut self, name: String, content: Content) {
        if let Some(group) = self.open.last_mut() {
            group.items.push(Item { name, content });
        }
    }

    /// The name of an element of the innermost node, if its elements have names.
    fn name(&self, path: &Path) -> String {
        match self.open.last() {
            Some(group) if group.spaced => format!("{}: ", path.last()),
            _ => String::new(),
        }
    }
}

impl<B: Backend> Visitor<B> for Printer {
    fn leaf(&mut self, path: &Path, leaf: &AnyArray<B>) {
        self.push(self.name(path), Content::Text(leaf.to_string()));
    }

    fn constant(&mut self, path: &Path, value: &dyn StaticValue) {
        self.push(self.name(path), Content::Text(format!("{value:?}")));
    }

    fn static_field(&mut self, path: &Path, value: &dyn StaticValue) {
        self.push(self.name(path), Content::Value(format!("{value:?}"), format!("{value:#?}")));
    }

    fn enter(&mut self, _: &Path, node: Node<'_>) {
        let (name, bracket, end) = match node {
            Node::Leaf => return,
            Node::Struct("") | Node::Map => ("", "{", "}"),
            Node::Struct(name) => (name, " {", "}"),
            Node::Tuple(name) => (name, "(", ")"),
            Node::Sequence => ("", "[", "]"),
        };
        let begin = format!("{name}{bracket}");
        self.open.push(Group { begin, end, spaced: end == "}", items: vec![] });
    }

    fn exit(&mut self, path: &Path, node: Node<'_>) {
        if node != Node::Leaf
            && let Some(group) = self.open.pop()
        {
            self.push(self.name(path), Content::Group(group));
        }
    }
}
