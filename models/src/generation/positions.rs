//! Positions of tokens and masks of attention layers, with and without a cache.

use burn::tensor::{Int, IntDType, Tensor, TensorData};
use grove_backend::Backend;
use grove_layers::{AttentionMask, KvCache};

/// Returns the positions of `t` tokens that follow `seen` others, and the number of rows: one row for all if there is
/// no padding, else one for each. Padding has position 0.
pub(crate) fn row_positions(seen: usize, t: usize, padding: &[usize]) -> (Vec<usize>, usize) {
    let row = |pad: usize| (seen..seen + t).map(move |position| position.saturating_sub(pad));
    match padding.iter().all(|&pad| pad == 0) {
        true => (row(0).collect(), 1),
        false => (padding.iter().flat_map(|&pad| row(pad)).collect(), padding.len()),
    }
}

/// Returns the positions of `t` tokens that follow `seen` others, as indices of a position embedding.
///
/// The first `padding[row]` positions of a row are padding, which has position 0; an empty slice means no padding.
///
/// # Shapes
/// - output `[b, t]`, or `[1, t]` if no row has padding
pub fn position_ids<B: Backend>(seen: usize, t: usize, padding: &[usize], device: &B::Device) -> Tensor<B, 2, Int> {
    let (positions, rows) = row_positions(seen, t, padding);
    let positions: Vec<i64> = positions.into_iter().map(|position| position as i64).collect();
    Tensor::from_data(TensorData::new(positions, [rows, t]), device)
}

/// Returns the [`position_ids`] of `t` tokens that follow a cache of [fixed size](KvCache::fixed), whose length is an
/// array; `None` for other caches.
pub fn fixed_position_ids<B: Backend>(
    cache: Option<&KvCache<B>>,
    t: usize,
    padding: &[usize],
) -> Option<Tensor<B, 2, Int>> {
    let positions = cache?.positions(t)?.reshape([1, t]);
    if padding.iter().all(|&pad| pad == 0) {
        return Some(positions);
    }
    let rows = padding.len();
    let padding: Vec<i64> = padding.iter().map(|&pad| pad as i64).collect();
    let padding = Tensor::<B, 2, Int>::from_data(TensorData::new(padding, [rows, 1]), &positions.device());
    let padding = padding.cast(IntDType::from(positions.dtype())).expand([rows, t]);
    Some((positions.expand([rows, t]) - padding).clamp_min(0))
}

/// Returns the [`position_ids`] of `t` tokens that follow the layers' caches, if there are any.
pub fn cached_position_ids<B: Backend>(
    caches: Option<&Vec<KvCache<B>>>,
    t: usize,
    padding: &[usize],
    device: &B::Device,
) -> Tensor<B, 2, Int> {
    let first = caches.and_then(|caches| caches.first());
    fixed_position_ids(first, t, padding)
        .unwrap_or_else(|| position_ids(first.map_or(0, KvCache::len), t, padding, device))
}

/// Returns the attention mask of each layer, given its window, for `b` rows of `t` tokens that follow the layers'
/// caches.
pub fn layer_masks<B: Backend>(
    windows: &[Option<usize>],
    [b, t]: [usize; 2],
    caches: Option<&Vec<KvCache<B>>>,
    padding: &[usize],
    device: &B::Device,
) -> Vec<AttentionMask<B>> {
    let cache = |i: usize| caches.and_then(|caches| caches.get(i));
    let Some(positions) = cache(0).and_then(|cache| cache.positions(t)) else {
        let keys = |i: usize| cache(i).map_or(0..t, |cache| cache.visible_range(t));
        return AttentionMask::per_layer(windows, t, keys, padding, device);
    };
    let keys = |i: usize| cache(i).map_or(t, |cache| cache.visible_range(t).len());
    AttentionMask::by_window(windows, |i, window| AttentionMask::at(window, positions.clone(), [b, keys(i)], padding))
}
