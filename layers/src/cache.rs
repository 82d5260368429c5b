use burn::tensor::{Int, IntDType, Tensor, TensorData};
use grove_backend::{Backend, ops};
use grove_tree::{Array, Tree};
use std::ops::Range;

/// Key-value cache of one attention layer: the keys and values of all positions seen, so that decoding does not recompute
/// them.
///
/// Memory is allocated ahead: once if the number of positions is known, else the capacity doubles when it is exhausted.
/// Appending a position writes only that position on backends that can write in place. The cache of a sliding-window layer
/// holds the window and some slack in which the window moves.
#[derive(Tree, Clone, Debug, Default)]
pub struct KvCache<B: Backend> {
    /// Keys and values, each `[b, n_kv_head, capacity, head_dim]`; `None` before the first append.
    buffers: Option<(Array<B, 4>, Array<B, 4>)>,
    /// Position of the first slot of the buffers.
    first: usize,
    /// Number of positions seen.
    len: usize,
    /// Expected number of positions; 0 if unknown.
    room: usize,
    /// Window size: number of positions that a query attends to, including its own; `None` for all.
    window: Option<usize>,
    /// Number of positions seen, `[1]`, in a cache of fixed size. `room` is then the capacity, and `len` stays 0.
    position: Option<Array<B, 1, Int>>,
}

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

/// Initial capacity, in positions, if the number of positions is unknown.
const FIRST_CAPACITY: usize = 64;

/// Extra positions in a window's buffer, so that the window is not moved at every step.
const SLACK: usize = 64;

/// Maximum number of positions that [`KvCache::truncate`] can remove from the cache of a sliding-window layer.
pub const MAX_ROLLBACK: usize = 16;

impl<B: Backend> KvCache<B> {
    /// Creates an empty cache for a layer that attends to all positions.
    pub fn new() -> Self {
        Self { buffers: None, first: 0, len: 0, room: 0, window: None, position: None }
    }

    /// Creates an empty cache that allocates memory for `room` positions at once.
    pub fn with_room(room: usize) -> Self {
        Self { room, ..Self::new() }
    }

    /// Creates an empty cache for a layer in which a position attends to itself and the `window - 1` positions before it.
    pub fn windowed(window: usize) -> Self {
        Self { window: Some(window), ..Self::new() }
    }

    /// Creates an empty cache for a layer with or without a window and for `room` expected positions (0 if unknown).
    pub fn for_window(window: Option<usize>, room: usize) -> Self {
        match window {
            Some(window) if room == 0 || window < room => Self::windowed(window),
            _ => Self::with_room(room),
        }
    }

    /// Creates an empty cache of fixed size for `capacity` positions, for a layer with or without a window; transformers'
    /// `StaticCache`. The number of positions seen is an array, so that one traced decoding step, hence one program, serves
    /// every position.
    ///
    /// Attention reads the whole cache at each step. The caller must count positions: positions beyond the capacity
    /// overwrite the last slots, [`truncate`](Self::truncate) accepts any length, and [`len`](Self::len) panics, because
    /// the number is an array.
    pub fn fixed(window: Option<usize>, capacity: usize, device: &B::Device) -> Self {
        let position = Array::new(Tensor::zeros([1], device));
        Self { room: capacity, window, position: Some(position), ..Self::new() }
    }

    /// Returns the positions of the next `t` tokens, `[t]`, for a cache of [fixed](Self::fixed) size; `None` for other
    /// caches.
    #[track_caller]
    pub fn positions(&self, t: usize) -> Option<Tensor<B, 1, Int>> {
        let position = self.position.as_ref()?.val();
        let offsets = Tensor::<B, 1, Int>::arange(0..t as i64, &position.device());
        Some(offsets.cast(IntDType::from(position.dtype())) + position.expand([t]))
    }

    /// Enlarges a cache of [fixed](Self::fixed) size to `capacity` and keeps its contents. Returns other caches, and caches
    /// that are large enough, unchanged.
    pub fn with_capacity(self, capacity: usize) -> Self {
        if self.position.is_none() || capacity <= self.room {
            return self;
        }
        let larger = |buffer: Array<B, 4>| {
            let old = buffer.val();
            Array::new(grow(Some(old.clone()), &old, capacity))
        };
        let buffers = self.buffers.map(|(keys, values)| (larger(keys), larger(values)));
        Self { buffers, room: capacity, ..self }
    }

