//! Allocation of memory for results.

use rayon::{iter::repeat_n, prelude::*};
use std::mem::MaybeUninit;

use crate::dispatch::TASK;

/// Returns a new vector, filled in chunks by `change`, which gets the chunk's index and the chunk. Each chunk is zeroed by
/// the thread that then runs `change`, so that the chunk is in that thread's cache: in the first-level cache for chunks of at
/// most [`PIECE`](crate::dispatch::PIECE) elements. A vector that is zeroed in advance would be written to memory twice, the
/// first time by a single thread.
pub(crate) fn by_chunks<V: Copy + Default + Send>(
    len: usize,
    chunk: usize,
    change: impl Fn(usize, &mut [V]) + Sync + Send,
) -> Vec<V> {
    let chunks = len.div_ceil(chunk.max(1));
    by_chunks_with(len, chunk, repeat_n((), chunks), |i, values, ()| change(i, values))
}

/// Like [`by_chunks`], with an item of `others` for each chunk, such as another output.
///
/// # Panics
/// If the number of items differs from the number of chunks.
pub(crate) fn by_chunks_with<V: Copy + Default + Send, T: Send>(
    len: usize,
    chunk: usize,
    others: impl IndexedParallelIterator<Item = T>,
    change: impl Fn(usize, &mut [V], T) + Sync + Send,
) -> Vec<V> {
    let mut values = Vec::new();
    extend_with(&mut values, len, chunk, others, change);
    values
}

/// Like [`by_chunks`], at the end of a vector.
pub(crate) fn extend_by_chunks<V: Copy + Default + Send>(
    values: &mut Vec<V>,
    len: usize,
    chunk: usize,
    change: impl Fn(usize, &mut [V]) + Sync + Send,
) {
    let chunks = len.div_ceil(chunk.max(1));
    extend_with(values, len, chunk, repeat_n((), chunks), |i, values, ()| change(i, values));
}

fn extend_with<V: Copy + Default + Send, T: Send>(
    values: &mut Vec<V>,
    len: usize,
    chunk: usize,
    others: impl IndexedParallelIterator<Item = T>,
    change: impl Fn(usize, &mut [V], T) + Sync + Send,
) {
    values.reserve_exact(len);
    let chunks = values.spare_capacity_mut()[..len].par_chunks_mut(chunk.max(1));
    assert_eq!(chunks.len(), others.len(), "the number of items differs from the number of chunks");
    let chunks = chunks.zip(others).enumerate().with_min_len(TASK / chunk.max(1));
    chunks.for_each(|(i, (places, other))| change(i, zeroed(places), other));
    // SAFETY: the chunks cover the first `len` elements of the spare capacity, the assertion above shows that each chunk has an
    // item, and `zeroed` initialised each chunk.
    unsafe { values.set_len(values.len() + len) };
}

/// Fills uninitialised memory with zeros.
pub(crate) fn zeroed<V: Copy + Default>(places: &mut [MaybeUninit<V>]) -> &mut [V] {
    for place in places.iter_mut() {
        place.write(V::default());
    }
    // SAFETY: the loop above initialised all elements.
    unsafe { &mut *(std::ptr::from_mut(places) as *mut [V]) }
}

#[cfg(test)]
mod tests {
    use super::by_chunks;

    #[test]
    fn every_element_once() {
        // The larger size spans several tasks, which would take minutes under Miri.
        let many = if cfg!(miri) { (300, 99) } else { (50_000, 999) };
        for (len, chunk) in [(0, 3), (1, 1), (10, 3), many, (7, 0)] {
            let values = by_chunks(len, chunk, |i, values: &mut [f32]| {
                for (j, value) in values.iter_mut().enumerate() {
                    *value += (i * chunk.max(1) + j) as f32;
                }
            });
            assert!(values.len() == len && values.iter().enumerate().all(|(i, &value)| value == i as f32));
        }
    }
}
