//! Collectives of a communicator: reductions, gathers, broadcasts and barriers.

use bytemuck::Pod;
use std::sync::Arc;

use crate::{
    Communicator, Exchange, Number, PendingReduce, Result, Wire, communicator::Kind, reduce::part, transport::Messages,
};

impl Communicator {
    /// Returns the element-wise sums over all ranks, added in the order of the ranks.
    ///
    /// # Errors
    /// [`CommError`](crate::CommError).
    pub fn all_reduce<T: Number>(&self, what: &str, values: Vec<T>) -> Result<Vec<T>> {
        self.start_all_reduce(what, values, Wire::Full)?.wait()
    }

    /// Starts [`all_reduce`](Self::all_reduce). It makes progress when it is [polled](PendingReduce::poll) or awaited. Several
    /// may be pending; every rank must wait for them in the same order.
    ///
    /// # Errors
    /// [`CommError`](crate::CommError).
    pub fn start_all_reduce<T: Number>(&self, what: &str, values: Vec<T>, wire: Wire) -> Result<PendingReduce<T>> {
        self.start_all_reduce_as(self.reserve(), what, values, wire)
    }

    /// Reserves a collective, which may start after others that are reserved or started later. Every rank must reserve the same
    /// collectives in the same order. At most 2,048 may be reserved or pending.
    pub fn reserve(&self) -> Reserved {
        Reserved(self.tags())
    }

    /// [`start_all_reduce`](Self::start_all_reduce) for a reserved collective.
    ///
    /// # Errors
    /// [`CommError`](crate::CommError).
    pub fn start_all_reduce_as<T: Number>(
        &self,
        reserved: Reserved,
        what: &str,
        values: Vec<T>,
        wire: Wire,
    ) -> Result<PendingReduce<T>> {
        PendingReduce::start(self, format!("all_reduce of {what}"), reserved.0, values, wire)
    }

    /// Returns this rank's [`part`](Self::part) of the sums over all ranks.
    ///
    /// # Errors
    /// [`CommError`](crate::CommError).
    pub fn reduce_scatter<T: Number>(&self, what: &str, values: Vec<T>) -> Result<Vec<T>> {
        let ends = (0..self.size()).map(|rank| self.part(values.len(), rank).end).collect::<Vec<_>>();
        self.reduce_scatter_at(what, values, &ends)
    }

    /// Like [`reduce_scatter`](Self::reduce_scatter), but the part of each rank ends at `ends` and starts at the end of the
    /// previous rank's part. Parts may be empty.
    ///
    /// # Errors
    /// [`CommError`](crate::CommError).
    ///
    /// # Panics
    /// If `ends` does not have one ascending end for each rank, the last of which is the number of values.
    pub fn reduce_scatter_at<T: Number>(&self, what: &str, values: Vec<T>, ends: &[usize]) -> Result<Vec<T>> {
        let name = format!("reduce_scatter of {what}");
        crate::reduce::scatter(self, &name, self.tags(), values, ends)
    }

    /// Returns the arrays of all ranks, which may differ in length, in the order of the ranks.
    ///
    /// # Errors
    /// [`CommError`](crate::CommError).
    pub fn all_gather<T: Pod + Send + Sync>(&self, what: &str, values: Vec<T>) -> Result<Vec<Vec<T>>> {
        self.gather_as(&format!("all_gather of {what}"), values)
    }

    fn gather_as<T: Pod + Send + Sync>(&self, name: &str, values: Vec<T>) -> Result<Vec<Vec<T>>> {
        if !self.is_shared() {
            return Ok(vec![values]);
        }
        let tags = self.tags();
        let lengths = self.exchange(
            Messages {
                payload: Arc::new(vec![values.len() as u64]),
                outgoing: self.outgoing_to_others(0..8),
                incoming: self.incoming_from_others(|_| 8),
            },
            Kind::Lengths,
            tags,
        )?;
        let lengths = self.wait(name, lengths)?;
        let length = |from: usize| lengths[from].elements::<u64>().first().map_or(0, |&length| length as usize);
        self.gather_parts(name, tags, values, length)
    }