    /// Bytes that the caches of layers with these windows take for `positions` positions. `numbers` is the number of
    /// elements per position, keys and values together. `size` is the size of an element in bytes.
    pub fn bytes(windows: impl Iterator<Item = Option<usize>>, positions: usize, numbers: usize, size: usize) -> usize {
        let held = |window: Option<usize>| match window {
            Some(window) => positions.min(window + MAX_ROLLBACK + SLACK),
            None => positions.max(FIRST_CAPACITY),
        };
        windows.map(|window| held(window).saturating_mul(numbers).saturating_mul(size)).sum()
    }

    /// Number of positions seen.
    ///
    /// # Panics
    /// If the cache is of [fixed](Self::fixed) size: the number of positions is an array, which is unknown while tracing.
    #[track_caller]
    pub fn len(&self) -> usize {
        assert!(
            self.position.is_none(),
            "a cache of fixed size has the number of its positions as an array, so that one program serves all of them: use \
             `KvCache::positions` for the positions of the next tokens, and `AttentionMask::after` for their mask"
        );
        self.len
    }

    /// Number of positions that a query attends to, including its own; `None` for all.
    pub fn window(&self) -> Option<usize> {
        self.window
    }

    /// Returns true if no positions have been seen.
    ///
    /// # Panics
    /// As [`len`](Self::len).
    #[track_caller]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Positions whose keys [`append`](Self::append) would return for `t` new positions.
    pub fn visible_range(&self, t: usize) -> Range<usize> {
        if self.position.is_some() {
            return 0..self.room;
        }
        let from = match self.window {
            // First position that the first new query attends to.
            Some(window) => (self.len + 1).saturating_sub(window).max(self.first),
            None => 0,
        };
        from..self.len + t
    }

    /// Appends positions. Returns the keys and values that the new positions attend to, and the updated cache.
    ///
    /// # Shapes
    /// - keys, values `[b, n_kv_head, t, head_dim]`
    /// - returned keys and values `[b, n_kv_head, s, head_dim]`, where s is the length of [`visible_range`](Self::visible_range)
    #[track_caller]
    pub fn append(self, keys: Tensor<B, 4>, values: Tensor<B, 4>) -> (Tensor<B, 4>, Tensor<B, 4>, Self) {
        if self.position.is_some() {
            return self.append_fixed(keys, values);
        }
        let [b, n_head, t, head_dim] = keys.dims();
        let seen = self.visible_range(t);
        let held = self.len - self.first;
        // A full sliding-window buffer is compacted. It keeps the positions that later queries attend to, also after a
        // truncation.
        let capacity = self.window.map(|window| window + MAX_ROLLBACK + SLACK);
        let kept = match (self.window, capacity) {
            (Some(window), Some(capacity)) if held + t > capacity => held.min(window - 1 + MAX_ROLLBACK),
            _ => held,
        };
        let (dropped, len) = (held - kept, self.len + t);
        let place = |at: usize, count: usize| [0..b, 0..n_head, at..at + count, 0..head_dim];
        // Taking the arrays out of the cache leaves one handle to each buffer, so that the backend can write in place.
        let (old_keys, old_values) = self.buffers.map(|(keys, values)| (keys.into_val(), values.into_val())).unzip();
        let (old_keys, old_values) = (old_keys.flatten(), old_values.flatten());
        if let Some(capacity) = capacity.filter(|&capacity| kept + t > capacity) {
            // The new positions exceed the buffer: all are concatenated for this call, and the last of them are kept.
            let begin = |buffer: Option<Tensor<B, 4>>, new: Tensor<B, 4>| {
                let old = buffer.map(|buffer| buffer.slice(place(dropped, kept)));
                let all = Tensor::cat(old.into_iter().chain([new]).collect(), 2); // starts at position first + dropped
                let end = all.dims()[2];
                let keep = end.min(capacity - SLACK);
                let empty = Tensor::zeros([b, n_head, capacity, head_dim], (&all.device(), all.dtype()));
                let buffer = empty.slice_assign(place(0, keep), all.clone().slice(place(end - keep, keep)));
                let from = seen.start - (self.first + dropped);
                (all.slice(place(from, seen.len())), Array::new(buffer), len - keep)
            };
            let (all_keys, key_buffer, first) = begin(old_keys, keys);
            let (all_values, value_buffer, _) = begin(old_values, values);
            return (all_keys, all_values, Self { buffers: Some((key_buffer, value_buffer)), first, len, ..self });
        }
        let first = self.first + dropped;
        let with_room = |buffer: Option<Tensor<B, 4>>, new: &Tensor<B, 4>| {
            let room = buffer.as_ref().map_or(0, |buffer| buffer.dims()[2]);
            let needed = kept + t;
            match buffer {
                Some(buffer) if dropped > 0 => {
                    let old = buffer.clone().slice(place(dropped, kept));
                    buffer.slice_assign(place(0, kept), old)
                }
                Some(buffer) if needed <= room => buffer,
                buffer => {
                    let ahead = needed.max(self.room).max(2 * room).max(FIRST_CAPACITY);
                    grow(buffer, new, capacity.unwrap_or(ahead))
                }
            }
        };
        let buffers = [with_room(old_keys, &keys), with_room(old_values, &values)];
        let seen = seen.start - first..seen.end - first;
        let [buffers, seen] = ops::update_cache(buffers, [keys, values], kept, seen);
        let ([keys, values], [key_buffer, value_buffer]) = (seen, buffers.map(Array::new));
        (keys, values, Self { buffers: Some((key_buffer, value_buffer)), first, len, ..self })
    }

