use grove_tree::similar;
use thiserror::Error;

/// An error in building an optimizer from a configuration, or in reading a state.
#[derive(Error, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum OptimError {
    /// A value is invalid.
    #[error("`{name}` is {value}; it must be {expected}")]
    Value {
        /// Name of the option or argument.
        name: String,
        /// The value.
        value: String,
        /// Description of the valid values.
        expected: &'static str,
    },
    /// A pattern of frozen parameters matches no path.
    #[error("no path of the model matches `{pattern}`; its first paths are {}", first.join(", "))]
    UnmatchedPattern {
        /// The pattern.
        pattern: String,
        /// The first paths of the model.
        first: Vec<String>,
    },
    /// The text is not a valid configuration.
    #[error("invalid configuration of an optimizer: {0}")]
    Syntax(String),
    /// A state has no hyperparameter of this name.
    #[error(
        "the state has no hyperparameter `{name}`{}; its hyperparameters, those passed to `inject_hyperparams`, are: {}",
        meant(.name, .known), listed(.known)
    )]
    UnknownHyperparameter {
        /// The name.
        name: String,
        /// The paths of all hyperparameters.
        known: Vec<String>,
    },
    /// A state has several hyperparameters of this name.
    #[error("several hyperparameters are named `{name}`: give the path of one of them: {}", .known.join(", "))]
    AmbiguousHyperparameter {
        /// The name.
        name: String,
        /// The paths of all hyperparameters.
        known: Vec<String>,
    },
    /// The hyperparameter has no value: the state is a skeleton, or no parameter uses it.
    #[error("the hyperparameter `{path}` has no value: the state is a skeleton, or no parameter uses it")]
    AbsentHyperparameter {
        /// Path of the hyperparameter.
        path: String,
    },
}

// `fn main() -> Result<(), Box<dyn Error>>` prints `Debug`.
impl std::fmt::Debug for OptimError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

fn listed(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// Returns `, did you mean …?` if the name resembles the last segment of a known path.
fn meant(name: &str, known: &[String]) -> String {
    fn last(path: &str) -> &str {
        path.rsplit('.').next().unwrap_or(path)
    }
    let near = similar(name, known.iter().map(|path| last(path)));
    let path = near.first().and_then(|near| known.iter().find(|path| last(path) == *near));
    path.map(|path| format!(", did you mean `{path}`?")).unwrap_or_default()
}
