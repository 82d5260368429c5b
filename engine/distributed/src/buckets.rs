//! Buckets of leaves: a few long arrays, because each message has a fixed cost.

use burn::tensor::{DType, Element, TensorData};
use grove_communicator::{Communicator, Number, PendingReduce, Reserved, Result, Wire};
use std::{
    mem,
    ops::Mul,
    time::{Duration, Instant},
};

/// Sums of leaves over the ranks, in buckets. A bucket is sent as soon as all its leaves are available, whichever bucket is
/// first.
pub(crate) struct Buckets {
    comm: Communicator,
    wire: Wire,
    /// Factor of every value before the sum.
    pub(crate) factor: f64,
    /// Position of each leaf that takes part.
    places: Vec<Option<Place>>,
    buckets: Vec<Bucket>,
    begun: Instant,
}

/// Position of a leaf in a bucket.
struct Place {
    bucket: usize,
    begin: usize,
    length: usize,
    filled: bool,
}

struct Bucket {
    reserved: Option<Reserved>,
    values: Contents,
    /// Number of leaves that are not available yet.
    missing: usize,
    left: Duration,
    arrived: Option<Duration>,
}

/// Concatenated values of some leaves.
enum Contents {
    /// No values have been added yet.
    Empty {
        length: usize,
        dtype: DType,
    },
    F32(Vec<f32>),
    F64(Vec<f64>),
    SumF32(PendingReduce<f32>),
    SumF64(PendingReduce<f64>),
}

/// Transfer times of a bucket of gradients, relative to the start of the step's gradients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BucketTimes {
    /// Size of the bucket in bytes, before any compression.
    pub bytes: usize,
    /// Time at which its last gradient was available and the bucket was sent.
    pub left: Duration,
    /// Time at which its sums were seen to be complete.
    pub arrived: Duration,
}

impl Buckets {
    /// Divides leaves of given lengths and dtypes into buckets of at most `bytes` bytes, or of one larger leaf, in the given
    /// order. Every rank must pass the same arguments.
    pub(crate) fn new(
        leaves: &[Option<(usize, DType)>],
        order: impl Iterator<Item = usize>,
        comm: &Communicator,
        (bytes, wire): (usize, Wire),
        factor: f64,
    ) -> Self {
        let mut places: Vec<Option<Place>> = leaves.iter().map(|_| None).collect();
        let mut buckets: Vec<Bucket> = Vec::new();
        for leaf in order {
            let Some((length, dtype)) = leaves[leaf] else { continue };
            let dtype = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
            let begin = match buckets.last_mut() {
                Some(Bucket { values: Contents::Empty { length: filled, dtype: of }, missing, .. })
                    if *of == dtype && dtype.size() * (*filled + length) <= bytes =>
                {
                    *missing += 1;
                    *filled += length;
                    *filled - length
                }
                _ => {
                    let values = Contents::Empty { length, dtype };
                    let (reserved, left) = (Some(comm.reserve()), Duration::ZERO);
                    buckets.push(Bucket { reserved, values, missing: 1, left, arrived: None });
                    0
                }
            };
            places[leaf] = Some(Place { bucket: buckets.len() - 1, begin, length, filled: false });
        }
        Self { comm: comm.clone(), wire, factor, places, buckets, begun: Instant::now() }
    }

    /// Returns the leaves that take part and are not available yet.
    pub(crate) fn missing(&self) -> Vec<usize> {
        let missing = |place: &Option<Place>| place.as_ref().is_some_and(|place| !place.filled);
        (0..self.places.len()).filter(|&leaf| missing(&self.places[leaf])).collect()
    }

