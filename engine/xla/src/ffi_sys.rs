//! The parts of XLA's C API for custom calls that grove uses: `xla/ffi/api/c_api.h` and `xla/pjrt/c/pjrt_c_api_ffi_extension.h`,
//! which no plugin includes. Written by hand; later versions only append fields.

use std::ffi::{c_char, c_void};

use crate::sys::Struct;

/// Head of each extension, of PJRT and of a call.
#[repr(C)]
pub struct Extension {
    pub struct_size: usize,
    pub kind: u32,
    pub next: *mut Extension,
}

/// The PJRT extension that registers handlers.
#[repr(C)]
pub struct FfiExtension {
    pub base: Extension,
    pub type_register: *mut c_void,
    pub user_data_add: *mut c_void,
    pub register_handler: Option<unsafe extern "C" fn(*mut RegisterHandler) -> *mut c_void>,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct RegisterHandler {
    pub struct_size: usize,
    pub target_name: *const c_char,
    pub target_name_size: usize,
    pub handler: *mut c_void,
    pub platform_name: *const c_char,
    pub platform_name_size: usize,
    pub traits: u32,
}

// SAFETY: as in the header, with pointers and numbers only.
unsafe impl Struct for RegisterHandler {}

/// Type of the extension of a call that queries the handler's version.
pub const METADATA: u32 = 1;

/// Version of the API of these structs: the oldest that plugins accept.
pub const VERSION: (i32, i32) = (0, 1);

#[repr(C)]
pub struct MetadataExtension {
    pub base: Extension,
    pub metadata: *mut Metadata,
}

#[repr(C)]
pub struct Metadata {
    pub struct_size: usize,
    pub version_size: usize,
    pub version_extension: *mut Extension,
    pub major: i32,
    pub minor: i32,
    pub traits: u32,
}

/// Execution stage of a call.
pub const EXECUTE: u32 = 3;

/// Type of an argument or a result that is an array.
pub const BUFFER: u32 = 1;

#[repr(C)]
pub struct CallFrame {
    pub struct_size: usize,
    pub extension_start: *mut Extension,
    pub api: *const FfiApi,
    pub context: *mut c_void,
    pub stage: u32,
    pub arguments: Arrays,
    pub results: Arrays,
}

/// Arguments or results.
#[repr(C)]
pub struct Arrays {
    pub struct_size: usize,
    pub extension_start: *mut Extension,
    pub size: i64,
    pub kinds: *const u32,
    pub items: *const *const Array,
}

#[repr(C)]
pub struct Array {
    pub struct_size: usize,
    pub extension_start: *mut Extension,
    pub element: u32,
    pub data: *mut u8,
    pub rank: i64,
    pub dims: *const i64,
}

/// Head of the function table.
#[repr(C)]
pub struct FfiApi {
    pub struct_size: usize,
    pub extension_start: *mut Extension,
    pub version_size: usize,
    pub version_extension: *mut Extension,
    pub major: i32,
    pub minor: i32,
    pub internal: *const c_void,
    pub error_create: unsafe extern "C" fn(*mut ErrorCreate) -> *mut c_void,
}

/// Code of a handler's error.
pub const INTERNAL: u32 = 13;

#[derive(Clone, Copy)]
#[repr(C)]
pub struct ErrorCreate {
    pub struct_size: usize,
    pub extension_start: *mut Extension,
    pub message: *const c_char,
    pub code: u32,
}

// SAFETY: as in the header, with pointers and numbers only.
unsafe impl Struct for ErrorCreate {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    /// Sizes and offsets from a C compiler that reads the header. For structs with more fields, the offset of the last field
    /// here.
    #[test]
    fn sizes_match_c() {
        assert_eq!(size_of::<Extension>(), 24);
        assert_eq!(size_of::<RegisterHandler>(), 56);
        assert_eq!(offset_of!(FfiExtension, register_handler), 40);
        assert_eq!(size_of::<MetadataExtension>(), 32);
        assert_eq!(offset_of!(Metadata, traits), 32);
        assert_eq!((offset_of!(CallFrame, stage), offset_of!(CallFrame, arguments)), (32, 40));
        assert_eq!(offset_of!(CallFrame, results), 80);
        assert_eq!((size_of::<Arrays>(), offset_of!(Arrays, items)), (40, 32));
        assert_eq!((size_of::<Array>(), offset_of!(Array, data)), (48, 24));
        assert_eq!(offset_of!(FfiApi, error_create), 48);
        assert_eq!(size_of::<ErrorCreate>(), 32);
    }
}
