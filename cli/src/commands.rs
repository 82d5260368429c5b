//! The program `grove`: its commands and what they run.

use clap::{Args, CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use grove::{
    backend::DeviceSpec,
    files::directory_of,
    models::{Gpt2, Llama, ResNet, RnnLm, Vit, read_json, vision::Kind},
    prelude::*,
    train::Ended,
    weights::FilePatterns,
};
use std::path::Path;

use crate::{
    DeviceArgs, Exit, bert, failure, finetune_bert, finetune_vision,
    generation::{
        chat::ChatArgs,
        decoder::{DecoderArgs, Family, Run},
        families::{Gpt2s, GptNeos, Llamas},
    },
    language::{self, Gpt2Options, LlamaOptions, LmOptions},
    resolve,
    rnn::classify::{self, ClassifyOptions},
    train_bert, train_vision,
    vision::{ClassifyArgs, Published},
};

/// Image that is classified where none is given.
const IMAGE: &str = "images/digit.png";

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
    /// Continue a text with GPT-2, GPT-Neo or a model of LLaMA's architecture
    Generate(Box<GenerateCommand>),
    /// Talk with a model of LLaMA's architecture
    Chat(Box<ChatCommand>),
    /// Print the table of a decoder's parameters, and the memory they need
    Summary(Box<GenerateCommand>),
    /// Vectors of texts, by BERT
    Embed(Box<TextCommand>),
    /// Classify images or texts
    #[command(subcommand)]
    Classify(Classify),
    /// Train a model from scratch, or go on with one
    #[command(subcommand)]
    Train(Train),
    /// Train a classifier on top of a pretrained model
    #[command(subcommand)]
    Finetune(Finetune),
    /// Print how good a model is on data
    #[command(subcommand)]
    Evaluate(Evaluate),
    /// Print a script that completes this program's commands and options in a shell
    Completions {
        /// The shell
        shell: Shell,
    },
}

/// Options of `grove generate` and `grove summary`.
#[derive(Args, Debug)]
#[command(about = None, mut_arg("dtype", |arg| arg.default_value("auto")))]
pub struct GenerateCommand {
    /// Model, prompt and settings.
    #[command(flatten)]
    pub decoder: DecoderArgs,
}

/// Options of `grove chat`.
#[derive(Args, Debug)]
#[command(
    about = None,
    mut_arg("dtype", |arg| arg.default_value("auto")),
    mut_arg("chat", |arg| arg.hide(true)),
)]
pub struct ChatCommand {
    /// Model, prompt and settings.
    #[command(flatten)]
    pub decoder: DecoderArgs,

    /// The conversation.
    #[command(flatten)]
    pub chat: ChatArgs,
}

/// Options of `grove embed` and `grove classify texts`.
#[derive(Args, Debug)]
#[command(about = None, mut_arg("task", |arg| arg.hide(true)), mut_arg("question", |arg| arg.hide(true)))]
pub struct TextCommand {
    /// Model and texts.
    #[command(flatten)]
    pub options: bert::Options,
}

/// The data that is classified.
#[derive(Subcommand, Debug)]
pub enum Classify {
    /// Images, with a ResNet, a ViT or a DINOv2
    Images(Box<ImageCommand>),
    /// Texts, or pairs of texts with a tab between, with BERT
    Texts(Box<TextCommand>),
}

/// Options of `grove classify images`.
#[derive(Args, Debug)]
#[command(about = None)]
pub struct ImageCommand {
    /// Directory, weights file, or hub id, such as microsoft/resnet-50 [default: a small network that ships with grove]
    #[arg(long)]
    pub model: Option<String>,

    /// Images and settings.
    #[command(flatten)]
    pub classify: ClassifyArgs,
}

