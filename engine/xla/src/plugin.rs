use std::{
    ffi::{c_char, c_void},
    path::Path,
    ptr,
    sync::Arc,
};

use crate::{
    error::{Result, XlaError},
    sys::{self, Api, Args, Struct},
};

/// Minor version of the API of the oldest plugin that was tested.
const MIN_MINOR: i32 = 81;

/// Bytes after each struct that a plugin of a later version may read. Zeros mean "not given".
const PADDING: usize = 256;

/// A struct with trailing padding that counts towards its size.
#[repr(C)]
pub(crate) struct Padded<T> {
    pub content: T,
    padding: [u8; PADDING],
}

impl<T: Struct> Padded<T> {
    pub fn new(content: T) -> Self {
        let mut padded = Self { content, padding: [0; PADDING] };
        // SAFETY: by the contract of `Struct`, the first field is the size.
        unsafe { (&raw mut padded).cast::<usize>().write(size_of::<Self>()) };
        padded
    }
}

/// Returns a struct of the API with zeros in all fields.
pub(crate) fn args<T: Struct>() -> T {
    // SAFETY: by the contract of `Struct`, zeros are valid.
    unsafe { std::mem::zeroed() }
}

/// Value of an option, or of an attribute of a plugin.
#[derive(Clone, Debug, PartialEq)]
pub enum NamedValue {
    /// A string.
    String(String),
    /// An integer.
    Int(i64),
    /// Integers.
    Ints(Vec<i64>),
    /// A floating-point number.
    Float(f32),
    /// A boolean.
    Bool(bool),
    /// A kind of a later version of the API, by its number. The value is not read.
    Unknown(u32),
}

/// A library with the PJRT C API. It stays loaded until the process ends.
#[derive(Debug)]
pub struct Plugin {
    api: *const Api,
}

// SAFETY: the function table never changes, and PJRT's functions may be called from any thread.
unsafe impl Send for Plugin {}
// SAFETY: as for `Send`.
unsafe impl Sync for Plugin {}

impl Plugin {
    /// Loads a plugin and initialises it.
    ///
    /// # Errors
    /// If the file is not a library with `GetPjrtApi`, if its version is too old, or if it fails to initialise.
    pub fn load(path: &Path) -> Result<Arc<Self>> {
        let refused = |reason: String| XlaError::NoPlugin { path: path.to_owned(), reason };
        if !path.is_file() {
            return Err(refused("the file does not exist".into()));
        }
        // SAFETY: loading runs the initialisers of a library that the user named as a plugin; the user trusts it.
        let library = unsafe { libloading::Library::new(path) }.map_err(|error| refused(error.to_string()))?;
        // Unloading a plugin while its threads run ends the process.
        let library = Box::leak(Box::new(library));
        // SAFETY: the symbol has this type in every version of the API.
        let api = unsafe {
            let function = library.get::<unsafe extern "C" fn() -> *const Api>(b"GetPjrtApi\0");
            function.map_err(|_| refused("it has no function GetPjrtApi".into()))?()
        };
        if api.is_null() {
            return Err(refused("GetPjrtApi returns a null pointer".into()));
        }
        let plugin = Self { api };
        let (major, minor) = plugin.version();
        if major != 0 || minor < MIN_MINOR {
            return Err(XlaError::Version {
                path: path.to_owned(),
                found: format!("{major}.{minor}"),
                minimum: MIN_MINOR,
            });
        }
        plugin.call(args::<sys::PluginInitialize>())?;
        Ok(Arc::new(plugin))
    }

    /// Wraps a table of this process, for tests.
    ///
    /// # Safety
    /// The table must stay valid until the process ends, and its functions must follow the API.
    #[cfg(test)]
    pub(crate) unsafe fn of_table(api: *const Api) -> Arc<Self> {
        Arc::new(Self { api })
    }

