//! Cache of compiled kernels and autotuning results of the fusing backends, for later runs.

use cubecl::config::{CubeClRuntimeConfig, RuntimeConfig, autotune, cache::CacheConfig};
use std::{
    env, fs,
    path::{Path, PathBuf},
    time::Duration,
};

use super::{
    autotune::{AutotuneLevel, autotune_level},
    cache_folder,
};

/// Configures CubeCL's cache of autotuning results, and of compiled kernels if all its devices are of the `same` kind. The
/// folder is specific to this kind of `device`, because CubeCL's cache does not distinguish kinds. A configuration set by
/// the program is left unchanged. A configuration file (`cubecl.toml`) is respected, except for missing cache folders and
/// the [autotuning level](super::set_autotune_level) that the program has set.
///
/// # Errors
/// If a configuration file of CubeCL is invalid.
pub(super) fn set(device: &str, same: bool) -> Result<(), String> {
    if CubeClRuntimeConfig::storage().lock().is_some() {
        return Ok(());
    }
    let mut config = configured()?.override_from_env();
    if let Some(level) = autotune_level() {
        config.autotune.level = cubecl_level(level);
    }
    let folder = usable(&folder_of(device));
    if matches!(config.autotune.cache, CacheConfig::Target) {
        config.autotune.cache = CacheConfig::File(folder.clone());
    }
    if same && config.compilation.cache.is_none() {
        config.compilation.cache = Some(CacheConfig::File(folder));
    }
    CubeClRuntimeConfig::storage().lock().get_or_insert_with(|| config.into());
    Ok(())
}

fn cubecl_level(level: AutotuneLevel) -> autotune::AutotuneLevel {
    match level {
        AutotuneLevel::Minimal => autotune::AutotuneLevel::Minimal,
        AutotuneLevel::Balanced => autotune::AutotuneLevel::Balanced,
        AutotuneLevel::Extensive => autotune::AutotuneLevel::Extensive,
        AutotuneLevel::Full => autotune::AutotuneLevel::Full,
    }
}

/// Returns the configuration in the first of CubeCL's files in this folder or its parents. CubeCL itself panics on an
/// unreadable file.
fn configured() -> Result<CubeClRuntimeConfig, String> {
    let here = env::current_dir().unwrap_or_default();
    for folder in here.ancestors() {
        let whole = CubeClRuntimeConfig::file_names().iter().map(|&name| (name, None));
        let sections = CubeClRuntimeConfig::section_file_names().iter().map(|&(name, section)| (name, Some(section)));
        for (name, section) in whole.chain(sections) {
            let path = folder.join(name);
            let Ok(text) = fs::read_to_string(&path) else { continue };
            if let Some(config) = parsed(&text, section).map_err(|error| format!("{}: {error}", path.display()))? {
                return Ok(config);
            }
        }
    }
    Ok(CubeClRuntimeConfig::default())
}

/// Parses a file, or one section of it; `None` if the section is missing.
fn parsed(text: &str, section: Option<&str>) -> Result<Option<CubeClRuntimeConfig>, toml::de::Error> {
    let Some(section) = section else { return toml::from_str(text).map(Some) };
    let mut table: toml::Table = toml::from_str(text)?;
    table.remove(section).map(toml::Value::try_into).transpose()
}

fn folder_of(device: &str) -> PathBuf {
    let name = device.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '_' });
    cache_folder().unwrap_or_else(env::temp_dir).join("kernels").join(name.collect::<String>())
}

/// Returns the folder, or a folder for this process if it is not writable: CubeCL would retry for half a minute.
fn usable(folder: &Path) -> PathBuf {
    let probe = folder.join(format!("write-{}", std::process::id()));
    let written =
        fs::create_dir_all(folder).and_then(|()| fs::write(&probe, "a")).and_then(|()| fs::remove_file(&probe));
    match written {
        Ok(()) => {
            remove_old_locks(folder);
            folder.to_owned()
        }
        Err(_) => env::temp_dir().join(format!("grove-kernels-{}", std::process::id())),
    }
}

/// Removes the locks of killed processes. CubeCL holds a lock only briefly, but waits half a minute for another process's
/// lock.
fn remove_old_locks(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let age = || entry.metadata().ok()?.modified().ok()?.elapsed().ok();
        if path.is_dir() {
            remove_old_locks(&path);
        } else if path.extension().is_some_and(|end| end == "lock")
            && age().is_some_and(|age| age > Duration::from_secs(60))
        {
            // Another process may have removed the lock already.
            let _ = fs::remove_file(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_locks_are_removed_and_new_ones_kept() {
        let folder = env::temp_dir().join(format!("grove-locks-{}", std::process::id()));
        let deep = folder.join("autotune/0.10.0");
        fs::create_dir_all(&deep).unwrap();
        let files = ["old.json.log.lock", "new.json.log.lock", "old.json.log"].map(|name| deep.join(name));
        for file in &files {
            let file = fs::File::create(file).unwrap();
            file.set_modified(std::time::SystemTime::now() - Duration::from_secs(120)).unwrap();
        }
        fs::File::create(&files[1]).unwrap().set_modified(std::time::SystemTime::now()).unwrap();
        assert_eq!(usable(&folder), folder);
        assert_eq!(files.map(|file| file.exists()), [false, true, true]);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_folder_that_cannot_be_written_to_is_not_used() {
        let file = env::temp_dir().join(format!("grove-no-folder-{}", std::process::id()));
        fs::write(&file, "a").unwrap();
        assert!(usable(&file.join("kernels")).starts_with(env::temp_dir()));
        fs::remove_file(&file).unwrap();
    }

    #[test]
    fn configurations_are_read_or_refused() {
        let level = |config: CubeClRuntimeConfig| format!("{:?}", config.autotune.level);
        let whole = parsed("[autotune]\nlevel = \"full\"\n", None).unwrap().unwrap();
        let section = parsed("[cubecl.autotune]\nlevel = \"minimal\"\n", Some("cubecl")).unwrap().unwrap();
        assert_eq!((level(whole), level(section)), ("Full".into(), "Minimal".into()));
        assert!(parsed("[fusion]\n", Some("cubecl")).unwrap().is_none());
        let error = parsed("[autotune]\nlevel = \"fastest\"\n", None).unwrap_err().to_string();
        assert!(error.contains("fastest") && error.contains("line 2"), "{error}");
    }

    #[test]
    fn each_kind_of_device_has_a_folder() {
        let folder = folder_of("NVIDIA H200 sm_90, driver 12.8");
        assert!(folder.ends_with("kernels/NVIDIA_H200_sm_90__driver_12.8"));
    }
}
