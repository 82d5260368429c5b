use half::bf16;
use std::sync::Arc;

use crate::{
    Communicator, Exchange, Number, Result, Words,
    communicator::Kind,
    transport::{Messages, Payload},
    watch::Watch,
};

/// Dtype of values in transit between ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wire {
    /// The dtype of the values.
    #[default]
    Full,
    /// bf16, which halves the bytes of f32. The values of every rank are rounded once and added in their own dtype, and the sum
    /// is rounded once.
    Bf16,
}

/// A pending all-reduce.
///
/// Each rank sends every other rank its part of the values, and adds the parts that it receives in the order of the ranks. Then
/// it sends its sums to all ranks. A sum therefore does not depend on the division of the array.
pub struct PendingReduce<T: Number> {
    comm: Communicator,
    name: String,
    tag: u16,
    wire: Wire,
    values: Arc<Vec<T>>,
    /// Sums of this rank's part, once they are complete.
    sums: Vec<T>,
    phase: Phase,
}

enum Phase {
    Scatter(Box<dyn Exchange>),
    Gather(Box<dyn Exchange>),
    Done(Vec<Words>),
}

impl<T: Number> PendingReduce<T> {
    pub(crate) fn start(comm: &Communicator, name: String, tag: u16, values: Vec<T>, wire: Wire) -> Result<Self> {
        let values = Arc::new(values);
        let ends: Vec<usize> = (0..comm.size()).map(|rank| part(values.len(), rank, comm.size()).end).collect();
        let phase = match comm.is_shared() {
            true => Phase::Scatter(send_parts(comm, &name, tag, &values, &ends, wire)?),
            false => Phase::Done(vec![]),
        };
        Ok(Self { comm: comm.clone(), name, tag, wire, values, sums: vec![], phase })
    }

    /// Makes progress without waiting. Returns true if the sums are complete.
    ///
    /// # Errors
    /// [`CommError`](crate::CommError).
    pub fn poll(&mut self) -> Result<bool> {
        let arrived = match &mut self.phase {
            Phase::Done(_) => return Ok(true),
            Phase::Scatter(exchange) | Phase::Gather(exchange) => exchange.poll(),
        };
        if !arrived.map_err(|error| self.comm.named(&self.name, error))? {
            return Ok(false);
        }
        match std::mem::replace(&mut self.phase, Phase::Done(vec![])) {
            Phase::Scatter(exchange) => {
                let (comm, wire) = (&self.comm, self.wire);
                let mine = comm.part(self.values.len(), comm.rank());
                self.sums = add(&self.values[mine], &exchange.received(), comm.rank(), wire);
                let payload: Arc<dyn Payload> = match wire {
                    Wire::Full => Arc::new(self.sums.clone()),
                    Wire::Bf16 => {
                        let rounded: Vec<u16> = self.sums.iter().map(|x| x.to_bf16().to_bits()).collect();
                        self.sums = rounded.iter().map(|&bits| T::of_bf16(bf16::from_bits(bits))).collect();
                        Arc::new(rounded)
                    }
                };
                let (bytes, each) = (payload.bytes().len(), wire.size::<T>());
                let incoming = comm.incoming_from_others(|from| comm.part(self.values.len(), from).len() * each);
                let messages = Messages { payload, outgoing: comm.outgoing_to_others(0..bytes), incoming };
                self.phase = Phase::Gather(comm.exchange(messages, Kind::Gather, self.tag)?);
                self.poll()
            }
            Phase::Gather(exchange) => {
                self.phase = Phase::Done(exchange.received());
                Ok(true)
            }
            done @ Phase::Done(_) => {
                self.phase = done;
                Ok(true)
            }
        }
    }

