//! Custom calls: functions of Rust that compiled programs call.

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
    /// Its type.
    pub fn array_type(&self) -> &ArrayType {
        &self.array
    }

    /// Its elements in row-major order, as bytes.
    pub fn bytes(&self) -> &[u8] {
        self.bytes
    }

    /// Its elements in row-major order.
    ///
    /// # Errors
    /// They are of another type.
    pub fn values<T: Element>(&self) -> Result<&[T], String> {
        T::of(self.bytes).filter(|_| self.array.element == T::TYPE).ok_or_else(|| other_type::<T>(&self.array))
    }
}

/// A result of a custom call, which the handler writes. Its elements have no particular values before.
#[derive(Debug)]
pub struct FfiBufferMut<'a> {
    array: ArrayType,
    bytes: &'a mut [u8],
}

impl FfiBufferMut<'_> {
    /// Its type.
    pub fn array_type(&self) -> &ArrayType {
        &self.array
    }

    /// Its elements in row-major order, as bytes.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.bytes
    }

    /// Its elements in row-major order.
    ///
    /// # Errors
    /// They are of another type.
    pub fn values_mut<T: Element>(&mut self) -> Result<&mut [T], String> {
        T::of_mut(self.bytes).filter(|_| self.array.element == T::TYPE).ok_or_else(|| other_type::<T>(&self.array))
    }
}

fn other_type<T: Element>(array: &ArrayType) -> String {
    format!("the array is {array}, and its elements are asked for as {}", T::TYPE)
}

type Handler = dyn Fn(&[FfiBuffer<'_>], &mut [FfiBufferMut<'_>]) -> Result<(), String> + Send + Sync;

/// A handler under the name that programs call it by.
struct Registered {
    /// Address of the plugin's API.
    plugin: usize,
    name: String,
    handler: &'static Handler,
}

/// The handlers of this process by slot. They are never dropped, since programs may call them until the process ends.
static HANDLERS: RwLock<Vec<Registered>> = RwLock::new(Vec::new());

/// The functions that XLA calls, one for each slot: a call does not say which handler it is for.
const CALLS: [unsafe extern "C" fn(*mut CallFrame) -> *mut c_void; 32] = [
    call::<0>, call::<1>, call::<2>, call::<3>, call::<4>, call::<5>, call::<6>, call::<7>, call::<8>, call::<9>,
    call::<10>, call::<11>, call::<12>, call::<13>, call::<14>, call::<15>, call::<16>, call::<17>, call::<18>,
    call::<19>, call::<20>, call::<21>, call::<22>, call::<23>, call::<24>, call::<25>, call::<26>, call::<27>,
    call::<28>, call::<29>, call::<30>, call::<31>,
];

impl Plugin {
    /// Registers a function that programs call by `stablehlo.custom_call @name(..) {api_version = 4 : i32}`, before they are compiled
    /// or loaded. Of a call that does more than to compute its results, add `has_side_effect = true`. The function is called on the
    /// plugin's threads, perhaps on several at once, and may block; an error of it, or a panic, is the error of the program's results.
    /// It stays registered until the process ends.
    ///
    /// In a program on several devices with collectives, it has to fail on all of them or none: XLA ends the process a minute after one
    /// has failed for which others wait.
    ///
    /// # Errors
    /// The platform's arrays are not in the host's memory, the name is taken, 32 functions are registered in this process, or the
    /// plugin has no custom calls.
    pub fn register_ffi(
        &self,
        name: &str,
        platform: Platform,
        handler: impl Fn(&[FfiBuffer<'_>], &mut [FfiBufferMut<'_>]) -> Result<(), String> + Send + Sync + 'static,
    ) -> Result<()> {
        let refused = |reason: String| XlaError::CustomCall { name: name.to_owned(), reason };
        if platform != Platform::Cpu {
            return Err(refused(format!("it reads the host's memory, in which arrays of {platform} are not")));
        }
        // XLA's name of the CPU.
        let platform = "Host";
        let extension = self.extension(sys::extension_type::FFI).cast::<ffi::FfiExtension>();
        // SAFETY: the type of the extension says that it is this struct.
        let register = unsafe { extension.as_ref() }.and_then(|extension| extension.register_handler);
        let register = register.ok_or(XlaError::Missing("PJRT_FFI_Register_Handler"))?;
        let mut handlers = HANDLERS.write().unwrap_or_else(PoisonError::into_inner);
        // A plugin may take a second function of one name, of which it calls one.
        if handlers.iter().any(|other| other.plugin == self.address() && other.name == name) {
            return Err(refused("there is one of this name".into()));
        }
        let call = CALLS.get(handlers.len());
        let call = *call.ok_or_else(|| refused(format!("{} are registered, and no more can be", CALLS.len())))?;
        let mut args = Padded::new(ffi::RegisterHandler {
            target_name: name.as_ptr().cast(),
            target_name_size: name.len(),
            handler: call as *mut c_void,
            platform_name: platform.as_ptr().cast(),
            platform_name_size: platform.len(),
            ..args()
        });
        // SAFETY: the function reads the struct, and calls the handler for its version.
        let error = unsafe { register(&raw mut args.content) };
        // SAFETY: the function returned it.
        unsafe { self.check("PJRT_FFI_Register_Handler", error) }?;
        handlers.push(Registered {
            plugin: self.address(),
            name: name.to_owned(),
            handler: Box::leak(Box::new(handler)),
        });
        Ok(())
    }

