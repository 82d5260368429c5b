//! CUDA's headers, which run-time compilation of kernels includes.

use std::{
    collections::{BTreeMap, hash_map::DefaultHasher},
    env,
    ffi::c_int,
    fs,
    hash::{Hash, Hasher},
    io,
    path::{Path, PathBuf},
};

use super::cache_folder;

/// Command that installs CUDA 12.8's run-time compiler and its headers. Drivers of that version or later accept its output.
pub(super) const PIP: &str = "`pip install nvidia-cuda-nvrtc-cu12==12.8.93 nvidia-cuda-runtime-cu12==12.8.90 \
                              nvidia-cuda-nvcc-cu12==12.8.93 nvidia-cuda-cccl-cu12==12.8.90` in an active virtual \
                              environment";

/// Headers that kernels need to compile, or to use tensor cores.
const HEADERS: [&str; 6] = ["cuda_runtime.h", "cuda_fp16.h", "cuda_bf16.h", "mma.h", "crt/mma.h", "cuda/barrier"];

/// Makes sure that the backend finds all headers of the compiler's major version: in its default location, in another
/// toolkit, or in a Python environment, whose packages are merged into one folder. `CUDA_PATH` is set if the headers are
/// not in the default location. The variable is set only while the process has a single thread: call this before the driver
/// is initialised, which may start threads.
pub(super) fn find(major: c_int) -> Result<(), String> {
    let root = usual_root();
    let lacking = match &root {
        Some(root) => lacking_in(root),
        None => HEADERS.to_vec(),
    };
    let other = root.as_deref().and_then(major_of).filter(|&found| found != major);
    if lacking.is_empty() && other.is_none() {
        return Ok(());
    }
    let elsewhere = toolkits().into_iter().find(|root| is_complete(root, major));
    let found = match elsewhere {
        Some(root) => Some(root),
        None => from_wheels(major).map_err(|error| format!("CUDA's headers cannot be collected: {error}"))?,
    };
    let Some(found) = found else {
        let place = match &root {
            Some(root) => format!("in {}", root.join("include").display()),
            None => "in /usr/local/cuda, /opt/cuda or the folder that CUDA_PATH names".to_owned(),
        };
        let wrong = match other {
            Some(other) => {
                format!("the headers {place} are from CUDA {other}, but the run-time compiler is from CUDA {major}")
            }
            None => format!("CUDA's header {}, which kernels need, is missing {place}", lacking.join(", ")),
        };
        return Err(format!(
            "{wrong}: {PIP}, or install the toolkit of CUDA {major}, on Debian and Ubuntu with `apt-get install \
             nvidia-cuda-toolkit`"
        ));
    };
    // On Windows, access to the environment is synchronised.
    if !cfg!(windows) && !grove_kernels::is_single_threaded() {
        return Err(format!(
            "CUDA's headers are in {0}, but CubeCL searches only CUDA_PATH, which a process with several threads \
             cannot set: set CUDA_PATH={0}, or probe for the device before any thread starts",
            found.display()
        ));
    }
    // SAFETY: except on Windows, where the call is safe, the check above shows that this is the only thread, so no other
    // thread can read the environment. Nothing in between starts a thread.
    unsafe { env::set_var("CUDA_PATH", found) };
    Ok(())
}

/// Returns true if complete headers of a compiler's major version were found.
pub(super) fn exist(major: c_int) -> bool {
    let toolkits = usual_root().into_iter().chain(toolkits());
    toolkits.into_iter().any(|root| is_complete(&root, major)) || !folders_of_wheels(major).is_empty()
}

/// Returns true if a toolkit has all headers, of a compiler's major version. NVRTC 12 cannot compile the headers of CUDA
/// 13.
fn is_complete(toolkit: &Path, major: c_int) -> bool {
    lacking_in(toolkit).is_empty() && major_of(toolkit).is_none_or(|found| found == major)
}

