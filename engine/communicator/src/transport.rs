use crate::{Result, Words};
use std::sync::Arc;

/// Bytes to be sent. They live until they have arrived.
pub trait Payload: Send + Sync {
    /// Returns the bytes.
    fn bytes(&self) -> &[u8];
}

impl<T: bytemuck::Pod + Send + Sync> Payload for Vec<T> {
    fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(self)
    }
}

/// Messages to and from every rank.
pub struct Messages {
    /// The bytes to be sent.
    pub payload: Arc<dyn Payload>,
    /// The range of the bytes for each rank; `None` if nothing is sent, as to this rank itself.
    pub outgoing: Vec<Option<std::ops::Range<usize>>>,
    /// The number of bytes from each rank; `None` if nothing is received.
    pub incoming: Vec<Option<usize>>,
}

/// Delivery of messages between ranks. Every rank must start the same exchanges under the same tags, in any order.
pub trait Transport: Send + Sync {
    /// Returns the number of this rank, counted from 0.
    fn rank(&self) -> usize;

    /// Returns the number of ranks.
    fn size(&self) -> usize;

    /// Returns the process of a rank, for messages.
    fn process(&self, rank: usize) -> Option<String>;

    /// Starts sending and receiving under a tag below 32,768.
    ///
    /// # Errors
    /// [`CommError::Transport`](crate::CommError::Transport).
    fn start(&self, tag: u16, messages: Messages) -> Result<Box<dyn Exchange>>;

    /// Sends bytes to all other ranks, independent of exchanges. Every rank may [receive](Self::receive) them at any time.
    ///
    /// # Errors
    /// [`CommError::Transport`](crate::CommError::Transport).
    fn post(&self, message: Arc<[u8]>) -> Result<()>;

    /// Makes progress with [posted](Self::post) messages. Returns true if all are delivered. Messages to ranks that are gone do
    /// not count; waiting for such a rank returns an error.
    fn delivered(&self) -> bool;

    /// Returns the next bytes that another rank has [posted](Self::post), with its number, if any have arrived.
    ///
    /// # Errors
    /// [`CommError::Transport`](crate::CommError::Transport), including for more than `most` bytes.
    fn receive(&self, most: usize) -> Result<Option<(usize, Vec<u8>)>>;

    /// Returns the reason why a rank no longer takes part, if it is known to be absent.
    fn absence(&self, rank: usize) -> Option<Absence>;

    /// Notifies all other ranks that this rank no longer takes part.
    fn leave(&self, absence: Absence);

    /// Returns the number of ranks that share this rank's processors, including itself.
    fn neighbours(&self) -> usize {
        1
    }

    /// Closes the transport once every rank calls it.
    fn close(&self) {}

    /// Ends the processes of all ranks, with an exit status.
    fn abort(&self, status: i32) -> !;
}

/// Reason why a rank no longer takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    /// Its program has ended.
    Left,
    /// Its program has ended with an error.
    Failed,
    /// Its process has died.
    Died,
}

/// Pending messages.
pub trait Exchange: Send {
    /// Makes progress. Returns true if all messages have been sent and received.
    ///
    /// # Errors
    /// [`CommError`](crate::CommError), with an empty name of the collective.
    fn poll(&mut self) -> Result<bool>;

    /// Returns the ranks with pending messages.
    fn missing(&self) -> Vec<usize>;

    /// Returns the received bytes, by rank.
    fn received(self: Box<Self>) -> Vec<Words>;
}
