//! The structure of a tree: everything except the leaves' shapes, dtypes and values.

use grove_backend::Backend;
use std::{fmt, sync::OnceLock};

use crate::{AnyArray, Node, Path, StaticValue, Tree, TreeError, Visitor};

/// A value and, once needed, its [text](StaticValue::text_with_zero).
struct Constant {
    value: Box<dyn StaticValue>,
    zero: OnceLock<Option<String>>,
}

impl Constant {
    fn new(value: &dyn StaticValue) -> Self {
        Self { value: value.boxed(), zero: OnceLock::new() }
    }

    /// Returns true if the other value is identical, including the signs of zeros.
    fn is(&self, other: &dyn StaticValue) -> bool {
        let zero = || self.zero.get_or_init(|| self.value.text_with_zero());
        self.value.same(other) && zero().as_ref().is_none_or(|text| *text == format!("{other:?}"))
    }
}

/// The structure of a tree (`PyTreeDef` in JAX): names of structs and enum variants, paths, static fields, other values
/// that are not leaves, and the positions of the leaves. Shapes, dtypes and values of leaves are not part of the
/// structure.
///
/// If two structures are equal, [`zip_map`](crate::zip_map) and [`combine`](crate::combine) can pair the leaves of
/// their trees. A structure prints with a star for each leaf: `Linear { weight: *, bias: None }`.
#[derive(Default)]
pub struct Structure {
    items: Vec<Item>,
    /// The last path segment of each item, followed by the name of the node.
    text: String,
    leaves: usize,
}

/// A node, a leaf or a value, in the order of a walk.
struct Item {
    /// Number of enclosing nodes.
    depth: usize,
    /// End of the path segment in `text`.
    segment: usize,
    /// End of the name in `text`.
    name: usize,
    kind: Kind,
}

enum Kind {
    Leaf {
        buffer: bool,
    },
    Struct,
    Tuple,
    Sequence,
    Map,
    Value(Constant),
    /// Like `Value`, but not printed by [`display`](crate::display).
    Static(Constant),
}

impl Kind {
    fn same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Leaf { buffer }, Self::Leaf { buffer: other }) => buffer == other,
            (Self::Value(value), Self::Value(other)) | (Self::Static(value), Self::Static(other)) => {
                value.is(&*other.value)
            }
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }
}

/// Returns the structure of a tree (`jax.tree.structure`).
///
/// ```
/// # use grove_tree::{Array, structure};
/// # type B = burn_flex::Flex;
/// let pair = (Array::<B, 1>::absent([3]), 0.5);
/// assert_eq!(structure::<B, _>(&pair).to_string(), "(*, 0.5)");
/// assert_eq!(structure::<B, _>(&pair), structure::<B, _>(&(Array::<B, 1>::absent([7]), 0.5)));
/// assert_ne!(structure::<B, _>(&pair), structure::<B, _>(&(Array::<B, 1>::absent([3]), 0.1)));
/// ```
pub fn structure<B: Backend, T: Tree<B>>(tree: &T) -> Structure {
    let mut recorder = Recorder::default();
    tree.visit(&mut Path::root(), &mut recorder);
    recorder.structure
}

/// Returns an error if two trees differ in structure.
pub(crate) fn check_same<B: Backend, T: Tree<B>, U: Tree<B>>(left: &T, right: &U) -> Result<(), TreeError> {
    match structure(left).difference(&structure(right)) {
        Some([left, right]) => Err(TreeError::Structure { left, right }),
        None => Ok(()),
    }
}

#[derive(Default)]
struct Recorder {
    structure: Structure,
    depth: usize,
}

impl Recorder {
    fn add(&mut self, path: &Path, name: &str, kind: Kind) {
        let Structure { items, text, .. } = &mut self.structure;
        text.push_str(path.last());
        let segment = text.len();
        text.push_str(name);
        items.push(Item { depth: self.depth, segment, name: text.len(), kind });
    }
}

