//! Recurrent networks over tokens: a language model and a text classifier, each with LSTM, GRU or Elman cells under
//! PyTorch's names.
//!
//! ```
//! use burn::tensor::{Int, Tensor};
//! use grove_models::{CausalLm, Pretrained, RnnClassifier, RnnClassifierConfig, RnnKind, RnnLm, RnnLmConfig};
//! use grove_tree::Key;
//! # type B = burn_flex::Flex;
//! # let device = Default::default();
//! let config = RnnLmConfig { vocab_size: 50, embedding_size: 8, hidden_size: 12, ..RnnLmConfig::default() };
//! let model = RnnLm::<B>::init(&config, Key::new(0), &device)?;
//! let ids = Tensor::<B, 2, Int>::from_ints([[1, 2, 3]], &device);
//! assert_eq!(model.forward(ids, None).dims(), [1, 3, 50]);        // [b, t, vocab_size]
//!
//! let sizes = RnnClassifierConfig { vocab_size: 50, embedding_size: 8, hidden_size: 12, ..Default::default() };
//! let config = RnnClassifierConfig { cell: RnnKind::Gru, labels: vec!["bad".into(), "good".into()], ..sizes };
//! let model = RnnClassifier::<B>::init(&config, Key::new(0), &device)?;
//! let texts = model.pack(&[vec![1, 2, 3], vec![4]])?;             // of different lengths, in any order
//! assert_eq!(model.forward(&texts, None).dims(), [2, 2]);         // [b, classes]
//! println!("{}", model.predict(&texts)[1].label);
//! # Ok::<(), grove_models::ModelError>(())
//! ```

mod cache;
mod classifier;
mod config;
mod layers;
mod lm;
mod names;

pub use crate::prediction::Prediction;
pub use cache::RnnCache;
pub use classifier::RnnClassifier;
pub use config::{RnnClassifierConfig, RnnLmConfig};
pub use layers::{RnnKind, RnnLayers, RnnState};
pub use lm::{OutputLayer, RnnLm};
pub use names::{classifier_names, published_names, torch_rnn_names};
