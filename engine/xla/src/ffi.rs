//! Custom calls: Rust functions that compiled programs call.

use grove_backend::panic_hook::message;
use std::{
    any::Any,
    ffi::{CString, c_void},
    panic::{AssertUnwindSafe, catch_unwind},
    ptr,
    sync::{PoisonError, RwLock},
};

use crate::{
    dtype::{ArrayType, Element, ElementType},
    error::{Result, XlaError},
    ffi_sys::{self as ffi, Array, Arrays, CallFrame},
    platform::Platform,
    plugin::{Padded, Plugin, args, slice},
    sys,
};

/// An argument of a custom call.
#[derive(Debug)]
pub struct FfiBuffer<'a> {
    array: ArrayType,
    bytes: &'a [u8],
}

impl FfiBuffer<'_> {
    /// Returns the type of the array.
    pub fn array_type(&self) -> &ArrayType {
        &self.array
    }

    /// Returns the elements in row-major order, as bytes.
    pub fn bytes(&self) -> &[u8] {
        self.bytes
    }

    /// Returns the elements in row-major order.
    ///
    /// # Errors
    /// If the elements have another type.
    pub fn values<T: Element>(&self) -> Result<&[T], String> {
        T::of(self.bytes).filter(|_| self.array.element == T::TYPE).ok_or_else(|| other_type::<T>(&self.array))
    }
}

/// A result of a custom call, written by the handler. The initial elements are unspecified.
#[derive(Debug)]
pub struct FfiBufferMut<'a> {
    array: ArrayType,
    bytes: &'a mut [u8],
}

impl FfiBufferMut<'_> {
    /// Returns the type of the array.
    pub fn array_type(&self) -> &ArrayType {
        &self.array
    }

    /// Returns the elements in row-major order, as bytes.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.bytes
    }

    /// Returns the elements in row-major order.
    ///
    /// # Errors
    /// If the elements have another type.
    pub fn values_mut<T: Element>(&mut self) -> Result<&mut [T], String> {
        T::of_mut(self.bytes).filter(|_| self.array.element == T::TYPE).ok_or_else(|| other_type::<T>(&self.array))
    }
}

fn other_type<T: Element>(array: &ArrayType) -> String {
    format!("the array is {array}, but its elements were requested as {}", T::TYPE)
}

type Handler = dyn Fn(&[FfiBuffer<'_>], &mut [FfiBufferMut<'_>]) -> Result<(), String> + Send + Sync;

/// A handler and its name in programs.
struct Registered {
    /// Address of the plugin's API.
    plugin: usize,
    name: String,
    handler: &'static Handler,
}

/// The handlers of this process by slot. They are never dropped, because programs may call them until the process ends.
static HANDLERS: RwLock<Vec<Registered>> = RwLock::new(Vec::new());

/// The functions that XLA calls, one per slot: a call does not identify its handler.
const CALLS: [unsafe extern "C" fn(*mut CallFrame) -> *mut c_void; 32] = [
    call::<0>, call::<1>, call::<2>, call::<3>, call::<4>, call::<5>, call::<6>, call::<7>, call::<8>, call::<9>,
    call::<10>, call::<11>, call::<12>, call::<13>, call::<14>, call::<15>, call::<16>, call::<17>, call::<18>,
    call::<19>, call::<20>, call::<21>, call::<22>, call::<23>, call::<24>, call::<25>, call::<26>, call::<27>,
    call::<28>, call::<29>, call::<30>, call::<31>,
];

