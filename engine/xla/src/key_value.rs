//! The key-value store through which the processes of a plugin's client find each other: the store of the ranks, exposed as
//! callbacks.

use grove_communicator::{CommError, KeyValueStore};
use std::{
    ffi::{c_char, c_void},
    panic::{AssertUnwindSafe, catch_unwind},
    ptr, str,
    time::Duration,
};

use crate::{
    plugin::slice,
    sys::{self, error_code as codes},
};

/// Timeout of a get with a negative timeout, which is C++'s infinity here: the longest timeout of XLA's own stores.
const NO_LIMIT: Duration = Duration::from_secs(600);

/// Function that creates a plugin error from a code and a message.
type MakeError = unsafe extern "C" fn(u32, *const c_char, usize) -> *mut c_void;

/// Code and message of an error.
type Failure = (u32, String);

/// Adds a store to the arguments of a client. The store must keep its address as long as the client lives.
pub(crate) fn with_store(args: sys::ClientCreate, store: &KeyValueStore) -> sys::ClientCreate {
    let store = ptr::from_ref(store).cast_mut().cast();
    sys::ClientCreate {
        kv_get_callback: get as *mut c_void,
        kv_get_user_arg: store,
        kv_put_callback: put as *mut c_void,
        kv_put_user_arg: store,
        kv_try_get_callback: try_get as *mut c_void,
        kv_try_get_user_arg: store,
        ..args
    }
}

/// Callback: waits for a value.
///
/// # Safety
/// By the contract of `PJRT_KeyValueGetCallback`, the key, the function that creates errors and the user argument, a store of
/// [`with_store`], must be valid. XLA leaves the other fields uninitialised, including the struct size, so no reference is
/// created.
unsafe extern "C" fn get(args: *mut sys::KeyValueGetCallback) -> *mut c_void {
    // SAFETY: the caller guarantees that these fields are set.
    let (key, store, timeout, make_error) = unsafe {
        let key = slice((*args).key.cast(), (*args).key_size);
        (key, (*args).user_arg, (*args).timeout_in_ms, (*args).callback_error)
    };
    let timeout = u64::try_from(timeout).map_or(NO_LIMIT, Duration::from_millis);
    // SAFETY: the store comes from `with_store`.
    match unsafe { answer(store, key, |store, key| store.get(key, timeout).map_err(failure)) } {
        Ok(value) => {
            // SAFETY: these fields are output fields and may be written.
            unsafe {
                let (size, deleter) = (&raw mut (*args).value_size, &raw mut (*args).value_deleter_callback);
                give(&value, size, &raw mut (*args).value, deleter)
            }
        }
        // SAFETY: the caller guarantees that the pointer is set.
        Err(failure) => unsafe { error(make_error, &failure) },
    }
}

/// Callback: looks up a value without waiting.
///
/// # Safety
/// Those of [`get`], by the contract of `PJRT_KeyValueTryGetCallback`.
unsafe extern "C" fn try_get(args: *mut sys::KeyValueTryGetCallback) -> *mut c_void {
    // SAFETY: the caller guarantees that these fields are set.
    let (key, store, make_error) =
        unsafe { (slice((*args).key.cast(), (*args).key_size), (*args).user_arg, (*args).callback_error) };
    let find = |store: &KeyValueStore, key: &str| {
        let missing = || (codes::NOT_FOUND, format!("no rank stored the key '{key}'"));
        store.try_get(key).map_err(failure)?.ok_or_else(missing)
    };
    // SAFETY: the store comes from `with_store`.
    match unsafe { answer(store, key, find) } {
        Ok(value) => {
            // SAFETY: these fields are output fields and may be written.
            unsafe {
                let (size, deleter) = (&raw mut (*args).value_size, &raw mut (*args).value_deleter_callback);
                give(&value, size, &raw mut (*args).value, deleter)
            }
        }
        // SAFETY: the caller guarantees that the pointer is set.
        Err(failure) => unsafe { error(make_error, &failure) },
    }
}