    /// Returns major and minor version of the plugin's API.
    pub fn version(&self) -> (i32, i32) {
        // SAFETY: `load` checked the pointer, and the head of the table is the same in every version.
        let version = unsafe { &(*self.api).version };
        (version.major_version, version.minor_version)
    }

    /// Returns a number that identifies the library in this process.
    pub(crate) fn address(&self) -> usize {
        self.api as usize
    }

    /// Returns the list of the API's extensions.
    pub(crate) fn extensions(&self) -> *mut c_void {
        // SAFETY: `load` checked the pointer, and the head of the table is the same in every version.
        unsafe { (*self.api).extension_start }
    }

    /// Returns attributes of the plugin, such as the version of StableHLO that it reads.
    ///
    /// # Errors
    /// If the plugin fails.
    pub fn attributes(&self) -> Result<Vec<(String, NamedValue)>> {
        let found = self.call(args::<sys::PluginAttributes>())?;
        // SAFETY: the plugin returned this many values.
        Ok(unsafe { named_values(found.attributes, found.num_attributes) })
    }

    /// Calls a function of the API. Returns its arguments, which contain the results.
    pub(crate) fn call<A: Args>(&self, args: A) -> Result<A> {
        let mut padded = Padded::new(args);
        let function = self.function::<A>()?;
        // SAFETY: later versions of the struct only append fields, which the padding covers. Callers, all in this crate,
        // guarantee that the pointers in it are valid.
        let error = unsafe { function((&raw mut padded).cast()) };
        // SAFETY: the function returned this error.
        unsafe { self.check(A::NAME, error) }?;
        Ok(padded.content)
    }

    /// Returns the function of the table that takes this struct.
    fn function<A: Args>(&self) -> Result<unsafe extern "C" fn(*mut c_void) -> *mut c_void> {
        let end = size_of::<Api>() + (A::INDEX + 1) * size_of::<*const c_void>();
        // SAFETY: the table states its length, and all entries are function pointers of one type, or null.
        let function = unsafe {
            if end > (*self.api).struct_size {
                return Err(XlaError::Missing(A::NAME));
            }
            self.api.add(1).cast::<Option<unsafe extern "C" fn(*mut c_void) -> *mut c_void>>().add(A::INDEX).read()
        };
        function.ok_or(XlaError::Missing(A::NAME))
    }

    /// Converts and frees the error that a function returned, if any.
    ///
    /// # Safety
    /// The error must be null, or an error of this plugin that is not freed elsewhere.
    pub(crate) unsafe fn check(&self, function: &'static str, error: *mut c_void) -> Result<()> {
        if error.is_null() {
            return Ok(());
        }
        // These two functions return nothing to check.
        let mut message = Padded::new(sys::ErrorMessage { error: error.cast_const(), ..args() });
        let mut destroy = Padded::new(sys::ErrorDestroy { error, ..args() });
        let code = self.call(sys::ErrorGetCode { error: error.cast_const(), ..args() }).map_or(0, |found| found.code);
        // SAFETY: the error is alive until it is destroyed, and its message is copied before that.
        let message = unsafe {
            self.function::<sys::ErrorMessage>()?((&raw mut message).cast());
            let text = text(message.content.message, message.content.message_size);
            self.function::<sys::ErrorDestroy>()?((&raw mut destroy).cast());
            text
        };
        Err(XlaError::Plugin { function, code, message })
    }

    /// Waits for an event and frees it.
    pub(crate) fn wait(&self, event: *mut c_void) -> Result<()> {
        if event.is_null() {
            return Ok(());
        }
        let waited = self.call(sys::EventAwait { event, ..args() });
        self.call(sys::EventDestroy { event, ..args() })?;
        waited.map(drop)
    }
}

/// Copies a text of the API.
///
/// # Safety
/// The text must have `len` bytes.
pub(crate) unsafe fn text(start: *const c_char, len: usize) -> String {
    // SAFETY: guaranteed by the caller.
    String::from_utf8_lossy(unsafe { slice(start.cast(), len) }).into_owned()
}

