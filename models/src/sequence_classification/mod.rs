//! Decoders that classify texts: transformers' `GPT2ForSequenceClassification`, `GPTNeoForSequenceClassification`,
//! `LlamaForSequenceClassification`, and those of Mistral, Qwen2 and Qwen3.
//!
//! The head is a linear layer over the hidden state of a text's last token. Only that state depends on the whole text.

mod base;
mod batch;
mod fields;
mod model;

pub use base::{BaseDecoder, DecoderFacts};
pub use batch::DecoderTexts;
pub(crate) use fields::check_fields;
pub use model::DecoderForSequenceClassification;

use crate::{Gpt2, GptNeo, Llama};

/// GPT-2 that classifies texts.
///
/// ```
/// use grove_models::{Gpt2Config, Pretrained, sequence_classification::Gpt2ForSequenceClassification};
/// use grove_tree::Key;
/// # type B = burn_flex::Flex;
/// # let config = Gpt2Config { n_embd: 8, n_layer: 1, n_head: 2, vocab_size: 16, n_positions: 32, ..Default::default() };
/// let model = Gpt2ForSequenceClassification::<B>::init(&config, Key::new(0), &Default::default())?;
/// let texts = model.batch(&[vec![1, 2, 3].into(), vec![4].into()])?; // padded
/// assert_eq!(model.forward(&texts, None).dims(), [2, 2]); // logits, [b, labels]
/// assert_eq!(model.labels, ["LABEL_0", "LABEL_1"]);
/// # Ok::<(), grove_models::ModelError>(())
/// ```
pub type Gpt2ForSequenceClassification<B> = DecoderForSequenceClassification<B, Gpt2<B>>;
/// GPT-Neo that classifies texts.
///
/// ```
/// use grove_models::{GptNeoConfig, Pretrained, sequence_classification::GptNeoForSequenceClassification};
/// use grove_tree::Key;
/// # type B = burn_flex::Flex;
/// # let sizes = GptNeoConfig { hidden_size: 8, num_layers: 24, num_heads: 2, ..GptNeoConfig::default() };
/// # let config = GptNeoConfig { vocab_size: 16, max_position_embeddings: 8, ..sizes };
/// let model = GptNeoForSequenceClassification::<B>::init(&config, Key::new(0), &Default::default())?;
/// let texts = model.batch(&[vec![1, 2, 3].into(), vec![4].into()])?; // padded
/// assert_eq!(model.forward(&texts, None).dims(), [2, 2]); // logits, [b, labels]
/// # Ok::<(), grove_models::ModelError>(())
/// ```
pub type GptNeoForSequenceClassification<B> = DecoderForSequenceClassification<B, GptNeo<B>>;
/// LLaMA, Mistral, Qwen2 or Qwen3 that classifies texts.
///
/// ```
/// use grove_models::{LlamaConfig, Pretrained, sequence_classification::LlamaForSequenceClassification};
/// use grove_tree::Key;
/// # type B = burn_flex::Flex;
/// # let sizes = LlamaConfig { hidden_size: 8, num_hidden_layers: 1, num_attention_heads: 2, ..LlamaConfig::default() };
/// # let sizes = LlamaConfig { intermediate_size: 16, num_key_value_heads: Some(1), ..sizes };
/// # let config = LlamaConfig { vocab_size: 16, max_position_embeddings: 8, ..sizes };
/// let model = LlamaForSequenceClassification::<B>::init(&config, Key::new(0), &Default::default())?;
/// let texts = model.batch(&[vec![1, 2, 3].into(), vec![4].into()])?; // padded
/// assert_eq!(model.forward(&texts, None).dims(), [2, 2]); // logits, [b, labels]
/// # Ok::<(), grove_models::ModelError>(())
/// ```
pub type LlamaForSequenceClassification<B> = DecoderForSequenceClassification<B, Llama<B>>;