/// Returns the name and kind of a node that is not a leaf.
fn content(node: Node<'_>) -> Option<(&str, Kind)> {
    match node {
        Node::Leaf => None,
        Node::Struct(name) => Some((name, Kind::Struct)),
        Node::Tuple(name) => Some((name, Kind::Tuple)),
        Node::Sequence => Some(("", Kind::Sequence)),
        Node::Map => Some(("", Kind::Map)),
    }
}

impl<B: Backend> Visitor<B> for Recorder {
    fn leaf(&mut self, path: &Path, _: &AnyArray<B>) {
        self.structure.leaves += 1;
        self.add(path, "", Kind::Leaf { buffer: path.is_buffer() });
    }

    fn enter(&mut self, path: &Path, node: Node<'_>) {
        if let Some((name, kind)) = content(node) {
            self.add(path, name, kind);
            self.depth += 1;
        }
    }

    fn exit(&mut self, _: &Path, node: Node<'_>) {
        if node != Node::Leaf {
            self.depth -= 1;
        }
    }

    fn constant(&mut self, path: &Path, value: &dyn StaticValue) {
        self.add(path, "", Kind::Value(Constant::new(value)));
    }

    fn static_field(&mut self, path: &Path, value: &dyn StaticValue) {
        self.add(path, "", Kind::Static(Constant::new(value)));
    }
}

/// Compares a tree with a structure, item by item.
struct Matcher<'a> {
    structure: &'a Structure,
    next: usize,
    depth: usize,
    same: bool,
}

impl Matcher<'_> {
    /// Compares the next item.
    fn check(&mut self, path: &Path, name: &str, same_kind: impl FnOnce(&Kind) -> bool) {
        let (structure, i) = (self.structure, self.next);
        self.next += 1;
        self.same = self.same
            && structure.items.get(i).is_some_and(|item| item.depth == self.depth && same_kind(&item.kind))
            && structure.segment(i) == path.last()
            && structure.name(i) == name;
    }
}

impl<B: Backend> Visitor<B> for Matcher<'_> {
    fn leaf(&mut self, path: &Path, _: &AnyArray<B>) {
        let buffer = path.is_buffer();
        self.check(path, "", |kind| matches!(kind, Kind::Leaf { buffer: other } if *other == buffer));
    }

    fn enter(&mut self, path: &Path, node: Node<'_>) {
        if let Some((name, kind)) = content(node) {
            self.check(path, name, |other| other.same(&kind));
            self.depth += 1;
        }
    }

    fn exit(&mut self, _: &Path, node: Node<'_>) {
        if node != Node::Leaf {
            self.depth -= 1;
        }
    }

    fn constant(&mut self, path: &Path, value: &dyn StaticValue) {
        self.check(path, "", |kind| matches!(kind, Kind::Value(other) if other.is(value)));
    }

    fn static_field(&mut self, path: &Path, value: &dyn StaticValue) {
        self.check(path, "", |kind| matches!(kind, Kind::Static(other) if other.is(value)));
    }
}

impl Structure {
    /// Returns true if a tree has this structure, without building the structure of that tree.
    ///
    /// ```
    /// # use grove_tree::{Array, structure};
    /// # type B = burn_flex::Flex;
    /// let pair = (Array::<B, 1>::absent([3]), 0.5);
    /// assert!(structure::<B, _>(&pair).is_of::<B, _>(&(Array::<B, 1>::absent([7]), 0.5)));
    /// assert!(!structure::<B, _>(&pair).is_of::<B, _>(&(Array::<B, 1>::absent([3]), 0.1)));
    /// ```
    pub fn is_of<B: Backend, T: Tree<B>>(&self, tree: &T) -> bool {
        let mut matcher = Matcher { structure: self, next: 0, depth: 0, same: true };
        tree.visit(&mut Path::root(), &mut matcher);
        matcher.same && matcher.next == self.items.len()
    }

    /// Returns the number of leaves.
    pub fn leaf_count(&self) -> usize {
        self.leaves
    }

