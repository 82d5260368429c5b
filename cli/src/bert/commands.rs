//! Commands of the program `grove` for BERT's tasks.

use grove::tasks::text::AnswerOptions;

use super::{STRIDE, Task, TextArgs};
use crate::prelude::*;

/// Implements [`Command`] for the options of a task, which have a field `input`.
macro_rules! command {
    ($options:ty, $self:ident => $task:expr) => {
        impl Command for $options {
            fn check(&$self) -> Result<DeviceSpec, Exit> {
                $self.input.check(&$task)
            }

            fn run<B: Backend>(&$self, device: &B::Device) -> Result<Ended, Exit> {
                $self.input.run::<B>(&$task, device)
            }
        }
    };
}

/// Fills in the masked words of texts.
#[derive(Parser, Debug)]
#[command(
    mut_arg("texts", |arg| arg.help("Texts with [MASK] (RoBERTa: <mask>) in place of the words to fill in")),
    mut_arg("model", |arg| arg.help("Directory, weights file, or hub id [default: a small model that ships with grove]")),
    after_help = "Examples:
  grove fill \"She was very [MASK] to see her sister.\"
  grove fill --model FacebookAI/roberta-base --top-k 3 \\
      \"Paris is the capital of <mask>.\"",
)]
pub struct Fill {
    /// Texts, model and device.
    #[command(flatten)]
    pub input: TextArgs,

    /// Number of words to show for each mask
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub top_k: usize,
}

command!(Fill, self => Task::FillMask { top_k: self.top_k });

/// Embeds texts: prints one vector per text, or writes all vectors to a file.
#[derive(Parser, Debug)]
#[command(
    mut_arg("texts", |arg| arg.help("Texts to embed")),
    mut_arg("model", |arg| {
        arg.required(true).help("Directory, weights file, or hub id, such as sentence-transformers/all-MiniLM-L6-v2")
    }),
    after_help = "Examples:
  grove embed --model sentence-transformers/all-MiniLM-L6-v2 \\
      \"A man plays the guitar.\"
  grove embed --model ./all-MiniLM-L6-v2 --file lines.txt --output vectors.npy",
)]
pub struct Embed {
    /// Texts, model and device.
    #[command(flatten)]
    pub input: TextArgs,

    /// Write the vectors to this .npy file, with shape [texts, size]
    #[arg(long, value_name = "FILE.npy")]
    pub output: Option<PathBuf>,

    /// Name of the prompt to put before each text, such as query [default: the model's default prompt, if any]
    #[arg(long, value_name = "NAME")]
    pub prompt_name: Option<String>,
}

command!(Embed, self => Task::Embed { prompt_name: self.prompt_name.clone(), output: self.output.clone() });

/// Ranks texts by semantic similarity to a query.
#[derive(Parser, Debug)]
#[command(
    mut_arg("texts", |arg| arg.help("Texts to rank")),
    mut_arg("model", |arg| {
        arg.required(true).help("Directory, weights file, or hub id, such as sentence-transformers/all-MiniLM-L6-v2")
    }),
    after_help = "Examples:
  grove search --model ./all-MiniLM-L6-v2 \"making music\" \\
      \"A man plays the guitar.\" \"The stock market fell.\"
  grove search --model ./all-MiniLM-L6-v2 --file lines.txt --top-k 5 \\
      \"making music\"",
)]
pub struct Search {
    /// Query to compare the texts with
    #[arg(value_name = "QUERY")]
    pub query: String,

    /// Texts, model and device.
    #[command(flatten)]
    pub input: TextArgs,

    /// Number of texts to show [default: all]
    #[arg(long, value_name = "N")]
    pub top_k: Option<usize>,

    /// Name of the prompt to put before each text, such as query [default: the model's default prompt, if any]
    #[arg(long, value_name = "NAME")]
    pub prompt_name: Option<String>,
}

command!(Search, self => Task::Similarity { query: Some(self.query.clone()), top_k: self.top_k, prompt_name: self.prompt_name.clone() });

/// Labels the words of texts, such as names of people and places.
#[derive(Parser, Debug)]
#[command(
    mut_arg("texts", |arg| arg.help("Texts to label")),
    mut_arg("max_length", |arg| {
        arg.help("Maximum length of a window in tokens; longer texts are split into windows [default: the model's]")
    }),
    mut_arg("model", |arg| {
        arg.required(true).help("Directory, weights file, or hub id of a model for token classification, such as dslim/bert-base-NER")
    }),
    after_help = "Examples:
  grove tag --model dslim/bert-base-NER \"Jane Austen lived in Chawton.\"
  grove tag --model ./bert-base-NER --file letters.txt --json",
)]
pub struct Tag {
    /// Texts, model and device.
    #[command(flatten)]
    pub input: TextArgs,

    /// Overlap of the windows of a long text, in tokens
    #[arg(long, value_name = "N", default_value_t = STRIDE)]
    pub stride: usize,
}

command!(Tag, self => Task::Tokens { stride: self.stride });

/// Answers a question with a span of each text.
#[derive(Parser, Debug)]
#[command(
    mut_arg("texts", |arg| arg.help("Texts in which to look for the answer")),
    mut_arg("max_length", |arg| {
        arg.help("Maximum length of a window in tokens; longer texts are split into windows [default: 384]")
    }),
    mut_arg("model", |arg| {
        arg.required(true)
            .help("Directory, weights file, or hub id of a model for question answering, such as deepset/bert-base-cased-squad2")
    }),
    after_help = "Examples:
  grove answer --model deepset/bert-base-cased-squad2 \"Who wrote Emma?\" \\
      \"Emma was written by Jane Austen.\"
  grove answer --model ./squad-bert --file article.txt --top-k 3 \\
      \"Who wrote Emma?\"",
)]
pub struct Answer {
    /// Question to answer
    #[arg(value_name = "QUESTION")]
    pub question: String,

    /// Texts, model and device.
    #[command(flatten)]
    pub input: TextArgs,

    /// Number of answers to show for each text
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub top_k: usize,

    /// Overlap of the windows of a long text, in tokens
    #[arg(long, value_name = "N", default_value_t = STRIDE)]
    pub stride: usize,

    /// Allow an empty answer if the text has none, for models trained on SQuAD 2
    #[arg(long)]
    pub handle_impossible_answer: bool,
}

command!(Answer, self => {
    let &Self { top_k, stride, handle_impossible_answer, .. } = self;
    let options = AnswerOptions { top_k, stride, handle_impossible_answer, ..AnswerOptions::default() };
    Task::Answer { question: self.question.clone(), options }
});
