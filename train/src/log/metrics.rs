//! `metrics.jsonl`: one record per line.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use grove_files::{FileError, directory_of, write_atomically};

use crate::log::append::{AppendFile, make_directory};
use crate::log::{LogError, Record, Sink};

/// Maximum length of a line, in bytes. A record takes a few hundred bytes. The limit avoids reading a file without line
/// ends into memory.
const LONGEST_LINE: usize = 1 << 20;

/// JSON Lines file with one [`Record`] per line, for `pandas.read_json(path, lines=True)` and other programs.
///
/// [`record`](Sink::record) passes the record to the operating system, so that a killed run loses none;
/// [`flush`](Sink::flush) makes records survive a power failure too.
pub struct MetricsFile {
    file: AppendFile,
}

impl MetricsFile {
    /// Creates a new file, replacing an existing one. Missing directories are created.
    ///
    /// # Errors
    /// [`LogError::Io`] and [`LogError::NotADirectory`].
    pub fn create(path: impl AsRef<Path>) -> Result<Self, LogError> {
        let path = path.as_ref();
        make_directory(directory_of(path))?;
        File::create(path).map_err(FileError::io("create", path))?;
        Ok(Self { file: AppendFile::open(path, &mut File::options())? })
    }

    /// Opens the file of a run that resumes after `step` updates. Keeps the records up to that step, drops later ones
    /// and an incomplete last line, and returns the remaining records. If there is no file, this is
    /// [`MetricsFile::create`].
    ///
    /// The clock of the resumed run should continue from the `seconds` of the last record.
    ///
    /// # Errors
    /// [`LogError::BadLine`] if a line other than the last is not a record; the file is then unchanged.
    /// [`LogError::Io`] and [`LogError::NotADirectory`].
    pub fn resume(path: impl AsRef<Path>, step: u64) -> Result<(Self, Vec<Record>), LogError> {
        let path = path.as_ref();
        if !path.try_exists().map_err(FileError::io("open", path))? {
            return Ok((Self::create(path)?, Vec::new()));
        }
        let (mut text, mut records) = (Vec::new(), Vec::new());
        each_record(path, |line, record| {
            if record.step <= step {
                // Copy the line, because reading and writing a number could change its last digit.
                text.extend_from_slice(line);
                text.push(b'\n');
                records.push(record);
            }
        })?;
        write_atomically(path, |writer| writer.write_all(&text))?;
        Ok((Self { file: AppendFile::open(path, &mut File::options())? }, records))
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        self.file.path()
    }
}

impl Sink for MetricsFile {
    fn record(&mut self, record: &Record) -> Result<(), LogError> {
        if let Some(name) = record.reserved_name() {
            return Err(LogError::ReservedName { step: record.step, name: name.into() });
        }
        let mut line = serde_json::to_vec(record)
            .map_err(|error| FileError::io("write", self.file.path())(std::io::Error::other(error)))?;
        line.push(b'\n');
        self.file.append(&line)
    }

    fn flush(&mut self) -> Result<(), LogError> {
        self.file.sync()
    }
}

/// Reads the records of a metrics file. The run may have ended, been killed, or still be writing: an incomplete last
/// line is skipped.
///
/// # Errors
/// [`LogError::BadLine`] and [`LogError::Io`].
pub fn read_metrics(path: impl AsRef<Path>) -> Result<Vec<Record>, LogError> {
    let mut records = Vec::new();
    each_record(path.as_ref(), |_, record| records.push(record))?;
    Ok(records)
}

/// Calls `each` with every line, without its line end, and its record.
fn each_record(path: &Path, mut each: impl FnMut(&[u8], Record)) -> Result<(), LogError> {
    let mut reader = BufReader::new(File::open(path).map_err(FileError::io("open", path))?);
    let bad = |line, reason| LogError::BadLine { path: path.into(), line, reason };
    let mut bytes = Vec::new();
    for line in 1.. {
        bytes.clear();
        match reader.by_ref().take(LONGEST_LINE as u64).read_until(b'\n', &mut bytes) {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) => return Err(FileError::io("read", path)(error).into()),
        }
        // A line and its end are written in one call, so a line without an end was cut off by a killed run, a full disk
        // or a power failure (which can leave zeros).
        let torn = bytes.last() != Some(&b'\n');
        let text = bytes.trim_ascii();
        if text.is_empty() {
            continue;
        }
        match serde_json::from_slice(text) {
            Ok(record) => each(text, record),
            Err(_) if torn && bytes.len() < LONGEST_LINE => break,
            Err(_) if torn => return Err(bad(line, format!("it is longer than {LONGEST_LINE} bytes"))),
            Err(error) => return Err(bad(line, error.to_string())),
        }
    }
    Ok(())
}
