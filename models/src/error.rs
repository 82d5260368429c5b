use burn::tensor::DType;
use grove_files::FileError;
use grove_layers::{lora::LoraError, rnn::PackError};
use grove_text::TextError;
use grove_weights::WeightsError;
use std::path::PathBuf;
use thiserror::Error;

/// Result with a [`ModelError`].
pub type Result<T> = std::result::Result<T, ModelError>;

/// Returns the error of an invalid configuration.
pub(crate) fn invalid<T>(reason: impl Into<String>) -> Result<T> {
    Err(ModelError::Config { reason: reason.into() })
}

/// Errors in a model's files or inputs.
#[derive(Error)]
#[non_exhaustive]
pub enum ModelError {
    /// Weights could not be found, read or loaded.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// A tokenizer or a chat template cannot be used.
    #[error(transparent)]
    Text(#[from] TextError),
    /// A file could not be read or written, or a JSON file has unexpected contents.
    #[error(transparent)]
    File(#[from] FileError),
    /// A configuration is invalid.
    #[error("invalid configuration: {reason}")]
    Config {
        /// The field and the reason.
        reason: String,
    },
    /// No preset has this name.
    #[error("unknown size '{name}'; choose one of {known}")]
    UnknownPreset {
        /// The requested name.
        name: String,
        /// The known names.
        known: String,
    },
    /// The number of classes in a configuration differs from that of the weights.
    #[error(
        "{} names {named} classes, but the weights have {classes}; correct id2label (label_names in timm's files), \
         or put a new head on the model", file.display()
    )]
    Classes {
        /// The configuration file.
        file: PathBuf,
        /// Number of classes in the configuration.
        named: usize,
        /// Number of classes in the weights.
        classes: usize,
    },
    /// The files have a model without the head of the task, or with the head of another task.
    #[error("{}: {reason}", file.display())]
    Head {
        /// Directory or weights file of the model.
        file: PathBuf,
        /// The missing or unexpected tensor, and the remedy.
        reason: String,
    },
    /// A model with LoRA adapters was to be saved in a format that does not support them.
    #[error(
        "the model has adapters that are not merged, such as `{path}`, which no other library reads: save the \
         result of `lora::merge`, or the adapters with `peft::save_adapters`"
    )]
    UnmergedAdapters {
        /// Path of an adapter's leaf.
        path: String,
    },
    /// One of several texts cannot be read.
    #[error("text {number}: {error}")]
    InText {
        /// Index of the text, from 1.
        number: usize,
        /// The cause.
        error: Box<ModelError>,
    },
    /// A prompt has no tokens.
    #[error("the prompt is empty; give at least one token")]
    EmptyPrompt,
    /// A token is outside the model's vocabulary.
    #[error("token id {id} is outside the vocabulary, which has {vocab_size} tokens (0 to {})", vocab_size - 1)]
    TokenOutside {
        /// The token id.
        id: u32,
        /// Vocabulary size.
        vocab_size: usize,
    },
    /// Images have a size that the model does not support or that exceeds a limit.
    #[error("images of {}x{} pixels {reason}", size[0], size[1])]
    ImageSize {
        /// Height and width.
        size: [usize; 2],
        /// The reason.
        reason: String,
    },
    /// A text that must contain words is empty.
    #[error("the text is empty")]
    EmptyText,
    /// A sequence has more tokens than the model has positions.
    #[error(
        "the text has {len} tokens, but the model reads at most {most} at once; shorten it, or split it into windows"
    )]
    TextTooLong {
        /// Number of tokens.
        len: usize,
        /// Number of the model's positions.
        most: usize,
    },
    /// A text for mask filling has no mask token.
    #[error("the text has no {mask}{cut}; write {mask} where a word is to be filled in")]
    NoMask {
        /// The mask token.
        mask: String,
        /// Addition to the message if only a part of the text was searched.
        cut: String,
    },
    /// An adapter does not fit the model.
    #[error(transparent)]
    Lora(#[from] LoraError),
    /// Texts could not be packed into a batch.
    #[error(transparent)]
    Pack(#[from] PackError),
    /// A prompt does not fit into the context.
    #[error("the prompt has {len} tokens, but the model's context is {context}; shorten the prompt")]
    PromptTooLong {
        /// Number of the prompt's tokens.
        len: usize,
        /// Number of the model's positions.
        context: usize,
    },
    /// A model's logits are not finite.
    #[error("the model's logits are not finite: {}", not_finite(tensor.as_deref(), *dtype))]
    NotFinite {
        /// Path of the first tensor that contains NaN or infinity; `None` if no such tensor is known.
        tensor: Option<String>,
        /// Dtype of the model's weights.
        dtype: DType,
    },
    /// A draft model has another tokenizer than the model.
    #[error(
        "the tokenizer of the draft model {draft} differs from that of {model}: a draft model needs the same tokens"
    )]
    Draft {
        /// Path of the model's tokenizer.
        model: PathBuf,
        /// Path of the draft's tokenizer.
        draft: PathBuf,
    },
    /// A text is too short to score: its first token has no predecessor.
    #[error("scoring needs at least two tokens, but the prompt has {len}")]
    TooShortToScore {
        /// Number of the prompt's tokens.
        len: usize,
    },
    /// A generation option is out of range.
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

/// Returns the likely cause of logits that are not finite, and the remedy.
fn not_finite(tensor: Option<&str>, dtype: DType) -> String {
    match (tensor, dtype) {
        (Some(tensor), _) => {
            format!("its tensor `{tensor}` has NaN or infinity; the weights are damaged, load others")
        }
        (None, DType::F16) => {
            "no weight is known to be damaged, and f16 overflows beyond 65504; use bf16 or f32".into()
        }
        (None, _) => "no floating-point weight is known to be damaged; try another dtype, such as f32".into(),
    }
}
