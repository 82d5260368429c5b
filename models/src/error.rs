use burn::tensor::DType;
use grove_layers::{lora::LoraError, rnn::PackError};
use grove_weights::WeightsError;
use std::path::PathBuf;
use thiserror::Error;

use crate::format_bytes::format_bytes;

/// The result of working with a model.
pub type Result<T> = std::result::Result<T, ModelError>;

/// Errors in a model's files or in its inputs.
#[derive(Error)]
#[non_exhaustive]
pub enum ModelError {
    /// Weights could not be found, read or placed.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// A tokenizer's file, or a chat template, is broken.
    #[error(transparent)]
    Text(#[from] grove_text::TextError),
    /// A file could not be read or written.
    #[error("{}: {source}", file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// The underlying I/O error.
        source: std::io::Error,
    },
    /// A JSON file has unexpected contents.
    #[error("{}: {reason}", file.display())]
    Json {
        /// The file.
        file: PathBuf,
        /// The error, with line and column if they are known.
        reason: String,
    },
    /// A configuration describes no possible model.
    #[error("impossible configuration: {reason}")]
    Config {
        /// The field and the reason.
        reason: String,
    },
    /// No preset has this name.
    #[error("unknown size '{name}'; known are {known}")]
    UnknownPreset {
        /// The requested name.
        name: String,
        /// The known names.
        known: String,
    },
    /// The number of classes in a configuration differs from that of the weights.
    #[error(
        "{} names {named} classes, and the weights tell {classes} apart; correct id2label (label_names in timm's files), \
         or put a new head on the model", file.display()
    )]
    Classes {
        /// The configuration.
        file: PathBuf,
        /// Classes that it names.
        named: usize,
        /// Classes of the weights.
        classes: usize,
    },
    /// A model with LoRA adapters is saved in a format that does not support them.
    #[error(
        "the model has adapters that are not merged, such as `{path}`, and no other library would read them: save what \
         `lora::merge` gives, or the adapters themselves with `peft::save_adapters`"
    )]
    UnmergedAdapters {
        /// A leaf of an adapter.
        path: String,
    },
    /// Adapters of peft that a model cannot take.
    #[error("{}: {reason}", file.display())]
    Adapter {
        /// The file, or the directory.
        file: PathBuf,
        /// The reason, and the remedy.
        reason: String,
    },
    /// One of several texts cannot be read.
    #[error("text {number}: {error}")]
    InText {
        /// Its index, from 1.
        number: usize,
        /// The cause.
        error: Box<ModelError>,
    },
    /// A tokenizer is broken.
    #[error("{}: {reason}", path.display())]
    Tokenizer {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// There is no tokenizer.
    #[error("{}: {reason}", path.display())]
    NoTokenizer {
        /// The directory, or the GGUF file.
        path: PathBuf,
        /// The files that were looked for.
        reason: String,
    },
    /// A prompt without tokens.
    #[error("the prompt is empty; give at least one token")]
    EmptyPrompt,
    /// A token that the model does not have.
    #[error("token id {id} is outside the vocabulary, which has {vocab_size} tokens (0 to {})", vocab_size - 1)]
    TokenOutside {
        /// The token.
        id: u32,
        /// Vocabulary size.
        vocab_size: usize,
    },
    /// Images of a size that a model cannot read, or that is beyond a limit.
    #[error("images of {}x{} pixels {reason}", size[0], size[1])]
    ImageSize {
        /// Height and width.
        size: [usize; 2],
        /// The reason.
        reason: String,
    },
    /// A text without words where one is needed.
    #[error("the text is empty")]
    EmptyText,
    /// A sequence with more tokens than the model has positions.
    #[error("the text has {len} tokens, and the model reads at most {most} at once; cut it, or read it in windows")]
    TextTooLong {
        /// Tokens of the text.
        len: usize,
        /// Positions of the model.
        most: usize,
    },
    /// A text without tokens.
    #[error("the tokenizer makes no tokens of this text")]
    NoTokens,
    /// A tokenizer that has more tokens than the model.
    #[error("the tokenizer gives token {id}, and the model has {vocab_size}: it belongs to another model")]
    OtherTokenizer {
        /// A token that the model does not have.
        id: u32,
        /// Vocabulary size of the model.
        vocab_size: usize,
    },
    /// Weights that do not fit into memory.
    #[error(
        "the weights need {} of memory, and this machine has {} to give: a type of 16 bits needs half of f32",
        format_bytes(*needed), format_bytes(*available)
    )]
    NotEnoughMemory {
        /// Bytes of the weights.
        needed: usize,
        /// Bytes that are available.
        available: usize,
    },
    /// Data for masked language modelling without a token that can be masked.
    #[error("the data has no text of which a token can be masked")]
    NothingToMask,
    /// A text to fill in without a mask token.
    #[error("the text has no {mask}{cut}; write {mask} where a word is to be filled in")]
    NoMask {
        /// The mask token.
        mask: String,
        /// The part of the text that was searched, if not all of it.
        cut: String,
    },
    /// Adapters that a model cannot have.
    #[error(transparent)]
    Lora(#[from] LoraError),
    /// An error of making a batch of texts.
    #[error(transparent)]
    Pack(#[from] PackError),
    /// A prompt that leaves no room for an answer, or does not fit at all.
    #[error("the prompt has {len} tokens, and the model's context holds {context}; shorten the prompt")]
    PromptTooLong {
        /// Tokens of the prompt.
        len: usize,
        /// Positions of the model.
        context: usize,
    },
    /// A model whose logits are not finite.
    #[error("the model's logits are not finite: {}", not_finite(tensor.as_deref(), *dtype))]
    NotFinite {
        /// The first of its tensors, by its path, that holds NaN or an infinity; `None` where none is known to.
        tensor: Option<String>,
        /// The dtype of the model's weights.
        dtype: DType,
    },
    /// A draft model with another tokenizer than the model.
    #[error("the draft's tokenizer, of {draft}, is not the model's, of {model}: a draft needs the same tokens")]
    Draft {
        /// Where the model's tokenizer is.
        model: PathBuf,
        /// Where the draft's is.
        draft: PathBuf,
    },
    /// Too short a text to score: the first token has nothing before it.
    #[error("scoring needs at least two tokens, and the prompt has {len}")]
    TooShortToScore {
        /// Tokens of the prompt.
        len: usize,
    },
    /// A generation option out of its range.
    #[error("{option} is {value}; it must be {range}")]
    Option {
        /// The option.
        option: &'static str,
        /// The given value.
        value: String,
        /// The allowed range.
        range: &'static str,
    },
}

// `fn main() -> Result<(), Box<dyn Error>>` prints `Debug`.
impl std::fmt::Debug for ModelError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

/// The cause of logits that are not finite, and what to do.
fn not_finite(tensor: Option<&str>, dtype: DType) -> String {
    match (tensor, dtype) {
        (Some(tensor), _) => {
            format!("its tensor `{tensor}` holds NaN or infinity; the weights are damaged, load others")
        }
        (None, DType::F16) => {
            "no weight is known to be damaged, and f16 overflows beyond 65504; use bf16 or f32".into()
        }
        (None, _) => "no floating-point weight is known to be damaged; try another type of numbers, such as f32".into(),
    }
}
