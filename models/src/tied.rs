//! Output layers that are tied to the token embedding.

use grove_weights::{AdapterFiles, NameMap, TensorFiles, WeightsError};

use crate::error::{ModelError, Result};

/// Ends of the published names of token embeddings.
const TABLES: [&str; 3] = [".wte.weight", ".embed_tokens.weight", ".word_embeddings.weight"];

/// Returns true if a model's output layer is its token embedding. This is so if the configuration `says` so, unless the
/// files contain both matrices and they differ. (transformers 5 compares them too. Merging adapters can leave such
/// files.) Nor is it so if an adapter replaces the embedding only: with peft, the output layer keeps the model's own matrix.
///
/// `names` are the published names of the model with a separate output layer `head`; `table` is the path of its token
/// embedding.
pub(crate) fn is_tied(says: bool, checkpoint: &TensorFiles, names: &NameMap, [table, head]: [&str; 2]) -> Result<bool> {
    let [table, head] = [table, head].map(|path| Some(names.published(checkpoint, path)?.0));
    match (table, head) {
        (Some(table), Some(head)) if says && table != head => Ok(checkpoint.have_equal_values(table, head)?),
        (Some(table), None) if says && checkpoint.is_added(table) => {
            let own = |name: &&str| !checkpoint.is_added(name) && names.bare(name) == names.bare(table);
            checkpoint.names().find(own).map_or(Ok(false), |own| Ok(checkpoint.have_equal_values(own, table)?))
        }
        _ => Ok(says),
    }
}

/// Returns the error of loading a model with an adapter. If an output layer is missing and nothing else, and the adapter
/// replaces the embedding to which it was tied, the error says so.
pub(crate) fn with_reason(error: ModelError, adapter: Option<&AdapterFiles>) -> ModelError {
    let (ModelError::Weights(WeightsError::Incompatible(report)), Some(adapter)) = (&error, adapter) else {
        return error;
    };
    let is_head = |path: &str| path.starts_with("lm_head") || path == "head.decoder";
    let lacks_head = !report.missing.is_empty() && report.missing.iter().all(|missing| is_head(&missing.path));
    let is_table = |name: &str| TABLES.iter().any(|table| name.ends_with(table));
    if !lacks_head || !report.mismatched.is_empty() || !adapter.replacements().any(|(_, name)| is_table(&name)) {
        return error;
    }
    if let Some(error) = adapter.embedding_error() {
        return error.into();
    }
    let reason = "it has the token embedding (modules_to_save) and not the output layer, which is tied to the embedding: \
                  with peft the two are no longer the same; train the adapter with ensure_weight_tying, or merge the \
                  adapter with peft";
    adapter.error(reason).into()
}
