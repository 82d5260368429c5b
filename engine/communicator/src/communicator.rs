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

/// Name of the environment variable with the seconds that a collective waits for its ranks.
pub const TIMEOUT_VARIABLE: &str = "GROVE_COMM_TIMEOUT";

/// Seconds that a collective waits where the environment does not say it: one rank may write a checkpoint or compile a program
/// meanwhile.
const TIMEOUT: Duration = Duration::from_secs(600);

/// Tags of collectives go around; so many may be under way.
const TAGS: u32 = 1 << 11;

/// Tags of all collectives of a communicator.
const TAGS_IN_ALL: u16 = 4 * TAGS as u16;

/// Communicators over one transport: a communicator and its duplicates. Tags go to 32,000.
const DUPLICATES: u32 = 3;

/// Collectives, as part of a tag: ranks that call different ones do not take each other's messages.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Scatter = 0,
    Gather = 1,
    Lengths = 2,
    Barrier = 3,
}

/// The ranks of a job, and this one among them. Clones are the same.
///
/// Every rank has to call the same collectives in the same order, with arrays of the same length. The first argument of each
/// says for people what it is for, and is part of an error's sentence.
#[derive(Clone, Default)]
pub struct Communicator {
    /// `None` where there is one rank.
    pub(crate) inner: Option<Arc<Inner>>,
    /// True if what devices have put off stays so; see [`before_waiting`](Self::before_waiting).
    leaves_pending: bool,
}

pub(crate) struct Inner {
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) timeout: Duration,
    /// Collectives so far.
    sequence: AtomicU32,
    sent: Arc<AtomicU64>,
    /// The first of its tags.
    first_tag: u16,
    /// Communicators over the transport so far.
    duplicates: Arc<AtomicU32>,
    /// The pairs that ranks have put into key-value stores, of all communicators over the transport.
    pub(crate) pairs: Arc<Pairs>,
    /// Key-value stores so far.
    stores: AtomicU32,
    /// See [`Communicator::before_waiting`].
    before_waiting: Mutex<BTreeMap<usize, BeforeWaiting>>,
}

/// Runs what other ranks may wait for; an error is a sentence.
type BeforeWaiting = Arc<dyn Fn() -> std::result::Result<(), String> + Send + Sync>;

impl Inner {
    /// The number of another key-value store, among those of all communicators over the transport.
    pub(crate) fn next_store(&self) -> u32 {
        u32::from(self.first_tag) << 16 | self.stores.fetch_add(1, Ordering::Relaxed) & 0xffff
    }

    pub(crate) fn count_sent(&self, bytes: usize) {
        self.sent.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

impl Communicator {
    /// One rank: collectives return what they are given.
    pub fn single() -> Self {
        Self::default()
    }

    /// The ranks of a transport. The environment variable [`TIMEOUT_VARIABLE`] has the seconds after which a collective gives
    /// up; 600 if it is not set.
    ///
    /// # Errors
    /// [`CommError::Timeout`] if that is no number of seconds.
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

    /// The ranks of a transport, and the time that a collective waits for them.
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

    /// A communicator of the same ranks whose collectives do not mix with those of this one: another thread may call them, in
    /// an order of its own. As `MPI_Comm_dup`. Every rank makes the same ones in the same order.
    ///
    /// # Errors
    /// [`CommError::Transport`] if there are two already.
    pub fn duplicate(&self) -> Result<Self> {
        let Some(inner) = &self.inner else { return Ok(Self::single()) };
        let number = inner.duplicates.fetch_add(1, Ordering::Relaxed);
        if number >= DUPLICATES {
            return Err(CommError::Transport(format!("a communicator has {} duplicates at most", DUPLICATES - 1)));
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

    /// So many ranks, each for a thread of this process; for tests.
    pub fn threads(size: usize) -> Vec<Self> {
        Threads::ranks(size).into_iter().map(|transport| Self::with_timeout(transport, TIMEOUT)).collect()
    }

    /// As [`threads`](Self::threads), with the time that a collective waits.
    pub fn threads_with_timeout(size: usize, timeout: Duration) -> Vec<Self> {
        Threads::ranks(size).into_iter().map(|transport| Self::with_timeout(transport, timeout)).collect()
    }

    /// The number of this rank, from 0.
    pub fn rank(&self) -> usize {
        self.inner.as_ref().map_or(0, |inner| inner.transport.rank())
    }

    /// The number of ranks.
    pub fn size(&self) -> usize {
        self.inner.as_ref().map_or(1, |inner| inner.transport.size())
    }

    /// The number of ranks that share this one's processors, itself included: a rank's share of its threads.
    pub fn neighbours(&self) -> usize {
        self.inner.as_ref().map_or(1, |inner| inner.transport.neighbours().max(1))
    }

    /// Waits for all ranks at the end of the program, and ends the transport. No collective may follow.
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

    /// True if there are other ranks.
    pub fn is_shared(&self) -> bool {
        self.size() > 1
    }

    /// Bytes that this rank has sent to others so far.
    pub fn bytes_sent(&self) -> u64 {
        self.inner.as_ref().map_or(0, |inner| inner.sent.load(Ordering::Relaxed))
    }

    /// Tag of the next collective.
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

    /// The same range for all other ranks.
    pub(crate) fn outgoing_to_others(&self, range: std::ops::Range<usize>) -> Vec<Option<std::ops::Range<usize>>> {
        (0..self.size()).map(|to| (to != self.rank()).then(|| range.clone())).collect()
    }

    /// Bytes from all other ranks.
    pub(crate) fn incoming_from_others(&self, bytes: impl Fn(usize) -> usize) -> Vec<Option<usize>> {
        (0..self.size()).map(|from| (from != self.rank()).then(|| bytes(from))).collect()
    }

    /// Has a function called before each wait of a collective of this communicator, on the thread that waits. A device that puts off
    /// sums over ranks runs them there, as the others may wait in them. `device` tells devices apart: a second function of one is left
    /// out. An error is a sentence.
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

    /// The same ranks, whose collectives run nothing [before they wait](Self::before_waiting): for those that all ranks reach after
    /// the same reads, in the middle of what is to be one program.
    pub fn leaving_pending(&self) -> Self {
        Self { leaves_pending: true, ..self.clone() }
    }

    /// Runs what devices have put off.
    pub(crate) fn run_pending(&self, name: &str) -> Result<()> {
        let Some(inner) = self.inner.as_ref().filter(|_| !self.leaves_pending) else { return Ok(()) };
        let known: Vec<BeforeWaiting> =
            inner.before_waiting.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        known.iter().try_for_each(|run| run().map_err(|reason| CommError::Transport(format!("{name}: {reason}"))))
    }

    /// Waits for messages, until the time is over or a rank is gone.
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

/// The exchange of one rank with nobody.
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

/// The same if they are clones.
impl PartialEq for Communicator {
    fn eq(&self, other: &Self) -> bool {
        match (&self.inner, &other.inner) {
            (Some(left), Some(right)) => Arc::ptr_eq(left, right),
            (left, right) => left.is_none() && right.is_none(),
        }
    }
}
