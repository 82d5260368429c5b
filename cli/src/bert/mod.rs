//! Tasks of BERT: mask filling, embeddings, similarity, classification, entities, answers.

mod commands;
mod tasks;
mod texts;

use grove::{files::directory_at, models::ModelKind, tasks::text::AnswerOptions, weights::transformer_directory};

use crate::{inference::InferenceArgs, kind::check_kind, prelude::*};
pub use commands::{Answer, Embed, Fill, Search, Tag};
pub(crate) use texts::{Texts, lines_of_file, located, texts};

/// Runs a task of BERT, RoBERTa or DistilBERT on texts: fill in masked words, embed, compare, classify, label words, answer.
///
/// Texts come from the command line, from --file, or from standard input, one per line.
#[derive(Parser, Debug)]
#[command(
    name = "bert",
    version,
    mut_arg("max_length", |arg| arg.help(
        "Maximum length of a text in tokens; answer and tokens split longer texts into windows, other tasks truncate them \
         [default: 384 for answer, else the model's]"
    )),
)]
pub struct Options {
    /// Task to perform
    #[arg(long, value_enum, default_value_t = TaskName::FillMask)]
    pub task: TaskName,

    /// Texts, model and device.
    #[command(flatten)]
    pub input: TextArgs,

    /// similarity: text to compare the texts with [default: the first text]
    #[arg(long, value_name = "TEXT")]
    pub query: Option<String>,

    /// answer: question to answer from the texts
    #[arg(long, value_name = "TEXT", required_if_eq("task", "answer"))]
    pub question: Option<String>,

    /// embed, similarity: name of the prompt to put before each text, such as query [default: the model's default prompt, if
    /// any]
    #[arg(long, value_name = "NAME")]
    pub prompt_name: Option<String>,

    /// answer: allow an empty answer if the text has none, for models trained on SQuAD 2
    #[arg(long)]
    pub handle_impossible_answer: bool,

    /// Number of results to show [default: 5 for fill-mask, 1 for answer, all for other tasks]
    #[arg(long, value_name = "N")]
    pub top_k: Option<usize>,

    /// tokens, answer: overlap of the windows of a long text, in tokens [default: 128]
    #[arg(long, value_name = "N")]
    pub stride: Option<usize>,
}

/// Default overlap of the windows of a long text, in tokens.
const STRIDE: usize = 128;

/// Texts, model and device of a task.
#[derive(Args, Debug)]
pub struct TextArgs {
    /// Texts; similarity compares the first text with the others, unless --query is given
    #[arg(value_name = "TEXT")]
    pub texts: Vec<String>,

    /// File with one text per line
    #[arg(long, value_name = "FILE", conflicts_with = "texts")]
    pub file: Option<PathBuf>,

    /// Directory, weights file, or hub id, such as sentence-transformers/all-MiniLM-L6-v2 [default for fill-mask: a small model
    /// that ships with grove]
    #[arg(long)]
    pub model: Option<String>,

    /// Texts per batch
    #[arg(long, value_name = "N", default_value_t = 32)]
    pub batch_size: usize,

    /// Maximum length of a text in tokens; longer texts are truncated [default: the model's]
    #[arg(long, value_name = "N")]
    pub max_length: Option<usize>,

    /// Adapter, device and output.
    #[command(flatten)]
    pub inference: InferenceArgs,
}

/// Name of a task of BERT.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskName {
    /// The most probable words for each [MASK] (RoBERTa: <mask>)
    FillMask,
    /// One vector per text
    Embed,
    /// Semantic similarity between texts
    Similarity,
    /// Labels of each text, or of each pair of texts separated by a tab
    Classify,
    /// Labels of words, such as names of people and places
    Tokens,
    /// The span of a text that answers a question
    Answer,
}

/// A task of BERT with its settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Task {
    /// Fills in masked words.
    FillMask {
        /// Number of words to show for each mask.
        top_k: usize,
    },
    /// Embeds texts.
    Embed {
        /// Name of the prompt to put before each text.
        prompt_name: Option<String>,
        /// File to write the vectors to, in numpy's format.
        output: Option<PathBuf>,
    },
    /// Ranks texts by similarity to a query.
    Similarity {
        /// Query; `None` for the first text.
        query: Option<String>,
        /// Number of texts to show.
        top_k: Option<usize>,
        /// Name of the prompt to put before each text.
        prompt_name: Option<String>,
    },
    /// Classifies texts.
    Classify {
        /// Number of labels to show for each text.
        top_k: Option<usize>,
    },
    /// Labels words.
    Tokens {
        /// Overlap of the windows of a long text, in tokens.
        stride: usize,
    },
    /// Answers a question.
    Answer {
        /// The question.
        question: String,
        /// Settings of the answers.
        options: AnswerOptions,
    },
}

impl Options {
    /// Returns the task with its settings. Rejects options of other tasks.
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
                    "--{option} has no effect with --task {}; it is an option of {}",
                    task.name(),
                    tasks.join(", ")
                )));
            }
        }
        Ok(match task {
            FillMask => Task::FillMask { top_k: top_k.unwrap_or(5) },
            Embed => Task::Embed { prompt_name: prompt_name.clone(), output: None },
            Similarity => Task::Similarity { query: query.clone(), top_k: *top_k, prompt_name: prompt_name.clone() },
            Classify => Task::Classify { top_k: *top_k },
            Tokens => Task::Tokens { stride: stride.unwrap_or(STRIDE) },
            Answer => Task::Answer {
                question: question.clone().unwrap_or_default(),
                options: AnswerOptions {
                    top_k: top_k.unwrap_or(1),
                    stride: stride.unwrap_or(STRIDE),
                    handle_impossible_answer: impossible,
                    ..AnswerOptions::default()
                },
            },
        })
    }
}

impl TaskName {
    /// Returns the name on the command line.
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
                "--task {name} needs a --model that was trained for it; the model that ships with grove only supports fill-mask"
            )));
        }
        self.input.check(&task)
    }

    /// Runs the task.
    fn run<B: Backend>(&self, device: &B::Device) -> Result<Ended, Exit> {
        self.input.run::<B>(&self.task()?, device)
    }
}

/// Files, configuration and tokenizer of a BERT.
pub struct Encoder {
    /// Path of the model's directory or weights file.
    pub path: PathBuf,
    /// The model's files and those of its adapter.
    pub files: ModelFiles,
    /// Configuration.
    pub config: BertConfig,
    /// Tokenizer.
    pub tokenizer: Tokenizer,
}

impl Encoder {
    /// Opens the model of `--model`, which is downloaded if needed, or the one that ships with grove, and the adapter of
    /// `--adapter`. An adapter's tokenizer replaces the model's.
    pub fn open(model: Option<&str>, adapter: Option<&str>) -> Result<Self, Exit> {
        let path = resolve(model, "bert-austen")?;
        check_kind(&path, ModelKind::Bert)?;
        let files = with_adapter(&path, adapter)?;
        let directory = directory_at(files.path());
        let encoder = match directory.join("config.json").is_file() {
            true => files.path().to_owned(),
            false => transformer_directory(directory)?,
        };
        let tokenizer = match files.tokenizer() == files.path() {
            true => Tokenizer::from_path(directory_at(&encoder))?,
            false => Tokenizer::beside(files.tokenizer())?,
        };
        let config = BertConfig::beside(&encoder)?;
        Ok(Self { path, files, config, tokenizer })
    }
}
