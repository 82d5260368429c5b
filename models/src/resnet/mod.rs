//! ResNet (He et al., 2015), wide ResNet (Zagoruyko and Komodakis, 2016) and ResNeXt (Xie et al., 2017): convolutional
//! networks for images.
//!
//! ```
//! use burn::tensor::Tensor;
//! use grove_models::{Pretrained, resnet::{Naming, ResNet, ResNetConfig, Stem}};
//! use grove_tree::Key;
//! # type B = burn_flex::Flex;
//! # let device = Default::default();
//! let sizes = ResNetConfig { embedding_size: 8, hidden_sizes: vec![8, 16], depths: vec![1, 1], ..ResNetConfig::default() };
//! let config = ResNetConfig { stem: Stem::Small, naming: Naming::Torchvision, ..sizes }.with_labels(["cat", "dog"]);
//! let model = ResNet::<B>::init(&config, Key::new(0), &device)?;
//! let pixels = Tensor::ones([4, 3, 32, 32], &device);
//! assert_eq!(model.forward(pixels.clone()).dims(), [4, 2]);             // [b, classes]
//! let features = model.features(pixels.clone());
//! assert_eq!(features.stages[1].dims(), [4, 16, 16, 16]);                // [b, c, h, w]
//! let (logits, model) = model.train(pixels);                             // by the batch's statistics; the successor
//! # Ok::<(), grove_models::ModelError>(())
//! ```

mod config;
mod infer;
mod model;
mod names;
mod presets;
mod pretrained;

pub use config::{LayerType, Naming, ResNetConfig, Stem};
pub use model::{Features, ResNet, ResNetBlock};
pub use names::published_names;