/// The model that is trained.
#[derive(Subcommand, Debug)]
pub enum Train {
    /// GPT-2, on text
    Gpt2(Box<Gpt2Options>),
    /// LLaMA, on text
    Llama(Box<LlamaOptions>),
    /// Recurrent language model, on text
    Rnn(Box<LmOptions>),
    /// BERT, on text with masked words
    Bert(Box<train_bert::Options>),
    /// Recurrent classifier, on labelled texts
    Texts(Box<ClassifyOptions>),
    /// ResNet or ViT, on labelled images
    Images(Box<train_vision::Options>),
}

/// The classifier that is fine-tuned.
#[derive(Subcommand, Debug)]
pub enum Finetune {
    /// BERT, on labelled texts
    Texts(Box<finetune_bert::Options>),
    /// ResNet, ViT or DINOv2, on labelled images
    Images(Box<finetune_vision::Options>),
}

/// The model that is evaluated; [`arguments`] adds `--evaluate`.
#[derive(Subcommand, Debug)]
pub enum Evaluate {
    /// GPT-2, on text
    Gpt2(Box<Gpt2Options>),
    /// LLaMA, on text
    Llama(Box<LlamaOptions>),
    /// Recurrent language model, on text
    Rnn(Box<LmOptions>),
    /// BERT, on text with masked words
    Bert(Box<train_bert::Options>),
    /// BERT classifier, on labelled texts
    Texts(Box<finetune_bert::Options>),
    /// ResNet, ViT or DINOv2, on labelled images
    Images(Box<finetune_vision::Options>),
}

/// The arguments of the program, with the options that `grove chat` and `grove evaluate MODEL` stand for.
pub fn arguments(given: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut given: Vec<String> = given.into_iter().collect();
    if given.get(1).is_some_and(|word| word == "chat") {
        given.insert(2, "--chat".into());
    }
    let evaluates = given.get(1).is_some_and(|word| word == "evaluate");
    if evaluates && given.get(2).is_some_and(|word| !word.starts_with('-') && word != "help") {
        given.insert(3, "--evaluate".into());
    }
    given
}

impl Grove {
    /// Completes the options by what the command stands for.
    pub fn completed(mut self) -> Self {
        match &mut self.command {
            Command::Summary(options) => options.decoder.summary = true,
            Command::Embed(options) => options.options.task = bert::Task::Embed,
            Command::Classify(Classify::Texts(options)) => options.options.task = bert::Task::Classify,
            _ => {}
        }
        self
    }

