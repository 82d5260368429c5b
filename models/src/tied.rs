//! Output layers that are tied to the token embedding.

use grove_weights::{NameMap, TensorFiles};

use crate::{
    error::{ModelError, Result},
    peft::MERGE,
};

/// Returns true if a model's output layer is its token embedding. This is so if the configuration `says` so, unless the
/// files contain both matrices and they differ. (transformers 5 compares them too. Merging adapters can leave such
/// files.)
///
/// `names` are the published names of the model with a separate output layer `head`; `table` is the path of its token
/// embedding.
///
/// # Errors
/// A tensor cannot be read, or an adapter replaces the embedding of a tied model and not its output layer.
pub(crate) fn is_tied(says: bool, checkpoint: &TensorFiles, names: &NameMap, [table, head]: [&str; 2]) -> Result<bool> {
    let found = [table, head].map(|path| names.published(checkpoint, path));
    match found {
        [Some((table, _)), Some((head, _))] if says && table != head => Ok(checkpoint.have_equal_values(table, head)?),
        [Some((table, of_table)), None] if says && checkpoint.is_added(table) => {
            // peft replaces the embedding, and the output layer keeps the model's own matrix.
            let reason = format!(
                "modules_to_save has the token embedding, {table}, to which the model's output layer is tied: with peft \
                 the two are no longer the same; train the adapter with ensure_weight_tying, or {MERGE}"
            );
            Err(ModelError::Adapter { file: of_table.file, reason })
        }
        _ => Ok(says),
    }
}
