//! Values that any rank puts under a key and any rank gets.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use crate::{CommError, Communicator, Exchange, Result, Transport, failure::AFTER_LEAVING, watch::Watch};

/// Maximum size of a value in bytes. The length of a message comes from another rank: without a limit it could request any amount
/// of memory.
const MAX_VALUE: usize = 64 << 20;

/// Maximum length of a key in bytes.
const MAX_KEY: usize = 64 << 10;

/// Bytes before the key of a message: the identifier of the store, and the length of the key.
const HEAD: usize = 8;

/// Name of a store in errors.
const STORE: &str = "the key-value store";

/// Time between checks for undelivered pairs.
const BETWEEN_LOOKS: Duration = Duration::from_micros(200);

/// Values by key, which every rank can put and get; created by [`Communicator::key_value_store`]. Clones are the same store.
///
/// A value is put once, by one rank, which sends it to all others; it exists until the program ends. Any thread may put and get,
/// even during collectives. XLA's plugins require such a store for several processes, and this one behaves like XLA's own:
/// putting a key again is an error, and nothing is overwritten.
#[derive(Clone)]
pub struct KeyValueStore {
    comm: Communicator,
    number: u32,
    pairs: Arc<Pairs>,
}

/// The pairs of all stores of a transport.
#[derive(Default)]
pub(crate) struct Pairs {
    values: Mutex<Stores>,
    /// True while a thread delivers what this rank has sent.
    moving: Mutex<bool>,
}

/// Values by store and key.
type Stores = HashMap<u32, HashMap<String, Value>>;

struct Value {
    bytes: Vec<u8>,
    /// The rank that put the value.
    from: usize,
    /// A rank that put different bytes, before it received these.
    other: Option<usize>,
}

impl Communicator {
    /// Creates an empty key-value store. Every rank must create the same stores in the same order, as with collectives.
    pub fn key_value_store(&self) -> KeyValueStore {
        let (number, pairs) = match &self.inner {
            Some(inner) => (inner.next_store(), inner.pairs.clone()),
            None => (0, Arc::default()),
        };
        KeyValueStore { comm: self.clone(), number, pairs }
    }

    /// Waits until every rank has called it and all pairs are delivered, so that the transport can be closed.
    pub(crate) fn settle(&self, what: &str) -> Result<()> {
        let Some(inner) = self.inner.as_ref().filter(|_| self.is_shared()) else { return Ok(()) };
        let (name, mut watch) = (format!("barrier {what}"), Watch::new());
        let mut barrier: Option<Box<dyn Exchange>> = None;
        self.run_pending(&name)?;
        loop {
            // Other ranks wait until this rank has received everything that they sent.
            inner.pairs.receive(self)?;
            let Some(exchange) = &mut barrier else {
                match inner.transport.delivered() {
                    true => barrier = Some(self.start_barrier()?),
                    false => self.check_ranks(&name, || self.others().collect(), &mut watch)?,
                }
                continue;
            };
            if exchange.poll().map_err(|error| self.named(&name, error))? {
                return Ok(());
            }
            self.check(&name, &**exchange, &mut watch)?;
        }
    }

    pub(crate) fn others(&self) -> impl Iterator<Item = usize> {
        let own = self.rank();
        (0..self.size()).filter(move |&rank| rank != own)
    }
}

impl KeyValueStore {
    /// Puts a value under a key, for every rank. Does not wait for other ranks.
    ///
    /// # Errors
    /// [`CommError::AlreadyPut`] if this rank knows a value of the key; [`CommError::TooLarge`] for values of more than 64 MiB or
    /// keys of more than 64 KiB; errors of the transport.
    pub fn put(&self, key: &str, value: &[u8]) -> Result<()> {
        for (part, bytes, most) in [("the value of", value.len(), MAX_VALUE), ("the name of", key.len(), MAX_KEY)] {
            if bytes > most {
                let key = key.chars().take(100).collect();
                return Err(CommError::TooLarge { part, key, bytes, most });
            }
        }
        let mut values = self.pairs.values();
        receive(&mut values, &self.comm)?;
        if let Some(value) = values.get(&self.number).and_then(|store| store.get(key)) {
            return Err(CommError::AlreadyPut { key: key.into(), rank: self.comm.describe(value.from) });
        }
        let shared = self.comm.inner.as_ref().filter(|_| self.comm.is_shared());
        if let Some(inner) = shared {
            let message = message(self.number, key, value);
            inner.count_sent(message.len() * (self.comm.size() - 1));
            inner.transport.post(message.into()).map_err(|error| self.comm.named(STORE, error))?;
        }
        let value = Value { bytes: value.to_vec(), from: self.comm.rank(), other: None };
        values.entry(self.number).or_default().insert(key.to_owned(), value);
        drop(values);
        if let Some(inner) = shared {
            self.pairs.move_on(&inner.transport);
        }
        Ok(())
    }

