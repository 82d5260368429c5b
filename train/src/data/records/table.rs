//! Delimited tables, such as CSV and TSV.

use csv::{ByteRecord, Reader, ReaderBuilder};
use grove_files::FileError;
use std::{
    io::Cursor,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{DataError, Place, Record, Records, TableFormat, Value, utf8};

/// Rows of a delimited table. Empty rows are skipped.
pub(super) struct Table {
    file: Arc<PathBuf>,
    reader: Reader<Cursor<Vec<u8>>>,
    row: ByteRecord,
    delimiter: u8,
    header: Vec<String>,
    /// Indices of the columns to return.
    columns: Vec<usize>,
}

impl Table {
    pub(super) fn open(file: &Path, columns: &[&str], format: TableFormat) -> Result<Self, DataError> {
        let bytes = std::fs::read(file).map_err(FileError::io("read", file))?;
        let default = if super::extension(file) == "tsv" { b'\t' } else { b',' };
        let delimiter = format.delimiter.unwrap_or(default);
        let reader = ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .delimiter(delimiter)
            .quoting(delimiter != b'\t')
            .from_reader(Cursor::new(bytes));
        let (file, row) = (Arc::new(file.to_owned()), ByteRecord::new());
        let mut table = Self { file, reader, row, delimiter, header: vec![], columns: vec![] };
        if format.header {
            if !table.advance()? {
                return Ok(table);
            }
            let names: Result<Vec<_>, _> = table.row.iter().map(|cell| utf8(cell).map(str::to_owned)).collect();
            table.header = names.map_err(|reason| table.place().error(reason))?;
        }
        let found = columns.iter().map(|name| table.column(name, format.header));
        table.columns = found.collect::<Result<_, _>>()?;
        Ok(table)
    }

    /// Reads the next row. Returns false at the end.
    fn advance(&mut self) -> Result<bool, DataError> {
        let read = self.reader.read_byte_record(&mut self.row);
        let read = read.map_err(|error| DataError::other(format!("{}: {error}", self.file.display())))?;
        match self.unclosed_quote().filter(|_| read) {
            Some(place) => Err(place.error(
                "the quote that opens here is not closed; close it, or double the quotes inside of a quoted cell",
            )),
            None => Ok(read),
        }
    }

    /// Returns the line of a quote in the current row that is open at the end of the file.
    fn unclosed_quote(&self) -> Option<Place> {
        let bytes = self.reader.get_ref().get_ref();
        if self.delimiter == b'\t' || self.reader.position().byte() < bytes.len() as u64 {
            return None;
        }
        let (byte, line) = self.row.position().map(|position| (position.byte() as usize, position.line()))?;
        let row = bytes.get(byte..)?;
        let before = &row[..open_quote(row, self.delimiter)?];
        Some(Place::line(&self.file, line + before.iter().filter(|byte| **byte == b'\n').count() as u64))
    }

    /// Returns the place of the current row.
    fn place(&self) -> Place {
        let (byte, line) = self.row.position().map_or((0, 0), |position| (position.byte() as usize, position.line()));
        // The reader's line number is that of the first blank line before the row.
        let bytes = self.reader.get_ref().get_ref();
        let skipped = bytes[byte.min(bytes.len())..].iter().take_while(|byte| b"\r\n".contains(byte));
        Place::line(&self.file, line + skipped.filter(|byte| **byte == b'\n').count() as u64)
    }

    /// Returns the index of a column: of its name, or of its number from 1.
    fn column(&self, name: &str, has_header: bool) -> Result<usize, DataError> {
        let number = || name.parse::<usize>().ok().filter(|number| *number > 0).map(|number| number - 1);
        self.header.iter().position(|known| known == name).or_else(number).ok_or_else(|| {
            let known = match has_header {
                true => format!("{} (if these are not names, the file has no header)", self.header.join(", ")),
                false => "no names, because there is no header".into(),
            };
            let problem = format!("{}: there is no column `{name}`; the file has: {known}", self.file.display());
            no_column(problem, &self.header, self.delimiter)
        })
    }

    /// Returns a cell of the current row.
    fn cell(&self, index: usize, place: &Place) -> Result<Value, DataError> {
        let Some(cell) = self.row.get(index) else {
            let between = match self.delimiter {
                b'\t' => "tabs".to_owned(),
                b',' => "commas".to_owned(),
                other => format!("'{}'", char::from(other)),
            };
            let (number, has) = (index + 1, self.row.len());
            let lines = self.row.iter().flatten().filter(|byte| **byte == b'\n').count();
            let joined = match lines {
                0 => String::new(),
                _ => format!(" (a quote joins {} lines to one row)", lines + 1),
            };
            let problem = format!("{place}: there is no column {number} here, only {has}, between {between}{joined}");
            return Err(no_column(problem, &self.cells(), self.delimiter));
        };
        utf8(cell).map(|cell| Value::Text(cell.to_owned())).map_err(|reason| place.error(reason))
    }

    /// Returns all cells of the current row.
    fn cells(&self) -> Vec<String> {
        self.row.iter().map(|cell| String::from_utf8_lossy(cell).into_owned()).collect()
    }

    fn record(&mut self) -> Result<Option<Record>, DataError> {
        while self.advance()? {
            if self.row.iter().all(|cell| cell.trim_ascii().is_empty()) {
                continue;
            }
            let place = self.place();
            let values = self.columns.iter().map(|&index| self.cell(index, &place)).collect::<Result<_, _>>()?;
            return Ok(Some(Record { place, values, cells: self.cells() }));
        }
        Ok(None)
    }
}

impl Iterator for Table {
    type Item = Result<Record, DataError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.record().transpose()
    }
}

