//! Checks of the CUDA installation before the fusing backend is used. If something is missing, the backend would panic on a
//! thread of its own.

use std::{
    collections::BTreeSet,
    ffi::{c_char, c_int},
    fs,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use super::{
    cuda_headers::{self, PIP},
    driver::{Driver, Missing, SharedLibrary, load_any},
    kernel_cache,
};

/// Returns the number of GPUs, after checking everything that the first kernel needs. The first result is kept.
pub(super) fn devices() -> Result<usize, String> {
    static ANSWER: OnceLock<Result<usize, String>> = OnceLock::new();
    ANSWER.get_or_init(prepare).clone()
}

fn prepare() -> Result<usize, String> {
    const LIBRARIES: [&str; 3] = ["libcuda.so.1", "libcuda.so", "nvcuda.dll"];
    let missing = |missing: Missing| missing.explain("NVIDIA", "libcuda.so.1");
    // Compiler and headers are located before the driver is initialised, which may start threads. Their errors are reported
    // last, because the driver is missing on most machines. The driver reports its version without initialisation.
    let library = load_any(&LIBRARIES).ok_or(Missing::Library).map_err(missing)?;
    let driver_version = driver_version(&library).map_err(missing)?;
    let compiler = Compiler::find(driver_version);
    let headers = match &compiler {
        Ok(compiler) => cuda_headers::find(compiler.version.major),
        Err(_) => Ok(()),
    };
    let driver = Driver { libraries: &LIBRARIES, init: b"cuInit\0", count: b"cuDeviceGetCount\0", no_device: 100 };
    let (driver, count) = driver.open().map_err(missing)?;
    let gpus = (0..count).map(|index| Gpu::read(&driver, index)).collect::<Result<Vec<_>, _>>().map_err(missing)?;
    let compiler = compiler?;
    compiler.check(driver_version, &gpus)?;
    headers?;
    // The cache distinguishes GPU models only by its folder.
    let names: BTreeSet<String> = gpus.iter().map(|gpu| format!("{} sm_{}", gpu.name, gpu.capability)).collect();
    let names = names.into_iter().collect::<Vec<_>>().join(" and ");
    let same = gpus.windows(2).all(|pair| pair[0].capability == pair[1].capability);
    kernel_cache::set(&format!("{names}, driver {driver_version}, compiler {}", compiler.version), same)?;
    Ok(count)
}

/// A version of CUDA, displayed as `12.8`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version {
    pub major: c_int,
    minor: c_int,
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Returns the newest version of CUDA that the driver supports.
pub(super) fn driver_version(driver: &SharedLibrary) -> Result<Version, Missing> {
    let mut version = 0;
    // SAFETY: the signature is the documented one of cuDriverGetVersion, as `SharedLibrary::get` requires.
    let status = unsafe {
        let get = driver.get::<unsafe extern "C" fn(*mut c_int) -> c_int>(b"cuDriverGetVersion\0")?;
        get(&raw mut version)
    };
    succeeded(status)?;
    Ok(Version { major: version / 1000, minor: version % 1000 / 10 })
}

fn succeeded(status: c_int) -> Result<(), Missing> {
    if status == 0 { Ok(()) } else { Err(Missing::Status(status)) }
}

struct Gpu {
    name: String,
    /// Compute capability times ten.
    capability: c_int,
}

impl Gpu {
    fn read(driver: &SharedLibrary, index: usize) -> Result<Self, Missing> {
        const MAJOR: c_int = 75;
        const MINOR: c_int = 76;
        let mut name = [0u8; 256];
        let (mut device, mut major, mut minor) = (0, 0, 0);
        // SAFETY: the signatures are the documented ones of the three calls, and the driver writes at most the given
        // length of the name.
        unsafe {
            let get = driver.get::<unsafe extern "C" fn(*mut c_int, c_int) -> c_int>(b"cuDeviceGet\0")?;
            succeeded(get(&raw mut device, index as c_int))?;
            let get_name =
                driver.get::<unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int>(b"cuDeviceGetName\0")?;
            succeeded(get_name(name.as_mut_ptr().cast(), name.len() as c_int, device))?;
            let attribute =
                driver.get::<unsafe extern "C" fn(*mut c_int, c_int, c_int) -> c_int>(b"cuDeviceGetAttribute\0")?;
            succeeded(attribute(&raw mut major, MAJOR, device))?;
            succeeded(attribute(&raw mut minor, MINOR, device))?;
        }
        let length = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
        Ok(Self { name: String::from_utf8_lossy(&name[..length]).into_owned(), capability: 10 * major + minor })
    }
}

/// CUDA's run-time compiler, NVRTC.
struct Compiler {
    library: SharedLibrary,
    version: Version,
}

impl Compiler {
    /// Loads the compiler that the backend will use. The backend takes the first candidate name that the dynamic loader
    /// knows. The loader also knows a library by name once the library was loaded by path.
    fn find(driver: Version) -> Result<Self, String> {
        let names = cudarc::get_lib_name_candidates("nvrtc");
        let named: Vec<&str> = names.iter().map(String::as_str).collect();
        let is_known = |path: &Path| path.file_name().is_some_and(|name| names.iter().any(|known| name == &**known));
        // A compiler needs headers of its own major version.
        let majors = [13, 12].into_iter().filter(|&major| major <= driver.major);
        let (with, without): (Vec<c_int>, Vec<c_int>) = majors.partition(|&major| cuda_headers::exist(major));
        let paths: Vec<PathBuf> = with
            .into_iter()
            .chain(without)
            .flat_map(|major| library_paths(&["cu13", "cuda_nvrtc"], &format!("libnvrtc.so.{major}")))
            .filter(|path| path.is_file())
            .collect();
        let by_path = || paths.iter().filter(|path| is_known(path)).find_map(|path| load_compiler(path));
        let library = load_any(&named).or_else(by_path);
        let Some(library) = library else {
            return Err(match paths.iter().find(|path| !is_known(path)) {
                Some(path) => format!(
                    "{} was found, but this program was built for CUDA 12: build it with CUDARC_CUDA_VERSION=13000, or {PIP}",
                    path.display()
                ),
                None => format!(
                    "CUDA's run-time compiler (libnvrtc.so.12, or libnvrtc.so.13 where the driver supports CUDA 13) was not \
                     found: {PIP}, or install CUDA's toolkit and set CUDA_HOME to its folder"
                ),
            });
        };
        let version = compiler_version(&library).map_err(|missing| missing.explain("CUDA compiler", "libnvrtc"))?;
        Ok(Self { library, version })
    }

    /// Checks that the driver accepts the compiler's output and that the compiler supports each GPU.
    fn check(&self, driver: Version, gpus: &[Gpu]) -> Result<(), String> {
        let version = self.version;
        if version > driver {
            return Err(format!(
                "CUDA's run-time compiler has version {version}, but the driver supports versions up to {driver}: \
                 update the driver, or `pip install nvidia-cuda-nvrtc-cu12=={driver}.*` in an active virtual \
                 environment, and remove other compilers from LD_LIBRARY_PATH"
            ));
        }
        let Some(known) = self.architectures() else { return Ok(()) };
        match gpus.iter().find(|gpu| !known.contains(&gpu.capability)) {
            None => Ok(()),
            Some(Gpu { name, capability }) => {
                let newer = known.iter().all(|known| known < capability);
                let other = if newer { "a newer" } else { "an older" };
                Err(format!(
                    "CUDA's run-time compiler, of version {version}, does not compile for {name} (compute capability \
                     {}.{}): {other} one is needed",
                    capability / 10,
                    capability % 10
                ))
            }
        }
    }

    /// Returns the supported compute capabilities times ten, if the compiler lists them.
    fn architectures(&self) -> Option<Vec<c_int>> {
        let mut count = 0;
        // SAFETY: the signatures are the documented ones, and the second call writes as many values as the first one
        // returned.
        unsafe {
            let get_count =
                self.library.get::<unsafe extern "C" fn(*mut c_int) -> c_int>(b"nvrtcGetNumSupportedArchs\0").ok()?;
            let get =
                self.library.get::<unsafe extern "C" fn(*mut c_int) -> c_int>(b"nvrtcGetSupportedArchs\0").ok()?;
            succeeded(get_count(&raw mut count)).ok()?;
            let mut known = vec![0; usize::try_from(count).ok()?];
            succeeded(get(known.as_mut_ptr())).ok()?;
            Some(known)
        }
    }
}

fn compiler_version(library: &SharedLibrary) -> Result<Version, Missing> {
    let (mut major, mut minor) = (0, 0);
    // SAFETY: the signature is the documented one of nvrtcVersion, as `SharedLibrary::get` requires.
    let status = unsafe {
        let get = library.get::<unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int>(b"nvrtcVersion\0")?;
        get(&raw mut major, &raw mut minor)
    };
    succeeded(status)?;
    Ok(Version { major, minor })
}

/// Loads a compiler by its path. The compiler looks up the library of its built-in headers by name, so that library is
/// loaded first, in case its folder is not on the dynamic loader's path.
fn load_compiler(path: &Path) -> Option<SharedLibrary> {
    let folder = fs::read_dir(path.parent()?).ok()?;
    for file in folder.flatten() {
        if file.file_name().to_string_lossy().starts_with("libnvrtc-builtins.so.") {
            // A library that does not load belongs to another compiler.
            let _ = SharedLibrary::load(file.path());
        }
    }
    SharedLibrary::load(path)
}

/// Returns candidate paths of a library outside of the dynamic loader's folders: in toolkits and in Python packages.
pub(super) fn library_paths(packages: &[&str], library: &str) -> Vec<PathBuf> {
    let inside = |root: PathBuf| ["lib64", "lib", "targets/x86_64-linux/lib"].map(|folder| root.join(folder));
    let toolkits = cuda_headers::toolkits().into_iter().flat_map(inside);
    let packages = |wheels: PathBuf| packages.iter().map(move |package| wheels.join(package).join("lib"));
    let wheels = cuda_headers::wheels().into_iter().flat_map(packages);
    toolkits.chain(wheels).map(|folder| folder.join(library)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_their_parts() {
        let version = |major, minor| Version { major, minor };
        assert!(version(12, 10) > version(12, 9) && version(13, 0) > version(12, 9));
        assert_eq!(version(12, 8).to_string(), "12.8");
    }
}
