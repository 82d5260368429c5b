//! Arrays in memory of the host that a plugin reads where it is.

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
    /// Gives an array to a device without a copy, where the plugin can: the CPU plugin reads the owner's bytes where they are if
    /// they begin at a multiple of 64 bytes, and copies others. The owner is dropped when the plugin is done with the bytes: at once
    /// after a copy, else with the buffer and the programs that read it, on any thread. No program writes into the bytes, even if the
    /// buffer is donated.
    ///
    /// # Errors
    /// The bytes are not as many as the type has, or the device's memory does not suffice. The owner is dropped.
    pub fn from_shared(
        device: &Device,
        array: &ArrayType,
        owner: impl AsRef<[u8]> + Send + Sync + 'static,
    ) -> Result<Self> {
        use sys::host_buffer_semantics::IMMUTABLE_ZERO_COPY;
        let plugin = device.client.plugin.clone();
        let lent = Lent::new(owner, plugin.clone());
        // SAFETY: the owner lives, and is not touched, until the event says that the plugin is done with the bytes.
        let (buffer, event) = unsafe { Self::upload(device, array, lent.bytes(), IMMUTABLE_ZERO_COPY) }?;
        if event.is_null() {
            // Nobody will tell when the plugin is done.
            lent.into_raw();
            return Ok(buffer);
        }
        let called = plugin.call(lent.on_ready(event));
        if let Err(error) = called {
            drop(buffer);
            // Without the event nobody tells when the plugin is done.
            if plugin.wait(event).is_err() {
                lent.into_raw();
            }
            return Err(error);
        }
        // The callback has it.
        lent.into_raw();
        plugin.call(sys::EventDestroy { event, ..args() })?;
        Ok(buffer)
    }
}

/// An owner of bytes, at an address that does not change, and the plugin that reads them.
struct Lent<O>(*mut (O, Arc<Plugin>));

impl<O> Drop for Lent<O> {
    fn drop(&mut self) {
        // SAFETY: the pointer is of a box, and nobody else has it, or `into_raw` would have been called.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

impl<O: AsRef<[u8]> + Send + Sync + 'static> Lent<O> {
    fn new(owner: O, plugin: Arc<Plugin>) -> Self {
        Self(Box::into_raw(Box::new((owner, plugin))))
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the box is alive as long as `self`, and is not written to.
        unsafe { &*self.0 }.0.as_ref()
    }

    /// The call by which the owner is dropped once an event is ready.
    fn on_ready(&self, event: *mut c_void) -> sys::EventOnReady {
        let callback = Self::done as unsafe extern "C" fn(*mut c_void, *mut c_void);
        sys::EventOnReady { event, callback: callback as *mut c_void, user_arg: self.0.cast(), ..args() }
    }

    /// Leaves the owner to the callback.
    fn into_raw(self) {
        mem::forget(self);
    }

    /// Drops the owner. A plugin calls it once, from a thread of its own.
    ///
    /// # Safety
    /// `lent` must be the pointer of a `Lent` that [`into_raw`](Self::into_raw) left, and the error the plugin's or null.
    unsafe extern "C" fn done(error: *mut c_void, lent: *mut c_void) {
        // A panic in the owner's drop must not unwind into the plugin; it has been printed.
        let _ = catch_unwind(AssertUnwindSafe(|| {
            let lent = Self(lent.cast());
            // SAFETY: the box is alive until `lent` is dropped.
            let plugin = unsafe { &(*lent.0).1 };
            // The error is of the transfer, which a reader of the buffer is told.
            // SAFETY: the error is the callback's to free.
            let _ = unsafe { plugin.check("PJRT_Event_OnReady", error) };
        }));
    }
}
