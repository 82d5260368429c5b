//! Search for plugins.

use grove_communicator::Communicator;
use std::{
    collections::HashSet,
    env,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    client::Client,
    error::{self, XlaError},
    platform::Platform,
    plugin::{NamedValue, Plugin},
};

/// A plugin file, and the reason for trying it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Path of the library.
    pub path: PathBuf,
    /// The platform, if its location determines it.
    pub platform: Option<Platform>,
    /// The variable or folder that contained it.
    pub source: String,
}

/// No plugin could be started.
#[derive(Clone, thiserror::Error)]
#[error("{}", self.sentence())]
pub struct NotFound {
    /// The requested platform.
    pub platform: Option<Platform>,
    /// The plugins that were tried, each with the reason why it did not start.
    pub tried: Vec<(Candidate, String)>,
}

// `fn main() -> Result<(), Box<dyn Error>>` prints `Debug`.
impl std::fmt::Debug for NotFound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl NotFound {
    /// Returns a short list of the plugins tried, and the command that installs a plugin.
    pub fn short(&self) -> String {
        let tried: Vec<String> =
            self.tried.iter().map(|(candidate, reason)| format!("{}: {reason}", candidate.path.display())).collect();
        let found = if tried.is_empty() { "no plugin is installed".to_owned() } else { tried.join("\n") };
        let platforms = self.platform.map_or(Platform::ALL.to_vec(), |one| vec![one]);
        let install: Vec<&str> = platforms.into_iter().map(Platform::install).collect();
        format!("{found}; {}", install.join(", or "))
    }

    fn sentence(&self) -> String {
        let requested = self.platform.map_or("XLA".into(), |platform| format!("xla:{platform}"));
        let tried: Vec<String> = self
            .tried
            .iter()
            .map(|(candidate, reason)| {
                format!("\n  {} (from {}): {reason}", candidate.path.display(), candidate.source)
            })
            .collect();
        let platforms = self.platform.map_or(vec![Platform::Cpu, Platform::Cuda, Platform::Tpu], |one| vec![one]);
        let install: Vec<String> =
            platforms.iter().map(|platform| format!("\n  {platform}: {}", platform.install())).collect();
        let found = if tried.is_empty() {
            "no plugin was found".into()
        } else {
            format!("none of these starts:{}", tried.concat())
        };
        format!(
            "no device for {requested}: {found}\nInstall a plugin in an active virtual environment with one \
             of\n{}\nor set GROVE_PJRT_PLUGIN to the path of its library",
            install.concat().trim_start_matches('\n')
        )
    }
}

/// Returns the plugins of this machine in the order in which they are tried. `variable` returns the text of an environment
/// variable, like [`std::env::var_os`].
///
/// The order is `GROVE_PJRT_PLUGIN`; `PJRT_NAMES_AND_LIBRARY_PATHS` (`name:path`, separated by commas);
/// `PJRT_PLUGIN_LIBRARY_PATH`; `TPU_LIBRARY_PATH`; the Python packages of the active environment (`VIRTUAL_ENV`, `CONDA_PREFIX`);
/// the folders of `LD_LIBRARY_PATH`; the system's library folders, such as `/usr/local/lib`. Python is not run. A library that is
/// found twice is tried once.
pub fn candidates(platform: Option<Platform>, variable: impl Fn(&str) -> Option<String>) -> Vec<Candidate> {
    search(platform, variable, system_folders())
}

/// Returns the system's library folders.
fn system_folders() -> Vec<PathBuf> {
    let of_architecture = format!("{}-linux-gnu", env::consts::ARCH);
    let folders = ["/usr/local/lib", "/usr/local/lib64", "/usr/lib", "/usr/lib64"].map(PathBuf::from);
    folders
        .iter()
        .cloned()
        .chain(["/usr/local/lib", "/usr/lib"].map(|root| Path::new(root).join(&of_architecture)))
        .collect()
}

