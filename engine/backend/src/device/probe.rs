//! Number of a backend's devices on this machine, or the reason why it has none.

#[cfg(feature = "wgpu")]
use std::collections::BTreeSet;

use super::BackendName;

/// Returns the number of devices, at least one, or an error that names the missing part.
pub(super) fn device_count(backend: BackendName) -> Result<usize, String> {
    match backend {
        BackendName::Flex | BackendName::Candle => Ok(1),
        // The number is known only after the PJRT plugin has started.
        backend if backend.is_xla() => Ok(usize::MAX),
        #[cfg(feature = "cuda")]
        BackendName::Cuda => super::cuda::devices(),
        #[cfg(feature = "wgpu")]
        BackendName::Wgpu => wgpu(),
        #[cfg(feature = "rocm")]
        BackendName::Rocm => rocm(),
        #[allow(unreachable_patterns)]
        _ => Err("it is not compiled in".to_owned()),
    }
}

#[cfg(feature = "rocm")]
fn rocm() -> Result<usize, String> {
    let driver = super::driver::Driver {
        libraries: &["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so"],
        init: b"hipInit\0",
        count: b"hipGetDeviceCount\0",
        no_device: 100,
    };
    let (_, count) = driver.open().map_err(|missing| missing.explain("AMD ROCm", "libamdhip64.so"))?;
    Ok(count)
}

#[cfg(feature = "wgpu")]
fn wgpu_adapters() -> Vec<wgpu::Adapter> {
    let instance = wgpu::Instance::default();
    let backends = if cfg!(target_os = "macos") { wgpu::Backends::METAL } else { wgpu::Backends::VULKAN };
    pollster::block_on(instance.enumerate_adapters(backends))
}

/// Returns the adapters as devices, in grove's order: discrete, integrated, virtual, software.
#[cfg(feature = "wgpu")]
fn wgpu_devices(adapters: &[wgpu::Adapter]) -> Vec<burn_wgpu::WgpuDevice> {
    use burn_wgpu::WgpuDevice;
    let count = |kind| adapters.iter().filter(|adapter| adapter.get_info().device_type == kind).count();
    let discrete = (0..count(wgpu::DeviceType::DiscreteGpu)).map(WgpuDevice::DiscreteGpu);
    let integrated = (0..count(wgpu::DeviceType::IntegratedGpu)).map(WgpuDevice::IntegratedGpu);
    let simulated = (0..count(wgpu::DeviceType::VirtualGpu)).map(WgpuDevice::VirtualGpu);
    let software = (count(wgpu::DeviceType::Cpu) > 0).then_some(WgpuDevice::Cpu);
    discrete.chain(integrated).chain(simulated).chain(software).collect()
}

#[cfg(feature = "wgpu")]
fn wgpu() -> Result<usize, String> {
    let adapters = wgpu_adapters();
    let count = wgpu_devices(&adapters).len();
    if count == 0 {
        return Err(
            "no Vulkan or Metal device was found; install a driver (Debian's mesa-vulkan-drivers and libvulkan1 \
                    bring a software one), or use --backend flex"
                .to_owned(),
        );
    }
    // CubeCL's cache distinguishes kinds of devices only by its folder.
    let names: BTreeSet<String> = adapters
        .iter()
        .map(|adapter| {
            let info = adapter.get_info();
            format!("{} {} {}", info.name, info.driver, info.driver_info)
        })
        .collect();
    let same = names.len() == 1;
    super::kernel_cache::set(&names.into_iter().collect::<Vec<_>>().join(" and "), same)?;
    Ok(count)
}

/// Returns the wgpu device with an index as on the command line, or wgpu's default if the index is out of range.
#[cfg(feature = "wgpu")]
pub fn wgpu_device(index: usize) -> burn_wgpu::WgpuDevice {
    wgpu_devices(&wgpu_adapters()).into_iter().nth(index).unwrap_or_default()
}
