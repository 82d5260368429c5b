use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::{
    CommError, Exchange, Payload, Result, Transport, Words, error::Rank, key_value::Pairs, threads::Threads,
    transport::Messages, watch::Watch,
};

/// Environment variable for the timeout of collectives, in seconds.
pub const TIMEOUT_VARIABLE: &str = "GROVE_COMM_TIMEOUT";

/// Default timeout. It is long because one rank may write a checkpoint or compile a program in the meantime.
const TIMEOUT: Duration = Duration::from_secs(600);

/// Number of tags of collectives, which are reused cyclically: the maximum number of pending collectives.
const TAGS: u32 = 1 << 11;

/// Number of tags of a communicator.
const TAGS_IN_ALL: u16 = 4 * TAGS as u16;

/// Maximum number of communicators over one transport, including the first. Transports accept tags below 32,768.
const DUPLICATES: u32 = 3;

/// Kind of collective, a part of the tag: ranks that call different collectives do not receive each other's messages.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Scatter = 0,
    Gather = 1,
    Lengths = 2,
    Barrier = 3,
}

/// The ranks of a job, as seen from one of them. Clones are the same communicator.
///
/// Every rank must call the same collectives in the same order, with arrays of the same length. The first argument of each
/// collective describes its purpose, and is part of error messages.
#[derive(Clone, Default)]
pub struct Communicator {
    /// `None` for a single rank.
    pub(crate) inner: Option<Arc<Inner>>,
    /// If true, deferred work of devices is not run; see [`before_waiting`](Self::before_waiting).
    leaves_pending: bool,
}

pub(crate) struct Inner {
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) timeout: Duration,
    /// Number of collectives so far.
    sequence: AtomicU32,
    sent: Arc<AtomicU64>,
    /// First tag of this communicator.
    first_tag: u16,
    /// Number of communicators over the transport so far.
    duplicates: Arc<AtomicU32>,
    /// The pairs in the key-value stores of all communicators over the transport.
    pub(crate) pairs: Arc<Pairs>,
    /// Number of key-value stores so far.
    stores: AtomicU32,
    /// See [`Communicator::before_waiting`].
    before_waiting: Mutex<BTreeMap<usize, BeforeWaiting>>,
}

/// Runs deferred work that other ranks may be waiting for. The error is a sentence.
type BeforeWaiting = Arc<dyn Fn() -> std::result::Result<(), String> + Send + Sync>;

impl Inner {
    /// Returns the identifier of a new key-value store, unique among all communicators over the transport.
    pub(crate) fn next_store(&self) -> u32 {
        u32::from(self.first_tag) << 16 | self.stores.fetch_add(1, Ordering::Relaxed) & 0xffff
    }

