//! Messages that ranks post to each other, independent of exchanges.

use grove_communicator::{CommError, Result};
use mpi::{ffi, raw::AsRaw, topology::SimpleCommunicator};
use std::{
    ffi::{c_int, c_void},
    mem::{self, MaybeUninit},
    sync::{Arc, MutexGuard},
};

use crate::status::check;

/// Tag of posted messages. Collectives have tags below 32,000, which is the tag of absences.
const POST: c_int = 32_001;

/// Guard that allows calls of MPI.
pub(crate) type Calls = MutexGuard<'static, ()>;

/// The messages that this rank has posted, and the one that it is receiving. MPI accesses the bytes until the requests are
/// complete.
#[derive(Default)]
pub(crate) struct Post {
    outgoing: Vec<Outgoing>,
    incoming: Option<Incoming>,
}

struct Outgoing {
    message: Arc<[u8]>,
    requests: Vec<ffi::MPI_Request>,
}

struct Incoming {
    from: usize,
    message: Vec<u8>,
    request: ffi::MPI_Request,
}

// SAFETY: request handles are plain values or pointers of MPI, which only the holder of `Calls` calls.
unsafe impl Send for Post {}

impl Post {
    /// Starts to send a message to some ranks.
    pub(crate) fn send(&mut self, message: Arc<[u8]>, ranks: impl Iterator<Item = usize>, _: &Calls) -> Result<()> {
        let (start, count) = (message.as_ptr().cast_mut().cast::<c_void>(), message.len() as c_int);
        let mut outgoing = Outgoing { message, requests: Vec::new() };
        let sent = ranks.map(|to| to as c_int).try_for_each(|to| {
            let mut request = MaybeUninit::uninit();
            // SAFETY: the message has `count` bytes, which `drop` keeps alive until the request is complete; MPI does not write
            // to them.
            check(unsafe {
                let world = SimpleCommunicator::world().as_raw();
                ffi::MPI_Isend(start, count, ffi::RSMPI_UINT8_T, to, POST, world, request.as_mut_ptr())
            })?;
            // SAFETY: the call succeeded, so it has initialised the request.
            outgoing.requests.push(unsafe { request.assume_init() });
            Ok(())
        });
        self.outgoing.push(outgoing);
        sent
    }

    /// Makes progress with sent messages. Returns true if all have arrived or failed.
    pub(crate) fn delivered(&mut self, _: &Calls) -> bool {
        self.outgoing.retain_mut(|outgoing| {
            outgoing.requests.retain_mut(|request| {
                let mut flag = 0;
                // SAFETY: the request is active.
                let code = unsafe { ffi::MPI_Test(request, &mut flag, ffi::RSMPI_STATUS_IGNORE) };
                code == ffi::MPI_SUCCESS as c_int && flag == 0
            });
            !outgoing.requests.is_empty()
        });
        self.outgoing.is_empty()
    }

    /// Returns the next message that has arrived, and the rank that sent it.
    pub(crate) fn receive(&mut self, most: usize, _: &Calls) -> Result<Option<(usize, Vec<u8>)>> {
        if self.incoming.is_none() {
            self.incoming = begin(most)?;
        }
        let Some(incoming) = &mut self.incoming else { return Ok(None) };
        let mut flag = 0;
        // SAFETY: the request is active.
        let code = unsafe { ffi::MPI_Test(&mut incoming.request, &mut flag, ffi::RSMPI_STATUS_IGNORE) };
        if code == ffi::MPI_SUCCESS as c_int && flag == 0 {
            return Ok(None);
        }
        // The message has arrived, or the request failed.
        let incoming = self.incoming.take();
        check(code)?;
        Ok(incoming.map(|incoming| (incoming.from, incoming.message)))
    }
}

/// Starts to receive a message, if one is available.
fn begin(most: usize) -> Result<Option<Incoming>> {
    let (mut flag, mut status, mut count) = (0, MaybeUninit::uninit(), 0);
    let world = SimpleCommunicator::world().as_raw();
    // SAFETY: the pointers refer to live variables.
    check(unsafe { ffi::MPI_Iprobe(ffi::RSMPI_ANY_SOURCE, POST, world, &mut flag, status.as_mut_ptr()) })?;
    if flag == 0 {
        return Ok(None);
    }
    // SAFETY: the call has found a message, so it has initialised the status.
    let source = unsafe {
        check(ffi::MPI_Get_count(status.as_ptr(), ffi::RSMPI_UINT8_T, &mut count))?;
        status.assume_init_ref().MPI_SOURCE
    };
    let (from, length) = (source as usize, usize::try_from(count).unwrap_or(usize::MAX));
    if length > most {
        return Err(CommError::Transport(format!("rank {from} sent {length} bytes; the maximum is {most}")));
    }
    let (mut message, mut request) = (vec![0u8; length], MaybeUninit::uninit());
    // SAFETY: the buffer has `count` bytes, and `drop` keeps it alive until the request is complete. The request receives the
    // probed message: it is the first of its sender under this tag, and no other thread calls MPI in between.
    check(unsafe {
        let start = message.as_mut_ptr().cast();
        ffi::MPI_Irecv(start, count, ffi::RSMPI_UINT8_T, source, POST, world, request.as_mut_ptr())
    })?;
    // SAFETY: the call succeeded, so it has initialised the request.
    Ok(Some(Incoming { from, message, request: unsafe { request.assume_init() } }))
}

impl Drop for Post {
    fn drop(&mut self) {
        // MPI may still access the bytes, so they are leaked; the program is ending.
        self.outgoing.drain(..).for_each(|outgoing| mem::forget(outgoing.message));
        self.incoming.take().into_iter().for_each(|incoming| mem::forget(incoming.message));
    }
}
