//! Models. Each family is a folder with its configuration (the fields of the published `config.json`), its structs and
//! its published names. Text generation and tokenizers are shared by all families.
#![warn(missing_docs)]

pub mod bert;
mod checks;
mod convert;
mod error;
pub mod families;
mod finite;
mod format_bytes;
pub mod generation;
pub mod gpt2;
pub mod gpt_neo;
mod keys;
mod labels;
pub mod llama;
pub mod memory;
mod model_files;
pub mod peft;
mod prediction;
mod pretrained;
mod problem_type;
mod rank;
pub mod resnet;
pub mod rnn;
mod shifted;
mod text_classifier;
mod tied;
mod tokenizer;
pub mod vision;
pub mod vit;

pub use bert::{Bert, BertConfig};
pub use convert::{ConvertOptions, Converted, convert, convert_files};
pub use error::{ModelError, Result};
pub use families::{AutoModel, DecoderFamily, ImageFamily, ModelKind, family};
pub use finite::{check_finite, first_not_finite};
pub use generation::{CausalLm, GenerateOptions, Generated, generate};
pub use gpt_neo::{GptNeo, GptNeoConfig};
pub use gpt2::{Gpt2, Gpt2Config};
pub use llama::{Llama, LlamaConfig};
pub use model_files::ModelFiles;
pub use pretrained::{Pretrained, PretrainedConfig, read_json};
pub use resnet::{ResNet, ResNetConfig};
pub use rnn::{RnnClassifier, RnnClassifierConfig, RnnKind, RnnLm, RnnLmConfig};
pub use text_classifier::TextClassifier;
pub use tokenizer::{EncodedText, Tokenizer, Truncation, copy_generation_config};
pub use vit::{Vit, VitConfig};

/// Chat templates and multi-turn conversations.
pub mod chat {
    pub use crate::{
        generation::{ChatSession, Reply},
        tokenizer::chat_template,
    };
    pub use grove_text::chat::{ChatTemplate, Message};
}