/// Returns the major version of a toolkit's headers, if `cuda_runtime_api.h` states it.
fn major_of(toolkit: &Path) -> Option<c_int> {
    let text = fs::read_to_string(toolkit.join("include/cuda_runtime_api.h")).ok()?;
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix("#define CUDART_VERSION"))?;
    let version: c_int = line.split_whitespace().next()?.parse().ok()?;
    Some(version / 1000)
}

/// Returns the missing headers of a toolkit.
fn lacking_in(toolkit: &Path) -> Vec<&'static str> {
    lacking(&[toolkit.join("include"), toolkit.join("include/cccl")])
}

/// Returns the headers that none of the folders has.
fn lacking(folders: &[PathBuf]) -> Vec<&'static str> {
    let is_there = |header: &&str| folders.iter().any(|folder| folder.join(header).is_file());
    HEADERS.into_iter().filter(|header| !is_there(header)).collect()
}

/// Returns the folder that CubeCL searches for a toolkit, by CubeCL's rule.
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

/// Returns folders that may be toolkits, best first: from environment variables, of `nvcc`, in the usual locations from the
/// newest version on, and conda's.
pub(super) fn toolkits() -> Vec<PathBuf> {
    let variables = ["CUDA_PATH", "CUDA_HOME", "CUDA_ROOT"].into_iter().filter_map(env::var_os).map(PathBuf::from);
    let of_nvcc = on_path("nvcc")
        .into_iter()
        .filter_map(|nvcc| fs::canonicalize(nvcc).ok()?.ancestors().nth(2).map(Path::to_owned));
    let usual = ["/usr/local/cuda", "/opt/cuda"].into_iter().map(PathBuf::from);
    let conda = env::var_os("CONDA_PREFIX").map(|prefix| PathBuf::from(prefix).join("targets/x86_64-linux"));
    variables.chain(of_nvcc).chain(usual).chain(versions("/usr/local".as_ref())).chain(conda).collect()
}

/// Returns the folders `cuda-MAJOR.MINOR` in a folder, the newest version first.
fn versions(folder: &Path) -> Vec<PathBuf> {
    let version = |path: &PathBuf| -> Option<(u32, u32)> {
        let (major, minor) = path.file_name()?.to_str()?.strip_prefix("cuda-")?.split_once('.')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    };
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut found: Vec<_> = entries.filter_map(|path| Some((version(&path)?, path))).collect();
    found.sort_by(|a, b| b.cmp(a));
    found.into_iter().map(|(_, path)| path).collect()
}

/// Returns the files with a name in the folders of PATH.
fn on_path(name: &str) -> Vec<PathBuf> {
    let folders = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&folders).map(|folder| folder.join(name)).filter(|file| file.is_file()).collect()
}

/// Returns the folders of NVIDIA's packages in the active Python environments and in that of the `python3` on PATH.
pub(super) fn wheels() -> Vec<PathBuf> {
    let active = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(env::var_os).map(PathBuf::from);
    let on_path = on_path("python3").into_iter().filter_map(|python| python.ancestors().nth(2).map(Path::to_owned));
    let pythons = active.chain(on_path).flat_map(|prefix| {
        let versions = fs::read_dir(prefix.join("lib")).into_iter().flatten().flatten().map(|entry| entry.path());
        versions.filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("python")))
    });
    let packages =
        pythons.flat_map(|python| ["site-packages", "dist-packages"].map(|name| python.join(name).join("nvidia")));
    packages.filter(|folder| folder.is_dir()).collect()
}

/// Returns a folder with a toolkit's layout that holds the headers of the Python packages.
fn from_wheels(major: c_int) -> io::Result<Option<PathBuf>> {
    let folders = folders_of_wheels(major);
    match (&folders[..], major) {
        ([], _) => Ok(None),
        // The packages of CUDA 13 share one folder with a toolkit's layout.
        ([toolkit], 13..) => Ok(Some(toolkit.clone())),
        _ => together(&folders).map(Some),
    }
}

