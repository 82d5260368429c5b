//! Logging of compilations.

/// Returns true if compilations are reported: the environment variable `GROVE_LOG_COMPILES` is `1`.
pub fn logs_compiles() -> bool {
    std::env::var_os("GROVE_LOG_COMPILES").is_some_and(|value| value == "1")
}
