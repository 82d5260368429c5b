//! Records of data sets.

use grove_train::data::records::{TableFormat, open};

use crate::{Refused, file};

/// Reads the first three columns of a Parquet file.
///
/// # Errors
/// If the file is rejected.
pub fn parquet(bytes: &[u8]) -> Result<(), Refused> {
    let (_directory, path) = file("rows.parquet", bytes)?;
    for record in open(&path, &["1", "2", "3"], TableFormat::default())? {
        record?;
    }
    Ok(())
}
