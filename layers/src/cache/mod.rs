mod join;

use burn::tensor::{FloatDType, Int, IntDType, Tensor};
use grove_backend::{Backend, ops};
use grove_tree::{Array, Tree};
use std::ops::Range;

pub use join::CacheRows;

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
    /// Dtype of the buffers; `None` for that of the keys.
    #[tree(static)]
    dtype: Option<FloatDType>,
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
        Self { buffers: None, first: 0, len: 0, room: 0, window: None, position: None, dtype: None }
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

    /// Sets the dtype in which an empty cache stores keys and values; `None`, the default, for their own. A 16-bit dtype halves
    /// the memory of f32 keys and values, which are rounded.
    #[must_use]
    pub fn with_dtype(self, dtype: Option<FloatDType>) -> Self {
        Self { dtype, ..self }
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
    /// - returned keys and values `[b, n_kv_head, s, head_dim]`, where s is the length of [`visible_range`](Self::visible_range),
    ///   in the cache's [dtype](Self::with_dtype)
    #[track_caller]
    pub fn append(self, keys: Tensor<B, 4>, values: Tensor<B, 4>) -> (Tensor<B, 4>, Tensor<B, 4>, Self) {
        let [keys, values] = [keys, values].map(|x| match self.dtype {
            Some(dtype) => ops::to_dtype(x, dtype.into()),
            None => x,
        });
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
        let Self { buffers, room, window, position, dtype, .. } = self;
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
        (keys, values, Self { buffers, room, window, position, dtype, ..Self::new() })
    }

    /// Appends positions in place, like [`append`](Self::append). Returns the keys and values that the new positions attend
    /// to.
    #[track_caller]
    pub fn update(&mut self, keys: Tensor<B, 4>, values: Tensor<B, 4>) -> [Tensor<B, 4>; 2] {
        let (keys, values, cache) = std::mem::replace(self, Self::new()).append(keys, values);
        *self = cache;
        [keys, values]
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
    use burn::tensor::{DType, bf16};
    use burn_flex::Flex;

    /// Keys whose values are their positions.
    pub(super) fn positions(range: Range<usize>) -> Tensor<Flex, 4> {
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
    fn stores_another_dtype() {
        for window in [None, Some(7)] {
            let fixed = KvCache::fixed(window, 32, &Default::default());
            for cache in [KvCache::for_window(window, 0), fixed] {
                let mut cache = cache.with_dtype(Some(FloatDType::BF16));
                for at in [0..20, 20..21, 21..22] {
                    let new = positions(at.clone()).add_scalar(256.0);
                    let [keys, values] = cache.update(new.clone(), new.neg());
                    assert_eq!([keys.dtype(), values.dtype()], [DType::BF16; 2]);
                    let last = keys.dims()[2].min(at.end) - 1;
                    let key = keys.narrow(2, last, 1).into_data().convert::<f32>().iter::<f32>().next();
                    assert_eq!(key, Some(bf16::from_f32(255.0 + at.end as f32).to_f32()), "{window:?} {at:?}");
                }
            }
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
}