    /// [`append`](Self::append) to a cache of fixed size.
    #[track_caller]
    fn append_fixed(self, keys: Tensor<B, 4>, values: Tensor<B, 4>) -> (Tensor<B, 4>, Tensor<B, 4>, Self) {
        let Self { buffers, room, window, position, .. } = self;
        let [b, n_head, t, head_dim] = keys.dims();
        assert!(t <= room, "{t} positions exceed the cache's capacity of {room}");
        let position = position.and_then(Array::into_val).unwrap_or_else(|| unreachable!("the caller looked"));
        let (old_keys, old_values) = buffers.map(|(keys, values)| (keys.into_val(), values.into_val())).unzip();
        let write = |old: Option<Tensor<B, 4>>, new: Tensor<B, 4>| {
            let empty = || Tensor::zeros([b, n_head, room, head_dim], (&new.device(), new.dtype()));
            ops::dynamic_update_slice(old.unwrap_or_else(empty), new, position.clone(), 2)
        };
        let (keys, values) = (write(old_keys.flatten(), keys), write(old_values.flatten(), values));
        let buffers = Some((Array::new(keys.clone()), Array::new(values.clone())));
        let position = Some(Array::new(position + t as i64));
        (keys, values, Self { buffers, room, window, position, ..Self::new() })
    }

    /// Appends positions in place, like [`append`](Self::append). Returns the keys and values that the new positions attend
    /// to.
    #[track_caller]
    pub fn update(&mut self, keys: Tensor<B, 4>, values: Tensor<B, 4>) -> [Tensor<B, 4>; 2] {
        let (keys, values, cache) = std::mem::replace(self, Self::new()).append(keys, values);
        *self = cache;
        [keys, values]
    }

