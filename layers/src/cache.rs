use burn::tensor::Tensor;
use grove_backend::Backend;
use grove_tree::{Array, Tree};

/// Keys and values of the positions that one attention layer has seen, for decoding without computing them again.
///
/// Room is taken ahead, and doubled when it runs out, so that appending a position writes only that position where
/// the backend can write in place.
#[derive(Tree, Clone, Debug, Default)]
pub struct KvCache<B: Backend> {
    /// Keys and values, each `[b, n_head, capacity, head_dim]`; none before the first position.
    buffers: Option<(Array<B, 4>, Array<B, 4>)>,
    /// How many positions are filled.
    len: usize,
}

/// Positions for which room is taken at first.
const FIRST_CAPACITY: usize = 64;

impl<B: Backend> KvCache<B> {
    /// A cache of nothing.
    pub fn new() -> Self {
        Self { buffers: None, len: 0 }
    }

    /// How many positions are in the cache.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds positions, and gives all keys, all values and the cache's successor.
    ///
    /// # Shapes
    /// - keys, values `[b, n_head, t, head_dim]`
    /// - all keys, all values `[b, n_head, len + t, head_dim]`
    pub fn append(self, keys: Tensor<B, 4>, values: Tensor<B, 4>) -> (Tensor<B, 4>, Tensor<B, 4>, Self) {
        let [b, n_head, t, head_dim] = keys.dims();
        let (old, len) = (self.len, self.len + t);
        let full = [0..b, 0..n_head, 0..len, 0..head_dim];
        let write = |buffer: Option<Array<B, 4>>, new: Tensor<B, 4>| {
            // The array is taken apart here, so that the handle is the only one and the buffer is written in place.
            let buffer = buffer.and_then(Array::into_val);
            let room = buffer.as_ref().map_or(0, |buffer| buffer.dims()[2]);
            let buffer = match buffer {
                Some(buffer) if len <= room => buffer,
                buffer => grow(buffer, &new, len.max(2 * room).max(FIRST_CAPACITY)),
            };
            let buffer = buffer.slice_assign([0..b, 0..n_head, old..len, 0..head_dim], new);
            (buffer.clone().slice(full.clone()), Array::new(buffer))
        };
        let (old_keys, old_values) = self.buffers.unzip();
        let (all_keys, key_buffer) = write(old_keys, keys);
        let (all_values, value_buffer) = write(old_values, values);
        (all_keys, all_values, Self { buffers: Some((key_buffer, value_buffer)), len })
    }
}

/// A buffer of more positions, with the old one's contents at its beginning.
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

    #[test]
    fn grows_and_keeps_what_it_saw() {
        let step = |i: usize, t: usize| Tensor::<Flex, 4>::full([1, 2, t, 3], i as f64, &Default::default());
        let mut cache = KvCache::new();
        let mut expected = vec![];
        for (i, t) in [(1, 5), (2, 58), (3, 1), (4, 1), (5, 70)] {
            expected.push(step(i, t));
            let (keys, values, next) = cache.append(step(i, t), step(i, t).neg());
            let all = Tensor::cat(expected.clone(), 2);
            assert_eq!(keys.to_data(), all.to_data());
            assert_eq!(values.to_data(), all.neg().to_data());
            cache = next;
        }
        assert_eq!(cache.len(), 135);
    }
}
