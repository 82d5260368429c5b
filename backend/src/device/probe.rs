//! How many devices a backend has on this machine, or a sentence that says why none.

use super::BackendName;

/// Number of devices, at least one; otherwise what is missing.
pub(super) fn device_count(backend: BackendName) -> Result<usize, String> {
    match backend {
        BackendName::Flex | BackendName::Candle => Ok(1),
        #[cfg(feature = "cuda")]
        BackendName::Cuda => cuda(),
        #[cfg(feature = "wgpu")]
        BackendName::Wgpu => wgpu(),
        #[cfg(feature = "rocm")]
        BackendName::Rocm => rocm(),
        #[allow(unreachable_patterns)]
        _ => Err("it is not compiled in".to_owned()),
    }
}

#[cfg(any(feature = "cuda", feature = "rocm"))]
fn explain(missing: super::driver::Missing, vendor: &str, library: &str) -> String {
    use super::driver::Missing;
    match missing {
        Missing::Library => format!("no {vendor} driver ({library} was not found); install it, or use --backend flex"),
        Missing::Symbol(error) => format!("the {vendor} driver {library} is too old ({error})"),
        Missing::NoDevice => format!("the {vendor} driver is installed but finds no GPU"),
        Missing::Status(status) => format!("the {vendor} driver does not start (status {status})"),
    }
}

#[cfg(feature = "cuda")]
fn cuda() -> Result<usize, String> {
    use super::driver::{Driver, load_any};
    let driver = Driver {
        libraries: &["libcuda.so.1", "libcuda.so", "nvcuda.dll"],
        init: b"cuInit\0",
        count: b"cuDeviceGetCount\0",
        no_device: 100,
    };
    let count = driver.device_count().map_err(|missing| explain(missing, "NVIDIA", "libcuda.so.1"))?;
    let compiler = ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so", "nvrtc64_130_0.dll", "nvrtc64_120_0.dll"];
    if load_any(&compiler).is_none() {
        return Err("CUDA's run-time compiler (libnvrtc.so) was not found; install the CUDA toolkit, or put its \
                    library folder on LD_LIBRARY_PATH"
            .to_owned());
    }
    Ok(count)
}

#[cfg(feature = "rocm")]
fn rocm() -> Result<usize, String> {
    let driver = super::driver::Driver {
        libraries: &["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so"],
        init: b"hipInit\0",
        count: b"hipGetDeviceCount\0",
        no_device: 100,
    };
    driver.device_count().map_err(|missing| explain(missing, "AMD ROCm", "libamdhip64.so"))
}

/// wgpu's adapters in the order in which grove numbers them: discrete, integrated, virtual, software.
#[cfg(feature = "wgpu")]
fn wgpu_devices() -> Vec<burn_wgpu::WgpuDevice> {
    use burn_wgpu::WgpuDevice;
    let instance = wgpu::Instance::default();
    let backends = if cfg!(target_os = "macos") { wgpu::Backends::METAL } else { wgpu::Backends::VULKAN };
    let adapters = pollster::block_on(instance.enumerate_adapters(backends));
    let count = |kind| adapters.iter().filter(|adapter| adapter.get_info().device_type == kind).count();
    let discrete = (0..count(wgpu::DeviceType::DiscreteGpu)).map(WgpuDevice::DiscreteGpu);
    let integrated = (0..count(wgpu::DeviceType::IntegratedGpu)).map(WgpuDevice::IntegratedGpu);
    let simulated = (0..count(wgpu::DeviceType::VirtualGpu)).map(WgpuDevice::VirtualGpu);
    let software = (count(wgpu::DeviceType::Cpu) > 0).then_some(WgpuDevice::Cpu);
    discrete.chain(integrated).chain(simulated).chain(software).collect()
}

#[cfg(feature = "wgpu")]
fn wgpu() -> Result<usize, String> {
    match wgpu_devices().len() {
        0 => Err("no Vulkan or Metal device was found; install a driver (Debian's mesa-vulkan-drivers and libvulkan1 \
                  bring a software one), or use --backend flex"
            .to_owned()),
        count => Ok(count),
    }
}

/// The wgpu device with a number as on the command line, or wgpu's default where there is none such.
#[cfg(feature = "wgpu")]
pub fn wgpu_device(index: usize) -> burn_wgpu::WgpuDevice {
    wgpu_devices().into_iter().nth(index).unwrap_or_default()
}
