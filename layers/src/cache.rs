use burn::tensor::{Int, IntDType, Tensor};
use grove_backend::{Backend, ops};
use grove_tree::{Array, Tree};
use std::ops::Range;

/// Keys and values of the positions that one attention layer has seen, so that decoding does not recompute them.
///
/// Memory is allocated ahead: once if the number of positions is known, else it doubles when it runs out. Appending a
/// position then writes only that position if the backend can write in place. The cache of a layer with a window keeps
/// the window and a little room in which the window moves.
#[derive(Tree, Clone, Debug, Default)]
pub struct KvCache<B: Backend> {
    /// Keys and values, each `[b, n_kv_head, capacity, head_dim]`; none before the first position.
    buffers: Option<(Array<B, 4>, Array<B, 4>)>,
    /// The position at the beginning of the buffers.
    first: usize,
    /// Number of positions seen.
    len: usize,
    /// Expected number of positions; 0 if unknown.
    room: usize,
    /// Window: the number of positions that a query attends to, including its own; `None` for all.
    window: Option<usize>,
    /// Number of positions seen, `[1]`, of a cache of fixed size, whose `room` is its size and whose `len` stays 0.
    position: Option<Array<B, 1, Int>>,
}

/// Initial capacity, in positions, if the number of positions is unknown.
const FIRST_CAPACITY: usize = 64;

/// Extra positions in a window's buffer, so that the window is not moved at every step.
const SLACK: usize = 64;

/// The largest number of positions that can be removed from the end of a window's cache.
pub const MAX_ROLLBACK: usize = 16;

impl<B: Backend> KvCache<B> {
    /// An empty cache, for layers that attend to all positions.
    pub fn new() -> Self {
        Self { buffers: None, first: 0, len: 0, room: 0, window: None, position: None }
    }

    /// An empty cache that allocates memory for `room` positions at once.
    pub fn with_room(room: usize) -> Self {
        Self { room, ..Self::new() }
    }

    /// An empty cache for a layer in which a position attends to itself and the `window - 1` positions before it.
    pub fn windowed(window: usize) -> Self {
        Self { window: Some(window), ..Self::new() }
    }

    /// An empty cache for a layer with or without a window, for `room` expected positions (0: unknown).
    pub fn for_window(window: Option<usize>, room: usize) -> Self {
        match window {
            Some(window) if room == 0 || window < room => Self::windowed(window),
            _ => Self::with_room(room),
        }
    }

    /// An empty cache of fixed size for `capacity` positions, for a layer with or without a window. The number of positions seen
    /// is an array, so that a traced decoding step serves every position: one program instead of one for each. In transformers
    /// `StaticCache`.
    ///
    /// Attention reads all of it at each step, whatever was seen. Positions beyond the capacity overwrite the last, and
    /// [`truncate`](Self::truncate) takes any length: the caller counts. [`len`](Self::len) refuses, since the number is an array.
    pub fn fixed(window: Option<usize>, capacity: usize, device: &B::Device) -> Self {
        let position = Array::new(Tensor::zeros([1], device));
        Self { room: capacity, window, position: Some(position), ..Self::new() }
    }

    /// Returns the positions of the next `t`, `[t]`, in a cache of [fixed](Self::fixed) size; `None` in others.
    pub fn positions(&self, t: usize) -> Option<Tensor<B, 1, Int>> {
        let position = self.position.as_ref()?.val();
        let offsets = Tensor::<B, 1, Int>::arange(0..t as i64, &position.device());
        Some(offsets.cast(IntDType::from(position.dtype())) + position.expand([t]))
    }

    /// Returns a cache of [fixed](Self::fixed) size with room for more positions, which holds what this one holds. Other caches,
    /// and one that is as large already, stay.
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
    /// elements per position, keys and values together; `size` is the bytes of an element.
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
    /// If the cache is of [fixed](Self::fixed) size: its number of positions is an array, which a traced program does not know.
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

