//! Reports of what is compiled.

/// True if the environment asks for reports of what is compiled: `GROVE_LOG_COMPILES=1`.
pub fn logs_compiles() -> bool {
    std::env::var_os("GROVE_LOG_COMPILES").is_some_and(|value| value == "1")
}
