use grove_communicator::{Communicator, KeyValueStore};
use std::{ffi::c_void, sync::Arc};

use crate::{
    error::{Result, XlaError},
    key_value,
    options::Replicas,
    platform::Platform,
    plugin::{NamedValue, Plugin, args, slice, text},
    settings, sys,
};

/// The devices of a plugin in this process. Several processes may form one client.
#[derive(Clone, Debug)]
pub struct Client {
    pub(crate) inner: Arc<Inner>,
}

/// The part of a client that its buffers and programs keep alive.
#[derive(Debug)]
pub(crate) struct Inner {
    pub plugin: Arc<Plugin>,
    pub client: *mut c_void,
    platform: String,
    devices: Vec<*mut c_void>,
    /// Read by the plugin at any time; the box gives it a fixed address. Dropped after the plugin's client, which `drop`
    /// destroys.
    _store: Option<Box<KeyValueStore>>,
}

// SAFETY: a PJRT client may be used from any thread, and its list of devices never changes.
unsafe impl Send for Inner {}
// SAFETY: as for `Send`.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        // `drop` cannot return an error.
        let _ = self.plugin.call(sys::ClientDestroy { client: self.client, ..args() });
    }
}

impl Client {
    /// Starts a plugin's devices. Options are specific to the plugin, such as `cpu_device_count` (an integer) of the CPU plugin.
    ///
    /// # Errors
    /// If an option has another type than the CPU and CUDA plugins expect, if the plugin rejects an option, or if it finds no
    /// device.
    pub fn new(plugin: &Arc<Plugin>, options: &[(String, NamedValue)]) -> Result<Self> {
        Self::start(plugin, options, None)
    }

    /// Starts a plugin's devices as those of one process of several: every rank of a job calls this function, and the plugins
    /// find each other through a key-value store of the ranks. A program may then run on the devices of all ranks; see
    /// [`global_devices`](Self::global_devices). Give each rank its own devices, with the option `visible_devices` (integers) or
    /// the variable `CUDA_VISIBLE_DEVICES`.
    ///
    /// Each plugin gets the arguments that JAX passes: the CUDA plugin gets the store and the options `node_id` and `num_nodes`,
    /// which are the rank and the number of ranks; the TPU plugin gets only the store, because it reads its processes from the
    /// environment. The CPU plugin has no clients of several processes, so each rank starts its own client, as with
    /// [`new`](Self::new). A job of one rank does the same.
    ///
    /// This has not run on GPUs or TPUs, whose plugins refuse to start without devices. Tests call the store in the same way as
    /// XLA's source.
    ///
    /// # Errors
    /// Those of [`new`](Self::new); the plugin's timeout while it waits for another rank; or another rank has ended.
    pub fn of_ranks(
        plugin: &Arc<Plugin>,
        platform: Platform,
        options: &[(String, NamedValue)],
        ranks: &Communicator,
    ) -> Result<Self> {
        Self::of_ranks_with(plugin, platform, options, ranks, &ranks.key_value_store())
    }

    /// [`of_ranks`](Self::of_ranks) with a store that every rank has created.
    pub(crate) fn of_ranks_with(
        plugin: &Arc<Plugin>,
        platform: Platform,
        options: &[(String, NamedValue)],
        ranks: &Communicator,
        store: &KeyValueStore,
    ) -> Result<Self> {
        if platform == Platform::Cpu || !ranks.is_shared() {
            return Self::new(plugin, options);
        }
        let mut options = options.to_vec();
        if platform == Platform::Cuda {
            for (name, value) in [("node_id", ranks.rank()), ("num_nodes", ranks.size())] {
                options.retain(|(given, _)| given != name);
                options.push((name.into(), NamedValue::Int(value as i64)));
            }
        }
        Self::start(plugin, &options, Some(Box::new(store.clone())))
    }

