use std::{env, path::PathBuf};

/// Returns the folder of files compiled for later runs: `GROVE_CACHE`, or `grove` in the user's cache folder.
pub fn cache_folder() -> Option<PathBuf> {
    let variable = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let caches = || variable("XDG_CACHE_HOME").or_else(|| Some(env::home_dir()?.join(".cache")));
    variable("GROVE_CACHE").or_else(|| Some(caches()?.join("grove")))
}
