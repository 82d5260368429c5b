use burn::tensor::{Bool, Int, Tensor, TensorData, TensorPrimitive};
use grove_backend::{AttendOptions, Backend, Dropout};
use grove_tree::Key;
use std::ops::Range;

/// Which positions a causal attention layer must not look at.
#[derive(Clone, Debug)]
pub enum AttentionMask<B: Backend> {
    /// Each position sees itself and those before it; queries and keys begin together.
    Causal,
    /// Every position sees every other.
    Full,
    /// True where a position must not look, `[b, 1, t, s]`. A position that must look nowhere gathers zeros.
    Explicit(Tensor<B, 4, Bool>),
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
    /// If there are fewer keys than positions that look.
    pub fn within(window: Option<usize>, t: usize, keys: Range<usize>, padding: &[usize], device: &B::Device) -> Self {
        let s = keys.len();
        let seen = keys.end - t;
        assert!(t <= s, "{t} positions look at {s}");
        let window = window.unwrap_or(usize::MAX);
        if padding.iter().all(|&pad| pad <= keys.start) && s <= window {
            if t == 1 {
                return Self::Full;
            }
            if t == s {
                return Self::Causal;
            }
        }
        let padding = if padding.is_empty() { &[0] } else { padding };
        let hides =
            |query: usize, key: usize, pad: usize| key != query && (key > query || key < pad || query - key >= window);
        let row = |pad: usize, query: usize| keys.clone().map(move |key| i64::from(hides(query, key, pad)));
        let hidden = padding.iter().flat_map(|&pad| (seen..keys.end).flat_map(move |query| row(pad, query)));
        // Candle takes no booleans from the host, hence numbers.
        let data = TensorData::new(hidden.collect(), [padding.len(), 1, t, s]);
        Self::Explicit(Tensor::<B, 4, Int>::from_data(data, device).equal_elem(1))
    }

    /// The mask of each layer by the window it has, if any; those that see alike share one. `keys(i)` are the positions that
    /// layer `i` looks at, the same for layers of the same window.
    pub fn of_layers(
        windows: &[Option<usize>],
        t: usize,
        keys: impl Fn(usize) -> Range<usize>,
        padding: &[usize],
        device: &B::Device,
    ) -> Vec<Self> {
        let mut masks: Vec<Self> = Vec::with_capacity(windows.len());
        for (i, window) in windows.iter().enumerate() {
            let mask = match windows[..i].iter().position(|other| other == window) {
                Some(same) => masks[same].clone(),
                None => Self::within(*window, t, keys(i), padding, device),
            };
            masks.push(mask);
        }
        masks
    }
}

/// Queries, keys and values that come out of one affine map, `[b, t, 3 n_head head_dim]`, each `[b, n_head, t, head_dim]`.
pub fn split_heads<B: Backend>(qkv: Tensor<B, 3>, n_head: usize) -> [Tensor<B, 4>; 3] {
    let [b, t, size] = qkv.dims();
    let qkv = qkv.reshape([b, t, 3 * n_head, size / (3 * n_head)]);
    let parts = B::chunk(qkv.into_primitive().tensor(), 3, 2);
    let parts: [_; 3] = parts.try_into().unwrap_or_else(|_| unreachable!("three parts of three"));
    parts.map(|part| Tensor::<B, 4>::from_primitive(TensorPrimitive::Float(part)).swap_dims(1, 2))
}

/// Scaled dot-product attention, `softmax(q k^T * scale) v` (Vaswani et al., 2017), with dropout of the weights when a
/// key is given.
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
    dropping: Option<(f64, Key)>,
) -> Tensor<B, 4> {
    let primitive = |x: Tensor<B, 4>| x.into_primitive().tensor();
    let options = AttendOptions {
        scale,
        causal: matches!(mask, AttentionMask::Causal),
        hidden: match mask {
            AttentionMask::Explicit(hidden) => Some(hidden.clone().into_primitive()),
            _ => None,
        },
        dropout: dropping.and_then(|(rate, key)| Dropout::new(key.words(), rate)),
    };
    let (output, _) = B::attend([queries, keys, values].map(primitive), options, false);
    Tensor::from_primitive(TensorPrimitive::Float(output))
}