    /// Joins rows of caches of the same layer into one cache of `len` positions, with memory for `room` positions.
    ///
    /// The last positions of all caches become the last position of the result. A longer cache loses its first positions, and
    /// a shorter one gets zeros before its first position: these positions must be padding of the rows. A cache is fixed in
    /// size if one of the parts is; its capacity is then that of the largest part, if it has `len` positions.
    pub fn join(parts: Vec<CacheRows<Self>>, len: usize, room: usize) -> Self {
        let window = parts.iter().find_map(|part| part.cache.window);
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
                let cache = Self { buffers, room: capacity, window, position: Some(position), ..Self::new() };
                cache.truncate(len).unwrap_or_else(|| unreachable!("a cache of fixed size has any length"))
            }
            None => Self { buffers, first, len, room, window, position },
        }
    }

    /// Removes the positions from `len` on. Returns `None` if the cache has fewer positions, or if it no longer holds the
    /// window of the next position. At most [`MAX_ROLLBACK`] positions before the furthest one seen can be removed from a
    /// sliding-window cache.
    pub fn truncate(self, len: usize) -> Option<Self> {
        // A cache of fixed size holds all positions, with or without a window.
        if let Some(position) = self.position {
            let position = position.val();
            let seen =
                Tensor::<B, 1, Int>::full([1], len as i64, &position.device()).cast(IntDType::from(position.dtype()));
            return Some(Self { position: Some(Array::new(seen)), ..self });
        }
        let needed = self.window.map_or(0, |window| (len + 1).saturating_sub(window));
        (len <= self.len && self.first <= needed).then_some(Self { len, ..self })
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

/// Returns a larger buffer that starts with the contents of the old one.
#[track_caller]
fn grow<B: Backend>(buffer: Option<Tensor<B, 4>>, like: &Tensor<B, 4>, capacity: usize) -> Tensor<B, 4> {
    let [b, n_head, _, head_dim] = like.dims();
    let grown = Tensor::zeros([b, n_head, capacity, head_dim], (&like.device(), like.dtype()));
    match buffer {
        Some(old) => {
            let filled = old.dims()[2];
            grown.slice_assign([0..b, 0..n_head, 0..filled, 0..head_dim], old)
        }
        None => grown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn_flex::Flex;

    /// Keys whose values are their positions.
    fn positions(range: Range<usize>) -> Tensor<Flex, 4> {
        let numbers =
            Tensor::<Flex, 1, burn::tensor::Int>::arange(range.start as i64..range.end as i64, &Default::default());
        numbers.float().reshape([1, 1, range.len(), 1]).repeat(&[1, 2, 1, 3])
    }

    #[test]
    fn grows_and_keeps_earlier_positions() {
        for room in [0, 100, 300] {
            let mut cache = KvCache::with_room(room);
            for t in [5, 58, 1, 1, 70] {
                let new = positions(cache.len()..cache.len() + t);
                let (keys, values, next) = cache.append(new.clone(), new.neg());
                assert_eq!(keys.to_data(), positions(0..next.len()).to_data());
                assert_eq!(values.to_data(), positions(0..next.len()).neg().to_data());
                cache = next;
            }
            assert_eq!(cache.len(), 135);
        }
    }

    #[test]
    fn a_window_keeps_the_visible_positions() {
        for window in [1, 2, 7, 100] {
            let mut cache = KvCache::windowed(window);
            // Single positions beyond the capacity, then many at once, then after truncations.
            let steps = [3, 1, 1].into_iter().chain([1; 200]).chain([2, 5, 300, 1, 40]).chain([1; 90]);
            for (i, t) in steps.enumerate() {
                let new = positions(cache.len()..cache.len() + t);
                let seen = cache.visible_range(t);
                let first = cache.len();
                assert!(seen.start <= (first + 1).saturating_sub(window) && seen.end == first + t, "{seen:?}");
                let (keys, values, next) = cache.append(new.clone(), new.neg());
                assert_eq!(keys.to_data(), positions(seen.clone()).to_data(), "window {window}, step {i}");
                assert_eq!(values.to_data(), positions(seen).neg().to_data());
                let most = window + MAX_ROLLBACK + SLACK;
                assert!(next.buffers.as_ref().is_some_and(|(keys, _)| keys.shape()[2] <= most));
                cache = next;
                if i % 5 == 3 {
                    // Removed positions are appended again, unchanged.
                    let (len, back) = (cache.len(), MAX_ROLLBACK.min(cache.len()));
                    cache = cache.truncate(len - back).expect("few positions are taken back");
                    let seen = cache.visible_range(back);
                    let (keys, _, again) = cache.append(positions(len - back..len), positions(len - back..len).neg());
                    assert_eq!(keys.to_data(), positions(seen).to_data(), "window {window}, step {i}, again");
                    cache = again;
                }
            }
        }
    }

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
