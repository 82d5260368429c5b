//! Error codes of MPI's functions.

use grove_communicator::{CommError, Result};
use mpi::ffi;
use std::ffi::c_int;

pub(crate) fn check(code: c_int) -> Result<()> {
    if code == ffi::MPI_SUCCESS as c_int { Ok(()) } else { Err(describe(code)) }
}

pub(crate) fn class(code: c_int) -> c_int {
    let mut class = 0;
    // SAFETY: the call reads a number and writes to a live variable.
    unsafe { ffi::MPI_Error_class(code, &mut class) };
    class
}

/// Returns MPI's message for an error.
pub(crate) fn describe(code: c_int) -> CommError {
    let (mut text, mut length) = ([0u8; ffi::MPI_MAX_ERROR_STRING as usize + 1], 0);
    // SAFETY: the buffer has the length that MPI requires.
    unsafe { ffi::MPI_Error_string(code, text.as_mut_ptr().cast(), &mut length) };
    let text = String::from_utf8_lossy(&text[..(length.max(0) as usize).min(text.len())]);
    CommError::Transport(format!("MPI: {text}"))
}