    /// Returns the value of a key. Waits until a rank has put it, or until the timeout.
    ///
    /// # Errors
    /// [`CommError::NoKey`] after the timeout; [`CommError::TwoValues`] if two ranks have put different values;
    /// [`CommError::Died`] and others that name a rank if a rank ends before, since it may be the one that should put the key.
    pub fn get(&self, key: &str, timeout: Duration) -> Result<Vec<u8>> {
        let (mut watch, mut left_since) = (Watch::new(), None);
        loop {
            if let Some(value) = self.try_get(key)? {
                return Ok(value);
            }
            let look = watch.pause();
            if watch.begun.elapsed() >= timeout {
                return Err(CommError::NoKey { key: key.into(), timeout });
            }
            if !look || !self.comm.is_shared() {
                continue;
            }
            let name = format!("get of the key '{key}'");
            let left = self.comm.look_after(&name, self.comm.others(), watch.suspended)?;
            // As long as another rank runs, it may put the key.
            if left.len() < self.comm.size() - 1 {
                left_since = None;
            } else if left_since.get_or_insert_with(Instant::now).elapsed() > AFTER_LEAVING {
                return Err(CommError::Left { collective: name, rank: self.comm.describe(left[0]) });
            }
        }
    }

    /// Returns the value of a key if it has arrived from the rank that put it.
    ///
    /// # Errors
    /// [`CommError::TwoValues`] if two ranks have put different values; errors of the transport.
    pub fn try_get(&self, key: &str) -> Result<Option<Vec<u8>>> {
        let mut values = self.pairs.values();
        if let Some(value) = self.find(&values, key)? {
            return Ok(Some(value));
        }
        receive(&mut values, &self.comm)?;
        self.find(&values, key)
    }

    fn find(&self, values: &Stores, key: &str) -> Result<Option<Vec<u8>>> {
        let Some(value) = values.get(&self.number).and_then(|store| store.get(key)) else { return Ok(None) };
        match value.other {
            None => Ok(Some(value.bytes.clone())),
            Some(other) => {
                let ranks = [value.from, other].map(|rank| self.comm.describe(rank));
                Err(CommError::TwoValues { key: key.into(), ranks: Box::new(ranks) })
            }
        }
    }
}

impl fmt::Debug for KeyValueStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "key-value store of {:?}", self.comm)
    }
}

impl Pairs {
    fn values(&self) -> MutexGuard<'_, Stores> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn moving(&self) -> MutexGuard<'_, bool> {
        self.moving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn receive(&self, comm: &Communicator) -> Result<()> {
        receive(&mut self.values(), comm)
    }

    /// Ensures that everything sent by this rank arrives, whatever the program does in the meantime: MPI makes progress with
    /// large messages only during its calls, and a program may wait for the others in another library.
    fn move_on(self: &Arc<Self>, transport: &Arc<dyn Transport>) {
        let mut moving = self.moving();
        if *moving || transport.delivered() {
            return;
        }
        let (pairs, transport) = (Arc::downgrade(self), Arc::downgrade(transport));
        let thread = thread::Builder::new().name("grove-pairs".into()).spawn(move || {
            while let (Some(pairs), Some(transport)) = (pairs.upgrade(), transport.upgrade()) {
                let mut moving = pairs.moving();
                if transport.delivered() {
                    *moving = false;
                    return;
                }
                drop(moving);
                drop((pairs, transport));
                thread::sleep(BETWEEN_LOOKS);
            }
        });
        // If the thread could not be started, the next call delivers the messages.
        *moving = thread.is_ok();
    }
}

/// Stores the pairs that other ranks have put.
fn receive(values: &mut Stores, comm: &Communicator) -> Result<()> {
    let Some(inner) = &comm.inner else { return Ok(()) };
    let next = || inner.transport.receive(HEAD + MAX_KEY + MAX_VALUE).map_err(|error| comm.named(STORE, error));
    while let Some((from, message)) = next()? {
        let Some((number, key, bytes)) = parts(&message) else {
            let (rank, bytes) = (comm.describe(from), message.len());
            return Err(CommError::Transport(format!(
                "{rank} sent {bytes} bytes to {STORE} that are not a key and a value: every rank must run the same \
                 program"
            )));
        };
        let store = values.entry(number).or_default();
        match store.get_mut(key) {
            Some(value) if value.bytes == bytes => {}
            Some(value) => value.other = value.other.or(Some(from)),
            None => drop(store.insert(key.to_owned(), Value { bytes: bytes.to_vec(), from, other: None })),
        }
    }
    Ok(())
}

/// Encodes a pair as a message.
fn message(number: u32, key: &str, value: &[u8]) -> Vec<u8> {
    // The key's length has been checked, so it fits.
    [&number.to_le_bytes(), &(key.len() as u32).to_le_bytes(), key.as_bytes(), value].concat()
}

/// Reverses [`message`].
fn parts(message: &[u8]) -> Option<(u32, &str, &[u8])> {
    let (number, rest) = message.split_first_chunk()?;
    let (length, rest) = rest.split_first_chunk()?;
    let (key, value) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    Some((u32::from_le_bytes(*number), std::str::from_utf8(key).ok()?, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_back_as_they_went() {
        for (key, value) in [("", &b""[..]), ("a key", b"\0\xff"), ("\u{e4}", &[7; 1000])] {
            assert_eq!(parts(&message(3, key, value)), Some((3, key, value)));
        }
    }

    #[test]
    fn rejects_messages_that_are_not_pairs() {
        let whole = message(0, "key", b"");
        (0..whole.len()).for_each(|end| assert_eq!(parts(&whole[..end]), None, "{end}"));
        let mut other = whole.clone();
        other[HEAD] = 0xff;
        assert_eq!(parts(&other), None);
        other = whole;
        other[4..HEAD].fill(0xff);
        assert_eq!(parts(&other), None);
    }
}
