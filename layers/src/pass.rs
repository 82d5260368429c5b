use burn::tensor::{DType, Int, IntDType, Tensor, TensorData};
use grove_backend::Backend;
use grove_tree::Key;

use crate::{AttentionMask, Dropout, KvCache, Rope, RopeAngles, attend, named_key, part_key};

/// One forward pass of a decoder: the positions of its tokens, the masks and caches of its layers, and the dropout key.
///
/// A model creates a pass from the arguments of its forward method and gives each layer a [`LayerPass`].
///
/// ```
/// use burn::tensor::{Int, Tensor};
/// use grove_layers::{DecoderPass, Dropout, KvCache};
/// # type B = burn_flex::Flex;
/// # let device = Default::default();
/// let ids = Tensor::<B, 2, Int>::from_ints([[7, 8]], &device);
/// let mut caches = vec![KvCache::<B>::new()]; // one layer
/// for expected in [[0, 1], [2, 3]] {
///     let mut pass = DecoderPass::new(&ids, &[], Some(&mut caches), None);
///     assert_eq!(pass.positions().into_data(), Tensor::<B, 2, Int>::from_ints([expected], &device).into_data());
///     let x = Tensor::<B, 4>::ones([1, 1, 2, 8], &device); // [b, n_head, t, head_dim]
///     let y = pass.layer(0).attend(x.clone(), x.clone(), x, 1.0, Dropout::new(0.0));
///     assert_eq!(y.dims(), [1, 1, 2, 8]);
/// }
/// ```
#[derive(Debug)]
pub struct DecoderPass<'a, B: Backend> {
    shared: Shared<B>,
    caches: Option<&'a mut Vec<KvCache<B>>>,
    key: Option<Key>,
}

/// The part of a [`DecoderPass`] that all layers use.
#[derive(Debug)]
struct Shared<B: Backend> {
    /// `[b, t]`.
    shape: [usize; 2],
    /// Positions of padding at the start of each row; empty for none.
    padding: Vec<usize>,
    device: B::Device,
    /// Masks computed so far. Layers with equal windows share a mask.
    masks: Vec<(Option<usize>, AttentionMask<B>)>,
}

impl<'a, B: Backend> DecoderPass<'a, B> {
    /// Creates the pass of tokens `[b, t]`.
    ///
    /// With caches, one for each layer, the tokens follow the cached ones, and the layers append their keys and values.
    /// The first `padding[row]` positions of a row are padding, counted from the beginning of the sequence; an empty slice
    /// means no padding. Dropout is applied if a `key` is given.
    #[track_caller]
    pub fn new(
        ids: &Tensor<B, 2, Int>,
        padding: &[usize],
        caches: Option<&'a mut Vec<KvCache<B>>>,
        key: Option<Key>,
    ) -> Self {
        let padding = if padding.iter().all(|&pad| pad == 0) { vec![] } else { padding.to_vec() };
        Self { shared: Shared { shape: ids.dims(), padding, device: ids.device(), masks: vec![] }, caches, key }
    }

    /// Returns the positions of the tokens, as indices of a position embedding. Padding has position 0.
    ///
    /// # Shapes
    /// - output `[b, t]`, or `[1, t]` if no row has padding
    #[track_caller]
    pub fn positions(&self) -> Tensor<B, 2, Int> {
        self.traced_positions().unwrap_or_else(|| {
            let (positions, rows) = self.known_positions();
            let positions: Vec<i64> = positions.into_iter().map(|position| position as i64).collect();
            let t = self.shared.shape[1];
            Tensor::from_data(TensorData::new(positions, [rows, t]), &self.shared.device)
        })
    }

    /// Returns the rotations of the tokens' positions, for [`RopeAngles::apply`].
    pub fn rope(&self, rope: &Rope, dtype: DType) -> RopeAngles<B> {
        let (t, device) = (self.shared.shape[1], &self.shared.device);
        match (self.traced_positions(), self.first_cache()) {
            (Some(positions), Some(cache)) => {
                let all = cache.visible_range(t);
                debug_assert_eq!(all.start, 0, "a cache of fixed size starts with the text");
                rope.table(all.end, t, dtype, device).select(positions)
            }
            _ => {
                let (positions, rows) = self.known_positions();
                rope.at(&positions, rows, dtype, device)
            }
        }
    }

    /// Returns the dropout key of a part of the model outside of the layers; `None` for inference.
    pub fn key(&self, part: &str) -> Option<Key> {
        named_key(self.key, part)
    }

