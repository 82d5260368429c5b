//! Suggestions of similar names, for error messages.

/// Returns `; did you mean ‘a’ or ‘b’?`, or an empty string.
pub(crate) fn did_you_mean(suggestions: &[String]) -> String {
    if suggestions.is_empty() { String::new() } else { format!("; did you mean `{}`?", suggestions.join("` or `")) }
}
