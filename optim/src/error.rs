use grove_tree::edits;
use thiserror::Error;

/// An optimizer cannot be built from a configuration, or a state has not what was asked for.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum OptimError {
    /// There is no optimizer of that name.
    #[error("there is no optimizer `{name}`{}; there are: {}", meant(.name, .known), .known.join(", "))]
    UnknownOptimizer {
        /// The name.
        name: String,
        /// All names.
        known: Vec<String>,
    },
    /// An optimizer has no option of that name.
    #[error("{optimizer} has no option `{name}`{}; it has: {}", meant(.name, .known), .known.join(", "))]
    UnknownOption {
        /// The optimizer.
        optimizer: String,
        /// The option.
        name: String,
        /// The options that it has.
        known: Vec<String>,
    },
    /// A value does not make sense.
    #[error("`{name}` is {value}, and has to be {expected}")]
    Value {
        /// What has the value.
        name: String,
        /// The value.
        value: String,
        /// What it has to be.
        expected: &'static str,
    },
    /// The text is no configuration.
    #[error("this is no configuration of an optimizer: {0}")]
    Syntax(String),
    /// A state has no hyperparameter of that name.
    #[error(
        "there is no hyperparameter `{name}` in this state{}; there are: {} (only what `inject_hyperparams` was given is there)",
        meant(.name, .known), listed(.known)
    )]
    UnknownHyperparameter {
        /// The name.
        name: String,
        /// The paths of all hyperparameters.
        known: Vec<String>,
    },
    /// A state has several hyperparameters of that name.
    #[error("several hyperparameters are called `{name}`: say which by its path; there are: {}", .known.join(", "))]
    AmbiguousHyperparameter {
        /// The name.
        name: String,
        /// The paths of all hyperparameters.
        known: Vec<String>,
    },
    /// The state is a skeleton.
    #[error("the hyperparameter `{path}` has no value: the state is a skeleton")]
    AbsentHyperparameter {
        /// Where it is.
        path: String,
    },
}

fn listed(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// `, did you mean …?` for a name that is one or two letters away.
fn meant(name: &str, known: &[String]) -> String {
    let near = |other: &&String| edits(name, other.rsplit('.').next().unwrap_or(other)) <= 2;
    known.iter().find(near).map(|other| format!(", did you mean `{other}`?")).unwrap_or_default()
}
