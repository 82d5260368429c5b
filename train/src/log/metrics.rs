//! `metrics.jsonl`: one record a line.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use grove_files::write_atomically;

use crate::log::append::{AppendFile, make_directory};
use crate::log::{LogError, Record, Sink};

/// Longest line that is read, in bytes. A record takes a few hundred; a file without line ends is not read into
/// memory as one line.
const LONGEST_LINE: usize = 1 << 20;

/// A file of JSON lines, one [`Record`] each, for programs to read: `pandas.read_json(path, lines=True)`.
///
/// A record is in the hands of the operating system when [`record`](Sink::record) returns, so that a killed run
/// loses none; [`flush`](Sink::flush) makes them survive a power failure too.
pub struct MetricsFile {
    file: AppendFile,
}

impl MetricsFile {
    /// A new file, in place of one that may be there. Missing directories are made.
    ///
    /// # Errors
    /// [`LogError::Io`] and [`LogError::NotADirectory`].
    pub fn create(path: impl AsRef<Path>) -> Result<Self, LogError> {
        let path = path.as_ref();
        make_directory(path.parent().unwrap_or(Path::new("")))?;
        File::create(path).map_err(LogError::io("create", path))?;
        Ok(Self { file: AppendFile::open(path, &mut File::options())? })
    }

    /// Takes up the file of a run that resumes after `step` updates: keeps the records up to and with that step,
    /// drops later ones and a last line that was torn, and returns those that remain. Without a file it is
    /// [`MetricsFile::create`].
    ///
    /// The last record's `seconds` is where the resumed run's clock starts.
    ///
    /// # Errors
    /// [`LogError::BadLine`] if a line other than the last is no record; the file is then left as it is.
    /// [`LogError::Io`] and [`LogError::NotADirectory`].
    pub fn resume(path: impl AsRef<Path>, step: u64) -> Result<(Self, Vec<Record>), LogError> {
        let path = path.as_ref();
        if !path.try_exists().map_err(LogError::io("open", path))? {
            return Ok((Self::create(path)?, Vec::new()));
        }
        let (mut text, mut records) = (Vec::new(), Vec::new());
        each_record(path, |line, record| {
            if record.step <= step {
                // The line as it was: reading and writing a number could change its last digit.
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
            .map_err(|error| LogError::io("write", self.file.path())(std::io::Error::other(error)))?;
        line.push(b'\n');
        self.file.append(&line)
    }

    fn flush(&mut self) -> Result<(), LogError> {
        self.file.sync()
    }
}

/// The records of a metrics file, of a run that ended, is killed, or still goes on: a torn last line is left out.
///
/// # Errors
/// [`LogError::BadLine`] and [`LogError::Io`].
pub fn read_metrics(path: impl AsRef<Path>) -> Result<Vec<Record>, LogError> {
    let mut records = Vec::new();
    each_record(path.as_ref(), |_, record| records.push(record))?;
    Ok(records)
}

/// Calls `each` with every line, without its end, and the record on it.
fn each_record(path: &Path, mut each: impl FnMut(&[u8], Record)) -> Result<(), LogError> {
    let mut reader = BufReader::new(File::open(path).map_err(LogError::io("open", path))?);
    let bad = |line, reason| LogError::BadLine { path: path.into(), line, reason };
    let mut bytes = Vec::new();
    for line in 1.. {
        bytes.clear();
        match reader.by_ref().take(LONGEST_LINE as u64).read_until(b'\n', &mut bytes) {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) => return Err(LogError::io("read", path)(error)),
        }
        // A line is written in one go with its end, so a line without one is where a run was killed, the disk
        // was full, or the power failed (which can leave zeros).
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
