use burn::tensor::{Bool, Int, Tensor, TensorData, TensorPrimitive, module, ops::AttentionModuleOptions};
use grove_backend::{Backend, matmul};
use grove_tree::Key;

use crate::dropout;

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
    let dropping = dropping.filter(|(rate, _)| *rate > 0.0);
    let [b, n_head, t, _] = queries.dims();
    let s = keys.dims()[2];
    let causal = matches!(mask, AttentionMask::Causal);
    // A single query sees everything, and twice it is one that no backend takes for a vector.
    if B::FUSES_VECTORS_WRONGLY && t == 1 {
        let mask = if causal { &AttentionMask::Full } else { mask };
        let queries = Tensor::cat(vec![queries.clone(), queries], 2);
        return attend(queries, keys, values, mask, scale, dropping).narrow(2, 0, 1);
    }
    // Without a backward pass to come the weights need not be kept, and a backend may never write them down.
    if dropping.is_none() && !B::ad_enabled(&queries.device()) {
        let mask = match mask {
            AttentionMask::Explicit(mask) => Some(mask.clone().expand([b, n_head, t, s])),
            _ => None,
        };
        let options = AttentionModuleOptions { scale: Some(scale), softcap: None, is_causal: causal };
        return module::attention(queries, keys, values, mask, None, options);
    }
    let scores = matmul(queries, keys.swap_dims(2, 3)); // [b, n_head, t, s]
    let scores = match mask {
        AttentionMask::Explicit(mask) => {
            let hidden = mask.clone().expand(scores.dims());
            scores.mask_fill(hidden, f32::NEG_INFINITY * scale.signum() as f32)
        }
        _ => scores,
    };
    let weights = B::attention_weights(scores.into_primitive().tensor(), scale, causal);
    let weights = Tensor::<B, 4>::from_primitive(TensorPrimitive::Float(weights));
    match dropping {
        Some((rate, key)) => matmul(dropout(weights, rate, Some(key)), values),
        None => matmul(weights, values),
    }
}
