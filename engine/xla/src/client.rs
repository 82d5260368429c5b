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

/// The devices of a plugin in this process, which may be one of several that make a client together.
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
    /// Read by the plugin at any time: a box does not move. It is dropped after the plugin's client, in `drop`.
    _store: Option<Box<KeyValueStore>>,
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
        Self::start(plugin, options, None)
    }

    /// Starts a plugin's devices as those of one process of several: every rank of a job calls it, and the plugins find each other
    /// by a key-value store of the ranks. A program may then run on the devices of all ranks; see
    /// [`global_devices`](Self::global_devices). Give each rank devices of its own, by the option `visible_devices` (integers) or
    /// the variable `CUDA_VISIBLE_DEVICES`.
    ///
    /// A plugin gets what JAX gives to it: CUDA's the store and the options `node_id` and `num_nodes`, which are the rank
    /// and the number of ranks; the TPU's the store alone, as it knows its processes from its environment. The CPU's has no clients
    /// of several processes: each rank has its own, as with [`new`](Self::new); and so has a job of one rank.
    ///
    /// This has not run on GPUs or TPUs: without devices their plugins refuse to start. Tests call the store as XLA's source does.
    ///
    /// # Errors
    /// As [`new`](Self::new); the plugin waits in vain for another rank, or one has ended.
    pub fn of_ranks(
        plugin: &Arc<Plugin>,
        platform: Platform,
        options: &[(String, NamedValue)],
        ranks: &Communicator,
    ) -> Result<Self> {
        Self::of_ranks_with(plugin, platform, options, ranks, &ranks.key_value_store())
    }

    /// [`of_ranks`](Self::of_ranks) with a store that every rank has made.
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

    /// The number of this process among those of the client: the rank, where the client is [of ranks](Self::of_ranks), and else 0.
    ///
    /// # Errors
    /// The plugin fails.
    pub fn process_index(&self) -> Result<usize> {
        let found = self.inner.plugin.call(sys::ClientProcessIndex { client: self.inner.client, ..args() })?;
        Ok(usize::try_from(found.process_index).unwrap_or(0))
    }

    /// The devices of all processes of the client, in the order of the processes, and of their numbers in each: the same on every
    /// rank. On one process those of [`devices`](Self::devices).
    ///
    /// # Errors
    /// The plugin fails.
    pub fn global_devices(&self) -> Result<Vec<GlobalDevice>> {
        let plugin = &self.inner.plugin;
        let found = plugin.call(sys::ClientDevices { client: self.inner.client, ..args() })?;
        // SAFETY: the list is the client's, which is alive.
        let devices = unsafe { slice(found.devices, found.num_devices) };
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

    /// A device of each process, in their order, if there are several, and this process's is the given one.
    pub(crate) fn replicas(&self, own: &Device) -> Option<Replicas> {
        let all = self.global_devices().ok()?;
        let processes = all.last()?.process + 1;
        let first = |process| all.iter().find(|device| device.process == process).map(|device| device.id);
        let devices: Vec<i32> = (0..processes).filter_map(first).collect();
        let is_own = devices.get(self.process_index().ok()?) == own.id().ok().as_ref();
        (processes > 1 && devices.len() == processes && is_own).then_some(Replicas { devices, local: 1 })
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

/// A device of any process of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GlobalDevice {
    /// The number of its process.
    pub process: usize,
    /// Its number among the devices of all processes; see [`Device::id`].
    pub id: i32,
    /// True if it is of this process, which then has it as a [`Device`].
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
