use burn::tensor::{Bool, Int, Tensor, TensorData, activation, module, ops::AttentionModuleOptions};
use grove_backend::Backend;
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
    let Some((rate, key)) = dropping.filter(|(rate, _)| *rate > 0.0) else {
        let (is_causal, mask) = match mask {
            AttentionMask::Causal => (true, None),
            AttentionMask::Full => (false, None),
            AttentionMask::Explicit(mask) => {
                let [b, n_head, t, _] = queries.dims();
                (false, Some(mask.clone().expand([b, n_head, t, keys.dims()[2]])))
            }
        };
        let options = AttentionModuleOptions { scale: Some(scale), softcap: None, is_causal };
        return module::attention(queries, keys, values, mask, None, options);
    };
    let [_, _, t, _] = queries.dims();
    let s = keys.dims()[2];
    let scores = queries.matmul(keys.swap_dims(2, 3)).mul_scalar(scale); // [b, n_head, t, s]
    let scores = match mask {
        AttentionMask::Full => scores,
        AttentionMask::Causal => {
            let rows = Tensor::<B, 1, Int>::arange(0..t as i64, &scores.device()).reshape([t, 1]);
            let columns = Tensor::<B, 1, Int>::arange(0..s as i64, &scores.device()).reshape([1, s]);
            let hidden: Tensor<B, 2, Bool> = columns.repeat_dim(0, t).greater(rows.repeat_dim(1, s));
            scores.clone().mask_fill(hidden.unsqueeze::<4>().expand(scores.dims()), f32::NEG_INFINITY)
        }
        AttentionMask::Explicit(mask) => {
            scores.clone().mask_fill(mask.clone().expand(scores.dims()), f32::NEG_INFINITY)
        }
    };
    dropout(activation::softmax(scores, 3), rate, Some(key)).matmul(values)
}
