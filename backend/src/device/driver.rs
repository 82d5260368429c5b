//! Counting GPUs through the vendor's driver library, loaded at run time.

use libloading::{Library, Symbol};
use std::ffi::{c_int, c_uint};

/// The two calls of a driver that tell how many devices it has. Both vendors give them the same signatures.
pub(super) struct Driver {
    /// Names to look for, best first.
    pub libraries: &'static [&'static str],
    /// `int init(unsigned flags)`.
    pub init: &'static [u8],
    /// `int device_count(int *count)`.
    pub count: &'static [u8],
    /// Status that means 'no device'.
    pub no_device: c_int,
}

/// Why the driver gave no count.
pub(super) enum Missing {
    Library,
    Symbol(String),
    NoDevice,
    Status(c_int),
}

impl Driver {
    /// How many devices the driver has.
    pub fn device_count(&self) -> Result<usize, Missing> {
        let library = load_any(self.libraries).ok_or(Missing::Library)?;
        // SAFETY: these are the documented signatures of cuInit/hipInit and cuDeviceGetCount/hipGetDeviceCount.
        unsafe {
            let init: Symbol<unsafe extern "C" fn(c_uint) -> c_int> =
                library.get(self.init).map_err(|error| Missing::Symbol(error.to_string()))?;
            let get_count: Symbol<unsafe extern "C" fn(*mut c_int) -> c_int> =
                library.get(self.count).map_err(|error| Missing::Symbol(error.to_string()))?;
            self.check(init(0))?;
            let mut count = 0;
            self.check(get_count(&raw mut count))?;
            match usize::try_from(count) {
                Ok(count) if count > 0 => Ok(count),
                _ => Err(Missing::NoDevice),
            }
        }
    }

    fn check(&self, status: c_int) -> Result<(), Missing> {
        match status {
            0 => Ok(()),
            status if status == self.no_device => Err(Missing::NoDevice),
            status => Err(Missing::Status(status)),
        }
    }
}

/// The first of the libraries that the dynamic loader finds.
pub(super) fn load_any(names: &[&str]) -> Option<Library> {
    // SAFETY: loading a vendor's driver library runs its initialisers, which is what every user of it does.
    names.iter().find_map(|name| unsafe { Library::new(name) }.ok())
}
