//! The key-value store by which the processes of a plugin's client find each other: that of the ranks, through callbacks.

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

/// Time that a get takes whose limit is negative, which is what C++ makes of no limit: the longest of XLA's own stores.
const NO_LIMIT: Duration = Duration::from_secs(600);

/// Makes an error of the plugin from a code and a message.
type MakeError = unsafe extern "C" fn(u32, *const c_char, usize) -> *mut c_void;

/// Code and message of an error.
type Failure = (u32, String);

/// Arguments for a client that uses a store, which has to stay where it is for as long as the client lives.
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

/// Waits for a value.
///
/// # Safety
/// By the contract of `PJRT_KeyValueGetCallback`: the key, the function that makes errors and the user's argument, a store of
/// [`with_store`], are valid. XLA leaves the other fields, the size among them, as they happen to be: no reference is made.
unsafe extern "C" fn get(args: *mut sys::KeyValueGetCallback) -> *mut c_void {
    // SAFETY: these fields are set, by the caller's promise.
    let (key, store, timeout, make_error) = unsafe {
        let key = slice((*args).key.cast(), (*args).key_size);
        (key, (*args).user_arg, (*args).timeout_in_ms, (*args).callback_error)
    };
    let timeout = u64::try_from(timeout).map_or(NO_LIMIT, Duration::from_millis);
    // SAFETY: the store is that of `with_store`.
    match unsafe { answer(store, key, |store, key| store.get(key, timeout).map_err(failure)) } {
        Ok(value) => {
            // SAFETY: the fields are there to be written.
            unsafe {
                let (size, deleter) = (&raw mut (*args).value_size, &raw mut (*args).value_deleter_callback);
                give(&value, size, &raw mut (*args).value, deleter)
            }
        }
        // SAFETY: the pointer is set, by the caller's promise.
        Err(failure) => unsafe { error(make_error, &failure) },
    }
}

/// Looks for a value, without waiting.
///
/// # Safety
/// As [`get`], by the contract of `PJRT_KeyValueTryGetCallback`.
unsafe extern "C" fn try_get(args: *mut sys::KeyValueTryGetCallback) -> *mut c_void {
    // SAFETY: these fields are set, by the caller's promise.
    let (key, store, make_error) =
        unsafe { (slice((*args).key.cast(), (*args).key_size), (*args).user_arg, (*args).callback_error) };
    let find = |store: &KeyValueStore, key: &str| {
        let missing = || (codes::NOT_FOUND, format!("no rank has put the key '{key}'"));
        store.try_get(key).map_err(failure)?.ok_or_else(missing)
    };
    // SAFETY: the store is that of `with_store`.
    match unsafe { answer(store, key, find) } {
        Ok(value) => {
            // SAFETY: the fields are there to be written.
            unsafe {
                let (size, deleter) = (&raw mut (*args).value_size, &raw mut (*args).value_deleter_callback);
                give(&value, size, &raw mut (*args).value, deleter)
            }
        }
        // SAFETY: the pointer is set, by the caller's promise.
        Err(failure) => unsafe { error(make_error, &failure) },
    }
}

/// Puts a value.
///
/// # Safety
/// As [`get`], by the contract of `PJRT_KeyValuePutCallback`; the value is valid too.
unsafe extern "C" fn put(args: *mut sys::KeyValuePutCallback) -> *mut c_void {
    // SAFETY: these fields are set, by the caller's promise.
    let (key, value, store, make_error) = unsafe {
        let key = slice((*args).key.cast(), (*args).key_size);
        let value = slice((*args).value.cast(), (*args).value_size);
        (key, value, (*args).user_arg, (*args).callback_error)
    };
    // SAFETY: the store is that of `with_store`.
    match unsafe { answer(store, key, |store, key| store.put(key, value).map_err(failure)) } {
        Ok(()) => ptr::null_mut(),
        // SAFETY: the pointer is set, by the caller's promise.
        Err(failure) => unsafe { error(make_error, &failure) },
    }
}

/// The answer of a store. A panic is an error: it must not reach the plugin.
///
/// # Safety
/// The pointer must be that of a store.
unsafe fn answer<T>(
    store: *mut c_void,
    key: &[u8],
    ask: impl FnOnce(&KeyValueStore, &str) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let asked = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: the caller's promise; a store may be used from any thread.
        let store = unsafe { &*store.cast::<KeyValueStore>() };
        let not_text = |_| (codes::INVALID_ARGUMENT, format!("the key {} is no UTF-8", key.escape_ascii()));
        ask(store, str::from_utf8(key).map_err(not_text)?)
    }));
    asked.unwrap_or_else(|_| Err((codes::INTERNAL, "the key-value store of the ranks panicked".into())))
}

/// The code and the message of an error. XLA's source looks at the code: a key that has a value already may be one that the same
/// process has put before.
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

/// An error of the plugin.
///
/// # Safety
/// It must be a pointer to a pointer to a function that makes errors and copies the message.
unsafe fn error(make_error: *mut c_void, (code, message): &Failure) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { make_error.cast::<MakeError>().read()(*code, message.as_ptr().cast(), message.len()) }
}

/// Gives a copy of a value to XLA, with what frees it. Returns that there is no error.
///
/// # Safety
/// The pointers must be those of fields that may be written.
unsafe fn give(value: &[u8], size: *mut usize, place: *mut *mut c_char, deleter: *mut *mut c_void) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe {
        size.write(value.len());
        place.write(copy(value));
        deleter.write(delete as *mut c_void);
    }
    ptr::null_mut()
}

/// A copy of a value, which [`delete`] frees. As that gets no size, the number of words stands before the value.
fn copy(value: &[u8]) -> *mut c_char {
    const WORD: usize = size_of::<usize>();
    let words = 1 + value.len().div_ceil(WORD);
    let mut copy = vec![0usize; words].into_boxed_slice();
    copy[0] = words;
    let start = Box::into_raw(copy).cast::<usize>();
    // SAFETY: the words after the first have room for the value.
    unsafe {
        let place = start.add(1).cast::<u8>();
        place.copy_from_nonoverlapping(value.as_ptr(), value.len());
        place.cast()
    }
}

/// Frees a value.
///
/// # Safety
/// It must come from [`copy`], and nobody may use it any more.
unsafe extern "C" fn delete(value: *mut c_char) {
    // SAFETY: by the caller's promise there is the number of words before it, of a box.
    unsafe {
        let start = value.cast::<usize>().sub(1);
        drop(Box::from_raw(ptr::slice_from_raw_parts_mut(start, start.read())));
    }
}

#[cfg(test)]
mod tests;
