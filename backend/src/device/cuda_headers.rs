//! CUDA's headers, which kernels include when they are compiled at run time.

use std::{
    collections::{BTreeMap, hash_map::DefaultHasher},
    env, fs,
    hash::{Hash, Hasher},
    io,
    path::{Path, PathBuf},
};

use super::{cache_folder, cuda::PIP};

/// Headers without which kernels do not compile, or silently lose tensor cores.
const HEADERS: [&str; 6] = ["cuda_runtime.h", "cuda_fp16.h", "cuda_bf16.h", "mma.h", "crt/mma.h", "cuda/barrier"];

/// Makes sure that the backend finds all headers: in its default location, or in a Python environment, whose packages
/// are joined in a folder that `CUDA_PATH` then names. That variable is set only while the process has a single thread:
/// call this before the driver is initialised, which may start some.
pub(super) fn find() -> Result<(), String> {
    let root = usual_root();
    let lacking = match &root {
        Some(root) => lacking_in(root),
        None => HEADERS.to_vec(),
    };
    if lacking.is_empty() {
        return Ok(());
    }
    let elsewhere = toolkits().into_iter().find(|root| lacking_in(root).is_empty());
    let found = match elsewhere {
        Some(root) => Some(root),
        None => from_wheels().map_err(|error| format!("CUDA's headers cannot be put together: {error}"))?,
    };
    let Some(found) = found else {
        let place = match root {
            Some(root) => format!("in {}", root.join("include").display()),
            None => "in /usr/local/cuda, /opt/cuda or the folder that CUDA_PATH names".to_owned(),
        };
        return Err(format!(
            "of CUDA's headers, from which kernels are compiled, there is no {} {place}: {PIP}, or install CUDA 12's toolkit, \
             on Debian and Ubuntu with `apt-get install nvidia-cuda-toolkit`",
            lacking.join(", ")
        ));
    };
    // Windows' environment is synchronised.
    if !cfg!(windows) && !grove_kernels::is_single_threaded() {
        return Err(format!(
            "CUDA's headers are in {0}, and CubeCL looks for them where CUDA_PATH says, which a process with several threads \
             cannot set for itself: set CUDA_PATH={0}, or probe for the device before any thread is started",
            found.display()
        ));
    }
    // SAFETY: except on Windows, where the call is safe, the check above shows that no other thread may read the
    // environment. Nothing in between starts one.
    unsafe { env::set_var("CUDA_PATH", found) };
    Ok(())
}

/// Returns the headers that a toolkit lacks.
fn lacking_in(toolkit: &Path) -> Vec<&'static str> {
    lacking(&[toolkit.join("include"), toolkit.join("include/cccl")])
}

/// Returns the headers that are in none of the folders.
fn lacking(folders: &[PathBuf]) -> Vec<&'static str> {
    let is_there = |header: &&str| folders.iter().any(|folder| folder.join(header).is_file());
    HEADERS.into_iter().filter(|header| !is_there(header)).collect()
}

/// Returns the folder in which CubeCL looks for a toolkit, by its rule.
fn usual_root() -> Option<PathBuf> {
    if let Some(path) = env::var_os("CUDA_PATH") {
        return Some(path.into());
    }
    if cfg!(target_os = "windows") {
        return Some("C:/Program Files/NVIDIA GPU Computing Toolkit/CUDA/".into());
    }
    let folders = ["/usr/local/cuda", "/opt/cuda"].into_iter().map(PathBuf::from);
    let nvcc = || Path::new("/usr/bin/nvcc").exists().then(|| PathBuf::from("/usr"));
    folders.into_iter().find(|path| path.exists()).or_else(nvcc)
}

/// Returns folders that may be toolkits, best first.
pub(super) fn toolkits() -> Vec<PathBuf> {
    let variables = ["CUDA_PATH", "CUDA_HOME", "CUDA_ROOT"].into_iter().filter_map(env::var_os).map(PathBuf::from);
    let conda = env::var_os("CONDA_PREFIX").map(|prefix| PathBuf::from(prefix).join("targets/x86_64-linux"));
    variables.chain(["/usr/local/cuda".into(), "/opt/cuda".into()]).chain(conda).collect()
}

