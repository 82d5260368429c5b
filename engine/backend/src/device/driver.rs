//! Detection of GPUs through the vendor's driver library, loaded at run time.

use libloading::{Library, Symbol};
use std::{
    ffi::{OsStr, c_int, c_uint},
    mem::ManuallyDrop,
};

/// Driver library and its two functions that count devices. NVIDIA's and AMD's have the same signatures.
pub(super) struct Driver {
    /// Names of the library, most specific first.
    pub libraries: &'static [&'static str],
    /// `int init(unsigned flags)`.
    pub init: &'static [u8],
    /// `int device_count(int *count)`.
    pub count: &'static [u8],
    /// Status code for "no device".
    pub no_device: c_int,
}

/// Reason why the device count is not available.
pub(super) enum Missing {
    Library,
    Symbol(String),
    NoDevice,
    Status(c_int),
}

impl Missing {
    /// Describes the reason, for a vendor's driver library.
    pub fn explain(self, vendor: &str, library: &str) -> String {
        match self {
            Self::Library => {
                format!("no {vendor} driver ({library} was not found); install it, or use --backend flex")
            }
            Self::Symbol(error) => format!("the {vendor} driver {library} is too old ({error})"),
            Self::NoDevice => format!("the {vendor} driver is installed but finds no GPU"),
            Self::Status(status) => format!("the {vendor} driver does not start (status {status})"),
        }
    }
}

#[cfg(feature = "cuda")]
impl Missing {
    /// Describes the reason briefly, for an optional library.
    pub fn lacks(self, library: &str) -> String {
        match self {
            Self::Symbol(error) => format!("{library} is too old ({error})"),
            _ => format!("{library} does not start"),
        }
    }
}

impl Driver {
    /// Loads and initialises the driver. Returns it and its number of devices.
    pub fn open(&self) -> Result<(SharedLibrary, usize), Missing> {
        let library = load_any(self.libraries).ok_or(Missing::Library)?;
        // SAFETY: the signatures are the documented ones of cuInit/hipInit and cuDeviceGetCount/hipGetDeviceCount.
        unsafe {
            let init: Symbol<unsafe extern "C" fn(c_uint) -> c_int> = library.get(self.init)?;
            let get_count: Symbol<unsafe extern "C" fn(*mut c_int) -> c_int> = library.get(self.count)?;
            self.check(init(0))?;
            let mut count = 0;
            self.check(get_count(&raw mut count))?;
            match usize::try_from(count) {
                Ok(count) if count > 0 => Ok((library, count)),
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

/// A library that is never unloaded: an initialised driver has threads and handlers whose code must stay in memory.
pub(super) struct SharedLibrary(ManuallyDrop<Library>);

impl SharedLibrary {
    /// Loads a library by its name, as the dynamic loader finds it, or by its path.
    pub fn load(name: impl AsRef<OsStr>) -> Option<Self> {
        // SAFETY: loading runs the library's initialisers. All callers are in this module tree and name vendors' libraries
        // only.
        unsafe { Library::new(name.as_ref()) }.ok().map(|library| Self(ManuallyDrop::new(library)))
    }

    /// Returns a function of the library. The name must end with a zero byte.
    ///
    /// # Safety
    /// `F` must be a pointer to a function with the signature that the library documents for this name.
    pub unsafe fn get<F>(&self, name: &[u8]) -> Result<Symbol<'_, F>, Missing> {
        // SAFETY: the caller guarantees that `F` is the function's type.
        unsafe { self.0.get(name) }.map_err(|error| Missing::Symbol(error.to_string()))
    }
}

/// Loads the first library that the dynamic loader finds.
pub(super) fn load_any(names: &[&str]) -> Option<SharedLibrary> {
    names.iter().find_map(SharedLibrary::load)
}

/// Declares a table of a library's functions that return a status.
#[cfg(feature = "cuda")]
macro_rules! functions {
    ($(#[$doc:meta])* $table:ident { $($function:ident = $name:literal ($($argument:ty),*)),* $(,)? }) => {
        $(#[$doc])*
        struct $table {
            $($function: unsafe extern "C" fn($($argument),*) -> ::std::ffi::c_int,)*
        }

        impl $table {
            fn of(library: &$crate::device::driver::SharedLibrary) -> Result<Self, $crate::device::driver::Missing> {
                // SAFETY: the signatures are the documented ones, and the library is never unloaded.
                unsafe { Ok(Self { $($function: *library.get($name)?,)* }) }
            }
        }
    };
}

#[cfg(feature = "cuda")]
pub(super) use functions;

/// `CU_STREAM_NON_BLOCKING`: the stream does not synchronise with the default stream.
#[cfg(feature = "cuda")]
pub(super) const NON_BLOCKING: c_uint = 1;

/// `CU_EVENT_DISABLE_TIMING`.
#[cfg(feature = "cuda")]
pub(super) const WITHOUT_TIME: c_uint = 2;

/// Converts a status of the NVIDIA driver to a result.
#[cfg(feature = "cuda")]
pub(super) fn of_driver(function: &str, status: c_int) -> Result<(), String> {
    if status == 0 { Ok(()) } else { Err(format!("{function} of the NVIDIA driver fails (status {status})")) }
}

#[cfg(all(test, target_os = "linux", target_env = "gnu"))]
mod tests {
    use super::*;

    #[test]
    fn the_library_stays_loaded() {
        // A glibc library that nothing else here uses.
        let driver = Driver {
            libraries: &["libNoSuchDriver.so.1", "libBrokenLocale.so.1"],
            init: b"no_such_init\0",
            count: b"no_such_count\0",
            no_device: 100,
        };
        let is_loaded = || std::fs::read_to_string("/proc/self/maps").unwrap().contains("libBrokenLocale");
        assert!(!is_loaded());
        assert!(matches!(driver.open(), Err(Missing::Symbol(_))));
        assert!(is_loaded());
    }
}
