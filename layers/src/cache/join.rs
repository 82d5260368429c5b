//! Joining rows of caches.

use burn::tensor::{Tensor, TensorData};
use grove_backend::{Backend, ops};
use grove_tree::Array;
use std::ops::Range;

use super::{KvCache, MAX_ROLLBACK, SLACK};

/// Rows of a cache, for [`KvCache::join`].
#[derive(Clone, Debug)]
pub struct CacheRows<C> {
    /// The cache, or the caches of all layers.
    pub cache: C,
    /// Number of positions that the cache has seen.
    pub len: usize,
    /// Indices of the rows. An index can occur several times.
    pub rows: Vec<usize>,
}

impl<B: Backend> KvCache<B> {
    /// Joins rows of caches of the same layer into one cache of `len` positions, with memory for `room` positions.
    ///
    /// The last positions of all caches become the last position of the result. A longer cache loses its first positions, and
    /// a shorter one gets zeros before its first position: these positions must be padding of the rows. A cache is fixed in
    /// size if one of the parts is; its capacity is then that of the largest part, if it has `len` positions.
    pub fn join(parts: Vec<CacheRows<Self>>, len: usize, room: usize) -> Self {
        let window = parts.iter().find_map(|part| part.cache.window);
        let dtype = parts.iter().find_map(|part| part.cache.dtype);
        let position = parts.iter().find_map(|part| part.cache.position.clone());
        let largest = parts.iter().map(|part| part.cache.room).max().unwrap_or(0);
        let (first, capacity) = match (&position, window) {
            (Some(_), _) => (0, largest.max(len.next_power_of_two())),
            (None, Some(window)) => (len.saturating_sub(window - 1 + MAX_ROLLBACK), window + MAX_ROLLBACK + SLACK),
            (None, None) => (0, room.max(len)),
        };
        let (mut keys, mut values) = (vec![], vec![]);
        for CacheRows { cache, len: own, rows } in parts {
            let Some((own_keys, own_values)) = cache.buffers else { continue };
            let end = own - cache.first;
            let held = end - end.min(len - first)..end;
            keys.push(select_rows(own_keys, &rows, held.clone()));
            values.push(select_rows(own_values, &rows, held));
        }
        let buffers = join_buffers(keys, len - first, capacity).zip(join_buffers(values, len - first, capacity));
        match position {
            Some(position) => {
                let cache = Self { buffers, room: capacity, window, position: Some(position), dtype, ..Self::new() };
                cache.truncate(len).unwrap_or_else(|| unreachable!("a cache of fixed size has any length"))
            }
            None => Self { buffers, first, len, room, window, position, dtype },
        }
    }
}

/// Returns rows of a buffer at the positions `held`.
fn select_rows<B: Backend>(buffer: Array<B, 4>, rows: &[usize], held: Range<usize>) -> Tensor<B, 4> {
    let buffer = buffer.val();
    let [b, n_head, _, head_dim] = buffer.dims();
    let buffer = buffer.slice([0..b, 0..n_head, held, 0..head_dim]);
    if rows.iter().copied().eq(0..b) {
        return buffer;
    }
    let indices: Vec<i64> = rows.iter().map(|&row| row as i64).collect();
    let indices = Tensor::from_data(TensorData::new(indices, [rows.len()]), &buffer.device());
    ops::select_rows(buffer, indices)
}