/// [`candidates`] with given system library folders.
fn search(
    platform: Option<Platform>,
    variable: impl Fn(&str) -> Option<String>,
    system: Vec<PathBuf>,
) -> Vec<Candidate> {
    let given = |name: &str| variable(name).filter(|value| !value.is_empty());
    let mut found = Vec::new();
    let mut add = |path: &str, platform: Option<Platform>, source: &str| {
        found.push(Candidate { path: path.into(), platform, source: source.into() });
    };
    if let Some(path) = given("GROVE_PJRT_PLUGIN") {
        add(&path, None, "GROVE_PJRT_PLUGIN");
    }
    for entry in given("PJRT_NAMES_AND_LIBRARY_PATHS").iter().flat_map(|list| list.split(',')) {
        if let Some((name, path)) = entry.split_once(':') {
            let known = Platform::ALL.into_iter().find(|platform| name.trim() == platform.to_string());
            add(path.trim(), known, "PJRT_NAMES_AND_LIBRARY_PATHS");
        }
    }
    for (name, platform) in [("PJRT_PLUGIN_LIBRARY_PATH", None), ("TPU_LIBRARY_PATH", Some(Platform::Tpu))] {
        if let Some(path) = given(name) {
            add(&path, platform, name);
        }
    }
    for name in ["VIRTUAL_ENV", "CONDA_PREFIX"] {
        let Some(root) = given(name) else { continue };
        for platform in Platform::ALL {
            for file in platform.files() {
                // The first `*` also matches lib64.
                for path in matches(Path::new(&root), &format!("lib*/python*/site-packages/{file}")) {
                    found.push(Candidate { path, platform: Some(platform), source: name.into() });
                }
            }
        }
    }
    let variable = given("LD_LIBRARY_PATH").unwrap_or_default();
    // An empty entry would mean the working directory.
    let given = env::split_paths(&variable).filter(|folder| !folder.as_os_str().is_empty()).collect();
    for (source, folders) in [("LD_LIBRARY_PATH", given), ("the system's libraries", system)] {
        for platform in Platform::ALL {
            let names =
                |folder: &PathBuf| platform.libraries().iter().map(|name| folder.join(name)).collect::<Vec<_>>();
            for path in folders.iter().flat_map(names).filter(|path| path.is_file()) {
                found.push(Candidate { path, platform: Some(platform), source: source.into() });
            }
        }
    }
    found.retain(|candidate| candidate.platform.is_none() || platform.is_none() || candidate.platform == platform);
    // In many environments, lib64 is a link to lib.
    let mut seen = HashSet::new();
    found.retain(|candidate| seen.insert(candidate.path.canonicalize().unwrap_or_else(|_| candidate.path.clone())));
    found
}

/// Starts the first working plugin, of one platform or of any, with options for its client.
///
/// # Errors
/// If no plugin starts: the error has a sentence for each plugin tried, and the commands that install one.
pub fn find(
    platform: Option<Platform>,
    options: &[(String, NamedValue)],
) -> Result<(Candidate, Arc<Plugin>, Client), NotFound> {
    first(platform, |plugin| Client::new(plugin, options))
}

/// Like [`find`], for a client that all ranks of a job create together; see [`Client::of_ranks`]. Every rank must call this
/// function with the same platform.
///
/// # Errors
/// If no plugin starts, on this rank or another one.
pub fn find_of_ranks(
    platform: Platform,
    options: &[(String, NamedValue)],
    ranks: &Communicator,
) -> Result<(Candidate, Arc<Plugin>, Client), NotFound> {
    // One store for all candidates, because ranks may have different numbers of candidates.
    let store = ranks.key_value_store();
    first(Some(platform), |plugin| Client::of_ranks_with(plugin, platform, options, ranks, &store))
}

/// Returns the first plugin whose client starts.
fn first(
    platform: Option<Platform>,
    start: impl Fn(&Arc<Plugin>) -> error::Result<Client>,
) -> Result<(Candidate, Arc<Plugin>, Client), NotFound> {
    let mut tried = Vec::new();
    for candidate in candidates(platform, |name| env::var(name).ok()) {
        let started = Plugin::load(&candidate.path).and_then(|plugin| {
            let client = start(&plugin)?;
            Ok((plugin, client))
        });
        match started {
            Ok((_, client)) if !is_of(platform, &client) => {
                tried.push((candidate, format!("its devices are of the platform {}", client.platform())));
            }
            Ok((plugin, client)) => return Ok((candidate, plugin, client)),
            Err(error) => tried.push((candidate, reason(&error))),
        }
    }
    Err(NotFound { platform, tried })
}

/// Returns true if the devices of a client belong to a platform.
fn is_of(platform: Option<Platform>, client: &Client) -> bool {
    platform.is_none_or(|platform| client.platform().eq_ignore_ascii_case(&platform.to_string()))
}

/// Returns the first line of an error.
fn reason(error: &XlaError) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