/// Returns the first folders of Python packages that together have all headers of a major version: one toolkit folder for
/// CUDA 13, several include folders for CUDA 12.
fn folders_of_wheels(major: c_int) -> Vec<PathBuf> {
    let complete = |wheels: PathBuf| {
        if major >= 13 {
            let toolkit = wheels.join(format!("cu{major}"));
            return lacking_in(&toolkit).is_empty().then(|| vec![toolkit]);
        }
        let parts = ["cuda_runtime", "cuda_nvcc", "cuda_cccl", "cuda_nvrtc"];
        let folders: Vec<PathBuf> = parts.iter().map(|part| wheels.join(part).join("include")).collect();
        lacking(&folders).is_empty().then_some(folders)
    };
    wheels().into_iter().find_map(complete).unwrap_or_default()
}

/// Creates a folder in grove's cache whose `include` links to the contents of all the folders.
fn together(folders: &[PathBuf]) -> io::Result<PathBuf> {
    let entries = entries(folders);
    let mut hasher = DefaultHasher::new();
    entries.hash(&mut hasher);
    let cache = cache_folder().unwrap_or_else(env::temp_dir);
    let root = cache.join(format!("cuda-headers-{:016x}", hasher.finish()));
    if lacking(&[root.join("include")]).is_empty() {
        return Ok(root);
    }
    // A concurrent process creates the same contents.
    fs::create_dir_all(&cache)?;
    let own = cache.join(format!("cuda-headers-{}", std::process::id()));
    fs::create_dir_all(own.join("include"))?;
    link(&entries, &own.join("include"))?;
    if fs::rename(&own, &root).is_err() {
        fs::remove_dir_all(&own)?;
    }
    Ok(root)
}

/// Returns the paths of the folders' files and subfolders, grouped by name.
fn entries(folders: &[PathBuf]) -> BTreeMap<PathBuf, Vec<PathBuf>> {
    let mut entries = BTreeMap::<PathBuf, Vec<PathBuf>>::new();
    for entry in folders.iter().flat_map(|folder| fs::read_dir(folder).into_iter().flatten()).flatten() {
        entries.entry(entry.file_name().into()).or_default().push(entry.path());
    }
    entries
}

/// Creates links to the entries. If several folders have a subfolder of the same name, that subfolder is created and its
/// entries are linked.
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
    fn toolkits_are_of_one_major_version() {
        let place = env::temp_dir().join(format!("grove-major-{}", std::process::id()));
        for header in HEADERS.iter().chain(&["cuda_runtime_api.h"]) {
            let path = place.join("include").join(header);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "#define CUDART_VERSION  13000\n").unwrap();
        }
        assert_eq!(major_of(&place), Some(13));
        assert!(is_complete(&place, 13) && !is_complete(&place, 12));
        // CCCL's headers are in a folder of their own since CUDA 13.
        fs::create_dir_all(place.join("include/cccl")).unwrap();
        fs::rename(place.join("include/cuda"), place.join("include/cccl/cuda")).unwrap();
        assert!(is_complete(&place, 13));
        fs::remove_file(place.join("include/crt/mma.h")).unwrap();
        assert_eq!(lacking_in(&place), ["crt/mma.h"]);
        fs::remove_dir_all(&place).unwrap();
    }

    #[test]
    fn versions_are_sorted_from_the_newest() {
        let place = env::temp_dir().join(format!("grove-toolkits-{}", std::process::id()));
        for name in ["cuda-9.2", "cuda-13.0", "cuda-12.8", "cuda", "cuda-samples"] {
            fs::create_dir_all(place.join(name)).unwrap();
        }
        let names: Vec<_> = versions(&place).iter().map(|path| path.file_name().unwrap().to_owned()).collect();
        assert_eq!(names, ["cuda-13.0", "cuda-12.8", "cuda-9.2"]);
        fs::remove_dir_all(&place).unwrap();
    }

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