impl Plugin {
    /// Registers a function that programs call by `stablehlo.custom_call @name(..) {api_version = 4 : i32}`, before they are
    /// compiled or loaded. If the call does more than compute its results, add `has_side_effect = true`. The function runs on the
    /// plugin's threads, possibly on several at once, and may block. If it fails or panics, the results of the program have that
    /// error. It stays registered until the process ends.
    ///
    /// In a program with collectives on several devices, the function must fail on all devices or on none: if devices wait for a
    /// failed one, XLA ends the process after a minute.
    ///
    /// # Errors
    /// If the platform's arrays are not in host memory, if the name is taken, if 32 functions are registered in this process, or
    /// if the plugin has no custom calls.
    pub fn register_ffi(
        &self,
        name: &str,
        platform: Platform,
        handler: impl Fn(&[FfiBuffer<'_>], &mut [FfiBufferMut<'_>]) -> Result<(), String> + Send + Sync + 'static,
    ) -> Result<()> {
        let refused = |reason: String| XlaError::CustomCall { name: name.to_owned(), reason };
        if platform != Platform::Cpu {
            return Err(refused(format!(
                "a custom call reads host memory, but arrays of {platform} are in device memory"
            )));
        }
        // XLA's name for the CPU.
        let platform = "Host";
        let extension = self.extension(sys::extension_type::FFI).cast::<ffi::FfiExtension>();
        // SAFETY: the type of the extension identifies this struct.
        let register = unsafe { extension.as_ref() }.and_then(|extension| extension.register_handler);
        let register = register.ok_or(XlaError::Missing("PJRT_FFI_Register_Handler"))?;
        let mut handlers = HANDLERS.write().unwrap_or_else(PoisonError::into_inner);
        // A plugin may accept a second function of the same name, but calls only one of them.
        if handlers.iter().any(|other| other.plugin == self.address() && other.name == name) {
            return Err(refused("a function of this name is already registered".into()));
        }
        let call = CALLS.get(handlers.len());
        let call = *call.ok_or_else(|| refused(format!("a process can register at most {} functions", CALLS.len())))?;
        let mut args = Padded::new(ffi::RegisterHandler {
            target_name: name.as_ptr().cast(),
            target_name_size: name.len(),
            handler: call as *mut c_void,
            platform_name: platform.as_ptr().cast(),
            platform_name_size: platform.len(),
            ..args()
        });
        // SAFETY: the function only reads the struct, and calls the handler to query its version.
        let error = unsafe { register(&raw mut args.content) };
        // SAFETY: the function returned this error.
        unsafe { self.check("PJRT_FFI_Register_Handler", error) }?;
        handlers.push(Registered {
            plugin: self.address(),
            name: name.to_owned(),
            handler: Box::leak(Box::new(handler)),
        });
        Ok(())
    }

    /// Returns an extension of the plugin's API; null if there is none of this type.
    fn extension(&self, kind: u32) -> *mut ffi::Extension {
        // SAFETY: the plugin's list of extensions is valid and never changes.
        unsafe { find(self.extensions().cast(), kind) }
    }
}

/// Returns the extension of a type in a list; null if there is none.
///
/// # Safety
/// The list must be a valid list of the API, or null.
unsafe fn find(mut extension: *mut ffi::Extension, kind: u32) -> *mut ffi::Extension {
    // SAFETY: guaranteed by the caller; the list ends with a null `next`.
    while let Some(found) = unsafe { extension.as_ref() } {
        if found.kind == kind {
            break;
        }
        extension = found.next;
    }
    extension
}

/// The function that XLA calls for the handler of a slot.
///
/// # Safety
/// The frame must come from XLA.
unsafe extern "C" fn call<const SLOT: usize>(frame: *mut CallFrame) -> *mut c_void {
    // SAFETY: guaranteed by the caller. XLA does not change the frame during the call.
    let frame = unsafe { &*frame };
    // SAFETY: the list of extensions belongs to the frame.
    let metadata = unsafe { find(frame.extension_start, ffi::METADATA) }.cast::<ffi::MetadataExtension>();
    if !metadata.is_null() {
        // SAFETY: the type of the extension identifies this struct. The handler must fill its metadata.
        let metadata = unsafe { &mut *(*metadata).metadata };
        (metadata.major, metadata.minor) = ffi::VERSION;
        return ptr::null_mut();
    }
    if frame.stage != ffi::EXECUTE {
        return ptr::null_mut();
    }
    // A panic must not unwind into XLA.
    let result = catch_unwind(AssertUnwindSafe(|| {
        let handler = HANDLERS.read().unwrap_or_else(PoisonError::into_inner)[SLOT].handler;
        // SAFETY: XLA keeps the arrays of a frame alive during the call.
        unsafe { execute(frame, handler) }
    }));
    let panicked = |panic: Box<dyn Any + Send>| {
        Err(format!("the handler panicked: {}", message(&*panic).unwrap_or("without a message")))
    };
    match result.unwrap_or_else(panicked) {
        Ok(()) => ptr::null_mut(),
        // SAFETY: the frame comes from XLA.
        Err(error) => unsafe { raw_error(frame, &error) },
    }
}

