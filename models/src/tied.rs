//! Output layers that share the weights of the token embedding.

use grove_weights::{NameMap, TensorFiles};

use crate::error::Result;

/// True if the output layer of a model is its token embedding, as its configuration `says`, unless the files have both matrices
/// and they differ: then each is what it is. (transformers 5 compares them too. Merged adapters leave such files.)
///
/// `names` are those of the model with an output layer of its own, `head`; `table` is the path of its token embedding.
///
/// # Errors
/// One of the tensors cannot be read.
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