    /// The positions whose keys an [`append`](Self::append) of `t` positions returns.
    pub fn visible_range(&self, t: usize) -> Range<usize> {
        if self.position.is_some() {
            return 0..self.room;
        }
        let from = match self.window {
            // The first position that the first new query attends to.
            Some(window) => (self.len + 1).saturating_sub(window).max(self.first),
            None => 0,
        };
        from..self.len + t
    }

    /// Appends positions. Returns the keys and values that the new positions attend to, and the new cache.
    ///
    /// # Shapes
    /// - keys, values `[b, n_kv_head, t, head_dim]`
    /// - returned keys and values `[b, n_kv_head, s, head_dim]`, where s is the length of [`visible_range`](Self::visible_range)
    pub fn append(self, keys: Tensor<B, 4>, values: Tensor<B, 4>) -> (Tensor<B, 4>, Tensor<B, 4>, Self) {
        if self.position.is_some() {
            return self.append_fixed(keys, values);
        }
        let [b, n_head, t, head_dim] = keys.dims();
        let seen = self.visible_range(t);
        let held = self.len - self.first;
        // A full window's buffer is compacted: it keeps the positions that later queries attend to, also after a
        // truncation.
        let capacity = self.window.map(|window| window + MAX_ROLLBACK + SLACK);
        let kept = match (self.window, capacity) {
            (Some(window), Some(capacity)) if held + t > capacity => held.min(window - 1 + MAX_ROLLBACK),
            _ => held,
        };
        let (dropped, len) = (held - kept, self.len + t);
        let place = |at: usize, count: usize| [0..b, 0..n_head, at..at + count, 0..head_dim];
        // The arrays are taken apart here, so that each handle is the only one and the buffer is written in place.
        let (old_keys, old_values) = self.buffers.map(|(keys, values)| (keys.into_val(), values.into_val())).unzip();
        let (old_keys, old_values) = (old_keys.flatten(), old_values.flatten());
        if let Some(capacity) = capacity.filter(|&capacity| kept + t > capacity) {
            // More positions than the buffer holds: all are concatenated for this call, and the last of them are kept.
            let begin = |buffer: Option<Tensor<B, 4>>, new: Tensor<B, 4>| {
                let old = buffer.map(|buffer| buffer.slice(place(dropped, kept)));
                let all = Tensor::cat(old.into_iter().chain([new]).collect(), 2); // from position first + dropped
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
    fn append_fixed(self, keys: Tensor<B, 4>, values: Tensor<B, 4>) -> (Tensor<B, 4>, Tensor<B, 4>, Self) {
        let Self { buffers, room, window, position, .. } = self;
        let [b, n_head, t, head_dim] = keys.dims();
        assert!(t <= room, "{t} positions for a cache of {room}");
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

    /// Appends positions in place, as [`append`](Self::append). Returns the keys and values that the new positions attend
    /// to.
    pub fn update(&mut self, keys: Tensor<B, 4>, values: Tensor<B, 4>) -> [Tensor<B, 4>; 2] {
        let (keys, values, cache) = std::mem::replace(self, Self::new()).append(keys, values);
        *self = cache;
        [keys, values]
    }

    /// Returns the cache without the positions from `len` on. Returns `None` if it has fewer positions, or if its
    /// window no longer holds what the next position attends to. At most [`MAX_ROLLBACK`] positions can be taken
    /// back from the furthest one seen.
    pub fn truncate(self, len: usize) -> Option<Self> {
        // One of fixed size holds all positions, with or without a window.
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

/// Returns a larger buffer that starts with the contents of the old one.
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

    /// Positions are told apart by their number.
    fn positions(range: Range<usize>) -> Tensor<Flex, 4> {
        let numbers =
            Tensor::<Flex, 1, burn::tensor::Int>::arange(range.start as i64..range.end as i64, &Default::default());
        numbers.float().reshape([1, 1, range.len(), 1]).repeat(&[1, 2, 1, 3])
    }

    #[test]
    fn grows_and_keeps_what_it_saw() {
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
    fn a_window_keeps_what_is_seen() {
        for window in [1, 2, 7, 100] {
            let mut cache = KvCache::windowed(window);
            // One at a time beyond the capacity, then many at once, then after a truncation.
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
                    // Positions that were taken back are appended again, unchanged.
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
}
