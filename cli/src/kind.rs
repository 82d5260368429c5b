//! Errors that name the right program for a family of models.

use grove::models::{
    ModelKind,
    families::{WithImageClassifier, class_with_head},
};
use std::fmt::Display;

use crate::prelude::*;

/// Rejects a model whose family a program does not read, and names the programs that do.
pub fn check_kind(path: &Path, expected: &[ModelKind]) -> Result<(), Exit> {
    // If the family is unknown, the loader's error is more precise.
    let Ok(kind) = ModelKind::of(path) else { return Ok(()) };
    match expected.contains(&kind) {
        true if kind.is_decoder() && task_of_head(path) == Some("classify") => Err(failure(format!(
            "{} has a head that classifies texts, and this program reads language models; the commands of grove classify \
             texts, evaluate texts do",
            path.display()
        ))),
        true => Ok(()),
        false => Err(wrong_kind(path.display(), kind)),
    }
}

/// Returns the error for a model whose family a program does not read. It names the programs that do.
pub fn wrong_kind(model: impl Display, kind: ModelKind) -> Exit {
    let examples = match kind {
        ModelKind::Gpt2 => "gpt2, train_gpt2",
        ModelKind::GptNeo => "gpt_neo",
        ModelKind::Llama => "llama, train_llama",
        ModelKind::RnnLm => "rnn, train_rnn",
        ModelKind::RnnClassifier => "train_rnn",
        ModelKind::Bert => "bert, train_bert, finetune_bert",
        ModelKind::ResNet => "resnet, finetune_vision",
        ModelKind::Vit => "vit, finetune_vision",
        _ => "",
    };
    let commands = match kind {
        kind if kind.is_decoder() => "generate, evaluate language",
        kind if kind.is_image_classifier() => "classify images, evaluate images, finetune images",
        ModelKind::RnnClassifier => "classify texts, evaluate texts",
        _ => "fill, embed, search, classify texts, tag, answer, finetune texts",
    };
    let (name, examples) =
        (kind.name(), if examples.is_empty() { String::new() } else { format!("the examples {examples} and ") });
    failure(format!(
        "{model} is {name}, which this program does not read; {examples}the commands of grove {commands} do"
    ))
}

/// Returns the task of a model's head, from the class in its `config.json`.
pub(crate) fn task_of_head(path: &Path) -> Option<&'static str> {
    match class_with_head(path).ok()??.as_str() {
        "MaskedLM" => Some("fill-mask"),
        "SequenceClassification" => Some("classify"),
        "TokenClassification" => Some("tokens"),
        "QuestionAnswering" => Some("answer"),
        _ => None,
    }
}

/// Returns the error for a model whose head is made for another task than the one asked for, by the class in its `config.json`.
pub(crate) fn other_task(path: &Path, asked: &str) -> Option<Exit> {
    let made_for = task_of_head(path).filter(|made_for| *made_for != asked)?;
    let (does, command) = match made_for {
        "fill-mask" => ("fills masks", "fill"),
        "classify" => ("classifies texts", "classify texts"),
        "tokens" => ("labels words", "tag"),
        _ => ("answers questions", "answer"),
    };
    let path = path.display();
    Some(failure(format!("{path} {does}: use `grove {command}`, or --task {made_for} of the example bert")))
}

/// Rejects a model that labels words where one that classifies texts is asked for, and the reverse. Their heads have the same names, so
/// that either would load.
pub(crate) fn check_head(path: &Path, asked: &str) -> Result<(), Exit> {
    let alike = ["classify", "tokens"];
    match other_task(path, asked) {
        Some(error) if alike.contains(&asked) && task_of_head(path).is_some_and(|head| alike.contains(&head)) => {
            Err(error)
        }
        _ => Ok(()),
    }
}

/// A command with the model at a path, whose family the files determine.
pub(crate) struct WithModelAt<'a, B: Backend, O> {
    /// The command line.
    pub options: &'a O,
    /// Directory or file of the model.
    pub path: &'a Path,
    /// Device of the model.
    pub device: &'a B::Device,
}

impl<'a, B: Backend, O> WithModelAt<'a, B, O> {
    /// Runs the command with an image classifier of the family.
    ///
    /// # Errors
    /// The model is no image classifier; otherwise those of the command.
    pub fn image_classifier<T>(self) -> Result<T, Exit>
    where
        Self: WithImageClassifier<Output = Result<T, Exit>>,
    {
        let path = self.path;
        let run = ModelKind::of(path)?.with_image_classifier(self);
        run.unwrap_or_else(|other| Err(wrong_kind(path.display(), other)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_model_leads_to_the_right_program() {
        let bert = shipped("bert-austen");
        assert!(check_kind(&bert, &[ModelKind::Bert]).is_ok());
        let Err(Exit::Failure(message)) = check_kind(&bert, &[ModelKind::Gpt2]) else { panic!("refused") };
        assert!(message.contains("is a BERT") && message.contains("grove fill"), "{message}");
        assert_eq!(task_of_head(&bert), Some("fill-mask"));
        assert!(check_head(&bert, "tokens").is_ok(), "the loader's error is more precise");
        let tagger = Path::new("../models/tests/fixtures/bert/bert_tokens");
        assert!(check_head(tagger, "tokens").is_ok());
        let Err(Exit::Failure(message)) = check_head(tagger, "classify") else { panic!("refused") };
        assert!(message.contains("labels words: use `grove tag`"), "{message}");
        let classifier = Path::new("../models/tests/fixtures/sequence_classification/gpt2");
        let Err(Exit::Failure(message)) = check_kind(classifier, &[ModelKind::Gpt2]) else { panic!("refused") };
        assert!(message.contains("classifies texts") && message.contains("grove classify texts"), "{message}");
    }
}
