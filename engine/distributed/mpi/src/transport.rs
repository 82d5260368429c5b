use grove_communicator::{Absence, CommError, Exchange, Messages, Payload, Rank, Result, Transport, Words};
use mpi::{
    Threading,
    environment::Universe,
    ffi,
    raw::AsRaw,
    topology::SimpleCommunicator,
    traits::{Communicator as _, CommunicatorCollectives as _},
};
use std::{
    ffi::{c_int, c_void},
    mem::{self, MaybeUninit},
    ptr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use crate::{
    post::{Calls, Post},
    processes::{BYTES, Process, Watched},
    status::{check, class, describe},
};

/// Tag of a message that announces the absence of a rank. Collectives have lower tags.
const ABSENCE: c_int = 32_000;

/// Maximum size of a part of a message: MPI counts in 32 bits.
const LARGEST: usize = 1 << 30;

/// Time for a last message to be sent before the job is aborted.
const LAST_MESSAGE: Duration = Duration::from_millis(200);

/// Held during every MPI call: MPI is initialised for calls from one thread at a time.
static CALLS: Mutex<()> = Mutex::new(());

fn calls() -> Calls {
    CALLS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The ranks of `MPI_COMM_WORLD`.
pub(crate) struct Mpi {
    rank: usize,
    processes: Vec<Process>,
    watched: Vec<Option<Watched>>,
    told: Mutex<Told>,
    post: Mutex<Post>,
    universe: Mutex<Option<Universe>>,
}

/// The absences that ranks have announced.
struct Told {
    absent: Vec<Option<Absence>>,
    /// True if this rank has announced its absence.
    own: bool,
}

impl Mpi {
    /// Starts MPI and exchanges the ranks' processes.
    pub(crate) fn start() -> Result<Self> {
        let _calls = calls();
        let (universe, threading) = mpi::initialize_with_threading(Threading::Serialized)
            .ok_or_else(|| CommError::Transport("MPI was started before, by another part of the program".into()))?;
        if threading < Threading::Serialized {
            return Err(CommError::Transport(
                "this MPI allows calls from the main thread only: build it with threads".into(),
            ));
        }
        let world = universe.world();
        // SAFETY: the world exists, and the handler is a constant of MPI. Errors are then returned as codes.
        unsafe { ffi::MPI_Comm_set_errhandler(world.as_raw(), ffi::RSMPI_ERRORS_RETURN) };
        let (rank, size) = (world.rank() as usize, world.size() as usize);
        let own = Process::own();
        let mut all = vec![0u8; BYTES * size];
        world.all_gather_into(&own.bytes()[..], &mut all[..]);
        let processes: Vec<Process> = all.chunks(BYTES).map(Process::of).collect();
        let watched =
            processes.iter().enumerate().map(|(i, process)| if i == rank { None } else { process.watch(&own) });
        let told = Told { absent: vec![None; size], own: false };
        let watched = watched.collect();
        let (told, post, universe) = (Mutex::new(told), Mutex::default(), Mutex::new(Some(universe)));
        Ok(Self { rank, processes, watched, told, post, universe })
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn posted(&self) -> MutexGuard<'_, Post> {
        self.post.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns an error if MPI has ended: a later MPI call would end the process.
    fn running(&self) -> Result<()> {
        match &*self.universe.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(_) => Ok(()),
            None => Err(CommError::Transport("MPI has ended, as the communicator was closed".into())),
        }
    }

    /// Receives the absences that other ranks announce.
    fn listen(&self, told: &mut Told) {
        let _calls = calls();
        if self.running().is_err() {
            return;
        }
        loop {
            let (mut flag, mut status) = (0, MaybeUninit::uninit());
            // SAFETY: the pointers refer to live variables, and the status is read only if the call has initialised it.
            let (code, source) = unsafe {
                let world = SimpleCommunicator::world().as_raw();
                let code = ffi::MPI_Iprobe(ffi::RSMPI_ANY_SOURCE, ABSENCE, world, &mut flag, status.as_mut_ptr());
                let arrived = code == ffi::MPI_SUCCESS as c_int && flag != 0;
                (code, if arrived { status.assume_init_ref().MPI_SOURCE } else { -1 })
            };
            let Ok(source) = usize::try_from(source) else { return };
            if code != ffi::MPI_SUCCESS as c_int {
                return;
            }
            let mut byte = 0u8;
            // SAFETY: one byte is received into one byte; the probe has found the message.
            let code = unsafe {
                let world = SimpleCommunicator::world().as_raw();
                ffi::MPI_Recv(
                    ptr::from_mut(&mut byte).cast(),
                    1,
                    ffi::RSMPI_UINT8_T,
                    source as c_int,
                    ABSENCE,
                    world,
                    ffi::RSMPI_STATUS_IGNORE,
                )
            };
            if code == ffi::MPI_SUCCESS as c_int && source < told.absent.len() {
                told.absent[source].get_or_insert(if byte == 0 { Absence::Left } else { Absence::Failed });
            }
        }
    }
}

impl Transport for Mpi {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.processes.len()
    }

    fn process(&self, rank: usize) -> Option<String> {
        self.processes.get(rank).map(Process::describe)
    }

    fn neighbours(&self) -> usize {
        let own = &self.processes[self.rank];
        self.processes.iter().filter(|process| process.shares_processors(own)).count()
    }

    fn start(&self, tag: u16, messages: Messages) -> Result<Box<dyn Exchange>> {
        let Messages { payload, outgoing, incoming } = messages;
        let _calls = calls();
        let received: Vec<Words> =
            incoming.iter().map(|bytes| bytes.map_or_else(Words::default, Words::zeros)).collect();
        let mut delivery = Delivery { payload, received, requests: Vec::new() };
        for (from, bytes) in incoming.iter().enumerate() {
            if bytes.is_some() {
                let (start, length) = {
                    let bytes = delivery.received[from].bytes_mut();
                    (bytes.as_mut_ptr(), bytes.len())
                };
                delivery.start(start, length, from, tag, true)?;
            }
        }
        for (to, range) in outgoing.into_iter().enumerate() {
            if let Some(range) = range {
                let part = &delivery.payload.bytes()[range];
                let (start, length) = (part.as_ptr().cast_mut(), part.len());
                delivery.start(start, length, to, tag, false)?;
            }
        }
        Ok(Box::new(delivery))
    }

    fn post(&self, message: Arc<[u8]>) -> Result<()> {
        let (mut post, calls) = (self.posted(), calls());
        self.running()?;
        post.send(message, (0..self.size()).filter(|&to| to != self.rank), &calls)
    }

    fn delivered(&self) -> bool {
        let (mut post, calls) = (self.posted(), calls());
        self.running().is_err() || post.delivered(&calls)
    }

    fn receive(&self, most: usize) -> Result<Option<(usize, Vec<u8>)>> {
        let (mut post, calls) = (self.posted(), calls());
        self.running()?;
        post.receive(most, &calls)
    }

    fn absence(&self, rank: usize) -> Option<Absence> {
        let mut told = self.told();
        self.listen(&mut told);
        told.absent[rank].or_else(|| self.watched[rank].as_ref()?.absence())
    }

    fn leave(&self, absence: Absence) {
        let mut told = self.told();
        if mem::replace(&mut told.own, true) {
            return;
        }
        // MPI may read them until the messages are sent, at any later time.
        static BYTES: [u8; 2] = [0, 1];
        let byte = &BYTES[usize::from(absence != Absence::Left)];
        let _calls = calls();
        let mut requests = Vec::new();
        for to in (0..self.size()).filter(|&to| to != self.rank) {
            let mut request = MaybeUninit::uninit();
            // SAFETY: the byte is static, and MPI does not write to sent data.
            let code = unsafe {
                ffi::MPI_Isend(
                    ptr::from_ref(byte).cast(),
                    1,
                    ffi::RSMPI_UINT8_T,
                    to as c_int,
                    ABSENCE,
                    SimpleCommunicator::world().as_raw(),
                    request.as_mut_ptr(),
                )
            };
            if code == ffi::MPI_SUCCESS as c_int {
                // SAFETY: the call succeeded, so it has initialised the request.
                requests.push(unsafe { request.assume_init() });
            }
        }
        let begun = Instant::now();
        while begun.elapsed() < LAST_MESSAGE && !requests.is_empty() {
            requests.retain_mut(|request| {
                let mut flag = 0;
                // SAFETY: the request is active.
                let code = unsafe { ffi::MPI_Test(request, &mut flag, ffi::RSMPI_STATUS_IGNORE) };
                code == ffi::MPI_SUCCESS as c_int && flag == 0
            });
            thread::yield_now();
        }
    }

    fn close(&self) {
        let _calls = calls();
        // Dropping the universe ends MPI.
        drop(self.universe.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    fn abort(&self, status: i32) -> ! {
        let _calls = calls();
        SimpleCommunicator::world().abort(status)
    }
}

/// A message, or a part of a large message.
struct Request {
    rank: usize,
    raw: ffi::MPI_Request,
    /// Number of bytes to receive; `None` for a sent message.
    incoming: Option<usize>,
}

/// Pending messages. MPI accesses the buffers until the requests are complete.
struct Delivery {
    payload: Arc<dyn Payload>,
    received: Vec<Words>,
    requests: Vec<Request>,
}

// SAFETY: request handles are plain values or pointers of MPI, which is called by one thread at a time (`CALLS`).
unsafe impl Send for Delivery {}

impl Delivery {
    /// Starts to send from, or to receive into, `length` bytes at `start`. They must stay alive until the requests are complete,
    /// which `drop` ensures for the payload and the received words.
    fn start(&mut self, start: *mut u8, length: usize, rank: usize, tag: u16, incoming: bool) -> Result<()> {
        let mut begin = 0;
        loop {
            let size = (length - begin).min(LARGEST);
            let mut raw = MaybeUninit::uninit();
            // SAFETY: `begin + size` is at most `length`, and the buffer outlives the request.
            let code = unsafe {
                let (place, count) = (start.add(begin).cast::<c_void>(), size as c_int);
                let (world, rank, tag) = (SimpleCommunicator::world().as_raw(), rank as c_int, c_int::from(tag));
                match incoming {
                    true => ffi::MPI_Irecv(place, count, ffi::RSMPI_UINT8_T, rank, tag, world, raw.as_mut_ptr()),
                    false => ffi::MPI_Isend(place, count, ffi::RSMPI_UINT8_T, rank, tag, world, raw.as_mut_ptr()),
                }
            };
            check(code)?;
            // SAFETY: the call succeeded, so it has initialised the request.
            let raw = unsafe { raw.assume_init() };
            self.requests.push(Request { rank, raw, incoming: incoming.then_some(size) });
            begin += size;
            if begin == length {
                return Ok(());
            }
        }
    }
}

impl Exchange for Delivery {
    fn poll(&mut self) -> Result<bool> {
        let _calls = calls();
        let mut failure = None;
        self.requests.retain_mut(|request| {
            if failure.is_some() {
                return true;
            }
            let (mut flag, mut status) = (0, MaybeUninit::<ffi::MPI_Status>::uninit());
            // SAFETY: the request is active; the status is read only if the call has initialised it.
            let code = unsafe { ffi::MPI_Test(&mut request.raw, &mut flag, status.as_mut_ptr()) };
            let other_size = |found| {
                let (rank, expected) = (Rank { number: request.rank, process: None }, request.incoming.unwrap_or(0));
                CommError::OtherSize { collective: String::new(), rank, found, expected }
            };
            if code != ffi::MPI_SUCCESS as c_int {
                let expected = request.incoming.unwrap_or(0);
                failure = Some(match class(code) == ffi::MPI_ERR_TRUNCATE as c_int {
                    true => other_size(expected + 1),
                    false => describe(code),
                });
                // The request is complete, with an error.
                return false;
            }
            if flag == 0 {
                return true;
            }
            if let Some(expected) = request.incoming {
                let mut count = 0;
                // SAFETY: the request is complete, so its status is initialised.
                unsafe { ffi::MPI_Get_count(status.as_ptr(), ffi::RSMPI_UINT8_T, &mut count) };
                if count as usize != expected {
                    failure = Some(other_size(count as usize));
                }
            }
            false
        });
        match failure {
            Some(error) => Err(error),
            None => Ok(self.requests.is_empty()),
        }
    }

    fn missing(&self) -> Vec<usize> {
        let mut missing: Vec<usize> = self.requests.iter().map(|request| request.rank).collect();
        missing.sort_unstable();
        missing.dedup();
        missing
    }

    fn received(mut self: Box<Self>) -> Vec<Words> {
        assert!(self.requests.is_empty(), "received before all has arrived");
        mem::take(&mut self.received)
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        if !self.requests.is_empty() {
            // After an error, MPI may still access the buffers, so they are leaked; the job is ending.
            mem::forget(self.payload.clone());
            mem::forget(mem::take(&mut self.received));
        }
    }
}