/// Wraps a list of the API, which may be null if it is empty.
///
/// # Safety
/// The list must have `len` values that are valid as long as the slice is used.
pub(crate) unsafe fn slice<'a, T>(start: *const T, len: usize) -> &'a [T] {
    if len == 0 {
        return &[];
    }
    // SAFETY: guaranteed by the caller.
    unsafe { std::slice::from_raw_parts(start, len) }
}

/// Copies named values.
///
/// # Safety
/// There must be `len` values.
pub(crate) unsafe fn named_values(start: *const sys::NamedValue, len: usize) -> Vec<(String, NamedValue)> {
    use sys::named_value_type as kinds;
    // SAFETY: guaranteed by the caller; a value's kind determines the active field of the union.
    let value = |value: &sys::NamedValue| unsafe {
        let found = match value.kind {
            kinds::STRING => NamedValue::String(text(value.value.string, value.value_size)),
            kinds::INT64 => NamedValue::Int(value.value.int),
            kinds::INT64_LIST => NamedValue::Ints(slice(value.value.ints, value.value_size).to_vec()),
            kinds::FLOAT => NamedValue::Float(value.value.float),
            kinds::BOOL => NamedValue::Bool(value.value.bool != 0),
            kind => NamedValue::Unknown(kind),
        };
        (text(value.name, value.name_size), found)
    };
    // SAFETY: guaranteed by the caller.
    unsafe { slice(start, len) }.iter().map(value).collect()
}

/// Converts named values for the API. The results point into `values`.
pub(crate) fn raw_values(values: &[(String, NamedValue)]) -> Vec<sys::NamedValue> {
    use sys::named_value_type as kinds;
    let raw = |(name, value): &(String, NamedValue)| {
        let (kind, value, value_size) = match value {
            NamedValue::String(x) => (kinds::STRING, sys::NamedValueUnion { string: x.as_ptr().cast() }, x.len()),
            NamedValue::Int(x) => (kinds::INT64, sys::NamedValueUnion { int: *x }, 1),
            NamedValue::Ints(x) => (kinds::INT64_LIST, sys::NamedValueUnion { ints: x.as_ptr() }, x.len()),
            NamedValue::Float(x) => (kinds::FLOAT, sys::NamedValueUnion { float: *x }, 1),
            NamedValue::Bool(x) => (kinds::BOOL, sys::NamedValueUnion { bool: u8::from(*x) }, 1),
            NamedValue::Unknown(kind) => (*kind, sys::NamedValueUnion { int: 0 }, 0),
        };
        sys::NamedValue {
            struct_size: size_of::<sys::NamedValue>(),
            extension_start: ptr::null_mut(),
            name: name.as_ptr().cast(),
            name_size: name.len(),
            kind,
            value,
            value_size,
        }
    };
    values.iter().map(raw).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::checked;

    #[test]
    fn values_of_unknown_kinds_are_not_read() {
        let named = |value: NamedValue| ("x".to_owned(), value);
        let given = [
            NamedValue::String("oak".into()),
            NamedValue::Int(-7),
            NamedValue::Ints(vec![1, 2]),
            NamedValue::Float(0.5),
            NamedValue::Bool(true),
            NamedValue::Bool(false),
            NamedValue::Bool(true),
        ]
        .map(named);
        let mut raw = raw_values(&given);
        // As in a later version of the API.
        raw[6].kind = 5;
        raw[6].value.bool = 42;
        // A nonzero byte, which is true in C++.
        raw[4].value.bool = 2;
        // SAFETY: there are this many values, which point into `given`.
        let found = unsafe { named_values(raw.as_ptr(), raw.len()) };
        assert_eq!(found[..6], given[..6]);
        assert_eq!(found[6], named(NamedValue::Unknown(5)));
        let error = checked(&found).map(drop).unwrap_err().to_string();
        assert!(error.starts_with("the option x is a value of the unknown kind 5; the plugin takes"), "{error}");
    }
}
