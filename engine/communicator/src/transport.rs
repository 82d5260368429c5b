use crate::{Result, Words};
use std::sync::Arc;

/// Bytes that are sent. They live until they have arrived.
pub trait Payload: Send + Sync {
    /// The bytes.
    fn bytes(&self) -> &[u8];
}

impl<T: bytemuck::Pod + Send + Sync> Payload for Vec<T> {
    fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(self)
    }
}

/// Messages for and from every rank.
pub struct Messages {
    /// The bytes that are sent.
    pub payload: Arc<dyn Payload>,
    /// The part of them for each rank; `None` where nothing is sent, as to oneself.
    pub outgoing: Vec<Option<std::ops::Range<usize>>>,
    /// The number of bytes from each rank; `None` where nothing is to come.
    pub incoming: Vec<Option<usize>>,
}

/// Delivery of messages between ranks. Every rank starts the same exchanges under the same tags, in any order.
pub trait Transport: Send + Sync {
    /// The number of this rank, from 0.
    fn rank(&self) -> usize;

    /// The number of ranks.
    fn size(&self) -> usize;

    /// The process of a rank, for people.
    fn process(&self, rank: usize) -> Option<String>;

    /// Starts to send and to receive under a tag below 32,768.
    ///
    /// # Errors
    /// [`CommError::Transport`](crate::CommError::Transport).
    fn start(&self, tag: u16, messages: Messages) -> Result<Box<dyn Exchange>>;

    /// Sends bytes to all other ranks, apart from all exchanges. Every rank [receives](Self::receive) them when it wants to.
    ///
    /// # Errors
    /// [`CommError::Transport`](crate::CommError::Transport).
    fn post(&self, message: Arc<[u8]>) -> Result<()>;

    /// Moves on what was [posted](Self::post). True if nothing of it is on its way. What cannot arrive any more does not count: its
    /// rank is gone, which is told to whoever waits for that rank.
    fn delivered(&self) -> bool;

    /// The next bytes that another rank has [posted](Self::post), and its number, if some have arrived.
    ///
    /// # Errors
    /// [`CommError::Transport`](crate::CommError::Transport), also if they are more than `most`.
    fn receive(&self, most: usize) -> Result<Option<(usize, Vec<u8>)>>;

    /// A rank that takes part in nothing any more, of those of whom it is known.
    fn absence(&self, rank: usize) -> Option<Absence>;

    /// Tells all other ranks that this one takes part in nothing any more.
    fn leave(&self, absence: Absence);

    /// The number of ranks that share this one's processors, itself included.
    fn neighbours(&self) -> usize {
        1
    }

    /// Ends the transport, when every rank calls it.
    fn close(&self) {}

    /// Ends all ranks' processes, with a status.
    fn abort(&self, status: i32) -> !;
}

/// The reason for which a rank takes part in nothing any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    /// Its program has ended.
    Left,
    /// Its program has ended with an error.
    Failed,
    /// Its process is no more.
    Died,
}

/// Messages on their way.
pub trait Exchange: Send {
    /// Moves the messages on. True if all have been sent and have arrived.
    ///
    /// # Errors
    /// [`CommError`](crate::CommError), with an empty name of the collective.
    fn poll(&mut self) -> Result<bool>;

    /// The ranks whose messages are under way.
    fn missing(&self) -> Vec<usize>;

    /// The bytes that have arrived, by rank.
    fn received(self: Box<Self>) -> Vec<Words>;
}
