use burn::tensor::{Bool, Int, IntDType, Tensor, TensorData};
use grove_backend::{AttentionOptions, Backend, Dropout, KeyRanges, ops};
use grove_tree::Key;
use std::ops::Range;

use crate::KvCache;

/// Positions that an attention layer must not look at, and a bias of its scores.
#[derive(Clone, Debug)]
pub enum AttentionMask<B: Backend> {
    /// Each position sees itself and those before it; queries and keys end together.
    Causal,
    /// Every position sees every other.
    Full,
    /// Each position sees a range of keys: a window, or all but padding. Nothing of the size of the scores is written down.
    Ranges(KeyRanges<B>),
    /// True where a position must not look, `[b, 1, t, s]`. A position that must look nowhere gathers zeros.
    Masked(Tensor<B, 4, Bool>),
    /// A mask, and what is added to the scaled scores; see [`with_bias`](AttentionMask::with_bias).
    Biased(Box<Self>, Tensor<B, 4>),
}

impl<B: Backend> AttentionMask<B> {
    /// The mask for `t` positions after `seen` others, in rows that begin with `padding[row]` positions of padding.
    ///
    /// A position of padding sees only itself.
    pub fn causal(t: usize, seen: usize, padding: &[usize], device: &B::Device) -> Self {
        Self::within(None, t, 0..seen + t, padding, device)
    }

    /// The same where a position sees no more than the last `window`, itself included, of the positions `keys`, which end
    /// with the `t` that look.
    ///
    /// # Panics
    /// If there are fewer keys than positions that look, or the window is 0; [`attend`] where padding is given for another number
    /// of rows than there are.
    pub fn within(window: Option<usize>, t: usize, keys: Range<usize>, padding: &[usize], device: &B::Device) -> Self {
        let s = keys.len();
        assert!(t <= s, "{t} positions look at {s}");
        assert_ne!(window, Some(0), "a window of no positions");
        let window = window.filter(|&window| window < s);
        let unpadded = padding.iter().all(|&pad| pad <= keys.start);
        if window.is_none() && unpadded {
            return if t == 1 { Self::Full } else { Self::Causal };
        }
        let hidden = padding.iter().map(|&pad| pad.saturating_sub(keys.start).min(s));
        let padding = (!unpadded).then(|| counts::<B>(hidden, device));
        Self::Ranges(KeyRanges { causal: true, window, padding, lengths: None })
    }

    /// The mask for `b` rows of `t` positions after those of a layer's cache, if there is one. Rows begin with `padding[row]`
    /// positions of padding; an empty slice means none anywhere. The layer's window is that of its cache.
    ///
    /// It serves caches of [fixed size](KvCache::fixed), with which a model is traced, as well as growing ones.
    ///
    /// A position of padding sees only itself.
    pub fn after(cache: Option<&KvCache<B>>, [b, t]: [usize; 2], padding: &[usize], device: &B::Device) -> Self {
        let Some(cache) = cache else { return Self::causal(t, 0, padding, device) };
        let keys = cache.visible_range(t);
        match cache.positions(t) {
            Some(positions) => Self::at(cache.window(), positions, [b, keys.len()], padding),
            None => Self::within(cache.window(), t, keys, padding, device),
        }
    }

    /// The mask for the positions `[t]`, given as an array, that look at a cache of `keys` positions, of which those behind are not
    /// written yet: for a [cache of fixed size](crate::KvCache::fixed). `b` rows begin with `padding[row]` positions of padding.
    ///
    /// A position of padding sees only itself.
    pub fn at(window: Option<usize>, positions: Tensor<B, 1, Int>, [b, keys]: [usize; 2], padding: &[usize]) -> Self {
        let ([t], device) = (positions.dims(), positions.device());
        let unpadded = padding.iter().all(|&pad| pad == 0);
        let window = window.filter(|&window| window < keys);
        if t == 1 && window.is_none() && unpadded {
            return Self::Ranges(KeyRanges { lengths: Some((positions + 1).expand([b])), ..KeyRanges::default() });
        }
        let places = Tensor::<B, 1, Int>::arange(0..keys as i64, &device).cast(IntDType::from(positions.dtype()));
        let places = places.reshape([1, 1, 1, keys]).expand([1, 1, t, keys]);
        let own = positions.reshape([1, 1, t, 1]).expand([1, 1, t, keys]);
        let ahead = places.clone().greater(own.clone());
        let hidden = match window {
            Some(window) => ahead.bool_or(places.clone().lower_equal(own.clone().sub_scalar(window as i64))),
            None => ahead,
        };
        if unpadded {
            return Self::Masked(hidden);
        }
        let shape = [b, 1, t, keys];
        let pad = counts::<B>(padding.iter().copied(), &device).cast(IntDType::from(places.dtype()));
        let (places, own) = (places.expand(shape), own.expand(shape));
        let before = places.clone().lower(pad.reshape([b, 1, 1, 1]).expand(shape));
        Self::Masked(hidden.expand(shape).bool_or(before.bool_and(places.not_equal(own))))
    }