/// Joins the rows of tensors in a buffer of `capacity` positions, each before position `end`. `None` if there are no tensors.
fn join_buffers<B: Backend>(parts: Vec<Tensor<B, 4>>, end: usize, capacity: usize) -> Option<Array<B, 4>> {
    let first = parts.first()?;
    let [_, n_head, _, head_dim] = first.dims();
    let rows = parts.iter().map(|part| part.dims()[0]).sum();
    let empty = Tensor::zeros([rows, n_head, capacity, head_dim], (&first.device(), first.dtype()));
    let (joined, _) = parts.into_iter().fold((empty, 0), |(joined, row), part| {
        let [b, _, t, _] = part.dims();
        (joined.slice_assign([row..row + b, 0..n_head, end - t..end, 0..head_dim], part), row + b)
    });
    Some(Array::new(joined))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::tests::positions;

    /// Joined rows are those of a cache that has seen the same positions alone: after rows have ended, begun and moved.
    #[test]
    fn joined_rows_are_aligned_at_their_ends() {
        // Values of row r at its position p: 100 r + p.
        let row = |row: usize, range: Range<usize>| positions(range) + 100.0 * row as f32;
        let read = |rows: &[usize], len: usize, window| {
            let new = Tensor::cat(rows.iter().map(|&r| row(r, 0..len)).collect(), 0);
            KvCache::for_window(window, 0).append(new.clone(), new.neg()).2
        };
        for window in [None, Some(1), Some(4), Some(30)] {
            for (long, short) in [(120, 7), (9, 7), (7, 7), (5, 90)] {
                let part = |cache, len, rows| CacheRows { cache, len, rows };
                let parts = vec![
                    part(read(&[0, 1, 2], long, window), long, vec![2, 0]),
                    part(read(&[3, 4], short, window), short, vec![0, 1, 1]),
                ];
                let rows = [(2, long), (0, long), (3, short), (4, short), (4, short)];
                let mut len = long.max(short);
                let mut cache = KvCache::join(parts, len, len + 3);
                // The longest rows end after some steps; the others then have fewer positions of padding.
                let (mut slots, mut steps) = ((0..rows.len()).collect::<Vec<_>>(), 0);
                for (count, end) in [(1, None), (40, None), (1, Some(long.max(short))), (100, None)] {
                    if let Some(longest) = end {
                        let kept: Vec<usize> = (0..slots.len()).filter(|&i| rows[slots[i]].1 < longest).collect();
                        let kept = if kept.is_empty() { vec![1] } else { kept };
                        slots = kept.iter().map(|&i| slots[i]).collect();
                        let old = len;
                        len = slots.iter().map(|&slot| rows[slot].1).max().unwrap() + steps;
                        cache = KvCache::join(vec![part(cache, old, kept)], len, 0);
                    }
                    for _ in 0..count {
                        let own = |slot: usize| rows[slot].1 + steps;
                        let new = slots.iter().map(|&slot| row(rows[slot].0, own(slot)..own(slot) + 1)).collect();
                        let new = Tensor::cat(new, 0);
                        let seen = cache.visible_range(1);
                        assert!(seen.start <= (len + 1).saturating_sub(window.unwrap_or(len + 1)));
                        let (keys, values, next) = cache.append(new.clone(), new.neg());
                        for (i, &slot) in slots.iter().enumerate() {
                            // The positions that a query of the row attends to.
                            let (own, padding) = (own(slot), len - own(slot));
                            let from = (own + 1).saturating_sub(window.unwrap_or(own + 1));
                            let expected = row(rows[slot].0, from..own + 1);
                            let at = from + padding - seen.start;
                            let place = [i..i + 1, 0..2, at..at + own + 1 - from, 0..3];
                            assert_eq!(keys.clone().slice(place.clone()).to_data(), expected.to_data());
                            assert_eq!(values.clone().slice(place).to_data(), expected.neg().to_data());
                        }
                        (cache, len, steps) = (next, len + 1, steps + 1);
                    }
                }
            }
        }
    }

    #[test]
    fn joined_caches_of_fixed_size_stay_fixed() {
        let device = Default::default();
        let read = |len: usize, capacity| {
            KvCache::fixed(None, capacity, &device).append(positions(0..len), positions(0..len).neg()).2
        };
        let parts = vec![
            CacheRows { cache: read(5, 8), len: 5, rows: vec![0, 0] },
            CacheRows { cache: read(3, 4), len: 3, rows: vec![0] },
        ];
        let cache = KvCache::join(parts, 5, 0);
        let new = positions(5..6).repeat_dim(0, 3);
        let (keys, _, cache) = cache.append(new.clone(), new.neg());
        assert_eq!(cache.positions(1).unwrap().into_data().iter::<i64>().collect::<Vec<_>>(), [6]);
        assert_eq!(keys.dims(), [3, 2, 8, 3]);
        assert_eq!(keys.clone().slice([1..2, 0..2, 0..6, 0..3]).to_data(), positions(0..6).to_data());
        assert_eq!(keys.slice([2..3, 0..2, 2..5, 0..3]).to_data(), positions(0..3).to_data());
    }
}