    /// Returns path and content of the first mismatch in each of two structures; `None` if they are equal.
    pub fn difference(&self, other: &Self) -> Option<[String; 2]> {
        if self == other {
            return None;
        }
        let count = self.items.len().max(other.items.len());
        let at = (0..count).find(|&i| !self.same_item(other, i))?;
        let (left, right) = (self.describe(at), other.describe(at));
        Some([left, right])
    }

    fn same_item(&self, other: &Self, i: usize) -> bool {
        let (Some(left), Some(right)) = (self.items.get(i), other.items.get(i)) else { return false };
        left.depth == right.depth
            && self.segment(i) == other.segment(i)
            && self.name(i) == other.name(i)
            && left.kind.same(&right.kind)
    }

    fn segment(&self, i: usize) -> &str {
        let begin = i.checked_sub(1).map_or(0, |before| self.items[before].name);
        &self.text[begin..self.items[i].segment]
    }

    fn name(&self, i: usize) -> &str {
        &self.text[self.items[i].segment..self.items[i].name]
    }

    /// Formats path and content of an item: `blocks.0: Attention { .. }`, `rate: 0.1`, `head.bias`.
    fn describe(&self, i: usize) -> String {
        let Some(item) = self.items.get(i) else { return "(nothing)".to_owned() };
        let mut segments = Vec::new();
        let mut depth = item.depth + 1;
        for j in (0..=i).rev() {
            if self.items[j].depth < depth {
                depth = self.items[j].depth;
                segments.push(self.segment(j));
            }
        }
        segments.retain(|segment| !segment.is_empty());
        segments.reverse();
        let path = segments.join(".");
        let name = self.name(i);
        let content = match &item.kind {
            Kind::Leaf { .. } => return if path.is_empty() { "(leaf)".to_owned() } else { path },
            Kind::Struct => format!("{name} {{ .. }}"),
            Kind::Tuple => format!("{name}(..)"),
            Kind::Sequence => "[..]".to_owned(),
            Kind::Map => "{ .. }".to_owned(),
            Kind::Value(constant) | Kind::Static(constant) => format!("{:?}", constant.value),
        };
        if path.is_empty() { content } else { format!("{path}: {content}") }
    }

    /// Writes item `i` and its content. Returns the index of the next item.
    fn write(&self, f: &mut fmt::Formatter<'_>, i: usize) -> Result<usize, fmt::Error> {
        let item = &self.items[i];
        let name = self.name(i);
        let (open, close, named) = match &item.kind {
            Kind::Leaf { .. } => {
                f.write_str("*")?;
                return Ok(i + 1);
            }
            Kind::Value(constant) | Kind::Static(constant) => {
                write!(f, "{:?}", constant.value)?;
                return Ok(i + 1);
            }
            Kind::Struct if !name.is_empty() => (" { ", " }", true),
            Kind::Struct | Kind::Map => ("{ ", " }", true),
            Kind::Tuple => ("(", ")", false),
            Kind::Sequence => ("[", "]", false),
        };
        write!(f, "{name}{open}")?;
        let mut next = i + 1;
        while self.items.get(next).is_some_and(|inner| inner.depth > item.depth) {
            if next > i + 1 {
                f.write_str(", ")?;
            }
            if named {
                write!(f, "{}: ", self.segment(next))?;
            }
            next = self.write(f, next)?;
        }
        f.write_str(close)?;
        Ok(next)
    }
}

impl PartialEq for Structure {
    fn eq(&self, other: &Self) -> bool {
        let same = |(left, right): (&Item, &Item)| {
            (left.depth, left.segment, left.name) == (right.depth, right.segment, right.name)
                && left.kind.same(&right.kind)
        };
        self.text == other.text
            && self.items.len() == other.items.len()
            && self.items.iter().zip(&other.items).all(same)
    }
}

impl fmt::Display for Structure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.items.is_empty() {
            return Ok(());
        }
        self.write(f, 0).map(drop)
    }
}

impl fmt::Debug for Structure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
