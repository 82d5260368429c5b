//! Leaves as a few long arrays, since each message costs time of its own.

use burn::tensor::{DType, Element, TensorData};
use grove_backend::Backend;
use grove_communicator::{Communicator, Number, PendingReduce, Result, Wire};
use grove_tree::AnyArray;
use std::ops::Mul;

/// Values of some leaves, one after the other.
enum Values {
    F32(Vec<f32>),
    F64(Vec<f64>),
}

/// Some leaves and their sum over the ranks, which is under way.
enum Sums {
    F32(PendingReduce<f32>),
    F64(PendingReduce<f64>),
}

/// Sums leaves over the ranks, each times `factor` before, and times `after` when they are summed. The leaves are present and
/// floating-point; the sums are f32, or f64 where the leaf is.
pub(crate) fn sum<B: Backend>(
    leaves: Vec<AnyArray<B>>,
    (factor, after): (f64, f64),
    comm: &Communicator,
    (bytes, wire): (usize, Wire),
) -> Result<Vec<AnyArray<B>>> {
    let mut filling: Option<(Values, Vec<Place<B>>)> = None;
    let mut sent = Vec::new();
    let send = |bucket: Option<(Values, Vec<Place<B>>)>, sent: &mut Vec<(Sums, Vec<Place<B>>)>| -> Result<()> {
        let Some((values, places)) = bucket else { return Ok(()) };
        let what = "gradients";
        let sums = match values {
            Values::F32(values) => Sums::F32(comm.start_all_reduce(what, values, wire)?),
            Values::F64(values) => Sums::F64(comm.start_all_reduce(what, values, wire)?),
        };
        // The ones before move on while the next one is filled.
        for (before, _) in sent.iter_mut() {
            before.poll()?;
        }
        sent.push((sums, places));
        Ok(())
    };
    for leaf in leaves {
        let leaf = leaf.widen();
        let place = Place { shape: leaf.shape().to_vec(), device: leaf.device() };
        let fits = match &filling {
            Some((Values::F32(values), _)) => leaf.dtype() != DType::F64 && 4 * (values.len() + leaf.len()) <= bytes,
            Some((Values::F64(values), _)) => leaf.dtype() == DType::F64 && 8 * (values.len() + leaf.len()) <= bytes,
            None => true,
        };
        if !fits {
            send(filling.take(), &mut sent)?;
        }
        let new = || match leaf.dtype() {
            DType::F64 => (Values::F64(vec![]), vec![]),
            _ => (Values::F32(vec![]), vec![]),
        };
        let (values, places) = filling.get_or_insert_with(new);
        let Some(data) = leaf.into_data() else { continue };
        match values {
            Values::F32(values) => extend(values, &data, factor as f32),
            Values::F64(values) => extend(values, &data, factor),
        }
        places.push(place);
    }
    send(filling, &mut sent)?;
    let mut summed = Vec::new();
    for (sums, places) in sent {
        match sums {
            Sums::F32(sums) => cut(sums.wait()?, after as f32, places, &mut summed),
            Sums::F64(sums) => cut(sums.wait()?, after, places, &mut summed),
        }
    }
    Ok(summed)
}

impl Sums {
    fn poll(&mut self) -> Result<bool> {
        match self {
            Self::F32(sums) => sums.poll(),
            Self::F64(sums) => sums.poll(),
        }
    }
}

/// The leaf to which values of a bucket belong.
struct Place<B: Backend> {
    shape: Vec<usize>,
    device: Option<B::Device>,
}

/// f32 or f64.
trait Real: Number + Element + Mul<Output = Self> + PartialEq {
    /// 1.
    const ONE: Self;
}

impl Real for f32 {
    const ONE: Self = 1.0;
}

impl Real for f64 {
    const ONE: Self = 1.0;
}

/// Adds values to a bucket, times a factor.
fn extend<T: Real>(values: &mut Vec<T>, data: &TensorData, factor: T) {
    let scaled = |x: T| x * factor;
    match data.as_slice::<T>() {
        Ok(slice) if factor == T::ONE => values.extend_from_slice(slice),
        Ok(slice) => values.extend(slice.iter().map(|&x| scaled(x))),
        Err(_) => values.extend(data.iter::<T>().map(scaled)),
    }
}

/// Cuts a bucket into leaves, times a factor.
fn cut<B: Backend, T: Real>(values: Vec<T>, after: T, places: Vec<Place<B>>, leaves: &mut Vec<AnyArray<B>>) {
    let mut begin = 0;
    for Place { shape, device } in places {
        let length: usize = shape.iter().product();
        let part = &values[begin..begin + length];
        let part = if after == T::ONE { part.to_vec() } else { part.iter().map(|&x| x * after).collect() };
        begin += length;
        leaves.push(AnyArray::from_data(TensorData::new(part, shape), &device.unwrap_or_default()));
    }
}