    /// An extension of the plugin's API; null if it has none of this type.
    fn extension(&self, kind: u32) -> *mut ffi::Extension {
        // SAFETY: the plugin's list of extensions never changes.
        unsafe { find(self.extensions().cast(), kind) }
    }
}

/// The extension of a type in a list; null if there is none.
///
/// # Safety
/// The list must be one of the API.
unsafe fn find(mut extension: *mut ffi::Extension, kind: u32) -> *mut ffi::Extension {
    // SAFETY: the caller's promise; the last one has no next.
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
/// The frame must be one of XLA's.
unsafe extern "C" fn call<const SLOT: usize>(frame: *mut CallFrame) -> *mut c_void {
    // SAFETY: the caller's promise. XLA alone has the frame during the call.
    let frame = unsafe { &*frame };
    // SAFETY: the frame's list of extensions.
    let metadata = unsafe { find(frame.extension_start, ffi::METADATA) }.cast::<ffi::MetadataExtension>();
    if !metadata.is_null() {
        // SAFETY: the type of the extension says that it is this struct, which is there to be filled.
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
        // SAFETY: XLA keeps the arrays of a frame for the call.
        unsafe { execute(frame, handler) }
    }));
    match result.unwrap_or_else(|panic| Err(format!("the handler panicked: {}", message(&*panic)))) {
        Ok(()) => ptr::null_mut(),
        // SAFETY: the frame is XLA's.
        Err(error) => unsafe { raw_error(frame, &error) },
    }
}

/// Calls a handler with the arrays of a frame.
///
/// # Safety
/// The frame must be one of XLA's that is to be executed.
unsafe fn execute(frame: &CallFrame, handler: &Handler) -> Result<(), String> {
    // SAFETY: the caller's promise.
    let (arguments, results) = unsafe { (arrays(&frame.arguments)?, arrays(&frame.results)?) };
    for (index, (array, result)) in results.iter().enumerate() {
        if arguments.iter().chain(&results[..index]).any(|(_, other)| overlap(other, result)) {
            return Err(format!(
                "result {index}, {array}, lies in the memory of another array: leave out output_operand_aliases"
            ));
        }
    }
    // SAFETY: the arrays are alive during the call, XLA writes to none of them, and no result overlaps another array. The memory is
    // not Rust's, so that bytes that were not written have values, although unspecified ones.
    let arguments: Vec<FfiBuffer<'_>> = arguments
        .into_iter()
        .map(|(array, bytes)| FfiBuffer { array, bytes: unsafe { slice(bytes.cast_const().cast(), bytes.len()) } })
        .collect();
    let mut results: Vec<FfiBufferMut<'_>> = results
        .into_iter()
        // SAFETY: as above.
        .map(|(array, bytes)| FfiBufferMut {
            array,
            bytes: if bytes.is_empty() { &mut [] } else { unsafe { &mut *bytes } },
        })
        .collect();
    handler(&arguments, &mut results)
}

/// Types and memory of the arguments, or the results.
///
/// # Safety
/// They must be of a frame of XLA's.
unsafe fn arrays(list: &Arrays) -> Result<Vec<(ArrayType, *mut [u8])>, String> {
    let len = usize::try_from(list.size).unwrap_or(0);
    // SAFETY: the caller's promise; the lists have so many entries.
    let (kinds, items) = unsafe { (slice(list.kinds, len), slice(list.items, len)) };
    if kinds.iter().any(|kind| *kind != ffi::BUFFER) {
        return Err("an argument or a result is no array".into());
    }
    // SAFETY: an item of this type is an array.
    items.iter().map(|item| unsafe { memory(&**item) }).collect()
}

/// Type and memory of an array.
///
/// # Safety
/// It must be one of XLA's.
unsafe fn memory(array: &Array) -> Result<(ArrayType, *mut [u8]), String> {
    let unknown = || format!("grove has no arrays of the type with code {}", array.element);
    let element = ElementType::of_primitive(array.element).ok_or_else(unknown)?;
    // SAFETY: the caller's promise.
    let dims = unsafe { slice(array.dims, usize::try_from(array.rank).unwrap_or(0)) };
    let dims: Vec<usize> = dims.iter().map(|dim| *dim as usize).collect();
    let found = ArrayType::new(element, dims);
    let bytes = found.bytes().ok_or_else(|| format!("{found} has more bytes than there are addresses"))?;
    Ok((found, ptr::slice_from_raw_parts_mut(array.data, bytes)))
}

fn overlap(x: &*mut [u8], y: &*mut [u8]) -> bool {
    let start = |bytes: &*mut [u8]| bytes.cast::<u8>() as usize;
    start(x) < start(y) + y.len() && start(y) < start(x) + x.len()
}

/// The text of a panic.
fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message")
}

/// An error of XLA's with a message.
///
/// # Safety
/// The frame must be one of XLA's.
unsafe fn raw_error(frame: &CallFrame, message: &str) -> *mut c_void {
    let message = CString::new(message.replace('\0', " ")).unwrap_or_default();
    let mut error = ffi::ErrorCreate {
        struct_size: size_of::<ffi::ErrorCreate>(),
        message: message.as_ptr(),
        code: ffi::INTERNAL,
        ..args()
    };
    // SAFETY: the caller's promise; XLA copies the message.
    unsafe { ((*frame.api).error_create)(&raw mut error) }
}
