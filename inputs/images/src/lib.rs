//! Images for neural networks: decoding, preprocessing, augmentation, and image data sets.
//!
//! The output of a pretrained classifier depends on every input pixel. This crate computes the same values as
//! transformers, timm or torchvision: [`open`] decodes like Pillow, [`resize`] gives the same bits as Pillow, and a
//! [`Preprocessor`] follows a model's own `preprocessor_config.json`.
//!
//! ```
//! use grove_images::{Limits, Preprocessor, open};
//!
//! let image = open("tests/fixtures/decode/chelsea.png", &Limits::default())?;
//! let preprocessor = Preprocessor::preset("vit")?; // or Preprocessor::from_file("model/")?
//! let pixels = preprocessor.apply(&image)?; // [3, 224, 224], channels first
//! assert_eq!(pixels.len(), 3 * 224 * 224);
//! assert!(pixels.iter().all(|v| (-1.0..=1.0).contains(v)));
//! # Ok::<(), grove_images::ImageError>(())
//! ```
//!
//! For training, [`augment`] transforms images at random, [`ImageFolder`] finds them in folders, and [`datasets`] reads
//! MNIST and CIFAR files.
#![warn(missing_docs)]

pub mod augment;
pub mod datasets;

mod convention;
mod decode;
mod error;
mod files;
mod filter;
mod folder;
mod heatmap;
mod jpeg;
mod preprocess;
mod resize;
mod taps;

pub use image::RgbImage;

pub use convention::ResampleCompat;
pub use decode::{Limits, decode, open, read};
pub use error::{ImageError, Result};
pub use files::save_png;
pub use filter::Filter;
pub use folder::{EXTENSIONS, ImageFolder, files};
pub use heatmap::{heatmap, heatmap_scale};
pub use preprocess::{IMAGENET_MEAN, IMAGENET_STD, Preprocessor, Resize};
pub use resize::resize;
