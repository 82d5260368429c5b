//! JSON Lines: an object on each line.

use grove_files::FileError;
use serde_json::Value as Json;
use std::{
    fs::File,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{DataError, Place, Record, Records, Value, utf8};

/// Objects of a JSON Lines file. Blank lines are skipped.
pub(super) struct JsonLines {
    file: Arc<PathBuf>,
    lines: BufReader<File>,
    line: Vec<u8>,
    number: u64,
    /// Names of the fields to return.
    columns: Vec<String>,
}

impl JsonLines {
    pub(super) fn open(file: &Path, columns: &[&str]) -> Result<Self, DataError> {
        let opened = File::open(file).map_err(FileError::io("read", file))?;
        Ok(Self {
            file: Arc::new(file.to_owned()),
            lines: BufReader::new(opened),
            line: vec![],
            number: 0,
            columns: columns.iter().map(|&name| name.to_owned()).collect(),
        })
    }

    /// Reads the next line that is not blank. Returns false at the end.
    fn advance(&mut self) -> Result<bool, DataError> {
        loop {
            self.line.clear();
            let read = self.lines.read_until(b'\n', &mut self.line);
            if read.map_err(|error| FileError::io("read", &*self.file)(error))? == 0 {
                return Ok(false);
            }
            self.number += 1;
            if self.number == 1 && self.line.starts_with(b"\xef\xbb\xbf") {
                self.line.drain(..3);
            }
            if !self.line.trim_ascii().is_empty() {
                return Ok(true);
            }
        }
    }

    fn record(&mut self) -> Result<Option<Record>, DataError> {
        if !self.advance()? {
            return Ok(None);
        }
        let place = Place::line(&self.file, self.number);
        let values = self.values().map_err(|reason| place.error(reason))?;
        Ok(Some(Record { place, values, cells: vec![] }))
    }

    fn values(&self) -> Result<Vec<Value>, String> {
        let line = utf8(&self.line)?;
        let object: Json = serde_json::from_str(line).map_err(|error| format!("this is not JSON: {error}"))?;
        self.columns.iter().map(|name| field(&object, name)).collect()
    }
}

impl Iterator for JsonLines {
    type Item = Result<Record, DataError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.record().transpose()
    }
}

impl Records for JsonLines {}

fn field(object: &Json, name: &str) -> Result<Value, String> {
    match object.get(name) {
        Some(value) => Ok(value.clone().into()),
        None => {
            let known: Vec<&str> = object.as_object().into_iter().flatten().map(|(name, _)| &**name).collect();
            Err(format!("there is no field `{name}`; the record has: {}", known.join(", ")))
        }
    }
}
