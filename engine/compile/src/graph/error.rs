//! Errors of writing and reading graphs.

/// Version of the format. A reader accepts this version and older ones.
pub(super) const VERSION: u64 = 1;

/// Error of writing or reading a graph.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GraphError {
    /// The text is not JSON, or its fields are not the fields of a graph.
    #[error("the text is not a graph: {0}; write it again with `Graph::to_json`")]
    Syntax(String),
    /// The text has a newer version of the format.
    #[error("the graph has version {found} of the format; this library reads versions up to {VERSION}: update grove")]
    Version {
        /// Version of the text.
        found: u64,
    },
    /// The graph cannot run.
    #[error("{place} of the graph: {reason}; the text was changed or damaged after `Graph::to_json` wrote it")]
    Invalid {
        /// The equation, variable, argument, constant or result with the defect.
        place: String,
        /// Description of the defect.
        reason: String,
    },
    /// The graph contains an operation that only some backends have.
    #[error(
        "equation {equation} is a fused chain, which only some backends run: write the graph that `trace` returns, not that of \
         a jitted function"
    )]
    Fused {
        /// Index of the equation.
        equation: usize,
    },
}

// `fn main() -> Result<(), Box<dyn Error>>` prints `Debug`.
impl std::fmt::Debug for GraphError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl GraphError {
    pub(super) fn invalid(place: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Invalid { place: place.into(), reason: reason.into() }
    }
}