    pub(crate) fn count_sent(&self, bytes: usize) {
        self.sent.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

impl Communicator {
    /// Returns the communicator of a single rank: collectives return their arguments.
    pub fn single() -> Self {
        Self::default()
    }

    /// Creates a communicator from a transport. The environment variable [`TIMEOUT_VARIABLE`] sets the timeout of collectives in
    /// seconds; 600 if it is not set.
    ///
    /// # Errors
    /// [`CommError::Timeout`] if the variable is not a valid number of seconds.
    pub fn new(transport: impl Transport + 'static) -> Result<Self> {
        let timeout = match std::env::var(TIMEOUT_VARIABLE) {
            Err(_) => TIMEOUT,
            Ok(text) => match text.trim().parse::<f64>() {
                Ok(seconds) if seconds > 0.0 && seconds <= 1e9 => Duration::from_secs_f64(seconds),
                _ => return Err(CommError::Timeout(text)),
            },
        };
        Ok(Self::with_timeout(transport, timeout))
    }

    /// Creates a communicator from a transport, with a timeout of collectives.
    pub fn with_timeout(transport: impl Transport + 'static, timeout: Duration) -> Self {
        let inner = Inner {
            transport: Arc::new(transport),
            timeout,
            sequence: AtomicU32::new(0),
            sent: Arc::default(),
            first_tag: 0,
            duplicates: Arc::new(AtomicU32::new(1)),
            pairs: Arc::default(),
            stores: AtomicU32::new(0),
            before_waiting: Mutex::default(),
        };
        Self { inner: Some(Arc::new(inner)), leaves_pending: false }
    }

    /// Returns a communicator of the same ranks whose collectives are independent of this one's, like `MPI_Comm_dup`: another
    /// thread may call them, in its own order. Every rank must create the same duplicates in the same order.
    ///
    /// # Errors
    /// [`CommError::Transport`] if there are two duplicates already.
    pub fn duplicate(&self) -> Result<Self> {
        let Some(inner) = &self.inner else { return Ok(Self::single()) };
        let number = inner.duplicates.fetch_add(1, Ordering::Relaxed);
        if number >= DUPLICATES {
            return Err(CommError::Transport(format!("a communicator has at most {} duplicates", DUPLICATES - 1)));
        }
        let duplicate = Inner {
            transport: inner.transport.clone(),
            timeout: inner.timeout,
            sequence: AtomicU32::new(0),
            sent: inner.sent.clone(),
            first_tag: number as u16 * TAGS_IN_ALL,
            duplicates: inner.duplicates.clone(),
            pairs: inner.pairs.clone(),
            stores: AtomicU32::new(0),
            before_waiting: Mutex::default(),
        };
        Ok(Self { inner: Some(Arc::new(duplicate)), leaves_pending: false })
    }

    /// Creates `size` ranks, one for each thread of a test.
    pub fn threads(size: usize) -> Vec<Self> {
        Threads::ranks(size).into_iter().map(|transport| Self::with_timeout(transport, TIMEOUT)).collect()
    }

    /// Like [`threads`](Self::threads), with a timeout of collectives.
    pub fn threads_with_timeout(size: usize, timeout: Duration) -> Vec<Self> {
        Threads::ranks(size).into_iter().map(|transport| Self::with_timeout(transport, timeout)).collect()
    }

    /// Returns the number of this rank, counted from 0.
    pub fn rank(&self) -> usize {
        self.inner.as_ref().map_or(0, |inner| inner.transport.rank())
    }

    /// Returns the number of ranks.
    pub fn size(&self) -> usize {
        self.inner.as_ref().map_or(1, |inner| inner.transport.size())
    }

    /// Returns the number of ranks that share this rank's processors, including itself; a rank may use its share of the threads.
    pub fn neighbours(&self) -> usize {
        self.inner.as_ref().map_or(1, |inner| inner.transport.neighbours().max(1))
    }

    /// Waits for all ranks at the end of the program, and closes the transport. No collective may follow.
    ///
    /// # Errors
    /// [`CommError`].
    pub fn close(&self) -> Result<()> {
        self.settle("at the end")?;
        if let Some(inner) = &self.inner {
            inner.transport.close();
        }
        Ok(())
    }

    /// Returns true if there are other ranks.
    pub fn is_shared(&self) -> bool {
        self.size() > 1
    }

    /// Returns the number of bytes that this rank has sent to others.
    pub fn bytes_sent(&self) -> u64 {
        self.inner.as_ref().map_or(0, |inner| inner.sent.load(Ordering::Relaxed))
    }

    /// Returns the tag of the next collective.
    pub(crate) fn tags(&self) -> u16 {
        let Some(inner) = &self.inner else { return 0 };
        (inner.sequence.fetch_add(1, Ordering::Relaxed) % TAGS) as u16
    }

    pub(crate) fn exchange(&self, messages: Messages, kind: Kind, tag: u16) -> Result<Box<dyn Exchange>> {
        let Some(inner) = &self.inner else { return Ok(Box::new(Nothing)) };
        let bytes: usize = messages.outgoing.iter().flatten().map(|range| range.len()).sum();
        inner.count_sent(bytes);
        inner.transport.start(inner.first_tag + tag * 4 + kind as u16, messages)
    }

    /// Returns the same range for all other ranks.
    pub(crate) fn outgoing_to_others(&self, range: std::ops::Range<usize>) -> Vec<Option<std::ops::Range<usize>>> {
        (0..self.size()).map(|to| (to != self.rank()).then(|| range.clone())).collect()
    }

    /// Returns the number of bytes from each other rank.
    pub(crate) fn incoming_from_others(&self, bytes: impl Fn(usize) -> usize) -> Vec<Option<usize>> {
        (0..self.size()).map(|from| (from != self.rank()).then(|| bytes(from))).collect()
    }

    /// Registers a function that is called before each wait of a collective of this communicator, on the waiting thread. A device
    /// that defers all-reduces runs them there, because other ranks may be waiting in them. `device` identifies the device: a
    /// second function for the same device is ignored. An error is a sentence.
    pub fn before_waiting(
        &self,
        device: usize,
        run: impl Fn() -> std::result::Result<(), String> + Send + Sync + 'static,
    ) {
        if let Some(inner) = &self.inner {
            let mut known = inner.before_waiting.lock().unwrap_or_else(PoisonError::into_inner);
            known.entry(device).or_insert_with(|| Arc::new(run));
        }
    }

    /// Returns a communicator of the same ranks whose collectives do not run [deferred work](Self::before_waiting), for
    /// collectives that all ranks reach after the same reads, in the middle of what becomes one program.
    pub fn leaving_pending(&self) -> Self {
        Self { leaves_pending: true, ..self.clone() }
    }

    /// Runs the deferred work of devices.
    pub(crate) fn run_pending(&self, name: &str) -> Result<()> {
        let Some(inner) = self.inner.as_ref().filter(|_| !self.leaves_pending) else { return Ok(()) };
        let known: Vec<BeforeWaiting> =
            inner.before_waiting.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        known.iter().try_for_each(|run| run().map_err(|reason| CommError::Transport(format!("{name}: {reason}"))))
    }

    /// Waits for messages, until the timeout or the loss of a rank.
    pub(crate) fn wait(&self, name: &str, mut exchange: Box<dyn Exchange>) -> Result<Vec<Words>> {
        self.run_pending(name)?;
        let mut watch = Watch::new();
        while !exchange.poll().map_err(|error| self.named(name, error))? {
            self.check(name, &*exchange, &mut watch)?;
        }
        Ok(exchange.received())
    }

    pub(crate) fn describe(&self, number: usize) -> Rank {
        let process = self.inner.as_ref().and_then(|inner| inner.transport.process(number));
        Rank { number, process }
    }
}

/// An exchange of a single rank.
struct Nothing;

impl Exchange for Nothing {
    fn poll(&mut self) -> Result<bool> {
        Ok(true)
    }

    fn missing(&self) -> Vec<usize> {
        vec![]
    }

    fn received(self: Box<Self>) -> Vec<Words> {
        vec![Words::default()]
    }
}

impl Payload for Words {
    fn bytes(&self) -> &[u8] {
        Words::bytes(self)
    }
}

impl fmt::Debug for Communicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} of {}", self.rank(), self.size())
    }
}

/// Communicators are equal if they are clones.
impl PartialEq for Communicator {
    fn eq(&self, other: &Self) -> bool {
        match (&self.inner, &other.inner) {
            (Some(left), Some(right)) => Arc::ptr_eq(left, right),
            (left, right) => left.is_none() && right.is_none(),
        }
    }
}
