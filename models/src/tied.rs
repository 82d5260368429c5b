//! Output layers that are tied to the token embedding.

use grove_weights::{NameMap, TensorFiles};

use crate::error::Result;

/// Returns true if a model's output layer is its token embedding. This is so if the configuration `says` so, unless the
/// files contain both matrices and they differ. (transformers 5 compares them too. Merging adapters can leave such
/// files.)
///
/// `names` are the published names of the model with a separate output layer `head`; `table` is the path of its token
/// embedding.
///
/// # Errors
/// A tensor cannot be read.
pub(crate) fn is_tied(says: bool, checkpoint: &TensorFiles, names: &NameMap, [table, head]: [&str; 2]) -> Result<bool> {
    let found = [table, head].map(|path| names.published(checkpoint, path));
    let [Some((table, of_table)), Some((head, of_head))] = found else { return Ok(says) };
    if !says || table == head {
        return Ok(says);
    }
    if of_table.shape != of_head.shape {
        return Ok(false);
    }
    let (table, head) = (checkpoint.tensor(table)?, checkpoint.tensor(head)?);
    Ok(table.bytes == head.bytes || of_table.dtype != of_head.dtype && table.iter::<f32>().eq(head.iter::<f32>()))
}
