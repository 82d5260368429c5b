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
//! let seen = attention_rollout(&model.attentions(pixels));                 // what each token saw of each
//! assert_eq!(seen.dims(), [4, 17, 17]);
//! # Ok::<(), grove_models::ModelError>(())
//! ```

mod block;
mod config;
mod dialect;
mod infer;
mod model;
mod names;
mod positions;
mod presets;
mod pretrained;
mod rollout;

pub use block::{VitAttention, VitBlock, VitMlp};
pub use config::{Family, Naming, Pooling, VitConfig};
pub use model::{Features, Vit, VitEmbeddings};
pub use names::published_names;
pub use rollout::attention_rollout;
