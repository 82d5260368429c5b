//! BERT (Devlin et al., 2019), RoBERTa (Liu et al., 2019) and DistilBERT (Sanh et al., 2019): text encoders and their
//! task heads.
//!
//! ```
//! use grove_models::{Pretrained, bert::{BertConfig, BertForSequenceClassification}};
//! use grove_tree::Key;
//! # type B = burn_flex::Flex;
//! # let device = Default::default();
//! let sizes = BertConfig { vocab_size: 50, hidden_size: 8, num_hidden_layers: 2, ..BertConfig::default() };
//! let config = BertConfig { num_attention_heads: 2, intermediate_size: 16, ..sizes };
//! let model = BertForSequenceClassification::<B>::init(&config, Key::new(0), &device)?;
//! let texts = model.bert.batch(&[vec![1, 2, 3].into(), vec![4].into()])?;   // padded, and masked
//! assert_eq!(model.forward(&texts, None).dims(), [2, 2]);                    // [b, labels]
//! let states = model.bert.forward(&texts, None);
//! assert_eq!(states.dims(), [2, 3, 8]);                                      // [b, t, hidden_size]
//! # Ok::<(), grove_models::ModelError>(())
//! ```

mod config;
mod family;
mod heads;
mod input;
mod model;
mod names;
mod pretrained;
mod sentence;

pub use crate::problem_type::ProblemType;
pub use config::BertConfig;
pub use family::Family;
pub use heads::{
    AnswerHead, BertForMaskedLm, BertForMultipleChoice, BertForNextSentence, BertForQuestionAnswering,
    BertForSequenceClassification, BertForTokenClassification, BertHead, ChoiceHead, MaskedLmHead, NextSentenceHead,
    SequenceHead, TokenHead, WithHead,
};
pub use input::{TextBatch, bucketed_len};
pub use model::{Bert, BertAttention, BertEmbeddings, BertEncoder, BertLayer, BertPooler};
pub use names::published_names;
pub use sentence::{Dense, Pooling, SentenceEncoder, SentenceModule, Similarity};

/// Targets of [`lora::add`](grove_layers::lora::add) as in the paper and in peft's defaults for BERT: the query and
/// value projections.
pub const LORA_TARGETS: [&str; 2] = ["encoder.layer.*.attention.query", "encoder.layer.*.attention.value"];
