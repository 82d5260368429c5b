use burn::tensor::{Bool, Int, IntDType, Tensor, TensorData};
use grove_backend::{AttentionOptions, Backend, Dropout, KeyRanges, ops};
use grove_tree::Key;
use std::ops::Range;

use crate::KvCache;

/// Mask of attention scores, with an optional bias.
#[derive(Clone, Debug)]
pub enum AttentionMask<B: Backend> {
    /// Causal mask: each query attends to its own position and those before it. Queries and keys end at the same position.
    Causal,
    /// No mask: every query attends to every key.
    Full,
    /// A range of keys per query, for sliding windows and padding. The score matrix is never materialised.
    Ranges(KeyRanges<B>),
    /// Boolean mask, `[b, 1, t, s]`, true at masked scores. A fully masked query returns zeros.
    Masked(Tensor<B, 4, Bool>),
    /// A mask, and a bias that is added to the scaled scores; see [`with_bias`](AttentionMask::with_bias).
    Biased(Box<Self>, Tensor<B, 4>),
}

impl<B: Backend> AttentionMask<B> {
    /// Creates the causal mask of `t` positions after `seen` earlier ones. Row r starts with `padding[r]` positions of
    /// padding.
    ///
    /// A padding position attends only to itself.
    pub fn causal(t: usize, seen: usize, padding: &[usize], device: &B::Device) -> Self {
        Self::within(None, t, 0..seen + t, padding, device)
    }

    /// Creates a causal sliding-window mask: each query attends to at most the last `window` keys up to and including its
    /// own position. `keys` are the positions of the keys; the last `t` of them are the queries.
    ///
    /// # Panics
    /// If there are fewer keys than queries, or the window is 0. [`attend`] panics if the length of `padding` is not the
    /// number of rows.
    pub fn within(window: Option<usize>, t: usize, keys: Range<usize>, padding: &[usize], device: &B::Device) -> Self {
        let s = keys.len();
        assert!(t <= s, "{t} queries cannot be the last positions of {s} keys");
        assert_ne!(window, Some(0), "the attention window is 0");
        let window = window.filter(|&window| window < s);
        let unpadded = padding.iter().all(|&pad| pad <= keys.start);
        if window.is_none() && unpadded {
            return if t == 1 { Self::Full } else { Self::Causal };
        }
        let hidden = padding.iter().map(|&pad| pad.saturating_sub(keys.start).min(s));
        let padding = (!unpadded).then(|| counts::<B>(hidden, device));
        Self::Ranges(KeyRanges { causal: true, window, padding, lengths: None })
    }

    /// Creates the mask of `b` rows of `t` positions that follow the positions in a layer's cache, if any. Row r starts
    /// with `padding[r]` positions of padding; an empty slice means no padding. The window is that of the cache.
    ///
    /// Growing caches and caches of [fixed size](KvCache::fixed), which serve tracing, are both supported.
    ///
    /// A padding position attends only to itself.
    pub fn after(cache: Option<&KvCache<B>>, [b, t]: [usize; 2], padding: &[usize], device: &B::Device) -> Self {
        Self::of_layer(cache.and_then(KvCache::window), cache, [b, t], padding, device)
    }

    /// Creates the mask of [`after`](Self::after) for a layer with this window.
    pub(crate) fn of_layer(
        window: Option<usize>,
        cache: Option<&KvCache<B>>,
        [b, t]: [usize; 2],
        padding: &[usize],
        device: &B::Device,
    ) -> Self {
        let keys = cache.map_or(0..t, |cache| cache.visible_range(t));
        match cache.and_then(|cache| cache.positions(t)) {
            Some(positions) => Self::at(window, positions, [b, keys.len()], padding),
            None => Self::within(window, t, keys, padding, device),
        }
    }