/// Returns the folders of NVIDIA's packages in the active Python environments.
pub(super) fn wheels() -> Vec<PathBuf> {
    let prefixes = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(env::var_os).map(PathBuf::from);
    let pythons = prefixes.flat_map(|prefix| {
        let versions = fs::read_dir(prefix.join("lib")).into_iter().flatten().flatten().map(|entry| entry.path());
        versions.filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("python")))
    });
    pythons.map(|python| python.join("site-packages/nvidia")).filter(|folder| folder.is_dir()).collect()
}

/// Returns a folder with the layout of a toolkit that has the headers of the Python packages.
fn from_wheels() -> io::Result<Option<PathBuf>> {
    for wheels in wheels() {
        let parts = ["cuda_runtime", "cuda_nvcc", "cuda_cccl", "cuda_nvrtc"];
        let folders: Vec<PathBuf> = parts.iter().map(|part| wheels.join(part).join("include")).collect();
        if lacking(&folders).is_empty() {
            return together(&folders).map(Some);
        }
    }
    Ok(None)
}

/// Creates, in grove's cache, a folder whose `include` has links to the content of all the folders.
fn together(folders: &[PathBuf]) -> io::Result<PathBuf> {
    let entries = entries(folders);
    let mut hasher = DefaultHasher::new();
    entries.hash(&mut hasher);
    let cache = cache_folder().unwrap_or_else(env::temp_dir);
    let root = cache.join(format!("cuda-headers-{:016x}", hasher.finish()));
    if lacking(&[root.join("include")]).is_empty() {
        return Ok(root);
    }
    // A concurrent process creates the same content.
    fs::create_dir_all(&cache)?;
    let own = cache.join(format!("cuda-headers-{}", std::process::id()));
    fs::create_dir_all(own.join("include"))?;
    link(&entries, &own.join("include"))?;
    if fs::rename(&own, &root).is_err() {
        fs::remove_dir_all(&own)?;
    }
    Ok(root)
}

/// Returns the paths of the folders' files and subfolders by name.
fn entries(folders: &[PathBuf]) -> BTreeMap<PathBuf, Vec<PathBuf>> {
    let mut entries = BTreeMap::<PathBuf, Vec<PathBuf>>::new();
    for entry in folders.iter().flat_map(|folder| fs::read_dir(folder).into_iter().flatten()).flatten() {
        entries.entry(entry.file_name().into()).or_default().push(entry.path());
    }
    entries
}

/// Creates links to the entries. If several folders have an entry of the same name, a folder with links is created.
fn link(entries: &BTreeMap<PathBuf, Vec<PathBuf>>, to: &Path) -> io::Result<()> {
    for (name, places) in entries {
        let folders: Vec<PathBuf> = places.iter().filter(|place| place.is_dir()).cloned().collect();
        if folders.len() > 1 {
            fs::create_dir_all(to.join(name))?;
            link(&self::entries(&folders), &to.join(name))?;
        } else {
            symlink(&places[0], &to.join(name))?;
        }
    }
    Ok(())
}

#[cfg(unix)]
fn symlink(place: &Path, link: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(place, link)
}

#[cfg(windows)]
fn symlink(place: &Path, link: &Path) -> io::Result<()> {
    if place.is_dir() {
        std::os::windows::fs::symlink_dir(place, link)
    } else {
        std::os::windows::fs::symlink_file(place, link)
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn folders_of_one_name_are_merged() {
        let place = env::temp_dir().join(format!("grove-headers-{}", std::process::id()));
        let folders = ["a", "b"].map(|name| place.join(name));
        for (folder, files) in folders.iter().zip([["one.h", "crt/left.h"], ["two.h", "crt/right.h"]]) {
            fs::create_dir_all(folder.join("crt")).unwrap();
            for file in files {
                fs::write(folder.join(file), file).unwrap();
            }
        }
        let to = place.join("include");
        fs::create_dir_all(&to).unwrap();
        link(&entries(&folders), &to).unwrap();
        for file in ["one.h", "two.h", "crt/left.h", "crt/right.h"] {
            assert_eq!(fs::read_to_string(to.join(file)).unwrap(), file);
        }
        fs::remove_dir_all(&place).unwrap();
    }
}
