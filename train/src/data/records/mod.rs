//! Records of files: named columns, read row by row.
//!
//! [`open`] reads delimited tables (CSV, TSV), JSON Lines and Parquet. The readers of texts, labelled texts and images use it.
//!
//! ```
//! use grove_train::data::records::{TableFormat, Value, open};
//!
//! let file = "../models/assets/bert-austen/speech.csv";
//! let mut records = open(file.as_ref(), &["text", "label"], TableFormat::default())?;
//! let first = records.next().expect("a record")?;
//! assert_eq!(first.place.to_string(), format!("{file}, line 2"));
//! assert!(matches!(&first.values[..], [Value::Text(_), Value::Text(_)]));
//! # Ok::<(), grove_train::data::DataError>(())
//! ```

mod json_lines;
mod parquet;
mod place;
mod table;
mod value;

use std::path::Path;

use super::{
    DataError,
    text::{describe_non_utf8, is_utf16},
};

pub use place::Place;
pub use value::Value;

/// A record of a file.
#[derive(Clone, Debug)]
pub struct Record {
    /// File and line or row, for error messages.
    pub place: Place,
    /// Values of the columns that were requested from [`open`], in the requested order.
    pub values: Vec<Value>,
    /// All cells of a row of a delimited table; empty for other formats.
    pub cells: Vec<String>,
}

/// The records of a file in order. After an error the iterator may end.
pub trait Records: Iterator<Item = Result<Record, DataError>> {
    /// Column names of a delimited table with a header; empty for other files.
    fn header(&self) -> &[String] {
        &[]
    }

    /// Names of all classes of a column, in their order, if the file has them.
    ///
    /// - `index`: index of the column in the request to [`open`]
    fn classes(&self, _index: usize) -> Option<&[String]> {
        None
    }
}

/// Format of delimited tables.
#[derive(Clone, Copy, Debug)]
pub struct TableFormat {
    /// True if the first line has the column names.
    pub header: bool,
    /// Delimiter of the columns. `None`: a tab in `.tsv` files, a comma in others.
    pub delimiter: Option<u8>,
}

impl Default for TableFormat {
    fn default() -> Self {
        Self { header: true, delimiter: None }
    }
}

/// Opens a file of records.
///
/// - `.jsonl` and `.ndjson` files have an object on each line. They are read line by line.
/// - `.parquet` files are read in row groups, and only the requested columns. Integers of named classes, as
///   `datasets` of Hugging Face writes them, become the names.
/// - `.tsv` files have columns separated by tabs, without quotes.
/// - `.csv` and `.txt` files, and those without an extension, are CSV.
///
/// `columns` are names. In tables and Parquet they may also be numbers from 1.
///
/// # Errors
/// A file that cannot be read, or has another extension; a missing column.
pub fn open(file: &Path, columns: &[&str], format: TableFormat) -> Result<Box<dyn Records>, DataError> {
    Ok(match extension(file) {
        "jsonl" | "ndjson" => Box::new(json_lines::JsonLines::open(file, columns)?),
        "parquet" => Box::new(parquet::ParquetRows::open(file, columns)?),
        "tsv" | "csv" | "txt" | "" => Box::new(table::Table::open(file, columns, format)?),
        other => {
            return Err(DataError::other(format!(
                "{}: texts are read from .csv, .tsv, .txt, .jsonl and .parquet files, but this is a .{other}; convert \
                 it",
                file.display()
            )));
        }
    })
}

/// True if the extension of a file is that of JSON Lines or Parquet, whose records can be read as texts.
pub fn is_record_file(file: &Path) -> bool {
    ["jsonl", "ndjson", "parquet"].contains(&extension(file))
}

fn extension(file: &Path) -> &str {
    file.extension().and_then(|extension| extension.to_str()).unwrap_or("")
}

/// Converts bytes to text. The error names the command that converts the file.
fn utf8(bytes: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(bytes).map_err(|error| {
        let at = error.valid_up_to();
        if is_utf16(bytes) {
            return describe_non_utf8(bytes, at);
        }
        format!(
            "0x{:02x} after \"{}\" is not UTF-8; convert the file from the encoding it has, such as `iconv -f ISO-8859-1 -t \
             UTF-8`",
            bytes[at],
            String::from_utf8_lossy(&bytes[at.saturating_sub(20)..at])
        )
    })
}
