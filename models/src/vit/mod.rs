//! ViT (Dosovitskiy et al., 2020) and DINOv2 (Oquab et al., 2023; with registers, Darcet et al., 2023): transformers
//! over image patches.
//!
//! ```
//! use burn::tensor::Tensor;
//! use grove_models::{Pretrained, vit::{Vit, VitConfig, attention_rollout}};
//! use grove_tree::Key;
//! # type B = burn_flex::Flex;
//! # let device = Default::default();
//! let sizes = VitConfig { hidden_size: 16, num_hidden_layers: 2, num_attention_heads: 2, ..VitConfig::default() };
//! let config = VitConfig { intermediate_size: 32, image_size: [32, 32], patch_size: 8, ..sizes }.with_labels(["cat", "dog"]);
//! let model = Vit::<B>::init(&config, Key::new(0), &device)?;
//! let pixels = Tensor::ones([4, 3, 32, 32], &device);
//! assert_eq!(model.forward(pixels.clone(), None).dims(), [4, 2]);         // [b, classes]
//! let larger = Tensor::ones([1, 3, 40, 64], &device);                     // the positions are interpolated
//! assert_eq!(model.features(larger).last.dims(), [1, 1 + 5 * 8, 16]);      // [b, tokens, hidden_size]
//! let rollout = attention_rollout(&model.attentions(pixels));              // contribution of each token to each
//! assert_eq!(rollout.dims(), [4, 17, 17]);
//! # Ok::<(), grove_models::ModelError>(())
//! ```

mod config;
mod config_json;
mod embeddings;
mod family;
mod infer;
mod model;
mod names;
mod pos_embed;
mod presets;
mod rollout;

pub use config::{Naming, Pooling, VitConfig};
pub use embeddings::VitEmbeddings;
pub use family::Family;
pub use model::{Features, Vit, VitAttention, VitBlock, VitMlp};
pub use names::published_names;
pub use pos_embed::Interpolation;
pub use rollout::attention_rollout;