    /// Returns the values of rank 0 on every rank. The number of values given on other ranks may differ.
    ///
    /// # Errors
    /// [`CommError`](crate::CommError).
    pub fn broadcast<T: Pod + Send + Sync>(&self, what: &str, values: Vec<T>) -> Result<Vec<T>> {
        if !self.is_shared() {
            return Ok(values);
        }
        // Each rank gets a part from rank 0 and forwards it to all others, so that no rank sends more than twice the values.
        let name = format!("broadcast of {what}");
        let (rank, tags) = (self.rank(), self.tags());
        let lengths = self.exchange(
            Messages {
                payload: Arc::new(vec![values.len() as u64]),
                outgoing: if rank == 0 { self.outgoing_to_others(0..8) } else { vec![None; self.size()] },
                incoming: self.incoming_from_first(8),
            },
            Kind::Lengths,
            tags,
        )?;
        let lengths = self.wait(&name, lengths)?;
        let length = match rank {
            0 => values.len(),
            _ => lengths[0].elements::<u64>().first().map_or(0, |&length| length as usize),
        };
        let each = size_of::<T>();
        let bytes = |rank| {
            let part = self.part(length, rank);
            part.start * each..part.end * each
        };
        let mine = self.part(length, rank);
        let messages = match rank {
            0 => Messages {
                payload: Arc::new(values.clone()),
                outgoing: (0..self.size()).map(|to| (to != 0).then(|| bytes(to))).collect(),
                incoming: self.incoming_from_first(0),
            },
            _ => Messages {
                payload: Arc::new(Vec::<u8>::new()),
                outgoing: vec![None; self.size()],
                incoming: self.incoming_from_first(mine.len() * each),
            },
        };
        let exchange = self.exchange(messages, Kind::Scatter, tags)?;
        let received = self.wait(&name, exchange)?;
        let own = if rank == 0 { values[mine].to_vec() } else { received[0].elements().to_vec() };
        let parts = self.gather_parts(&name, tags, own, |from| self.part(length, from).len())?;
        Ok(if rank == 0 { values } else { parts.concat() })
    }

    /// Returns the text of rank 0 on every rank.
    ///
    /// # Errors
    /// [`CommError`](crate::CommError).
    pub fn broadcast_text(&self, what: &str, text: String) -> Result<String> {
        let bytes = self.broadcast(what, text.into_bytes())?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Waits until every rank has called it.
    ///
    /// # Errors
    /// [`CommError`](crate::CommError).
    pub fn barrier(&self, what: &str) -> Result<()> {
        self.meet(&format!("barrier {what}"))
    }

    /// [`barrier`](Self::barrier) inside a collective.
    pub(crate) fn meet(&self, name: &str) -> Result<()> {
        if !self.is_shared() {
            return Ok(());
        }
        self.wait(name, self.start_barrier()?).map(drop)
    }

    pub(crate) fn start_barrier(&self) -> Result<Box<dyn Exchange>> {
        let messages = Messages {
            payload: Arc::new(Vec::<u8>::new()),
            outgoing: self.outgoing_to_others(0..0),
            incoming: self.incoming_from_others(|_| 0),
        };
        self.exchange(messages, Kind::Barrier, self.tags())
    }

    /// Returns the range of a rank in an even division of `length` items: the ranges are consecutive, and their lengths differ by
    /// at most one.
    pub fn part(&self, length: usize, rank: usize) -> std::ops::Range<usize> {
        part(length, rank, self.size())
    }

    /// Gathers parts of known lengths, one from each rank.
    pub(crate) fn gather_parts<T: Pod + Send + Sync>(
        &self,
        name: &str,
        tags: u16,
        own: Vec<T>,
        length: impl Fn(usize) -> usize,
    ) -> Result<Vec<Vec<T>>> {
        let each = size_of::<T>();
        let bytes = size_of_val(&own[..]);
        let payload = Arc::new(own);
        let messages = Messages {
            payload: payload.clone(),
            outgoing: self.outgoing_to_others(0..bytes),
            incoming: self.incoming_from_others(|from| length(from) * each),
        };
        let exchange = self.exchange(messages, Kind::Gather, tags)?;
        let received = self.wait(name, exchange)?;
        let mut parts: Vec<Vec<T>> = received.iter().map(|words| words.elements().to_vec()).collect();
        parts[self.rank()] = Arc::try_unwrap(payload).unwrap_or_else(|payload| payload.to_vec());
        Ok(parts)
    }

    /// Returns the incoming bytes of a message from rank 0, which itself receives nothing.
    fn incoming_from_first(&self, bytes: usize) -> Vec<Option<usize>> {
        (0..self.size()).map(|from| (from == 0 && self.rank() != 0).then_some(bytes)).collect()
    }
}

/// A reserved collective that has not started; see [`Communicator::reserve`].
#[derive(Debug)]
pub struct Reserved(u16);
