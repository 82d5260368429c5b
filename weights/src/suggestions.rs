//! Names that may have been meant.

/// `; did you mean ‘a’ or ‘b’?`, or nothing.
pub(crate) fn did_you_mean(suggestions: &[String]) -> String {
    if suggestions.is_empty() { String::new() } else { format!("; did you mean `{}`?", suggestions.join("` or `")) }
}
