//! Arrays in host memory that a plugin reads in place.

use std::{
    ffi::c_void,
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use crate::{
    buffer::Buffer,
    client::Device,
    dtype::ArrayType,
    error::Result,
    plugin::{Plugin, args},
    sys,
};

impl Buffer {
    /// Passes an array to a device without a copy, if the plugin supports it: the CPU plugin reads the owner's bytes in place if
    /// they are aligned to 64 bytes, and copies others. The owner is dropped when the plugin no longer needs the bytes:
    /// immediately after a copy, otherwise with the buffer and the programs that read it, on any thread. No program writes to the
    /// bytes, even if the buffer is donated.
    ///
    /// # Errors
    /// If the number of bytes does not match the type, or if the device is out of memory. The owner is dropped.
    pub fn from_shared(
        device: &Device,
        array: &ArrayType,
        owner: impl AsRef<[u8]> + Send + Sync + 'static,
    ) -> Result<Self> {
        use sys::host_buffer_semantics::IMMUTABLE_ZERO_COPY;
        let plugin = device.client.plugin.clone();
        let lent = Lent::new(owner, plugin.clone());
        // SAFETY: the owner stays alive and unchanged until the event signals that the plugin no longer needs the bytes.
        let (buffer, event) = unsafe { Self::upload(device, array, lent.bytes(), IMMUTABLE_ZERO_COPY) }?;
        if event.is_null() {
            // The end of the plugin's use is unknown, so the owner is leaked.
            lent.into_raw();
            return Ok(buffer);
        }
        let called = plugin.call(lent.on_ready(event));
        if let Err(error) = called {
            drop(buffer);
            // Without the event, the end of the plugin's use is unknown, so the owner is leaked.
            if plugin.wait(event).is_err() {
                lent.into_raw();
            }
            return Err(error);
        }
        // The callback owns it now.
        lent.into_raw();
        plugin.call(sys::EventDestroy { event, ..args() })?;
        Ok(buffer)
    }
}

/// An owner of bytes at a fixed address, and the plugin that reads them.
struct Lent<O>(*mut (O, Arc<Plugin>));

impl<O> Drop for Lent<O> {
    fn drop(&mut self) {
        // SAFETY: the pointer comes from a box with no other owner; otherwise `into_raw` would have been called.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

impl<O: AsRef<[u8]> + Send + Sync + 'static> Lent<O> {
    fn new(owner: O, plugin: Arc<Plugin>) -> Self {
        Self(Box::into_raw(Box::new((owner, plugin))))
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the box is alive as long as `self`, and is not written.
        unsafe { &*self.0 }.0.as_ref()
    }

    /// Returns the call that makes the plugin drop the owner once an event is ready.
    fn on_ready(&self, event: *mut c_void) -> sys::EventOnReady {
        let callback = Self::done as unsafe extern "C" fn(*mut c_void, *mut c_void);
        sys::EventOnReady { event, callback: callback as *mut c_void, user_arg: self.0.cast(), ..args() }
    }

    /// Passes ownership to the callback.
    fn into_raw(self) {
        mem::forget(self);
    }

    /// Drops the owner. The plugin calls it once, on one of its threads.
    ///
    /// # Safety
    /// `lent` must be the pointer of a `Lent` passed on by [`into_raw`](Self::into_raw), and `error` must be null or an error of
    /// the plugin.
    unsafe extern "C" fn done(error: *mut c_void, lent: *mut c_void) {
        // A panic in the owner's drop must not unwind into the plugin. The panic has already been printed.
        let _ = catch_unwind(AssertUnwindSafe(|| {
            let lent = Self(lent.cast());
            // SAFETY: the box is alive until `lent` is dropped.
            let plugin = unsafe { &(*lent.0).1 };
            // The error concerns the transfer, and a read of the buffer reports it.
            // SAFETY: the callback must free the error.
            let _ = unsafe { plugin.check("PJRT_Event_OnReady", error) };
        }));
    }
}