    /// Waits for the sums.
    ///
    /// # Errors
    /// [`CommError`](crate::CommError).
    pub fn wait(mut self) -> Result<Vec<T>> {
        self.comm.run_pending(&self.name)?;
        let mut watch = Watch::new();
        while !self.poll()? {
            if let Phase::Scatter(exchange) | Phase::Gather(exchange) = &self.phase {
                self.comm.check(&self.name, &**exchange, &mut watch)?;
            }
        }
        let Self { comm, wire, values, sums, phase, .. } = self;
        let mut values = Arc::try_unwrap(values).unwrap_or_else(|values| values.to_vec());
        let Phase::Done(received) = phase else { return Ok(values) };
        let length = values.len();
        for (from, words) in received.iter().enumerate() {
            let place = &mut values[comm.part(length, from)];
            match (from == comm.rank(), wire) {
                (true, _) => place.copy_from_slice(&sums),
                (false, Wire::Full) => place.copy_from_slice(words.elements()),
                (false, Wire::Bf16) => {
                    let bits = words.elements::<u16>().iter();
                    place.iter_mut().zip(bits).for_each(|(value, &bits)| *value = T::of_bf16(bf16::from_bits(bits)));
                }
            }
        }
        Ok(values)
    }
}

impl Wire {
    /// Returns the bytes per value.
    fn size<T>(self) -> usize {
        match self {
            Self::Full => size_of::<T>(),
            Self::Bf16 => 2,
        }
    }
}

/// Starts to send every rank its part, which ends at `ends`.
fn send_parts<T: Number>(
    comm: &Communicator,
    name: &str,
    tag: u16,
    values: &Arc<Vec<T>>,
    ends: &[usize],
    wire: Wire,
) -> Result<Box<dyn Exchange>> {
    let each = wire.size::<T>();
    let payload: Arc<dyn Payload> = match wire {
        Wire::Full => values.clone(),
        Wire::Bf16 => Arc::new(values.iter().map(|x| x.to_bf16().to_bits()).collect::<Vec<u16>>()),
    };
    let start = |rank: usize| if rank == 0 { 0 } else { ends[rank - 1] };
    let mine = ends[comm.rank()] - start(comm.rank());
    let messages = Messages {
        payload,
        outgoing: (0..comm.size()).map(|to| (to != comm.rank()).then(|| start(to) * each..ends[to] * each)).collect(),
        incoming: comm.incoming_from_others(|_| mine * each),
    };
    comm.exchange(messages, Kind::Scatter, tag).map_err(|error| comm.named(name, error))
}

/// Adds this rank's part and the received parts, in the order of the ranks.
fn add<T: Number>(own: &[T], received: &[Words], rank: usize, wire: Wire) -> Vec<T> {
    let mut sums: Vec<T> = Vec::new();
    let rounded = |x: T| T::of_bf16(x.to_bf16());
    for (from, words) in received.iter().enumerate() {
        let mut take = |values: &mut dyn Iterator<Item = T>| match sums.is_empty() {
            true => sums.extend(values),
            false => sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value),
        };
        match (from == rank, wire) {
            (true, Wire::Full) => take(&mut own.iter().copied()),
            (true, Wire::Bf16) => take(&mut own.iter().map(|&x| rounded(x))),
            (false, Wire::Full) => take(&mut words.elements::<T>().iter().copied()),
            (false, Wire::Bf16) => {
                take(&mut words.elements::<u16>().iter().map(|&bits| T::of_bf16(bf16::from_bits(bits))))
            }
        }
    }
    sums
}

/// Returns the sums of this rank's part, which ends at `ends`.
pub(crate) fn scatter<T: Number>(
    comm: &Communicator,
    name: &str,
    tag: u16,
    values: Vec<T>,
    ends: &[usize],
) -> Result<Vec<T>> {
    assert!(
        ends.len() == comm.size() && ends.is_sorted() && ends.last() == Some(&values.len()),
        "parts of ranks that end at {ends:?}, of {} values, for {} ranks",
        values.len(),
        comm.size()
    );
    if !comm.is_shared() {
        return Ok(values);
    }
    let (values, rank) = (Arc::new(values), comm.rank());
    let exchange = send_parts(comm, name, tag, &values, ends, Wire::Full)?;
    let received = comm.wait(name, exchange)?;
    let start = if rank == 0 { 0 } else { ends[rank - 1] };
    Ok(add(&values[start..ends[rank]], &received, rank, Wire::Full))
}

/// Returns the range of a rank in an even division of `length` items among `size` ranks.
pub(crate) fn part(length: usize, rank: usize, size: usize) -> std::ops::Range<usize> {
    let (each, rest) = (length / size, length % size);
    let start = rank * each + rank.min(rest);
    start..start + each + usize::from(rank < rest)
}
