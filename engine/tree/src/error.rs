use thiserror::Error;

/// Two trees that should have the same structure have not, or leaves do not fit each other.
#[derive(Error, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TreeError {
    /// The trees have different structures: other paths, nodes, variants of enums or static fields.
    #[error("the trees differ in structure: the first has `{left}` where the second has `{right}`")]
    Structure {
        /// Path, and content where it is not a leaf, of the first place in the first tree that differs; `(nothing)` past its
        /// end.
        left: String,
        /// The same of the second tree.
        right: String,
    },
    /// A leaf is present in both trees that were to be combined.
    #[error("the leaf `{path}` is present in both trees; partition them with one filter and its negation")]
    Overlap {
        /// The leaf's path.
        path: String,
    },
    /// A leaf has another shape, dtype or kind than the one it replaces.
    #[error("the leaf `{path}` is {expected}, and {found} was put in its place")]
    Leaf {
        /// The leaf's path.
        path: String,
        /// The expected array, as `f32[3,4]`.
        expected: String,
        /// The given array.
        found: String,
    },
    /// A pattern of paths fits no leaf.
    #[error("the pattern `{pattern}` fits no path of this tree{}", nearest(.near))]
    Pattern {
        /// The pattern, as [`by_path`](crate::by_path) takes it.
        pattern: String,
        /// Paths of the tree that are near it.
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
        [one] => format!("; near it is: {one}"),
        several => format!("; near it are: {}", several.join(", ")),
    }
}