    /// Returns the part of the pass for layer `i`.
    pub fn layer(&mut self, i: usize) -> LayerPass<'_, B> {
        let key = part_key(self.key("layers"), i);
        let cache = self.caches.as_mut().and_then(|caches| caches.get_mut(i));
        LayerPass { shared: &mut self.shared, cache, key }
    }

    fn first_cache(&self) -> Option<&KvCache<B>> {
        self.caches.as_ref()?.first()
    }

    /// Returns the positions in rows of t: one row for all sequences if there is no padding, else one row for each; and
    /// the number of rows.
    fn known_positions(&self) -> (Vec<usize>, usize) {
        let Shared { shape: [_, t], padding, .. } = &self.shared;
        let seen = self.first_cache().map_or(0, KvCache::len);
        let row = |pad: usize| (seen..seen + t).map(move |position| position.saturating_sub(pad));
        match padding.is_empty() {
            true => (row(0).collect(), 1),
            false => (padding.iter().flat_map(|&pad| row(pad)).collect(), padding.len()),
        }
    }

    /// Returns the [`positions`](Self::positions) after a cache of [fixed size](KvCache::fixed), whose length is an array;
    /// `None` for other caches.
    fn traced_positions(&self) -> Option<Tensor<B, 2, Int>> {
        let Shared { shape: [_, t], padding, .. } = &self.shared;
        let positions = self.first_cache()?.positions(*t)?.reshape([1, *t]);
        if padding.is_empty() {
            return Some(positions);
        }
        let rows = padding.len();
        let padding: Vec<i64> = padding.iter().map(|&pad| pad as i64).collect();
        let padding = Tensor::<B, 2, Int>::from_data(TensorData::new(padding, [rows, 1]), &positions.device());
        let padding = padding.cast(IntDType::from(positions.dtype())).expand([rows, *t]);
        Some((positions.expand([rows, *t]) - padding).clamp_min(0))
    }
}

/// The part of a [`DecoderPass`] for one layer: its cache, its mask, and its dropout key.
#[derive(Debug)]
pub struct LayerPass<'a, B: Backend> {
    shared: &'a mut Shared<B>,
    cache: Option<&'a mut KvCache<B>>,
    key: Option<Key>,
}

impl<B: Backend> LayerPass<'_, B> {
    /// Returns the dropout key of a part of the layer; `None` for inference.
    pub fn key(&self, part: &str) -> Option<Key> {
        named_key(self.key, part)
    }

    /// Computes causal attention, `softmax(q k^T * scale) v`, over the cached positions and those of this pass. Appends
    /// the keys and values to the cache. `dropout` is that of the attention weights.
    ///
    /// # Shapes
    /// - queries `[b, n_head, t, head_dim]`
    /// - keys, values `[b, n_kv_head, t, head_dim]`; each key-value head serves `n_head / n_kv_head` query heads
    /// - output `[b, n_head, t, head_dim]`
    #[track_caller]
    pub fn attend(
        &mut self,
        queries: Tensor<B, 4>,
        keys: Tensor<B, 4>,
        values: Tensor<B, 4>,
        scale: f64,
        dropout: Dropout,
    ) -> Tensor<B, 4> {
        self.attend_within(None, queries, keys, values, scale, dropout)
    }

    /// Computes the attention of [`attend`](Self::attend) in a sliding window: a query attends to at most `window`
    /// positions, including its own; `None` means all positions.
    #[track_caller]
    pub fn attend_within(
        &mut self,
        window: Option<usize>,
        queries: Tensor<B, 4>,
        keys: Tensor<B, 4>,
        values: Tensor<B, 4>,
        scale: f64,
        dropout: Dropout,
    ) -> Tensor<B, 4> {
        let mask = self.shared.mask(window, self.cache.as_deref());
        let [keys, values] = match &mut self.cache {
            Some(cache) => cache.update(keys, values),
            None => [keys, values],
        };
        attend(queries, keys, values, &mask, scale, dropout.with_key(self.key("attention_weights")))
    }
}

impl<B: Backend> Shared<B> {
    /// Returns the mask of a layer with this window and cache, to which this pass has not been appended.
    fn mask(&mut self, window: Option<usize>, cache: Option<&KvCache<B>>) -> AttentionMask<B> {
        if let Some((_, mask)) = self.masks.iter().find(|(other, _)| *other == window) {
            return mask.clone();
        }
        let mask = AttentionMask::of_layer(window, cache, self.shape, &self.padding, &self.device);
        self.masks.push((window, mask.clone()));
        mask
    }
}
