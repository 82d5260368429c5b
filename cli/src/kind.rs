//! Errors that name the right program for a family of models.

use grove::{
    models::{
        ModelKind,
        families::{WithImageClassifier, class_with_head},
    },
    weights::WeightsError,
};

use crate::prelude::*;

/// Rejects a directory without a model, and a model of a family that the program does not support. The error names the command that
/// does.
pub fn check_kind(path: &Path, expected: ModelKind) -> Result<(), Exit> {
    let kind = match ModelKind::of(path) {
        Ok(kind) => kind,
        // The weights of a sentence encoder can be in the folder of a module.
        Err(ModelError::Weights(error @ WeightsError::NothingFound { .. })) if !path.join("modules.json").is_file() => {
            return Err(error.into());
        }
        // The loader's error is more precise.
        Err(_) => return Ok(()),
    };
    match kind == expected {
        true if kind.is_decoder() && task_of_head(path) == Some("classify") => {
            let path = path.display();
            Err(failure(format!(
                "{path} classifies texts, but this program expects a language model: use `grove classify texts --model {path}`"
            )))
        }
        true => Ok(()),
        false => Err(wrong_kind(path, kind)),
    }
}

/// Returns the error for a model of a family that the program does not support. It names the commands and examples that do.
pub fn wrong_kind(path: &Path, kind: ModelKind) -> Exit {
    let head = task_of_head(path);
    let (command, others) = match kind {
        ModelKind::Gpt2 => ("generate", "evaluate language, train gpt2 and the example gpt2"),
        ModelKind::GptNeo => ("generate", "evaluate language and the example gpt_neo"),
        ModelKind::Llama => ("generate", "chat, evaluate language, train llama and the example llama"),
        ModelKind::RnnLm => ("generate", "evaluate language and the example rnn"),
        ModelKind::RnnClassifier => ("classify texts", "evaluate texts"),
        ModelKind::ResNet => ("classify images", "evaluate images, finetune images and the example resnet"),
        ModelKind::Vit => ("classify images", "evaluate images, finetune images and the example vit"),
        _ => (head.map_or("embed", |head| job_of_head(head).1), "finetune texts, train bert and the example bert"),
    };
    let command = if kind.is_decoder() && head == Some("classify") { "classify texts" } else { command };
    let (name, path) = (kind.name(), path.display());
    failure(format!(
        "{path} is {name}, which this program does not support: use `grove {command} --model {path}` (also supported by {others})"
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

/// Returns a phrase for the task of a head, and the command.
fn job_of_head(task: &str) -> (&'static str, &'static str) {
    match task {
        "fill-mask" => ("fills masks", "fill"),
        "classify" => ("classifies texts", "classify texts"),
        "tokens" => ("labels words", "tag"),
        _ => ("answers questions", "answer"),
    }
}

/// Returns the error for a model whose head is for another task than `task`, by the class in its `config.json`.
pub(crate) fn other_task(path: &Path, task: &str) -> Option<Exit> {
    let actual = task_of_head(path).filter(|actual| *actual != task)?;
    let (does, command) = job_of_head(actual);
    let path = path.display();
    Some(failure(format!("{path} {does}: use `grove {command}`, or --task {actual} of the example bert")))
}

/// Prints a note if fine-tuning replaces the head of the model because it is for another task than classification.
pub(crate) fn tell_other_head(path: &Path) {
    if let Some(task) = task_of_head(path).filter(|task| *task != "classify") {
        let does = job_of_head(task).0;
        tell(format_args!("{} {does}: its head is replaced by a new one for classification", path.display()));
    }
}

/// Rejects a model for token classification if the task is text classification, and the reverse. Their heads have the same parameter
/// names, so either would load.
pub(crate) fn check_head(path: &Path, task: &str) -> Result<(), Exit> {
    let alike = ["classify", "tokens"];
    match other_task(path, task) {
        Some(error) if alike.contains(&task) && task_of_head(path).is_some_and(|head| alike.contains(&head)) => {
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
    /// The model is not an image classifier, or the command fails.
    pub fn image_classifier<T>(self) -> Result<T, Exit>
    where
        Self: WithImageClassifier<Output = Result<T, Exit>>,
    {
        let path = self.path;
        let run = ModelKind::of(path)?.with_image_classifier(self);
        run.unwrap_or_else(|other| Err(wrong_kind(path, other)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_command_for_a_model() {
        let bert = shipped("bert-austen");
        assert!(check_kind(&bert, ModelKind::Bert).is_ok());
        let Err(Exit::Failure(message)) = check_kind(&bert, ModelKind::Gpt2) else { panic!("refused") };
        assert!(message.contains("is a BERT") && message.contains("use `grove fill --model"), "{message}");
        assert_eq!(task_of_head(&bert), Some("fill-mask"));
        assert!(check_head(&bert, "tokens").is_ok(), "the loader's error is more precise");
        let tagger = Path::new("../models/tests/fixtures/bert/bert_tokens");
        assert!(check_head(tagger, "tokens").is_ok());
        let Err(Exit::Failure(message)) = check_head(tagger, "classify") else { panic!("refused") };
        assert!(message.contains("labels words: use `grove tag`"), "{message}");
        let classifier = Path::new("../models/tests/fixtures/sequence_classification/gpt2");
        let Err(Exit::Failure(message)) = check_kind(classifier, ModelKind::Gpt2) else { panic!("refused") };
        assert!(message.contains("classifies texts") && message.contains("`grove classify texts --model"), "{message}");
        let Err(Exit::Failure(message)) = check_kind(tagger, ModelKind::Gpt2) else { panic!("refused") };
        assert!(message.contains("`grove tag --model"), "{message}");
        let directory = tempfile::tempdir().expect("a temporary directory");
        let refused = || match check_kind(directory.path(), ModelKind::Gpt2) {
            Err(Exit::Failure(message)) => message,
            other => panic!("{other:?}"),
        };
        assert!(refused().contains("which is empty"), "{}", refused());
        std::fs::write(directory.path().join("notes.txt"), "text").expect("written");
        assert!(refused().contains("which has notes.txt"), "{}", refused());
    }
}