    /// Runs the command. `run` runs it on a device; it is given by the program, so that this crate need not be compiled
    /// for every backend.
    pub fn run(
        &self,
        run: impl FnOnce(DeviceSpec, Task<'_>) -> Result<Result<Ended, Exit>, Exit>,
    ) -> Result<Ended, Exit> {
        if let Command::Completions { shell } = &self.command {
            clap_complete::generate(*shell, &mut Self::command(), "grove", &mut std::io::stdout());
            return Ok(Ended::Finished);
        }
        self.check()?;
        run(self.device().spec()?, Task(&self.command))?
    }

    /// Checks the options alone, before any file is read.
    fn check(&self) -> Result<(), Exit> {
        let checked = match &self.command {
            Command::Generate(options) | Command::Summary(options) => return options.decoder.generation.check(),
            Command::Chat(options) => return options.decoder.generation.check(),
            Command::Embed(options) | Command::Classify(Classify::Texts(options)) => return options.options.check(),
            Command::Classify(Classify::Images(options)) => return options.classify.check(),
            Command::Train(Train::Gpt2(options)) | Command::Evaluate(Evaluate::Gpt2(options)) => {
                options.language.check()
            }
            Command::Train(Train::Llama(options)) | Command::Evaluate(Evaluate::Llama(options)) => {
                options.language.check()
            }
            Command::Train(Train::Rnn(options)) | Command::Evaluate(Evaluate::Rnn(options)) => options.language.check(),
            Command::Train(Train::Bert(options)) | Command::Evaluate(Evaluate::Bert(options)) => options.check(),
            Command::Train(Train::Texts(options)) => options.check(),
            Command::Train(Train::Images(options)) => options.check(),
            Command::Finetune(Finetune::Texts(options)) | Command::Evaluate(Evaluate::Texts(options)) => {
                options.check()
            }
            Command::Finetune(Finetune::Images(options)) | Command::Evaluate(Evaluate::Images(options)) => {
                options.check()
            }
            Command::Completions { .. } => Ok(()),
        };
        checked.map_err(Exit::Usage)
    }

    fn device(&self) -> &DeviceArgs {
        match &self.command {
            Command::Generate(options) | Command::Summary(options) => &options.decoder.device,
            Command::Chat(options) => &options.decoder.device,
            Command::Embed(options) | Command::Classify(Classify::Texts(options)) => &options.options.device,
            Command::Classify(Classify::Images(options)) => &options.classify.device,
            Command::Train(Train::Gpt2(options)) | Command::Evaluate(Evaluate::Gpt2(options)) => {
                &options.language.run.device
            }
            Command::Train(Train::Llama(options)) | Command::Evaluate(Evaluate::Llama(options)) => {
                &options.language.run.device
            }
            Command::Train(Train::Rnn(options)) | Command::Evaluate(Evaluate::Rnn(options)) => {
                &options.language.run.device
            }
            Command::Train(Train::Bert(options)) | Command::Evaluate(Evaluate::Bert(options)) => &options.run.device,
            Command::Train(Train::Texts(options)) => &options.run.device,
            Command::Train(Train::Images(options)) => &options.run.device,
            Command::Finetune(Finetune::Texts(options)) | Command::Evaluate(Evaluate::Texts(options)) => {
                &options.run.device
            }
            Command::Finetune(Finetune::Images(options)) | Command::Evaluate(Evaluate::Images(options)) => {
                &options.run.device
            }
            Command::Completions { .. } => unreachable!("completions need no device"),
        }
    }
}

/// A command, for whichever backend was chosen.
pub struct Task<'a>(&'a Command);

impl Program for Task<'_> {
    type Output = Result<Ended, Exit>;

    fn run<B: Backend>(self, device: B::Device) -> Result<Ended, Exit> {
        let done = |result: Result<(), Exit>| result.map(|()| Ended::Finished);
        match self.0 {
            Command::Generate(options) | Command::Summary(options) => done(generate::<B>(&options.decoder, device)),
            Command::Chat(options) => {
                done(Run { options: &options.decoder, chat: Some(&options.chat), family: Llamas }.run::<B>(device))
            }
            Command::Embed(options) | Command::Classify(Classify::Texts(options)) => {
                done(bert::run::<B>(&options.options, &device))
            }
            Command::Classify(Classify::Images(options)) => done(classify_images::<B>(options, &device)),
            Command::Train(Train::Gpt2(options)) | Command::Evaluate(Evaluate::Gpt2(options)) => {
                language::run::<B, Gpt2<B>>(&options.language, &options.sizes, &device)
            }
            Command::Train(Train::Llama(options)) | Command::Evaluate(Evaluate::Llama(options)) => {
                language::run::<B, Llama<B>>(&options.language, &options.sizes, &device)
            }
            Command::Train(Train::Rnn(options)) | Command::Evaluate(Evaluate::Rnn(options)) => {
                language::run::<B, RnnLm<B>>(&options.language, &options.sizes, &device)
            }
            Command::Train(Train::Bert(options)) | Command::Evaluate(Evaluate::Bert(options)) => {
                train_bert::run::<B>(options, &device)
            }
            Command::Train(Train::Texts(options)) => classify::run::<B>(options, &device),
            Command::Train(Train::Images(options)) => train_vision::run::<B>(options, &device),
            Command::Finetune(Finetune::Texts(options)) | Command::Evaluate(Evaluate::Texts(options)) => {
                finetune_bert::run::<B>(options, &device)
            }
            Command::Finetune(Finetune::Images(options)) | Command::Evaluate(Evaluate::Images(options)) => {
                finetune_vision::run::<B>(options, &device)
            }
            Command::Completions { .. } => Ok(Ended::Finished),
        }
    }
}

