//! The commands of the program `grove`.

use clap::{Arg, Subcommand};
use clap_complete::Shell;
use grove::models::family;

use crate::{
    bert,
    classify::ClassifyTexts,
    convert, devices, evaluate, finetune_bert, finetune_vision,
    generation::{
        GenerateCommand,
        chat::ChatArgs,
        decoder::{DecoderArgs, Run},
    },
    language::{Gpt2Options, LlamaOptions, LmOptions},
    new,
    prelude::*,
    program,
    rnn::ClassifyOptions,
    summary, train_bert, train_vision,
    vision::ImageCommand,
};

/// Runs, trains and evaluates neural networks: GPT-2, GPT-Neo, LLaMA, BERT, ResNet, ViT, recurrent networks.
#[derive(Parser, Debug)]
#[command(name = "grove", version)]
pub struct Grove {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// A command of the program `grove`.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// A command that computes on a device.
    #[command(flatten)]
    Task(Task),
    /// Measure the speed of operations and models, beside PyTorch, JAX and candle
    #[command(after_help = "Examples:
  grove bench --only matmul,attention --seconds 1
  grove bench --only gpt2 --peers torch,jax --output results")]
    Bench(Box<grove_bench::Options>),
    /// Compare a device's results with the CPU's: operations, gradients, models, training steps
    #[command(after_help = "Examples:
  grove parity --backend cuda
  grove parity --backend xla:cpu --dtype bf16")]
    Parity(Box<grove_bench::parity::Options>),
    /// List the devices of each backend, or the reason why it has none
    #[command(after_help = "Examples:
  grove devices
  grove devices --json")]
    Devices(devices::Options),
    /// Create a project that depends on grove and trains a tiny model
    #[command(after_help = "Examples:
  grove new my-model
  grove new my-model --grove ../grove")]
    New(new::Options),
    /// Print the completion script of a shell
    #[command(after_help = "Examples:
  grove completions bash > ~/.local/share/bash-completion/completions/grove
  grove completions zsh > ~/.zfunc/_grove")]
    Completions {
        /// The shell
        shell: Shell,
    },
}

/// A command that computes on a device.
#[derive(Subcommand, Debug)]
pub enum Task {
    /// Continue a text with GPT-2, GPT-Neo, a LLaMA-architecture model or a recurrent model
    #[command(mut_arg("dtype", |arg| arg.default_value("auto")), after_help = "Examples:
  grove generate \"The old apple tree\"
  grove generate --model openai-community/gpt2 --max-new-tokens 50 \\
      --temperature 0 \"Once upon a time\"
  grove generate --file prompts.txt --batch-size 32 --output texts.jsonl")]
    Generate(Box<GenerateCommand>),
    /// Chat with a LLaMA-architecture model
    #[command(
        mut_arg("dtype", |arg| arg.default_value("auto")),
        mut_arg("text", |arg| arg.help("Message [default: the lines of standard input or of the terminal are messages]")),
        mut_arg("prompt", |arg| arg.help("Message, same as PROMPT")),
        mut_arg("model", |arg| arg.help(
            "Directory, weights file, or hub id (user/model@revision) of a model with a chat template [default: a small one that \
             ships with grove]"
        )),
        mut_args(hide([
            "chat", "prompt_ids", "samples", "score", "stride", "summary", "draft", "draft_tokens", "repeat", "jit",
        ])),
        after_help = "Examples:
  grove chat \"Who marries Mr. Darcy?\"
  grove chat --model HuggingFaceTB/SmolLM2-135M-Instruct
  grove chat --model ./Llama-3.2-1B-Instruct-Q4_K_M.gguf \\
      --system \"Answer in one sentence.\""
    )]
    Chat {
        /// Model, prompt and settings.
        #[command(flatten)]
        decoder: Box<DecoderArgs>,
        /// Options of the conversation.
        #[command(flatten)]
        chat: ChatArgs,
    },
    /// Print the parameter table of a model and the memory it needs
    Summary(summary::Options),
    /// Fill in masked words, with BERT
    Fill(Box<bert::Fill>),
    /// Embed texts as vectors, with BERT
    Embed(Box<bert::Embed>),
    /// Rank texts by semantic similarity to a query, with BERT
    Search(Box<bert::Search>),
    /// Label the words of texts, such as names, with BERT
    Tag(Box<bert::Tag>),
    /// Answer a question from given texts, with BERT
    Answer(Box<bert::Answer>),
    /// Classify images or texts, and write the predictions to a table
    #[command(subcommand, visible_alias = "predict")]
    Classify(Classify),
    /// Train a model from scratch, or continue training one
    #[command(subcommand, mut_subcommands(|command| command.mut_args(hide(["evaluate"]))))]
    Train(Train),
    /// Train a classifier on top of a pretrained model
    #[command(subcommand, mut_subcommands(|command| command.mut_args(hide(["evaluate"]))))]
    Finetune(Finetune),
    /// Evaluate a model on data
    #[command(subcommand)]
    Evaluate(Evaluate),
    /// Convert a checkpoint to safetensors
    Convert(convert::Options),
}

