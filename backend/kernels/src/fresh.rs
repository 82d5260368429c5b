//! Memory for results.

use rayon::{iter::repeat_n, prelude::*};
use std::mem::MaybeUninit;

use crate::dispatch::TASK;

/// A new vector, made in chunks: each is zeroed by the thread that `change` then runs on, with the chunk's number, and so
/// while it is in that thread's cache, the nearest one for chunks of at most [`PIECE`](crate::dispatch::PIECE) elements. A
/// vector that is zeroed first goes to memory twice, and by one thread.
pub(crate) fn by_chunks(len: usize, chunk: usize, change: impl Fn(usize, &mut [f32]) + Sync + Send) -> Vec<f32> {
    let chunks = len.div_ceil(chunk.max(1));
    by_chunks_with(len, chunk, repeat_n((), chunks), |i, values, ()| change(i, values))
}

/// As [`by_chunks`], where something goes with each chunk: what else is written for it, say.
///
/// # Panics
/// If there are not as many of those as of chunks.
pub(crate) fn by_chunks_with<T: Send>(
    len: usize,
    chunk: usize,
    others: impl IndexedParallelIterator<Item = T>,
    change: impl Fn(usize, &mut [f32], T) + Sync + Send,
) -> Vec<f32> {
    let mut values = Vec::with_capacity(len);
    let chunks = values.spare_capacity_mut()[..len].par_chunks_mut(chunk.max(1));
    assert_eq!(chunks.len(), others.len(), "not as many as chunks");
    let chunks = chunks.zip(others).enumerate().with_min_len(TASK / chunk.max(1));
    chunks.for_each(|(i, (places, other))| change(i, zeroed(places), other));
    // SAFETY: the chunks are all of the places, and each was zeroed.
    unsafe { values.set_len(len) };
    values
}

/// The places, filled with zeros.
pub(crate) fn zeroed(places: &mut [MaybeUninit<f32>]) -> &mut [f32] {
    for place in places.iter_mut() {
        place.write(0.0);
    }
    // SAFETY: all were written just now.
    unsafe { &mut *(std::ptr::from_mut(places) as *mut [f32]) }
}

#[cfg(test)]
mod tests {
    use super::by_chunks;

    #[test]
    fn every_element_once() {
        for (len, chunk) in [(0, 3), (1, 1), (10, 3), (50_000, 999), (7, 0)] {
            let values = by_chunks(len, chunk, |i, values| {
                for (j, value) in values.iter_mut().enumerate() {
                    *value += (i * chunk.max(1) + j) as f32;
                }
            });
            assert!(values.len() == len && values.iter().enumerate().all(|(i, &value)| value == i as f32));
        }
    }
}