/// Returns the files below a folder whose paths match a pattern; a `*` matches any part of a name.
fn matches(root: &Path, pattern: &str) -> Vec<PathBuf> {
    let mut found = vec![root.to_owned()];
    for part in pattern.split('/') {
        let Some((start, end)) = part.split_once('*') else {
            found.iter_mut().for_each(|path| path.push(part));
            continue;
        };
        let fits = |name: &str| name.len() >= part.len() - 1 && name.starts_with(start) && name.ends_with(end);
        let mut next: Vec<PathBuf> = found
            .iter()
            .filter_map(|path| path.read_dir().ok())
            .flat_map(|entries| entries.filter_map(Result::ok))
            .filter(|entry| entry.file_name().to_str().is_some_and(fits))
            .map(|entry| entry.path())
            .collect();
        next.sort();
        found = next;
    }
    found.retain(|path| path.is_file());
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn plugins_are_searched_in_order() {
        let root = tempfile::tempdir().unwrap();
        let packages = root.path().join("lib/python3.12/site-packages");
        for file in ["xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so", "jax_plugins/xla_cuda12/xla_cuda_plugin.so"] {
            fs::create_dir_all(packages.join(file).parent().unwrap()).unwrap();
            fs::write(packages.join(file), "").unwrap();
        }
        let variable = |name: &str| match name {
            "GROVE_PJRT_PLUGIN" => Some("/a.so".to_owned()),
            "PJRT_NAMES_AND_LIBRARY_PATHS" => Some("cpu:/b.so,tpu:/c.so,broken".to_owned()),
            "TPU_LIBRARY_PATH" => Some(String::new()),
            "VIRTUAL_ENV" => Some(root.path().display().to_string()),
            _ => None,
        };
        let names = |platform| {
            let found = candidates(platform, variable);
            found.iter().map(|found| found.path.file_name().unwrap().to_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(names(None), ["a.so", "b.so", "c.so", "xla_cuda_plugin.so", "xla_cpu_pjrt.so"]);
        assert_eq!(names(Some(Platform::Cpu)), ["a.so", "b.so", "xla_cpu_pjrt.so"]);
        assert_eq!(names(Some(Platform::Tpu)), ["a.so", "c.so"]);
        assert!(search(None, |_| None, vec![]).is_empty());
    }

    #[cfg(unix)]
    #[test]
    fn folders_of_libraries_come_last() {
        let root = tempfile::tempdir().unwrap();
        let add = |file: &str| {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "").unwrap();
            path
        };
        let system = add("usr/lib/libtpu.so");
        let built = add("usr/lib/pjrt_c_api_cpu_plugin.so");
        let (cpu, cuda) = (add("one/xla_cpu_pjrt.so"), add("two/xla_cuda_plugin.so"));
        let package = add("venv/lib64/python3.13/site-packages/libtpu/libtpu.so");
        add("one/libxla.so");
        std::os::unix::fs::symlink(root.path().join("venv/lib64"), root.path().join("venv/lib")).unwrap();
        let variable = |name: &str| match name {
            "GROVE_PJRT_PLUGIN" => Some("/a.so".to_owned()),
            "VIRTUAL_ENV" => Some(root.path().join("venv").display().to_string()),
            "LD_LIBRARY_PATH" => Some(format!("{0}/one::{0}/none:{0}/two:{0}/one", root.path().display())),
            _ => None,
        };
        let found = search(None, variable, vec![root.path().join("usr/lib")]);
        let paths: Vec<PathBuf> =
            found.iter().map(|found| found.path.canonicalize().unwrap_or("/a.so".into())).collect();
        assert_eq!(paths, [&*PathBuf::from("/a.so"), &package, &cuda, &cpu, &system, &built]);
        let sources: Vec<&str> = found.iter().map(|found| &*found.source).collect();
        let (libraries, system) = ("LD_LIBRARY_PATH", "the system's libraries");
        assert_eq!(sources, ["GROVE_PJRT_PLUGIN", "VIRTUAL_ENV", libraries, libraries, system, system]);
        let folders = system_folders();
        let architecture = PathBuf::from(format!("/usr/lib/{}-linux-gnu", env::consts::ARCH));
        assert!(folders.contains(&"/usr/local/lib".into()) && folders.contains(&architecture), "{folders:?}");
    }

    #[test]
    fn the_error_names_what_was_tried_and_what_to_install() {
        let candidate = Candidate { path: "/a.so".into(), platform: None, source: "GROVE_PJRT_PLUGIN".into() };
        let tried = vec![(candidate, "the file does not exist".to_owned())];
        let text = NotFound { platform: Some(Platform::Cuda), tried }.to_string();
        for part in
            ["xla:cuda", "/a.so (from GROVE_PJRT_PLUGIN): the file does not exist", "pip install \"jax[cuda12]\""]
        {
            assert!(text.contains(part), "{text}");
        }
        let text = NotFound { platform: None, tried: vec![] }.to_string();
        assert!(
            text.contains("no plugin was found") && text.contains("xla-cpu-pjrt") && text.contains("libtpu"),
            "{text}"
        );
    }
}