/// Calls a handler with the arrays of a frame.
///
/// # Safety
/// The frame must come from XLA, and must be in the execution stage.
unsafe fn execute(frame: &CallFrame, handler: &Handler) -> Result<(), String> {
    // SAFETY: guaranteed by the caller.
    let (arguments, results) = unsafe { (arrays(&frame.arguments)?, arrays(&frame.results)?) };
    for (index, (array, result)) in results.iter().enumerate() {
        if arguments.iter().chain(&results[..index]).any(|(_, other)| overlap(other, result)) {
            return Err(format!(
                "result {index}, {array}, overlaps the memory of another array: leave out output_operand_aliases"
            ));
        }
    }
    // SAFETY: the arrays are alive during the call, XLA writes to none of them, and no result overlaps another array. The memory
    // was not allocated by Rust, so unwritten bytes have unspecified but valid values.
    let arguments: Vec<FfiBuffer<'_>> = arguments
        .into_iter()
        .map(|(array, bytes)| FfiBuffer { array, bytes: unsafe { slice(bytes.cast_const().cast(), bytes.len()) } })
        .collect();
    let mut results: Vec<FfiBufferMut<'_>> = results
        .into_iter()
        // SAFETY: as for the arguments.
        .map(|(array, bytes)| FfiBufferMut {
            array,
            bytes: if bytes.is_empty() { &mut [] } else { unsafe { &mut *bytes } },
        })
        .collect();
    handler(&arguments, &mut results)
}

/// Returns types and memory of the arguments or results.
///
/// # Safety
/// The list must belong to a frame from XLA.
unsafe fn arrays(list: &Arrays) -> Result<Vec<(ArrayType, *mut [u8])>, String> {
    let len = usize::try_from(list.size).unwrap_or(0);
    // SAFETY: guaranteed by the caller; both lists have `size` entries.
    let (kinds, items) = unsafe { (slice(list.kinds, len), slice(list.items, len)) };
    if kinds.iter().any(|kind| *kind != ffi::BUFFER) {
        return Err("an argument or a result is not an array".into());
    }
    // SAFETY: an item of this kind is an array.
    items.iter().map(|item| unsafe { memory(&**item) }).collect()
}

/// Returns type and memory of an array.
///
/// # Safety
/// The array must come from XLA.
unsafe fn memory(array: &Array) -> Result<(ArrayType, *mut [u8]), String> {
    let unknown = || format!("grove does not support the element type with code {}", array.element);
    let element = ElementType::of_primitive(array.element).ok_or_else(unknown)?;
    // SAFETY: guaranteed by the caller.
    let dims = unsafe { slice(array.dims, usize::try_from(array.rank).unwrap_or(0)) };
    let dims: Vec<usize> = dims.iter().map(|dim| *dim as usize).collect();
    let found = ArrayType::new(element, dims);
    let bytes = found.bytes().ok_or_else(|| format!("{found} exceeds the address space"))?;
    Ok((found, ptr::slice_from_raw_parts_mut(array.data, bytes)))
}

fn overlap(x: &*mut [u8], y: &*mut [u8]) -> bool {
    let start = |bytes: &*mut [u8]| bytes.cast::<u8>() as usize;
    start(x) < start(y) + y.len() && start(y) < start(x) + x.len()
}

/// Creates an XLA error with a message.
///
/// # Safety
/// The frame must come from XLA.
unsafe fn raw_error(frame: &CallFrame, message: &str) -> *mut c_void {
    let message = CString::new(message.replace('\0', " ")).unwrap_or_default();
    let mut error = ffi::ErrorCreate {
        struct_size: size_of::<ffi::ErrorCreate>(),
        message: message.as_ptr(),
        code: ffi::INTERNAL,
        ..args()
    };
    // SAFETY: guaranteed by the caller; XLA copies the message.
    unsafe { ((*frame.api).error_create)(&raw mut error) }
}
