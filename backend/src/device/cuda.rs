//! Checks of CUDA's installation before the fusing backend is used. The backend would panic, on a thread of its own, if
//! something is missing.

use std::{
    collections::BTreeSet,
    ffi::{c_char, c_int},
    path::PathBuf,
    sync::OnceLock,
};

use super::{
    cuda_headers,
    driver::{Driver, Missing, SharedLibrary, load_any},
    kernel_cache,
    probe::explain,
};

/// Command that installs CUDA 12.8's run-time compiler and its headers.
pub(super) const PIP: &str = "`pip install nvidia-cuda-nvrtc-cu12==12.8.93 nvidia-cuda-runtime-cu12==12.8.90 \
                              nvidia-cuda-nvcc-cu12==12.8.93 nvidia-cuda-cccl-cu12==12.8.90` in a virtual environment that \
                              is active";

/// Returns the number of GPUs, after checking everything that the first kernel needs. The first result is kept.
pub(super) fn devices() -> Result<usize, String> {
    static ANSWER: OnceLock<Result<usize, String>> = OnceLock::new();
    ANSWER.get_or_init(prepare).clone()
}

fn prepare() -> Result<usize, String> {
    // First of all, but reported last: the other parts are what is missing on most machines.
    let headers = cuda_headers::find();
    let driver = Driver {
        libraries: &["libcuda.so.1", "libcuda.so", "nvcuda.dll"],
        init: b"cuInit\0",
        count: b"cuDeviceGetCount\0",
        no_device: 100,
    };
    let missing = |missing| explain(missing, "NVIDIA", "libcuda.so.1");
    let (driver, count) = driver.open().map_err(missing)?;
    let gpus = (0..count).map(|index| Gpu::read(&driver, index)).collect::<Result<Vec<_>, _>>().map_err(missing)?;
    let driver_version = driver_version(&driver).map_err(missing)?;
    let compiler = Compiler::find()?;
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
struct Version {
    major: c_int,
    minor: c_int,
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Returns the newest version of CUDA that the driver supports.
fn driver_version(driver: &SharedLibrary) -> Result<Version, Missing> {
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
    /// Loads the compiler that the backend will find. The backend looks for these names; the second one is also the
    /// library's own, so that one loaded by its path is found too.
    fn find() -> Result<Self, String> {
        let library = load_any(&["libnvrtc.so", "libnvrtc.so.12", "nvrtc64_120_0.dll"])
            .or_else(|| library_paths("cuda_nvrtc", "libnvrtc.so.12").iter().find_map(SharedLibrary::load));
        let Some(library) = library else {
            return Err(match load_any(&["libnvrtc.so.13"]) {
                Some(_) => format!(
                    "CUDA's run-time compiler is there in version 13 (libnvrtc.so.13), and version 12 is \
                                    needed, which runs beside it: {PIP}"
                ),
                None => format!(
                    "CUDA's run-time compiler (libnvrtc.so.12) was not found: {PIP}, or install CUDA 12's \
                                 toolkit and put its lib64 folder on LD_LIBRARY_PATH"
                ),
            });
        };
        let version = compiler_version(&library).map_err(|missing| explain(missing, "CUDA compiler", "libnvrtc"))?;
        Ok(Self { library, version })
    }

    /// Checks that the driver accepts the compiler's output, and that it compiles for each GPU.
    fn check(&self, driver: Version, gpus: &[Gpu]) -> Result<(), String> {
        let version = self.version;
        if version > driver {
            return Err(format!(
                "CUDA's run-time compiler is of version {version} and the driver knows versions up to {driver}: update the \
                 driver, or `pip install nvidia-cuda-nvrtc-cu12=={driver}.*` in a virtual environment that is active, and \
                 take other compilers off LD_LIBRARY_PATH"
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

    /// Returns the compute capabilities that it compiles for, times ten, if it lists them.
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

/// Returns paths of a library outside of the dynamic loader's folders: in toolkits, and in a package of Python environments.
pub(super) fn library_paths(package: &str, library: &str) -> Vec<PathBuf> {
    let toolkits = cuda_headers::toolkits().into_iter().flat_map(|root| [root.join("lib64"), root.join("lib")]);
    let wheels = cuda_headers::wheels().into_iter().map(|wheels| wheels.join(package).join("lib"));
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
