use std::{ffi::c_void, sync::Arc};

use crate::{
    client::{Device, Inner},
    dtype::{ArrayType, ElementType},
    error::{Result, XlaError},
    plugin::{Padded, args, slice},
    sys,
};

/// An array on a device.
#[derive(Debug)]
pub struct Buffer {
    pub(crate) client: Arc<Inner>,
    pub(crate) raw: *mut c_void,
    array: ArrayType,
}

// SAFETY: a PJRT buffer may be used from any thread, and `raw` never changes.
unsafe impl Send for Buffer {}
// SAFETY: as for `Send`.
unsafe impl Sync for Buffer {}

impl Drop for Buffer {
    fn drop(&mut self) {
        // `drop` cannot return an error.
        let _ = self.client.plugin.call(sys::BufferDestroy { buffer: self.raw, ..args() });
    }
}

impl Buffer {
    /// Copies an array to a device. `data` contains the elements in row-major order.
    ///
    /// # Errors
    /// If the number of bytes does not match the type, or if the device is out of memory.
    pub fn from_host(device: &Device, array: &ArrayType, data: &[u8]) -> Result<Self> {
        use sys::host_buffer_semantics::IMMUTABLE_ONLY_DURING_CALL;
        // SAFETY: the plugin reads the bytes only during the call, and has finished when the awaited event is ready.
        let (buffer, done) = unsafe { Self::upload(device, array, data, IMMUTABLE_ONLY_DURING_CALL) }?;
        buffer.client.plugin.wait(done)?;
        Ok(buffer)
    }

    /// Starts an upload. The event is ready when the plugin no longer needs the bytes.
    ///
    /// # Safety
    /// The bytes must stay alive and unchanged for as long as `semantics` requires.
    pub(crate) unsafe fn upload(
        device: &Device,
        array: &ArrayType,
        data: &[u8],
        host_buffer_semantics: u32,
    ) -> Result<(Self, *mut c_void)> {
        if array.bytes() != Some(data.len()) {
            return Err(XlaError::HostSize { found: data.len(), expected: array.to_string() });
        }
        let dims: Vec<i64> = array.dims.iter().map(|dim| *dim as i64).collect();
        let plugin = &device.client.plugin;
        let created = plugin.call(sys::ClientBufferFromHostBuffer {
            client: device.client.client,
            data: data.as_ptr().cast(),
            kind: array.element.code(),
            dims: dims.as_ptr(),
            num_dims: dims.len(),
            host_buffer_semantics,
            device: device.raw(),
            ..args()
        })?;
        Ok((Self::from_raw(device.client.clone(), created.buffer, array.clone()), created.done_with_host_buffer))
    }

    pub(crate) fn from_raw(client: Arc<Inner>, raw: *mut c_void, array: ArrayType) -> Self {
        Self { client, raw, array }
    }

    /// Wraps a buffer that a program returned, and queries its type.
    pub(crate) fn from_output(client: Arc<Inner>, raw: *mut c_void) -> Result<Self> {
        // Created first, so that the buffer is freed in case of an error.
        let mut buffer = Self::from_raw(client, raw, ArrayType::new(ElementType::Bool, []));
        let plugin = &buffer.client.plugin;
        let code = plugin.call(sys::BufferElementType { buffer: raw, ..args() })?.kind;
        let dims = plugin.call(sys::BufferDimensions { buffer: raw, ..args() })?;
        // SAFETY: the buffer owns the list, which is copied.
        let dims = unsafe { slice(dims.dims, dims.num_dims) }.iter().map(|dim| *dim as usize);
        let unknown = || XlaError::Plugin {
            function: "PJRT_Buffer_ElementType",
            code: 0,
            message: format!("grove does not support the element type with code {code}"),
        };
        buffer.array = ArrayType::new(ElementType::of_code(code).ok_or_else(unknown)?, dims.collect::<Vec<_>>());
        Ok(buffer)
    }

    /// Returns the type of the array.
    pub fn array_type(&self) -> &ArrayType {
        &self.array
    }

    /// Copies the elements to the host, in row-major order, after they are computed.
    ///
    /// # Errors
    /// If the program that computes the buffer failed.
    pub fn to_host(&self) -> Result<Vec<u8>> {
        let minor_to_major: Vec<i64> = (0..self.array.dims.len() as i64).rev().collect();
        let tiled = sys::BufferMemoryLayoutTiled {
            struct_size: size_of::<sys::BufferMemoryLayoutTiled>(),
            minor_to_major: minor_to_major.as_ptr(),
            minor_to_major_size: minor_to_major.len(),
            ..args()
        };
        let mut layout = Padded::new(sys::BufferMemoryLayout { tiled, ..args() });
        let bytes = self.array.bytes().unwrap_or(0);
        let mut data = Vec::<u8>::new();
        // The plugin already has this many bytes in memory.
        data.try_reserve_exact(bytes).map_err(|error| XlaError::Plugin {
            function: "PJRT_Buffer_ToHostBuffer",
            code: 0,
            message: error.to_string(),
        })?;
        let copied = self.client.plugin.call(sys::BufferToHostBuffer {
            src: self.raw,
            host_layout: (&raw mut layout).cast(),
            dst: data.as_mut_ptr().cast(),
            dst_size: bytes,
            ..args()
        })?;
        self.client.plugin.wait(copied.event)?;
        // SAFETY: the event is ready, so the plugin has written all bytes.
        unsafe { data.set_len(bytes) };
        Ok(data)
    }

    /// Copies the buffer to another device of the same client.
    ///
    /// # Errors
    /// If the device belongs to another client, if it is out of memory, or if the program that computes the buffer failed.
    pub fn to_device(&self, device: &Device) -> Result<Self> {
        if !Arc::ptr_eq(&self.client, &device.client) {
            return Err(XlaError::OtherClient("the device for the copy".into()));
        }
        let call = sys::BufferCopyToDevice { buffer: self.raw, dst_device: device.raw(), ..args() };
        let created = self.client.plugin.call(call)?;
        Ok(Self::from_raw(self.client.clone(), created.dst_buffer, self.array.clone()))
    }

    /// Returns the number of bytes on the device.
    ///
    /// # Errors
    /// If the plugin fails.
    pub fn device_bytes(&self) -> Result<usize> {
        let output = self.client.plugin.call(sys::BufferOnDeviceSizeInBytes { buffer: self.raw, ..args() })?;
        Ok(output.on_device_size_in_bytes)
    }

    /// Waits until the elements are computed.
    ///
    /// # Errors
    /// If the program that computes the buffer failed.
    pub fn wait(&self) -> Result<()> {
        let event = self.client.plugin.call(sys::BufferReadyEvent { buffer: self.raw, ..args() })?.event;
        self.client.plugin.wait(event)
    }
}