    /// Creates the mask of a [fixed-size cache](crate::KvCache::fixed) with `keys` slots. The queries' positions are an
    /// array, `[t]`; slots after a query's position are masked. Row r of `b` starts with `padding[r]` positions of padding.
    ///
    /// A padding position attends only to itself.
    #[track_caller]
    pub fn at(window: Option<usize>, positions: Tensor<B, 1, Int>, [b, keys]: [usize; 2], padding: &[usize]) -> Self {
        let ([t], device) = (positions.dims(), positions.device());
        let unpadded = padding.iter().all(|&pad| pad == 0);
        let window = window.filter(|&window| window < keys);
        if t == 1 && window.is_none() && unpadded {
            return Self::Ranges(KeyRanges { lengths: Some((positions + 1).expand([b])), ..KeyRanges::default() });
        }
        let key_positions =
            Tensor::<B, 1, Int>::arange(0..keys as i64, &device).cast(IntDType::from(positions.dtype()));
        let key_positions = key_positions.reshape([1, 1, 1, keys]).expand([1, 1, t, keys]);
        let own = positions.reshape([1, 1, t, 1]).expand([1, 1, t, keys]);
        let ahead = key_positions.clone().greater(own.clone());
        let hidden = match window {
            Some(window) => ahead.bool_or(key_positions.clone().lower_equal(own.clone().sub_scalar(window as i64))),
            None => ahead,
        };
        if unpadded {
            return Self::Masked(hidden);
        }
        let shape = [b, 1, t, keys];
        let pad = counts::<B>(padding.iter().copied(), &device).cast(IntDType::from(key_positions.dtype()));
        let (key_positions, own) = (key_positions.expand(shape), own.expand(shape));
        let before = key_positions.clone().lower(pad.reshape([b, 1, 1, 1]).expand(shape));
        Self::Masked(hidden.expand(shape).bool_or(before.bool_and(key_positions.not_equal(own))))
    }

    /// Creates the padding mask of an encoder: queries of row r attend to its first `lengths[r]` positions of `t`. A row of
    /// length 0 returns zeros.
    pub fn to_lengths(lengths: &[usize], t: usize, device: &B::Device) -> Self {
        if lengths.iter().all(|&length| length >= t) {
            return Self::Full;
        }
        let lengths = counts::<B>(lengths.iter().map(|&length| length.min(t)), device);
        Self::Ranges(KeyRanges { lengths: Some(lengths), ..KeyRanges::default() })
    }

    /// Adds a bias to the scaled scores, `[b or 1, n_head or 1, t or 1, s]`: `softmax(q k^T * scale + bias) v`, for
    /// relative position biases (T5, Swin) and ALiBi. The bias gets a gradient. Several biases are summed.
    ///
    /// A bias disables fused attention: every backend materialises the score matrix.
    #[track_caller]
    pub fn with_bias(self, bias: Tensor<B, 4>) -> Self {
        match self {
            Self::Biased(mask, other) => Self::Biased(mask, other + bias),
            mask => Self::Biased(Box::new(mask), bias),
        }
    }

    /// Splits into the mask without its bias, and the bias.
    fn parts(&self) -> (&Self, Option<&Tensor<B, 4>>) {
        match self {
            Self::Biased(mask, bias) => (mask.parts().0, Some(bias)),
            mask => (mask, None),
        }
    }
}

/// Position counts as an array; each is far below 2^31.
fn counts<B: Backend>(numbers: impl Iterator<Item = usize>, device: &B::Device) -> Tensor<B, 1, Int> {
    let numbers: Vec<i32> = numbers.map(|number| i32::try_from(number).unwrap_or(i32::MAX)).collect();
    let count = numbers.len();
    Tensor::from_data(TensorData::new(numbers, [count]), device)
}

/// Splits the output of a fused projection, `[b, t, 3 n_head head_dim]`, into queries, keys and values, each
/// `[b, n_head, t, head_dim]`.
#[track_caller]
pub fn split_heads<B: Backend>(qkv: Tensor<B, 3>, n_head: usize) -> [Tensor<B, 4>; 3] {
    let [b, t, size] = qkv.dims();
    let qkv = qkv.reshape([b, t, 3 * n_head, size / (3 * n_head)]);
    let parts: [_; 3] = ops::chunk(qkv, 3, 2).try_into().unwrap_or_else(|_| unreachable!("three parts of three"));
    parts.map(|part: Tensor<B, 4>| part.swap_dims(1, 2))
}

/// Computes scaled dot-product attention, `softmax(q k^T * scale + bias) v` (Vaswani et al., 2017). `dropout` is the rate
/// and key of attention dropout. The mask holds the bias, if any.
///
/// # Shapes
/// - queries `[b, n_head, t, head_dim]`
/// - keys, values `[b, n_kv_head, s, head_dim]`; each key-value head serves `n_head / n_kv_head` query heads
/// - output `[b, n_head, t, head_dim]`
#[track_caller]
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