/// Returns a function that hides the options of these names from the help of a command, in which they have no effect.
fn hide<const N: usize>(names: [&'static str; N]) -> impl Fn(Arg) -> Arg {
    move |arg| match names.contains(&arg.get_id().as_str()) {
        true => arg.hide(true),
        false => arg,
    }
}

/// Kind of data to classify.
#[derive(Subcommand, Debug)]
pub enum Classify {
    /// Classify images with a ResNet, ViT or DINOv2
    Images(Box<ImageCommand>),
    /// Classify texts, or pairs of texts, with a BERT, GPT-2, GPT-Neo, LLaMA or recurrent network
    Texts(Box<ClassifyTexts>),
}

/// Language model to train.
#[derive(Subcommand, Debug)]
pub enum Language {
    /// Train a GPT-2 on text
    #[command(after_help = "Examples:
  grove train gpt2 --data books/ --output run --n-layer 6 --n-embd 192 \\
      --context 256
  grove train gpt2 --model openai-community/gpt2 --data notes.txt \\
      --output run
  grove train gpt2 --data train.parquet --text-column content --output run")]
    Gpt2(Box<Gpt2Options>),
    /// Train a LLaMA on text
    #[command(after_help = "Examples:
  grove train llama --data books/ --output run --layers 6 --hidden-size 192
  grove train llama --model HuggingFaceTB/SmolLM2-135M --data notes.txt \\
      --output run")]
    Llama(Box<LlamaOptions>),
    /// Train a recurrent language model on text
    #[command(after_help = "Examples:
  grove train rnn --data books/ --output run
  grove train rnn --data books/ --output run --cell gru --hidden 512 \\
      --vocab-size 2048")]
    Rnn(Box<LmOptions>),
    /// Train a BERT on text, as a masked language model
    #[command(after_help = "Examples:
  grove train bert --data books/ --output run --layers 4 --hidden 256
  grove train bert --model google-bert/bert-base-uncased --data notes.txt \\
      --output run")]
    Bert(Box<train_bert::Options>),
}

/// Model to train.
#[derive(Subcommand, Debug)]
pub enum Train {
    /// Language models.
    #[command(flatten)]
    Language(Language),
    /// Train a recurrent classifier on labelled texts
    #[command(
        mut_args(hide(["predict", "model", "jit"])),
        after_help = "Examples:
  grove train texts --data reviews.csv --output run
  grove train texts --data reviews.csv --text-column review \\
      --label-column sentiment --balance --output run
  grove train texts --data train.parquet --held-out test.parquet --output run"
    )]
    Texts(Box<ClassifyOptions>),
    /// Train a ResNet or ViT on labelled images
    #[command(mut_args(hide(["model"])), after_help = "Examples:
  grove train images --data mnist/ --output run
  grove train images --data train.parquet --image-column img --output run
  grove train images --data flowers/ --arch vit --image-size 64 --epochs 30 \\
      --output run")]
    Images(Box<train_vision::Options>),
}

/// Classifier to fine-tune.
#[derive(Subcommand, Debug)]
pub enum Finetune {
    /// Fine-tune a BERT on labelled texts
    #[command(after_help = "Examples:
  grove finetune texts --model google-bert/bert-base-uncased \\
      --data reviews.csv --output run
  grove finetune texts --model ./bert --data pairs.tsv --pair-column second \\
      --lora-rank 8 --output run
  grove finetune texts --model ./bert --data train.parquet \\
      --held-out test.parquet --output run")]
    Texts(Box<finetune_bert::Options>),
    /// Fine-tune a ResNet, ViT or DINOv2 on labelled images
    #[command(after_help = "Examples:
  grove finetune images --model microsoft/resnet-50 --data flowers/ \\
      --output run
  grove finetune images --model facebook/dinov2-small --data flowers/ \\
      --freeze backbone --output run")]
    Images(Box<finetune_vision::Options>),
}