    /// The mask of rows of `t` positions, of which only the first `lengths[row]` are looked at, as an encoder has it: behind them
    /// there is padding. In a row of none each position gathers zeros.
    pub fn to_lengths(lengths: &[usize], t: usize, device: &B::Device) -> Self {
        if lengths.iter().all(|&length| length >= t) {
            return Self::Full;
        }
        let lengths = counts::<B>(lengths.iter().map(|&length| length.min(t)), device);
        Self::Ranges(KeyRanges { lengths: Some(lengths), ..KeyRanges::default() })
    }

    /// Adds a bias to the scaled scores, `[b or 1, n_head or 1, t or 1, s]`: `softmax(q k^T * scale + bias) v`, as relative
    /// position biases (T5, Swin) and ALiBi do. It gets a gradient. Biases that are given one after the other add up.
    ///
    /// With a bias every backend writes the scores down.
    pub fn with_bias(self, bias: Tensor<B, 4>) -> Self {
        match self {
            Self::Biased(mask, other) => Self::Biased(mask, other + bias),
            mask => Self::Biased(Box::new(mask), bias),
        }
    }

    /// The mask without its bias, and the bias.
    fn parts(&self) -> (&Self, Option<&Tensor<B, 4>>) {
        match self {
            Self::Biased(mask, bias) => (mask.parts().0, Some(bias)),
            mask => (mask, None),
        }
    }

    /// The mask of each layer by the window it has, if any; those that see alike share one. `keys(i)` are the positions that
    /// layer `i` looks at, the same for layers of the same window.
    pub fn per_layer(
        windows: &[Option<usize>],
        t: usize,
        keys: impl Fn(usize) -> Range<usize>,
        padding: &[usize],
        device: &B::Device,
    ) -> Vec<Self> {
        Self::by_window(windows, |i, window| Self::within(window, t, keys(i), padding, device))
    }

    /// The mask that `mask` returns for the number of each layer and its window; those of the same window share the first one's.
    pub fn by_window(windows: &[Option<usize>], mask: impl Fn(usize, Option<usize>) -> Self) -> Vec<Self> {
        let mut masks: Vec<Self> = Vec::with_capacity(windows.len());
        for (i, window) in windows.iter().enumerate() {
            masks.push(match windows[..i].iter().position(|other| other == window) {
                Some(same) => masks[same].clone(),
                None => mask(i, *window),
            });
        }
        masks
    }
}

/// Numbers of positions on a device, each far below 2^31.
fn counts<B: Backend>(numbers: impl Iterator<Item = usize>, device: &B::Device) -> Tensor<B, 1, Int> {
    let numbers: Vec<i32> = numbers.map(|number| i32::try_from(number).unwrap_or(i32::MAX)).collect();
    let count = numbers.len();
    Tensor::from_data(TensorData::new(numbers, [count]), device)
}

/// Queries, keys and values that come out of one affine map, `[b, t, 3 n_head head_dim]`, each `[b, n_head, t, head_dim]`.
pub fn split_heads<B: Backend>(qkv: Tensor<B, 3>, n_head: usize) -> [Tensor<B, 4>; 3] {
    let [b, t, size] = qkv.dims();
    let qkv = qkv.reshape([b, t, 3 * n_head, size / (3 * n_head)]);
    let parts: [_; 3] = ops::chunk(qkv, 3, 2).try_into().unwrap_or_else(|_| unreachable!("three parts of three"));
    parts.map(|part: Tensor<B, 4>| part.swap_dims(1, 2))
}

/// Scaled dot-product attention, `softmax(q k^T * scale + bias) v` (Vaswani et al., 2017), with dropout of the weights when
/// a key is given. The bias, if there is one, is the mask's.
///
/// # Shapes
/// - queries `[b, n_head, t, head_dim]`
/// - keys, values `[b, n_kv_head, s, head_dim]`, where each head serves `n_head / n_kv_head` heads of queries
/// - output `[b, n_head, t, head_dim]`
pub fn attend<B: Backend>(
    queries: Tensor<B, 4>,
    keys: Tensor<B, 4>,
    values: Tensor<B, 4>,
    mask: &AttentionMask<B>,
    scale: f64,
    dropout: Option<(f64, Key)>,
) -> Tensor<B, 4> {
    let (mask, bias) = mask.parts();
    let options = AttentionOptions {
        bias: bias.cloned(),
        scale,
        visible: match mask {
            AttentionMask::Ranges(ranges) => ranges.clone(),
            mask => KeyRanges::new(matches!(mask, AttentionMask::Causal)),
        },
        mask: match mask {
            AttentionMask::Masked(mask) => Some(mask.clone()),
            _ => None,
        },
        dropout: dropout.and_then(|(rate, key)| Dropout::new(key.words(), rate)),
    };
    ops::attention(queries, keys, values, options)
}