    /// Adds the values of a leaf, or zeros for `None`. Does nothing if the leaf takes no part or was added before.
    pub(crate) fn fill(&mut self, leaf: usize, data: Option<&TensorData>) -> Result<()> {
        let Some(place) = self.places.get_mut(leaf).and_then(Option::as_mut).filter(|place| !place.filled) else {
            return Ok(());
        };
        place.filled = true;
        let (begin, end) = (place.begin, place.begin + place.length);
        let bucket = &mut self.buckets[place.bucket];
        if let Contents::Empty { length, dtype } = bucket.values {
            bucket.values = match dtype {
                DType::F64 => Contents::F64(vec![0.0; length]),
                _ => Contents::F32(vec![0.0; length]),
            };
        }
        match (&mut bucket.values, data) {
            (Contents::F32(values), Some(data)) => copy(&mut values[begin..end], data, self.factor as f32),
            (Contents::F64(values), Some(data)) => copy(&mut values[begin..end], data, self.factor),
            _ => {}
        }
        bucket.missing -= 1;
        if bucket.missing == 0 {
            bucket.left = self.begun.elapsed();
            bucket.leave(&self.comm, self.wire)?;
        }
        // Makes progress with the pending buckets.
        for bucket in &mut self.buckets {
            bucket.poll(self.begun)?;
        }
        Ok(())
    }

    /// Waits for the sums and returns them times `after`. All leaves must have been added.
    pub(crate) fn wait(self, after: f64) -> Result<(Vec<Option<TensorData>>, Vec<BucketTimes>)> {
        let (mut sums, mut times) = (Vec::new(), Vec::new());
        for bucket in self.buckets {
            let (sum, bytes) = match bucket.values {
                Contents::SumF32(sum) => {
                    let values = sum.wait()?;
                    let bytes = size_of_val(&values[..]);
                    (Contents::F32(values), bytes)
                }
                Contents::SumF64(sum) => {
                    let values = sum.wait()?;
                    let bytes = size_of_val(&values[..]);
                    (Contents::F64(values), bytes)
                }
                values => (values, 0),
            };
            sums.push(sum);
            let arrived = bucket.arrived.unwrap_or_else(|| self.begun.elapsed());
            times.push(BucketTimes { bytes, left: bucket.left, arrived });
        }
        let cut = |place: Option<Place>| {
            let Place { bucket, begin, length, .. } = place?;
            match &sums[bucket] {
                Contents::F32(values) => Some(scaled(&values[begin..begin + length], after as f32)),
                Contents::F64(values) => Some(scaled(&values[begin..begin + length], after)),
                _ => None,
            }
        };
        Ok((self.places.into_iter().map(cut).collect(), times))
    }
}

impl Bucket {
    fn leave(&mut self, comm: &Communicator, wire: Wire) -> Result<()> {
        let Some(reserved) = self.reserved.take() else { return Ok(()) };
        let (what, dtype) = ("gradients", DType::F32);
        self.values = match mem::replace(&mut self.values, Contents::Empty { length: 0, dtype }) {
            Contents::F32(values) => Contents::SumF32(comm.start_all_reduce_as(reserved, what, values, wire)?),
            Contents::F64(values) => Contents::SumF64(comm.start_all_reduce_as(reserved, what, values, wire)?),
            values => values,
        };
        Ok(())
    }

    fn poll(&mut self, begun: Instant) -> Result<()> {
        let arrived = match &mut self.values {
            Contents::SumF32(sum) => sum.poll()?,
            Contents::SumF64(sum) => sum.poll()?,
            _ => return Ok(()),
        };
        if arrived {
            self.arrived.get_or_insert_with(|| begun.elapsed());
        }
        Ok(())
    }
}

/// f32 or f64.
trait Real: Number + Element + Mul<Output = Self> + PartialEq {
    /// The number 1.
    const ONE: Self;
}

impl Real for f32 {
    const ONE: Self = 1.0;
}

impl Real for f64 {
    const ONE: Self = 1.0;
}

/// Copies values to their position, times a factor.
fn copy<T: Real>(place: &mut [T], data: &TensorData, factor: T) {
    match data.as_slice::<T>() {
        Ok(slice) if factor == T::ONE => place.copy_from_slice(slice),
        Ok(slice) => place.iter_mut().zip(slice).for_each(|(to, &x)| *to = x * factor),
        Err(_) => place.iter_mut().zip(data.iter::<T>()).for_each(|(to, x)| *to = x * factor),
    }
}

/// Returns a leaf of a bucket, flattened, times a factor.
fn scaled<T: Real>(part: &[T], factor: T) -> TensorData {
    let values = if factor == T::ONE { part.to_vec() } else { part.iter().map(|&x| x * factor).collect() };
    TensorData::new(values, [part.len()])
}