/// Kind of model to evaluate.
#[derive(Subcommand, Debug)]
pub enum Evaluate {
    /// Evaluate a language model on text: loss and perplexity
    Language(Box<evaluate::Language>),
    /// Evaluate a classifier on labelled texts: accuracy, F1
    Texts(Box<evaluate::Texts>),
    /// Evaluate a classifier on labelled images: accuracy, F1
    Images(Box<evaluate::Images>),
}

/// Evaluates an expression for the options of the command that was given.
macro_rules! each {
    ($task:expr, $options:ident => $result:expr) => {
        match $task {
            Task::Generate($options) => $result,
            Task::Summary($options) => $result,
            Task::Chat { decoder, chat } => {
                let $options = &Run { options: decoder, chat: Some(chat), file: None, family: family::Llama };
                $result
            }
            Task::Fill($options) => $result,
            Task::Embed($options) => $result,
            Task::Search($options) => $result,
            Task::Tag($options) => $result,
            Task::Answer($options) => $result,
            Task::Classify(Classify::Texts($options)) => $result,
            Task::Classify(Classify::Images($options)) => $result,
            Task::Train(Train::Language(model)) => match model {
                Language::Gpt2($options) => $result,
                Language::Llama($options) => $result,
                Language::Rnn($options) => $result,
                Language::Bert($options) => $result,
            },
            Task::Train(Train::Texts($options)) => $result,
            Task::Train(Train::Images($options)) => $result,
            Task::Finetune(Finetune::Texts($options)) => $result,
            Task::Finetune(Finetune::Images($options)) => $result,
            Task::Evaluate(Evaluate::Language($options)) => $result,
            Task::Evaluate(Evaluate::Texts($options)) => $result,
            Task::Evaluate(Evaluate::Images($options)) => $result,
            Task::Convert($options) => $result,
        }
    };
}

impl program::Command for Task {
    fn check(&self) -> Result<DeviceSpec, Exit> {
        each!(self, options => options.check())
    }

