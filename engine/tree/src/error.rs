use thiserror::Error;

use crate::leaf_name;

/// A mismatch between two trees, or between a tree and a pattern of paths.
#[derive(Error, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TreeError {
    /// The trees have different structures: paths, nodes, enum variants or static fields differ.
    #[error("the trees differ in structure: the first has `{left}` where the second has `{right}`")]
    Structure {
        /// First mismatch, in the first tree: its path, and its content unless it is a leaf; `(nothing)` past the end
        /// of the tree.
        left: String,
        /// First mismatch, in the second tree.
        right: String,
    },
    /// A leaf is present in both trees passed to `combine`.
    #[error("the {} is present in both trees; partition them with one filter and its negation", leaf_name("leaf", .path))]
    Overlap {
        /// Path of the leaf.
        path: String,
    },
    /// The shape, dtype or kind of a leaf differs from the leaf that it replaces.
    #[error("the {} is {expected} and cannot be replaced by {found}", leaf_name("leaf", .path))]
    Leaf {
        /// Path of the leaf.
        path: String,
        /// Expected array, such as `f32[3,4]`.
        expected: String,
        /// Array that was given.
        found: String,
    },
    /// A pattern of paths matches no leaf.
    #[error("the pattern `{pattern}` matches no path of this tree{}", nearest(.near))]
    Pattern {
        /// The pattern, in the syntax of [`by_path`](crate::by_path).
        pattern: String,
        /// Similar paths in the tree.
        near: Vec<String>,
    },
}

// `fn main() -> Result<(), Box<dyn Error>>` prints `Debug`.
impl std::fmt::Debug for TreeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

fn nearest(near: &[String]) -> String {
    match near {
        [] => ", which has no leaves".to_owned(),
        [one] => format!("; similar path: {one}"),
        several => format!("; similar paths: {}", several.join(", ")),
    }
}
