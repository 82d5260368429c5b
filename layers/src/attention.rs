use burn::tensor::{Bool, Int, Tensor, TensorData, TensorPrimitive};
use grove_backend::{AttendOptions, Backend};
use grove_tree::Key;

use crate::dropout::dropout_factors;

/// Which positions a causal attention layer must not look at.
#[derive(Clone, Debug)]
pub enum AttentionMask<B: Backend> {
    /// Each position sees itself and those before it; queries and keys begin together.
    Causal,
    /// Every position sees every other.
    Full,
    /// True where a position must not look, `[b, 1, t, s]`.
    Explicit(Tensor<B, 4, Bool>),
}

impl<B: Backend> AttentionMask<B> {
    /// The mask for `t` positions after `seen` others, in rows that begin with `padding[row]` positions of padding.
    ///
    /// A position of padding sees only itself, so that no row is empty (a softmax over nothing is NaN).
    pub fn causal(t: usize, seen: usize, padding: &[usize], device: &B::Device) -> Self {
        if padding.iter().all(|&pad| pad == 0) {
            if t == 1 {
                return Self::Full;
            }
            if seen == 0 {
                return Self::Causal;
            }
        }
        let s = seen + t;
        let padding = if padding.is_empty() { &[0] } else { padding };
        let hidden = padding.iter().flat_map(|&pad| {
            (seen..s).flat_map(move |query| (0..s).map(move |key| key != query && (key > query || key < pad)))
        });
        // Candle takes no booleans from the host, hence numbers.
        let data = TensorData::new(hidden.map(i64::from).collect(), [padding.len(), 1, t, s]);
        Self::Explicit(Tensor::<B, 4, Int>::from_data(data, device).equal_elem(1))
    }
}

/// Scaled dot-product attention, `softmax(q k^T * scale) v` (Vaswani et al., 2017), with dropout of the weights when a
/// key is given.
///
/// # Shapes
/// - queries `[b, n_head, t, head_dim]`
/// - keys, values `[b, n_head, s, head_dim]`
/// - output `[b, n_head, t, head_dim]`
pub fn attend<B: Backend>(
    queries: Tensor<B, 4>,
    keys: Tensor<B, 4>,
    values: Tensor<B, 4>,
    mask: &AttentionMask<B>,
    scale: f64,
    dropping: Option<(f64, Key)>,
) -> Tensor<B, 4> {
    let [b, n_head, t, _] = queries.dims();
    let weights = [b, n_head, t, keys.dims()[2]];
    let factors =
        dropping.and_then(|(rate, key)| dropout_factors(weights, rate, key, queries.dtype(), &queries.device()));
    let primitive = |x: Tensor<B, 4>| x.into_primitive().tensor();
    let options = AttendOptions {
        scale,
        causal: matches!(mask, AttentionMask::Causal),
        hidden: match mask {
            AttentionMask::Explicit(hidden) => Some(hidden.clone().into_primitive()),
            _ => None,
        },
        factors: factors.map(primitive),
    };
    let (output, _) = B::attend([queries, keys, values].map(primitive), options, false);
    Tensor::from_primitive(TensorPrimitive::Float(output))
}
