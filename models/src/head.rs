//! Checkpoints that have the head of another task, or none.

use grove_weights::{Report, WeightsError};
use std::path::Path;

use crate::error::ModelError;

/// Beginnings of the paths of heads in models.
const PATHS: [&str; 5] = ["head.", "score.", "lm_head.", "classifier.", POOLER];
/// Beginning of the path of a pooler, which files without a classifier lack too.
const POOLER: &str = "bert.pooler.";
/// Beginnings of the published names of heads, without the prefix of the model.
const NAMES: [&str; 11] = [
    "cls.",
    "score.",
    "lm_head.",
    "classifier.",
    "pre_classifier.",
    "qa_outputs.",
    "pooler.",
    "vocab_transform.",
    "vocab_layer_norm.",
    "vocab_projector.",
    "embed_out.",
];
/// Prefixes of models inside of models with a head.
const PREFIXES: [&str; 5] = ["bert.", "roberta.", "distilbert.", "transformer.", "model."];

/// Returns the error of loading a model. If only heads differ between the checkpoint and the model, the error names the
/// head in a sentence instead of the report of all names.
pub(crate) fn of_head(error: ModelError, file: &Path) -> ModelError {
    let reason = match &error {
        ModelError::Weights(WeightsError::Incompatible(report)) => reason_of(report),
        _ => None,
    };
    match reason {
        Some(reason) => ModelError::Head { file: file.to_owned(), reason },
        None => error,
    }
}

/// Returns the reason and the remedy if only heads differ.
fn reason_of(report: &Report) -> Option<String> {
    let only_heads = report.missing.iter().all(|leaf| is_path(&leaf.path) && leaf.shard.is_none())
        && report.unexpected.iter().all(|tensor| is_name(&tensor.name));
    if report.loaded.is_empty() || !report.mismatched.is_empty() || !only_heads {
        return None;
    }
    let other = report.unexpected.first().map(|tensor| &tensor.name);
    if report.missing.is_empty() {
        return other.map(|other| format!("the model has the head of another task ({other}); load it for that task"));
    }
    let missing = report.missing.iter().find(|leaf| !leaf.path.starts_with(POOLER))?;
    let name = missing.names.first().unwrap_or(&missing.path);
    let are_missing = match report.missing.len() {
        1 => "is missing".to_owned(),
        2 => "and another tensor are missing".to_owned(),
        count => format!("and {} other tensors are missing", count - 1),
    };
    let other = other.map(|other| format!(", and there is {other} of another task")).unwrap_or_default();
    Some(format!(
        "the model has no head for this task ({name} {are_missing}{other}); fine-tune it with a new head, or load a model \
         that has one"
    ))
}

/// True if a path in a model belongs to a head.
fn is_path(path: &str) -> bool {
    PATHS.iter().any(|head| path.starts_with(head))
}

/// True if a published name belongs to a head.
fn is_name(name: &str) -> bool {
    let bare = PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name);
    NAMES.iter().any(|head| bare.starts_with(head))
}

#[cfg(test)]
mod tests {
    use super::*;
    use grove_weights::{Loaded, Mismatched, Missing, Unexpected};

    fn explained(change: impl FnOnce(&mut Report)) -> String {
        let mut report = Report::default();
        report.loaded.push(Loaded { path: "wte.weight".into(), names: vec!["wte.weight".into()] });
        change(&mut report);
        of_head(WeightsError::Incompatible(Box::new(report)).into(), Path::new("run/model")).to_string()
    }

    fn missing(path: &str, name: &str) -> Missing {
        Missing { path: path.into(), shape: vec![192, 2], names: vec![name.into()], suggestions: vec![], shard: None }
    }

    fn unexpected(name: &str) -> Unexpected {
        Unexpected { name: name.into(), shape: vec![2, 192], suggestions: vec![] }
    }

    #[test]
    fn missing_heads_are_named_in_a_sentence() {
        let error = explained(|report| report.missing.push(missing("score.weight", "score.weight")));
        assert_eq!(
            error,
            "run/model: the model has no head for this task (score.weight is missing); fine-tune it with a new head, or \
             load a model that has one"
        );
        let error = explained(|report| {
            report.missing = vec![
                missing("bert.pooler.dense.weight", "bert.pooler.dense.weight"),
                missing("head.classifier.weight", "classifier.weight"),
                missing("head.classifier.bias", "classifier.bias"),
            ];
            report.unexpected.push(unexpected("cls.predictions.bias"));
        });
        assert!(
            error.contains("classifier.weight and 2 other tensors are missing, and there is cls.predictions"),
            "{error}"
        );
        let error = explained(|report| report.unexpected.push(unexpected("score.weight")));
        assert!(error.contains("has the head of another task (score.weight)"), "{error}");
    }

    #[test]
    fn other_differences_keep_the_report() {
        let changes: [fn(&mut Report); 5] = [
            |report| report.missing.push(missing("bert.pooler.dense.weight", "bert.pooler.dense.weight")),
            |report| report.missing.push(missing("h.0.attn.c_attn.weight", "h.0.attn.c_attn.weight")),
            |report| report.unexpected.push(unexpected("h.7.attn.c_attn.weight")),
            |report| {
                report.missing.push(missing("score.weight", "score.weight"));
                report.mismatched.push(Mismatched {
                    path: "wpe.weight".into(),
                    expected: vec![4],
                    found: vec![("wpe.weight".into(), vec![5])],
                });
            },
            |report| {
                report.loaded.clear();
                report.missing.push(missing("score.weight", "score.weight"));
            },
        ];
        for change in changes {
            let error = explained(change);
            assert!(error.contains("the checkpoint does not fit the model\n"), "{error}");
        }
    }
}
