//! Models: the definition of each family, one registry of the families, and the files of a published model. Each family is
//! a folder with its configuration (the fields of the published `config.json`), its structs and its published names.
//!
//! # Map of the crate
//!
//! | to | see |
//! |---|---|
//! | load and save a model | [`Pretrained`], [`ModelFiles`], [`peft`] |
//! | load a model of any family | [`AutoModel`], [`ModelKind`], [`families`] |
//! | use or define a language model | [`CausalLm`], [`DecodeCache`], [`TraceableLm`], [`EndTokens`] |
//! | classify images or text | [`vision`], [`TextClassifier`], [`sequence_classification`] |
//! | read a model of a family | [`bert`], [`gpt2`], [`gpt_neo`], [`llama`], [`resnet`], [`rnn`], [`vit`] |
//!
//! Tokenizers and chat templates are in the crate `grove-text`, text generation is in `grove-tasks`.
#![warn(missing_docs)]

pub mod bert;
mod causal_lm;
mod checks;
mod config_keys;
mod end_tokens;
mod error;
pub mod families;
mod finite;
mod generation_keys;
mod gguf_keys;
pub mod gpt2;
pub mod gpt_neo;
mod head;
#[cfg(test)]
mod keys;
mod labels;
pub mod llama;
mod model_files;
mod names;
pub mod peft;
mod prediction;
mod pretrained;
mod problem_type;
mod rank;
pub mod resnet;
pub mod rnn;
pub mod sequence_classification;
mod text_classifier;
mod texts;
mod tied;
pub mod vision;
pub mod vit;

pub use bert::{Bert, BertConfig};
pub use causal_lm::{CausalLm, DecodeCache, TraceableLm};
pub use end_tokens::EndTokens;
pub use error::{ModelError, Result};
pub use families::{AutoModel, DecoderFamily, ImageFamily, ModelKind, family};
pub use finite::{check_finite, first_not_finite, not_finite};
pub use generation_keys::{GENERATION_KEYS, SAMPLING_KEYS};
pub use gpt_neo::{GptNeo, GptNeoConfig};
pub use gpt2::{Gpt2, Gpt2Config};
pub use llama::{Llama, LlamaConfig};
pub use model_files::{ModelFiles, copy_generation_config};
pub use pretrained::{Pretrained, PretrainedConfig};
pub use rank::largest;
pub use resnet::{ResNet, ResNetConfig};
pub use rnn::{RnnClassifier, RnnClassifierConfig, RnnKind, RnnLm, RnnLmConfig};
pub use text_classifier::TextClassifier;
pub use vit::{Vit, VitConfig};

/// Directory of the small models and data sets that ship with grove: `assets` in the source of this crate.
pub const ASSETS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/assets");
