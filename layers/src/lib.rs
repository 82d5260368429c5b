//! Neural-network layers: structs of arrays with a `forward` method. A layer is a tree. It has no training mode, no name
//! and no hidden state.
//!
//! Randomness is passed as an `Option<Key>`; `None` selects inference.
#![warn(missing_docs)]

mod accuracy;
pub mod activation;
mod attention;
mod batch_norm;
mod cache;
mod conv;
mod conv1d;
mod conv_bn;
mod cross_attention;
mod drop_path;
mod dropout;
mod embedding;
mod feed_forward;
mod heads;
mod layer_norm;
mod linear;
pub mod lora;
pub mod loss;
mod pass;
mod pool;
mod projection;
mod rms_norm;
pub mod rnn;
mod rotary;
mod row_norm;

pub use accuracy::accuracy;
pub use activation::Activation;
pub use attention::{AttentionMask, attend, split_heads};
pub use batch_norm::{BatchNorm, sync_batch_norm};
pub use cache::{CacheRows, KvCache, MAX_ROLLBACK};
pub use conv::Conv2d;
pub use conv_bn::{BatchStats, ConvBn};
pub use conv1d::{Conv1d, Conv1dOptions};
pub use cross_attention::CrossCache;
pub use drop_path::drop_path;
pub use dropout::{Dropout, dropout, named_key, part_key};
pub use embedding::Embedding;
pub use feed_forward::{feed_forward, layer_scale};
pub use heads::{join_heads, to_heads};
pub use layer_norm::LayerNorm;
pub use linear::Linear;
pub use lora::Lora;
pub use pass::{DecoderPass, LayerPass};
pub use pool::{global_average_pool, max_pool, mean_of_axis};
pub use projection::{MaybeQuantized, QuantEmbedding, QuantLinear, Quantized};
pub use rms_norm::RmsNorm;
pub use rotary::{Rope, RopeAngles, RopeScaling};