    fn start(
        plugin: &Arc<Plugin>,
        options: &[(String, NamedValue)],
        store: Option<Box<KeyValueStore>>,
    ) -> Result<Self> {
        let options = settings::checked(options)?;
        let create_options = options.as_ptr().cast_mut();
        let create = sys::ClientCreate { create_options, num_options: options.len(), ..args() };
        let created = plugin.call(store.as_deref().map_or(create, |store| key_value::with_store(create, store)))?;
        let mut inner = Inner {
            plugin: plugin.clone(),
            client: created.client,
            platform: String::new(),
            devices: vec![],
            _store: store,
        };
        let client = inner.client;
        let platform = plugin.call(sys::ClientPlatformName { client, ..args() })?;
        let devices = plugin.call(sys::ClientAddressableDevices { client, ..args() })?;
        // SAFETY: the client owns name and list, which are copied.
        unsafe {
            inner.platform = text(platform.platform_name, platform.platform_name_size);
            inner.devices = slice(devices.addressable_devices, devices.num_addressable_devices).to_vec();
        }
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Returns true if both are the same client.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Returns the name of the platform, such as `cpu`.
    pub fn platform(&self) -> &str {
        &self.inner.platform
    }

    /// Returns the plugin's text for the version of the platform.
    ///
    /// # Errors
    /// If the plugin fails.
    pub fn platform_version(&self) -> Result<String> {
        let output = self.inner.plugin.call(sys::ClientPlatformVersion { client: self.inner.client, ..args() })?;
        // SAFETY: the client owns the text, which is copied.
        Ok(unsafe { text(output.platform_version, output.platform_version_size) })
    }

    /// Returns the index of this process in the client: the rank if the client is [of ranks](Self::of_ranks), otherwise 0.
    ///
    /// # Errors
    /// If the plugin fails.
    pub fn process_index(&self) -> Result<usize> {
        let output = self.inner.plugin.call(sys::ClientProcessIndex { client: self.inner.client, ..args() })?;
        Ok(usize::try_from(output.process_index).unwrap_or(0))
    }

    /// Returns the devices of all processes of the client, ordered by process and by number in the process. The list is the same
    /// on every rank. With one process, these are the devices of [`devices`](Self::devices).
    ///
    /// # Errors
    /// If the plugin fails.
    pub fn global_devices(&self) -> Result<Vec<GlobalDevice>> {
        let plugin = &self.inner.plugin;
        let output = plugin.call(sys::ClientDevices { client: self.inner.client, ..args() })?;
        // SAFETY: the client owns the list, and is alive.
        let devices = unsafe { slice(output.devices, output.num_devices) };
        let describe = |&device: &*mut c_void| {
            let device_description = plugin.call(sys::DeviceGetDescription { device, ..args() })?.device_description;
            let id = plugin.call(sys::DeviceDescriptionId { device_description, ..args() })?.id;
            let process = plugin.call(sys::DeviceDescriptionProcessIndex { device_description, ..args() })?;
            let process = usize::try_from(process.process_index).unwrap_or(0);
            Ok(GlobalDevice { process, id, addressable: self.inner.devices.contains(&device) })
        };
        let mut devices = devices.iter().map(describe).collect::<Result<Vec<_>>>()?;
        devices.sort_by_key(|device| (device.process, device.id));
        Ok(devices)
    }

    /// Returns the first device of each process, in their order, if there are several processes and `own` is this process's first
    /// device.
    pub(crate) fn replicas(&self, own: &Device) -> Option<Replicas> {
        let all = self.global_devices().ok()?;
        let processes = all.last()?.process + 1;
        let first = |process| all.iter().find(|device| device.process == process).map(|device| device.id);
        let devices: Vec<i32> = (0..processes).filter_map(first).collect();
        let is_own = devices.get(self.process_index().ok()?) == own.id().ok().as_ref();
        (processes > 1 && devices.len() == processes && is_own).then_some(Replicas { devices, local: 1 })
    }

    /// Returns the devices of this process.
    pub fn devices(&self) -> Vec<Device> {
        (0..self.inner.devices.len()).map(|index| Device { client: self.inner.clone(), index }).collect()
    }

    /// Returns the device at an index of [`devices`](Self::devices).
    ///
    /// # Errors
    /// If the index is out of range.
    pub fn device(&self, index: usize) -> Result<Device> {
        let count = self.inner.devices.len();
        match index < count {
            true => Ok(Device { client: self.inner.clone(), index }),
            false => Err(XlaError::NoDevice { index, count, platform: self.inner.platform.clone() }),
        }
    }
}

/// A device of any process of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GlobalDevice {
    /// Index of the device's process.
    pub process: usize,
    /// Number of the device among the devices of all processes; see [`Device::id`].
    pub id: i32,
    /// True if the device belongs to this process, which then has a [`Device`] for it.
    pub addressable: bool,
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

/// Memory statistics of a device, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryStats {
    /// Bytes in use.
    pub in_use: u64,
    /// Maximum of the bytes in use so far.
    pub peak: Option<u64>,
    /// Bytes available to the process.
    pub limit: Option<u64>,
}

impl Device {
    pub(crate) fn raw(&self) -> *mut c_void {
        self.client.devices[self.index]
    }

    /// Returns the client of the device.
    pub fn client(&self) -> Client {
        Client { inner: self.client.clone() }
    }

    /// Returns the index of the device among the client's devices.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Returns the number of the device among the devices of all processes, as used in a device assignment.
    ///
    /// # Errors
    /// If the plugin fails.
    pub fn id(&self) -> Result<i32> {
        let device_description = self.description()?;
        Ok(self.client.plugin.call(sys::DeviceDescriptionId { device_description, ..args() })?.id)
    }

    /// Returns the model of the device, such as `NVIDIA H100 80GB HBM3`.
    ///
    /// # Errors
    /// If the plugin fails.
    pub fn kind(&self) -> Result<String> {
        let device_description = self.description()?;
        let output = self.client.plugin.call(sys::DeviceDescriptionKind { device_description, ..args() })?;
        // SAFETY: the description owns the text, which is copied.
        Ok(unsafe { text(output.device_kind, output.device_kind_size) })
    }

    /// Returns memory statistics; `None` if the platform does not provide them, like the CPU platform.
    ///
    /// # Errors
    /// If the plugin fails.
    pub fn memory(&self) -> Result<Option<MemoryStats>> {
        const UNIMPLEMENTED: u32 = 12;
        let output = match self.client.plugin.call(sys::DeviceMemoryStats { device: self.raw(), ..args() }) {
            Ok(output) => output,
            Err(XlaError::Plugin { code: UNIMPLEMENTED, .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let bytes = |value: i64| u64::try_from(value).unwrap_or(0);
        Ok(Some(MemoryStats {
            in_use: bytes(output.bytes_in_use),
            peak: output.peak_bytes_in_use_is_set.then(|| bytes(output.peak_bytes_in_use)),
            limit: output.bytes_limit_is_set.then(|| bytes(output.bytes_limit)),
        }))
    }

    fn description(&self) -> Result<*mut c_void> {
        Ok(self.client.plugin.call(sys::DeviceGetDescription { device: self.raw(), ..args() })?.device_description)
    }
}
