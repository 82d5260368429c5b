//! Appending positions to a key-value cache.

use burn::tensor::{Shape, Slice, TensorMetadata, ops::FloatTensor};
use std::ops::Range;

use super::{Backend, Differentiation, Outcome, Rules, Shapes, Values};

/// Writes the keys and values of new positions into a cache's buffers, in place if nothing else holds the buffer. Returns
/// the buffers and the requested slices of them.
///
/// # Shapes
/// - inputs: buffers of keys and of values `[b, n_kv_head, capacity, head_dim]`; new keys and values
///   `[b, n_kv_head, t, head_dim]`
/// - outputs: the buffers; the requested slices of keys and values, `[b, n_kv_head, seen, head_dim]`
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct UpdateCache {
    /// Buffer position of the first new position.
    pub at: usize,
    /// Buffer positions to return.
    pub seen: Range<usize>,
}

impl Rules for UpdateCache {
    const DIFFERENTIATION: Differentiation = Differentiation::Composed;

    #[track_caller]
    fn shapes(&self, inputs: &Shapes) -> Vec<Shape> {
        let buffer @ [b, n_head, capacity, head_dim] = inputs.dims("update_cache", 0);
        let new @ [_, _, t, _] = inputs.dims("update_cache", 2);
        inputs.require(
            inputs.get(1) == Some(&buffer) && inputs.get(3) == Some(&new) && new == [b, n_head, t, head_dim],
            "update_cache",
            "buffers [b, n_kv_head, capacity, head_dim], new keys and values [b, n_kv_head, t, head_dim]",
        );
        let Self { at, seen } = self;
        assert!(
            at + t <= capacity && seen.end <= capacity,
            "update_cache: {t} positions from {at} on, and {seen:?} seen, of {capacity}"
        );
        let seen = [b, n_head, seen.len(), head_dim];
        [buffer, buffer, seen, seen].map(Shape::from).to_vec()
    }

    fn compose<B: Backend>(&self, inputs: Values<B>, _needs: &[bool]) -> Outcome<B> {
        let [keys, values, new_keys, new_values] = inputs.take_floats();
        let ([keys, seen_keys], [values, seen_values]) =
            (self.write::<B>(keys, new_keys), self.write::<B>(values, new_values));
        Outcome::new([keys, values, seen_keys, seen_values])
    }
}

impl UpdateCache {
    /// Returns the updated buffer and its slice `seen`.
    fn write<B: Backend>(&self, buffer: FloatTensor<B>, new: FloatTensor<B>) -> [FloatTensor<B>; 2] {
        let positions = |range: Range<usize>| [Slice::full(), Slice::full(), range.into(), Slice::full()];
        let t = new.shape()[2];
        let buffer = B::float_slice_assign(buffer, &positions(self.at..self.at + t), new);
        let seen = B::float_slice(buffer.clone(), &positions(self.seen.clone()));
        [buffer, seen]
    }
}
