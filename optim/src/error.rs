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

/// The least number of letters to insert, delete or replace (Levenshtein).
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            let cost = replaced.min(row[j] + 1).min(row[j + 1] + 1);
            diagonal = std::mem::replace(&mut row[j + 1], cost);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::edits;

    #[test]
    fn distances() {
        assert_eq!((edits("adam", "adam"), edits("adamm", "adam"), edits("lion", "lamb")), (0, 1, 3));
        assert_eq!((edits("", "sgd"), edits("sgd", "")), (3, 3));
    }
}
