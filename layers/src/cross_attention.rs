use burn::tensor::Tensor;
use grove_backend::Backend;
use grove_tree::{Array, Key, Tree};

use crate::{AttentionMask, attend};

/// Keys and values of an encoder's output, for the cross-attention of a decoder (Vaswani et al., "Attention Is All You
/// Need", 2017). They are computed once and read by every decoding step.
///
/// ```
/// use burn::tensor::Tensor;
/// use grove_layers::{AttentionMask, CrossCache};
/// # type B = burn_flex::Flex;
/// let device = Default::default();
/// let (keys, values) = (Tensor::ones([2, 4, 9, 8], &device), Tensor::ones([2, 4, 9, 8], &device));
/// let cache = CrossCache::<B>::new(keys, values);
/// // The second sequence of the encoder has 5 positions, and padding after them.
/// let mask = AttentionMask::to_lengths(&[9, 5], cache.len(), &device);
/// let queries = Tensor::ones([2, 4, 1, 8], &device);
/// assert_eq!(cache.attend(queries, &mask, 0.35, None).dims(), [2, 4, 1, 8]);
/// ```
#[derive(Tree, Clone, Debug)]
pub struct CrossCache<B: Backend> {
    /// Keys, `[b, n_kv_head, s, head_dim]`.
    pub keys: Array<B, 4>,
    /// Values, `[b, n_kv_head, s, head_dim]`.
    pub values: Array<B, 4>,
}

impl<B: Backend> CrossCache<B> {
    /// Creates a cache from keys and values, `[b, n_kv_head, s, head_dim]`.
    ///
    /// # Panics
    /// If their shapes differ.
    #[track_caller]
    pub fn new(keys: Tensor<B, 4>, values: Tensor<B, 4>) -> Self {
        assert_eq!(keys.dims(), values.dims(), "keys and values of an encoder have one shape");
        Self { keys: Array::new(keys), values: Array::new(values) }
    }

    /// Number of encoder positions.
    pub fn len(&self) -> usize {
        self.keys.shape()[2]
    }

    /// Returns true if the encoder has no positions.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Attends from any number of queries to the encoder's positions with [`attend`]. The mask is [`AttentionMask::Full`],
    /// or [`AttentionMask::to_lengths`] if the encoder's sequences are padded. Either may have a bias.
    ///
    /// # Shapes
    /// - queries and output `[b, n_head, t, head_dim]`
    #[track_caller]
    pub fn attend(
        &self,
        queries: Tensor<B, 4>,
        mask: &AttentionMask<B>,
        scale: f64,
        dropout: Option<(f64, Key)>,
    ) -> Tensor<B, 4> {
        attend(queries, self.keys.val(), self.values.val(), mask, scale, dropout)
    }
}
