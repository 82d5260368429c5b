use std::path::Path;

use super::header::MAGIC;
use crate::error::Result;

/// Alignment of the data in an `.npy` file, in bytes.
const ALIGNMENT: usize = 64;
/// Bytes before the text of a header of version 1: magic bytes, version, length of the text.
const PREFIX: usize = MAGIC.len() + 4;

/// Writes an array of f32 as an `.npy` file, which `numpy.load` reads. The file appears whole or not at all.
///
/// ```
/// # let directory = tempfile::tempdir()?;
/// let file = directory.path().join("vectors.npy");
/// grove_weights::write_npy(&file, &[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`WeightsError::File`](crate::WeightsError::File).
///
/// # Panics
/// If the shape does not have as many elements as there are values.
pub fn write_npy(file: impl AsRef<Path>, shape: &[usize], values: &[f32]) -> Result<()> {
    assert_eq!(shape.iter().product::<usize>(), values.len(), "values of an array of shape {shape:?}");
    let sizes: String = shape.iter().map(|size| format!("{size}, ")).collect();
    let mut text = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}), }}", sizes.trim_end());
    let padded = (PREFIX + text.len() + 1).next_multiple_of(ALIGNMENT) - PREFIX;
    text.push_str(&" ".repeat(padded - text.len() - 1));
    text.push('\n');
    grove_files::write_atomically(file, |writer| {
        writer.write_all(MAGIC)?;
        writer.write_all(&[1, 0])?;
        writer.write_all(&(text.len() as u16).to_le_bytes())?;
        writer.write_all(text.as_bytes())?;
        values.iter().try_for_each(|value| writer.write_all(&value.to_le_bytes()))
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TensorFiles;

    #[test]
    fn reads_back_what_it_writes() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        for (shape, count) in [(vec![2, 3], 6), (vec![5], 5), (vec![0, 4], 0), (vec![], 1)] {
            let values: Vec<f32> = (0..count).map(|i| i as f32 - 1.5).collect();
            let file = directory.path().join("array.npy");
            write_npy(&file, &shape, &values).expect("written");
            let length = std::fs::metadata(&file).expect("a file").len() as usize;
            assert_eq!((length - 4 * count) % ALIGNMENT, 0, "aligned data");
            let files = TensorFiles::open(&file).expect("an array");
            let data = files.tensor("array").expect("readable");
            assert_eq!((data.shape.as_slice(), data.iter::<f32>().collect::<Vec<_>>()), (&shape[..], values));
        }
    }
}
