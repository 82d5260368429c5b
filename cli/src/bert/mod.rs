//! Tasks of BERT: filled masks, embeddings, similarity, classes, entities, answers.

mod tasks;
mod texts;

use grove::{files::directory_at, models::bert::transformer_directory};

use crate::prelude::*;

/// Reads texts with BERT, RoBERTa or DistilBERT: fills in words, embeds, compares, classifies, labels words, answers.
///
/// Texts come from the command line, from --file, or from standard input, one a line.
#[derive(Parser, Debug)]
#[command(name = "bert", version)]
pub struct Options {
    /// Task to perform
    #[arg(long, value_enum, default_value_t = Task::FillMask)]
    pub task: Task,

    /// Texts; of similarity the first is what the others are compared with, unless --query is given
    #[arg(value_name = "TEXT")]
    pub texts: Vec<String>,

    /// File with a text on each line
    #[arg(long, value_name = "FILE", conflicts_with = "texts")]
    pub file: Option<PathBuf>,

    /// Directory, weights file, or hub id, such as sentence-transformers/all-MiniLM-L6-v2 [default: a small model that
    /// ships with grove, for fill-mask]
    #[arg(long)]
    pub model: Option<String>,

    /// Adapter of peft (LoRA) that is added to the model: directory or hub id
    #[arg(long, value_name = "DIR|ID")]
    pub adapter: Option<String>,

    /// Device and type.
    #[command(flatten)]
    pub device: DeviceArgs,

    /// Text to compare the others with, by similarity of meaning
    #[arg(long, value_name = "TEXT")]
    pub query: Option<String>,

    /// Question to answer from the texts
    #[arg(long, value_name = "TEXT", required_if_eq("task", "answer"))]
    pub question: Option<String>,

    /// Name of the prompt that is put before each text of embed and similarity, such as query [default: the model's default
    /// prompt, if it has one]
    #[arg(long, value_name = "NAME")]
    pub prompt_name: Option<String>,

    /// Let answer give an empty answer where the text does not answer the question, for models of SQuAD 2
    #[arg(long)]
    pub handle_impossible_answer: bool,

    /// Number of results to show [default: 5 of fill-mask, 1 of answer, all of the others]
    #[arg(long, value_name = "N")]
    pub top_k: Option<usize>,

    /// Texts that are read at once
    #[arg(long, value_name = "N", default_value_t = 32)]
    pub batch_size: usize,

    /// Most tokens of a text that are read; answer and tokens read the rest too, in windows [default: 384 of answer, else
    /// the model's]
    #[arg(long, value_name = "N")]
    pub max_length: Option<usize>,

    /// Tokens that windows share
    #[arg(long, value_name = "N", default_value_t = 128)]
    pub stride: usize,

    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// A task of BERT.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// The likeliest words where the text says [MASK] (RoBERTa: <mask>)
    FillMask,
    /// A vector of each text
    Embed,
    /// Similarity of meaning between texts
    Similarity,
    /// Labels of each text, or of each pair: two texts with a tab between
    Classify,
    /// Labels of words, such as names of people and places
    Tokens,
    /// The part of a text that answers a question
    Answer,
}

/// Files, configuration and tokenizer of a BERT.
pub struct Encoder {
    /// Directory or weights file.
    pub path: PathBuf,
    /// Sizes.
    pub config: BertConfig,
    /// Its tokenizer.
    pub tokenizer: Tokenizer,
}

impl Encoder {
    /// Opens the model that `--model` names, downloaded if needed, or the one that ships.
    pub fn open(model: Option<&str>) -> Result<Self, Exit> {
        let path = resolve(model, "bert-austen", &FilePatterns::model())?;
        let directory = directory_at(&path);
        let encoder = match directory.join("config.json").is_file() {
            true => path.clone(),
            false => transformer_directory(directory)?,
        };
        let (tokenizer, config) = (Tokenizer::from_path(directory_at(&encoder))?, BertConfig::beside(&encoder)?);
        Ok(Self { path, config, tokenizer })
    }
}