/// Callback: puts a value.
///
/// # Safety
/// Those of [`get`], by the contract of `PJRT_KeyValuePutCallback`; the value must be valid too.
unsafe extern "C" fn put(args: *mut sys::KeyValuePutCallback) -> *mut c_void {
    // SAFETY: the caller guarantees that these fields are set.
    let (key, value, store, make_error) = unsafe {
        let key = slice((*args).key.cast(), (*args).key_size);
        let value = slice((*args).value.cast(), (*args).value_size);
        (key, value, (*args).user_arg, (*args).callback_error)
    };
    // SAFETY: the store comes from `with_store`.
    match unsafe { answer(store, key, |store, key| store.put(key, value).map_err(failure)) } {
        Ok(()) => ptr::null_mut(),
        // SAFETY: the caller guarantees that the pointer is set.
        Err(failure) => unsafe { error(make_error, &failure) },
    }
}

/// Queries a store. A panic becomes an error, because it must not unwind into the plugin.
///
/// # Safety
/// `store` must point to a live [`KeyValueStore`].
unsafe fn answer<T>(
    store: *mut c_void,
    key: &[u8],
    ask: impl FnOnce(&KeyValueStore, &str) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let asked = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: guaranteed by the caller; a store may be used from any thread.
        let store = unsafe { &*store.cast::<KeyValueStore>() };
        let not_text = |_| (codes::INVALID_ARGUMENT, format!("the key {} is not UTF-8", key.escape_ascii()));
        ask(store, str::from_utf8(key).map_err(not_text)?)
    }));
    asked.unwrap_or_else(|_| Err((codes::INTERNAL, "the key-value store of the ranks panicked".into())))
}

/// Returns code and message of an error. XLA's source evaluates the code: a key that already exists may have been put by the same
/// process.
fn failure(error: CommError) -> Failure {
    let code = match &error {
        CommError::NoKey { .. } => codes::DEADLINE_EXCEEDED,
        CommError::AlreadyPut { .. } => codes::ALREADY_EXISTS,
        CommError::TooLarge { .. } => codes::INVALID_ARGUMENT,
        CommError::Died { .. } | CommError::Failed { .. } | CommError::Left { .. } => codes::UNAVAILABLE,
        _ => codes::INTERNAL,
    };
    (code, error.to_string())
}

/// Creates an error of the plugin.
///
/// # Safety
/// `make_error` must point to a pointer to a function that creates errors and copies the message.
unsafe fn error(make_error: *mut c_void, (code, message): &Failure) -> *mut c_void {
    // SAFETY: guaranteed by the caller.
    unsafe { make_error.cast::<MakeError>().read()(*code, message.as_ptr().cast(), message.len()) }
}

/// Passes a copy of a value and its deleter to XLA. Returns null: no error.
///
/// # Safety
/// The pointers must be valid for writes.
unsafe fn give(value: &[u8], size: *mut usize, place: *mut *mut c_char, deleter: *mut *mut c_void) -> *mut c_void {
    // SAFETY: guaranteed by the caller.
    unsafe {
        size.write(value.len());
        place.write(copy(value));
        deleter.write(delete as *mut c_void);
    }
    ptr::null_mut()
}

/// Copies a value; [`delete`] frees the copy. `delete` gets no size, so the number of words precedes the value.
fn copy(value: &[u8]) -> *mut c_char {
    const WORD: usize = size_of::<usize>();
    let words = 1 + value.len().div_ceil(WORD);
    let mut copy = vec![0usize; words].into_boxed_slice();
    copy[0] = words;
    let start = Box::into_raw(copy).cast::<usize>();
    // SAFETY: the words after the first one have space for the value.
    unsafe {
        let place = start.add(1).cast::<u8>();
        place.copy_from_nonoverlapping(value.as_ptr(), value.len());
        place.cast()
    }
}

/// Frees a value.
///
/// # Safety
/// The value must come from [`copy`], and must not be used afterwards.
unsafe extern "C" fn delete(value: *mut c_char) {
    // SAFETY: the caller guarantees that the value comes from `copy`, so the number of words of a box precedes it.
    unsafe {
        let start = value.cast::<usize>().sub(1);
        drop(Box::from_raw(ptr::slice_from_raw_parts_mut(start, start.read())));
    }
}

#[cfg(test)]
mod tests;