/// Continues a text, or prints a summary, with the family that the model's config.json names. Published sizes and files
/// without one are LLaMA's, but for the names of GPT-2's and GPT-Neo's.
fn generate<B: Backend>(options: &DecoderArgs, device: B::Device) -> Result<(), Exit> {
    let name = options.model.as_deref().unwrap_or_default();
    let elsewhere = !name.is_empty() && !Path::new(name).exists();
    let wanted = if options.summary { FilePatterns::files(["config.json"]) } else { FilePatterns::model() };
    let preset = options.summary && elsewhere && !name.contains('/');
    let family = match preset {
        true => name.to_owned(),
        false => {
            let path = resolve(options.model.as_deref(), Gpt2s::SHIPS, &wanted)?;
            let directory = if path.is_dir() { &*path } else { directory_of(&path) };
            let file = directory.join("config.json");
            let config: serde_json::Value = match file.exists() {
                true => read_json(&file).map_err(failure)?,
                false => serde_json::Value::Null,
            };
            config["model_type"].as_str().unwrap_or_default().to_owned()
        }
    };
    let (options, chat) = (options, None);
    match family.as_str() {
        family if family.starts_with("gpt2") => Run { options, chat, family: Gpt2s }.run::<B>(device),
        family if family.starts_with("gpt_neo") || family.starts_with("gpt-neo") => {
            Run { options, chat, family: GptNeos }.run::<B>(device)
        }
        "grove_rnn_lm" => Err(failure("this is a recurrent model: the example `rnn` continues texts with it")),
        _ => Run { options, chat, family: Llamas }.run::<B>(device),
    }
}

/// Classifies images with the kind of model that the weights are of.
fn classify_images<B: Backend>(options: &ImageCommand, device: &B::Device) -> Result<(), Exit> {
    let published = Published::open(options.model.as_deref(), "mnist-resnet")?;
    match Kind::of(&published.path).map_err(failure)? {
        Kind::ResNet => {
            crate::vision::classify::<B, ResNet<B>>(&options.classify, &published, IMAGE, device, |_, _, _| Ok(()))
        }
        Kind::Vit => {
            crate::vision::classify::<B, Vit<B>>(&options.classify, &published, IMAGE, device, |_, _, _| Ok(()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments_given: &[&str]) -> Result<Grove, clap::Error> {
        Grove::try_parse_from(arguments(arguments_given.iter().map(|&word| word.to_owned()))).map(Grove::completed)
    }

    #[test]
    fn every_command_is_well_formed() {
        Grove::command().debug_assert();
    }

    #[test]
    fn commands_choose_tasks() {
        let embed = parse(&["grove", "embed", "--model", "m", "a text"]).expect("valid").command;
        assert!(matches!(embed, Command::Embed(options) if options.options.task == bert::Task::Embed));
        let summary = parse(&["grove", "summary", "--model", "gpt2-xl"]).expect("valid").command;
        assert!(matches!(summary, Command::Summary(options) if options.decoder.summary));
        let chat = parse(&["grove", "chat", "--system", "Be brief."]).map(|grove| grove.command);
        assert!(matches!(chat, Ok(Command::Chat(options)) if options.chat.chat));
    }

    #[test]
    fn evaluation_needs_a_model() {
        let evaluate = parse(&["grove", "evaluate", "gpt2", "--model", "m", "--data", "a.txt"]).expect("valid").command;
        assert!(matches!(evaluate, Command::Evaluate(Evaluate::Gpt2(options)) if options.language.evaluate));
        assert!(parse(&["grove", "evaluate", "gpt2", "--data", "a.txt"]).is_err());
    }
}