impl Records for Table {
    fn header(&self) -> &[String] {
        &self.header
    }
}

/// Returns the index of a quote that is open at the end of a table's bytes, which begin with a row.
fn open_quote(bytes: &[u8], delimiter: u8) -> Option<usize> {
    let mut open = None;
    let mut begins = true;
    let mut at = if bytes.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
    while let Some(&byte) = bytes.get(at) {
        match open {
            // Two quotes inside of a quoted cell are an escaped quote.
            Some(_) if byte == b'"' && bytes.get(at + 1) == Some(&b'"') => at += 1,
            Some(_) if byte == b'"' => open = None,
            Some(_) => {}
            // A quote opens a cell only at its beginning.
            None if byte == b'"' && begins => open = Some(at),
            None => {}
        }
        begins = open.is_none() && (byte == delimiter || b"\r\n".contains(&byte));
        at += 1;
    }
    open
}

/// Returns the error of a missing column. A table with a single column may use another delimiter, which the error then
/// names.
fn no_column(problem: String, columns: &[String], delimiter: u8) -> DataError {
    let [only] = columns else { return DataError::other(problem) };
    let is_other = |byte: &u8| *byte != delimiter && only.contains(char::from(*byte));
    match [b'\t', b';', b',', b'|'].into_iter().find(is_other) {
        Some(delimiter) => DataError::Delimiter { problem, delimiter: char::from(delimiter) },
        None => DataError::other(problem),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of rows, or the error.
    fn rows(content: &str) -> Result<usize, String> {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("a.csv");
        std::fs::write(&file, content).expect("written");
        let table =
            Table::open(&file, &["text", "label"], TableFormat::default()).map_err(|error| error.to_string())?;
        let rows: Result<Vec<_>, _> = table.collect();
        rows.map(|rows| rows.len()).map_err(|error| error.to_string())
    }

    #[test]
    fn unclosed_quotes_are_named_with_their_line() {
        for (content, line) in [
            ("text,label\n\"a,b\nc,d\n", 2),
            ("text,label\na,b\n\nc,\"d\ne,f\n", 4),
            ("text,label\r\n\"a\nb\",c\r\n\"d\"\"\r\n", 4),
            ("text,\"label\na,b\n", 1),
            ("\u{feff}\"text,label\n", 1),
        ] {
            let error = rows(content).expect_err("refused");
            let words = format!("a.csv, line {line}: the quote that opens here is not closed");
            assert!(error.contains(&words), "{content:?}: {error}");
        }
    }

    #[test]
    fn closed_quotes_and_quotes_inside_of_cells_are_text() {
        for (content, number) in [
            ("text,label\n\"a \"\"b\"\"\",c\n", 1),
            ("text,label\n5\" tall,c\nd,6\"", 2),
            ("text,label\n\"\",c\n\"a\nb\",\"\"", 2),
            ("text,label\n\"a\" b,c\n", 1),
        ] {
            assert_eq!(rows(content), Ok(number), "{content:?}");
        }
        let error = rows("text,label\n\"a,b\nc,d\n\"\ne,f\n").expect_err("one column");
        assert!(error.contains("line 2: there is no column 2 here") && error.contains("joins 3 lines"), "{error}");
    }
}
