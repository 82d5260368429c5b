use std::{ffi::c_void, sync::Arc};

use crate::{
    error::{Result, XlaError},
    plugin::{NamedValue, Plugin, args, slice, text},
    settings, sys,
};

/// The devices of a plugin in this process.
#[derive(Clone, Debug)]
pub struct Client {
    pub(crate) inner: Arc<Inner>,
}

/// The part of a client that buffers and programs keep alive.
#[derive(Debug)]
pub(crate) struct Inner {
    pub plugin: Arc<Plugin>,
    pub client: *mut c_void,
    platform: String,
    devices: Vec<*mut c_void>,
}

// SAFETY: a client of PJRT may be used from any thread, and its list of devices never changes.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        // Nobody is left to hear of an error.
        let _ = self.plugin.call(sys::ClientDestroy { client: self.client, ..args() });
    }
}

impl Client {
    /// Starts a plugin's devices. Options are the plugin's, such as `cpu_device_count` (an integer) of the CPU's.
    ///
    /// # Errors
    /// An option is of another type than the CPU and CUDA plugins read it as, the plugin refuses one, or it finds no device.
    pub fn new(plugin: &Arc<Plugin>, options: &[(String, NamedValue)]) -> Result<Self> {
        let options = settings::checked(options)?;
        let create_options = options.as_ptr().cast_mut();
        let created = plugin.call(sys::ClientCreate { create_options, num_options: options.len(), ..args() })?;
        let mut inner =
            Inner { plugin: plugin.clone(), client: created.client, platform: String::new(), devices: vec![] };
        let client = inner.client;
        let platform = plugin.call(sys::ClientPlatformName { client, ..args() })?;
        let devices = plugin.call(sys::ClientAddressableDevices { client, ..args() })?;
        // SAFETY: both are the client's, and are copied.
        unsafe {
            inner.platform = text(platform.platform_name, platform.platform_name_size);
            inner.devices = slice(devices.addressable_devices, devices.num_addressable_devices).to_vec();
        }
        Ok(Self { inner: Arc::new(inner) })
    }

    /// True if both are one client.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Name of the platform, such as `cpu`.
    pub fn platform(&self) -> &str {
        &self.inner.platform
    }

    /// Version of the platform: the plugin's text.
    ///
    /// # Errors
    /// The plugin fails.
    pub fn platform_version(&self) -> Result<String> {
        let found = self.inner.plugin.call(sys::ClientPlatformVersion { client: self.inner.client, ..args() })?;
        // SAFETY: the text is the client's, and is copied.
        Ok(unsafe { text(found.platform_version, found.platform_version_size) })
    }

    /// The devices of this process.
    pub fn devices(&self) -> Vec<Device> {
        (0..self.inner.devices.len()).map(|index| Device { client: self.inner.clone(), index }).collect()
    }

    /// A device by its place in [`devices`](Self::devices).
    ///
    /// # Errors
    /// There are not so many.
    pub fn device(&self, index: usize) -> Result<Device> {
        let count = self.inner.devices.len();
        match index < count {
            true => Ok(Device { client: self.inner.clone(), index }),
            false => Err(XlaError::NoDevice { index, count, platform: self.inner.platform.clone() }),
        }
    }
}

/// A device of a client.
#[derive(Clone, Debug)]
pub struct Device {
    pub(crate) client: Arc<Inner>,
    index: usize,
}

impl PartialEq for Device {
    fn eq(&self, other: &Self) -> bool {
        self.raw() == other.raw()
    }
}

impl Eq for Device {}

/// Memory of a device, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryStats {
    /// In use now.
    pub in_use: u64,
    /// In use at most so far.
    pub peak: Option<u64>,
    /// That can be used.
    pub limit: Option<u64>,
}

impl Device {
    pub(crate) fn raw(&self) -> *mut c_void {
        self.client.devices[self.index]
    }

    /// The client that it is of.
    pub fn client(&self) -> Client {
        Client { inner: self.client.clone() }
    }

    /// Its place among the client's.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Its number among the devices of all processes, as a device assignment has it.
    ///
    /// # Errors
    /// The plugin fails.
    pub fn id(&self) -> Result<i32> {
        let device_description = self.description()?;
        Ok(self.client.plugin.call(sys::DeviceDescriptionId { device_description, ..args() })?.id)
    }

    /// Its model, such as `NVIDIA H100 80GB HBM3`.
    ///
    /// # Errors
    /// The plugin fails.
    pub fn kind(&self) -> Result<String> {
        let device_description = self.description()?;
        let found = self.client.plugin.call(sys::DeviceDescriptionKind { device_description, ..args() })?;
        // SAFETY: the text is the description's, and is copied.
        Ok(unsafe { text(found.device_kind, found.device_kind_size) })
    }

    /// Its memory; `None` where the platform does not count it, as the CPU's.
    ///
    /// # Errors
    /// The plugin fails.
    pub fn memory(&self) -> Result<Option<MemoryStats>> {
        const UNIMPLEMENTED: u32 = 12;
        let found = match self.client.plugin.call(sys::DeviceMemoryStats { device: self.raw(), ..args() }) {
            Ok(found) => found,
            Err(XlaError::Plugin { code: UNIMPLEMENTED, .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let bytes = |value: i64| u64::try_from(value).unwrap_or(0);
        Ok(Some(MemoryStats {
            in_use: bytes(found.bytes_in_use),
            peak: found.peak_bytes_in_use_is_set.then(|| bytes(found.peak_bytes_in_use)),
            limit: found.bytes_limit_is_set.then(|| bytes(found.bytes_limit)),
        }))
    }

    fn description(&self) -> Result<*mut c_void> {
        Ok(self.client.plugin.call(sys::DeviceGetDescription { device: self.raw(), ..args() })?.device_description)
    }
}
