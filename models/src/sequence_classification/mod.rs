//! Decoders that classify texts: transformers' `GPT2ForSequenceClassification`, `GPTNeoForSequenceClassification`,
//! `LlamaForSequenceClassification`, and those of Mistral, Qwen2 and Qwen3.
//!
//! The head is a linear layer over the hidden state of a text's last token. Only that state depends on the whole text.
//!
//! ```
//! use grove_models::{Gpt2Config, Pretrained, bert::TextIds, sequence_classification::Gpt2ForSequenceClassification};
//! use grove_tree::Key;
//! # type B = burn_flex::Flex;
//! let config = Gpt2Config { n_embd: 8, n_layer: 1, n_head: 2, vocab_size: 16, n_positions: 32, ..Default::default() };
//! let model = Gpt2ForSequenceClassification::<B>::init(&config, Key::new(0), &Default::default())?;
//! let texts = model.batch(&[TextIds::from(vec![1, 2, 3]), vec![4].into()])?; // padded
//! assert_eq!(model.forward(&texts, None).dims(), [2, 2]); // [b, labels]
//! assert_eq!(model.labels, ["LABEL_0", "LABEL_1"]);
//! # Ok::<(), grove_models::ModelError>(())
//! ```

mod base;
mod batch;
mod fields;
mod model;

pub use base::BaseDecoder;
pub use batch::DecoderTexts;
pub(crate) use fields::check_fields;
pub use model::DecoderForSequenceClassification;

use crate::{Gpt2, GptNeo, Llama};

/// GPT-2 that classifies texts.
pub type Gpt2ForSequenceClassification<B> = DecoderForSequenceClassification<B, Gpt2<B>>;
/// GPT-Neo that classifies texts.
pub type GptNeoForSequenceClassification<B> = DecoderForSequenceClassification<B, GptNeo<B>>;
/// LLaMA, Mistral, Qwen2 or Qwen3 that classifies texts.
pub type LlamaForSequenceClassification<B> = DecoderForSequenceClassification<B, Llama<B>>;