    fn run<B: Backend>(&self, device: &B::Device) -> Result<Ended, Exit> {
        each!(self, options => options.run::<B>(device))
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::arguments::parse as parse_arguments;

    fn parse(given: &[&str]) -> Result<Task, clap::Error> {
        match parse_arguments(given.iter().map(|&word| word.to_owned()))?.command {
            Command::Task(task) => Ok(task),
            other => panic!("{other:?} computes nothing"),
        }
    }

    #[test]
    fn every_command_is_well_formed() {
        Grove::command().debug_assert();
    }

    #[test]
    fn commands_choose_tasks() {
        for options in [&["embed", "--query", "q"][..], &["embed", "--top-k", "3"], &["tag", "--question", "q"]] {
            let given = [&["grove"], &options[..1], &["--model", "m"], &options[1..], &["a text"]].concat();
            assert!(parse(&given).is_err(), "{options:?} has no effect and is refused");
        }
        let search = parse(&["grove", "search", "--model", "m", "a query", "a text"]).expect("valid");
        assert!(
            matches!(search, Task::Search(search) if search.query == "a query" && search.input.texts == ["a text"])
        );
        let summary = parse(&["grove", "summary", "gpt2-xl"]).expect("valid");
        assert!(matches!(summary, Task::Summary(options) if options.model == "gpt2-xl"));
        let chat = parse(&["grove", "chat", "--system", "Be brief."]);
        assert!(matches!(chat, Ok(Task::Chat { chat, .. }) if chat.chat));
        let predict = parse(&["grove", "predict", "texts", "--model", "m", "--data", "a.csv", "--output", "b.csv"]);
        assert!(matches!(predict, Ok(Task::Classify(Classify::Texts(_)))));
    }

    /// An option that has no effect is refused, and by its own name.
    #[test]
    fn rejects_options_without_effect() {
        for (command, option) in [
            ("generate --summary --seed 1", "--seed"),
            ("generate --draft-tokens 2", "--draft"),
            ("chat --samples 2", "grove chat has no --samples"),
            ("chat --repeat 2", "grove chat has no --repeat"),
            ("chat --summary", "grove chat has no --summary"),
            ("train gpt2 --data a --save-dtype f16", "--output"),
            ("train gpt2 --data a --checkpoint-every 5", "--output"),
            ("train gpt2 --data a --keep-checkpoints 5", "--output"),
            ("finetune texts --data a --lora-targets x", "--lora-rank"),
            ("finetune texts --data a --label-separator ;", "--problem-type"),
            ("classify texts --data a --output b --top-k 2", "--top-k"),
            ("classify images a.png --output b --top-k 2", "--top-k"),
            (
                "generate --seed -1 hello",
                "'-1' is not a valid value for --seed <SEED>; give a whole number, at least 0",
            ),
            (
                "classify --model m hello",
                "`grove classify` needs one of its commands first: images, texts, as in `grove classify images`",
            ),
            ("train gpt3", "`grove train` needs one of its commands first: gpt2, llama"),
            ("generate --temperature warm hello", "'warm' is not a valid value for --temperature <T>; give a number"),
        ] {
            let words: Vec<&str> = std::iter::once("grove").chain(command.split(' ')).collect();
            let error = parse(&words).expect_err(command).to_string();
            assert!(error.contains(option), "{command}: {error}");
        }
        for (command, option) in [
            ("train images --arch vit --depths 2,2", "--depths"),
            ("train images --heads 2", "--heads"),
            ("train images --model m --steps 1", "--evaluate"),
            ("train texts --data a --model m --steps 1", "--evaluate"),
            ("train gpt2 --adapter a --n-layer 2", "--adapter needs --model"),
            ("train gpt2 --freeze x --n-layer 2", "--freeze needs --model"),
            ("train llama --lora-rank 2 --config c", "--lora-rank needs --model"),
            ("train gpt2 --evaluate --model m --resume", "--resume needs --output"),
            ("train gpt2 --evaluate --model m --checkpoint-every 3", "--checkpoint-every needs --output"),
            ("generate --draft-tokens 3 --samples 2 hello", "--draft-tokens needs --draft"),
            ("generate --stride 3 --jit hello", "--stride needs --score"),
            ("classify texts --model m --text-column c hello", "--text-column needs --data"),
            ("classify texts --model m --delimiter ; hello", "--delimiter needs --data"),
            ("train images --data flowers --label-column l", "--label-column"),
            ("evaluate images --model m --data flowers --image-column i", "--image-column"),
            ("train gpt2 --data a.txt --text-column content", "--text-column"),
            ("evaluate language --model m --data a.txt --text-column content", "--text-column"),
            ("train gpt2 --data a --schedule constant --final-learning-rate 0.5", "--final-learning-rate"),
            ("train bert --data a --held-out 0.2", "--val-fraction 0.2"),
            ("finetune texts --data a --held-out 0.2", "--val-fraction 0.2"),
            ("train images --data a --held-out 0.2", "--val-fraction 0.2"),
        ] {
            let words: Vec<&str> = std::iter::once("grove").chain(command.split(' ')).collect();
            let task = parse(&words).expect(command);
            let Err(Exit::Usage(error)) = program::Command::check(&task) else { panic!("{command} is refused") };
            assert!(error.contains(option), "{command}: {error}");
        }
    }

    #[test]
    fn weights_of_a_model_get_a_lower_learning_rate() {
        let learning_rate = |words: &str| {
            let mut matches = &Grove::command().get_matches_from(words.split(' '));
            while let Some((_, inner)) = matches.subcommand() {
                matches = inner;
            }
            *matches.get_one::<f64>("learning_rate").expect("an option of the command")
        };
        for family in ["gpt2", "llama", "bert"] {
            let command = format!("grove train {family} --data a");
            assert_eq!(learning_rate(&command), 1e-3, "{family}");
            assert_eq!(learning_rate(&format!("{command} --model m")), 5e-5, "{family}");
            assert_eq!(learning_rate(&format!("{command} --model m --lora-rank 4")), 1e-3, "{family}");
            assert_eq!(learning_rate(&format!("{command} --model m --learning-rate 0.1")), 0.1, "{family}");
        }
        assert_eq!(learning_rate("grove finetune texts --data a --model m"), 5e-5);
        assert_eq!(learning_rate("grove finetune texts --data a --model m --lora-rank 4"), 1e-3);
        assert_eq!(learning_rate("grove finetune images"), 5e-4);
    }

    #[test]
    fn evaluation_needs_a_model() {
        assert!(parse(&["grove", "evaluate", "language", "--model", "m", "--data", "a.txt"]).is_ok());
        assert!(parse(&["grove", "evaluate", "language", "--data", "a.txt"]).is_err());
        assert!(parse(&["grove", "evaluate", "images", "--model", "m"]).is_err());
    }
}
