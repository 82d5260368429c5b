//! Tasks of BERT: filled masks, embeddings, similarity, classes, entities, answers.

mod commands;
mod tasks;
mod texts;

use grove::{
    files::directory_at,
    models::{ModelKind, bert::transformer_directory},
};

use crate::{kind::check_kind, prelude::*};
pub use commands::{Answer, Embed, Fill, Search, Tag};
pub(crate) use texts::texts;

/// Reads texts with BERT, RoBERTa or DistilBERT: fills in words, embeds, compares, classifies, labels words, answers.
///
/// Texts come from the command line, from --file, or from standard input, one a line.
#[derive(Parser, Debug)]
#[command(name = "bert", version)]
pub struct Options {
    /// Task to perform
    #[arg(long, value_enum, default_value_t = TaskName::FillMask)]
    pub task: TaskName,

    /// Texts, model and device.
    #[command(flatten)]
    pub input: TextArgs,

    /// similarity: text to compare the others with [default: the first text]
    #[arg(long, value_name = "TEXT")]
    pub query: Option<String>,

    /// answer: question to answer from the texts
    #[arg(long, value_name = "TEXT", required_if_eq("task", "answer"))]
    pub question: Option<String>,

    /// embed, similarity: name of the prompt that is put before each text, such as query [default: the model's default
    /// prompt, if it has one]
    #[arg(long, value_name = "NAME")]
    pub prompt_name: Option<String>,

    /// answer: allow an empty answer if the text does not answer the question, for models of SQuAD 2
    #[arg(long)]
    pub handle_impossible_answer: bool,

    /// Number of results to show [default: 5 of fill-mask, 1 of answer, all of the others]
    #[arg(long, value_name = "N")]
    pub top_k: Option<usize>,

    /// tokens, answer: tokens that windows of a long text share [default: 128]
    #[arg(long, value_name = "N")]
    pub stride: Option<usize>,
}

/// Texts, model and device of a task.
#[derive(Args, Debug)]
pub struct TextArgs {
    /// Texts; of similarity the first is compared with the others, unless --query is given
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

    /// Texts that are read at once
    #[arg(long, value_name = "N", default_value_t = 32)]
    pub batch_size: usize,

    /// Largest number of tokens of a text; answer and tokens read longer texts in windows [default: 384 of answer, else
    /// the model's]
    #[arg(long, value_name = "N")]
    pub max_length: Option<usize>,

    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Name of a task of BERT.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskName {
    /// The most probable words in place of [MASK] (RoBERTa: <mask>)
    FillMask,
    /// A vector for each text
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

/// A task of BERT with its settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Task {
    /// Fills in masked words.
    FillMask {
        /// Number of words for each mask.
        top_k: Option<usize>,
    },
    /// Embeds texts.
    Embed {
        /// Name of the prompt before each text.
        prompt_name: Option<String>,
        /// File of the vectors, in numpy's format.
        output: Option<PathBuf>,
    },
    /// Ranks texts by their similarity to one.
    Similarity {
        /// The one text; the first of the texts if it is missing.
        query: Option<String>,
        /// Number of texts.
        top_k: Option<usize>,
        /// Name of the prompt before each text.
        prompt_name: Option<String>,
    },
    /// Classifies texts.
    Classify {
        /// Number of labels for each text.
        top_k: Option<usize>,
    },
    /// Labels words.
    Tokens {
        /// Tokens that windows share.
        stride: Option<usize>,
    },
    /// Answers a question.
    Answer {
        /// The question.
        question: String,
        /// Number of answers.
        top_k: Option<usize>,
        /// Tokens that windows share.
        stride: Option<usize>,
        /// If true, the empty answer is among the answers.
        handle_impossible_answer: bool,
    },
}

impl Options {
    /// The task with its settings. Refuses options of other tasks.
    fn task(&self) -> Result<Task, Exit> {
        use TaskName::{Answer, Classify, Embed, FillMask, Similarity, Tokens};
        let Self { query, question, prompt_name, top_k, stride, .. } = self;
        let (task, impossible) = (self.task, self.handle_impossible_answer);
        for (option, given, tasks) in [
            ("query", query.is_some(), &[Similarity][..]),
            ("question", question.is_some(), &[Answer]),
            ("prompt-name", prompt_name.is_some(), &[Embed, Similarity]),
            ("handle-impossible-answer", impossible, &[Answer]),
            ("top-k", top_k.is_some(), &[FillMask, Similarity, Classify, Answer]),
            ("stride", stride.is_some(), &[Tokens, Answer]),
        ] {
            if given && !tasks.contains(&task) {
                let tasks: Vec<String> = tasks.iter().map(|task| task.name()).collect();
                return Err(usage(format!(
                    "--{option} has no effect with --task {}; it belongs to {}",
                    task.name(),
                    tasks.join(", ")
                )));
            }
        }
        Ok(match task {
            FillMask => Task::FillMask { top_k: *top_k },
            Embed => Task::Embed { prompt_name: prompt_name.clone(), output: None },
            Similarity => Task::Similarity { query: query.clone(), top_k: *top_k, prompt_name: prompt_name.clone() },
            Classify => Task::Classify { top_k: *top_k },
            Tokens => Task::Tokens { stride: *stride },
            Answer => Task::Answer {
                question: question.clone().unwrap_or_default(),
                top_k: *top_k,
                stride: *stride,
                handle_impossible_answer: impossible,
            },
        })
    }
}

impl TaskName {
    /// Name on the command line.
    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

impl Command for Options {
    fn check(&self) -> Result<DeviceSpec, Exit> {
        let task = self.task()?;
        if self.input.model.is_none() && self.task != TaskName::FillMask {
            let name = self.task.name();
            return Err(usage(format!(
                "--task {name} needs a --model that was trained for it; the one that ships only does fill-mask"
            )));
        }
        self.input.check(&task)
    }

    /// Does the task.
    fn run<B: Backend>(&self, device: &B::Device) -> Result<Ended, Exit> {
        self.input.run::<B>(&self.task()?, device)
    }
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
        check_kind(&path, &[ModelKind::Bert])?;
        let directory = directory_at(&path);
        let encoder = match directory.join("config.json").is_file() {
            true => path.clone(),
            false => transformer_directory(directory)?,
        };
        let (tokenizer, config) = (Tokenizer::from_path(directory_at(&encoder))?, BertConfig::beside(&encoder)?);
        Ok(Self { path, config, tokenizer })
    }
}
