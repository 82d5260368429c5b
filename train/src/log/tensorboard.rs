//! TensorBoard event files.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use grove_files::FileError;

use crate::log::append::{AppendFile, make_directory};
use crate::log::event::{Event, FILE_VERSION, SessionLog, Status, Summary, Value, What, frame};
use crate::log::{LogError, Record, Sink};

/// Prefix of the names of event files, required by TensorBoard.
const PREFIX: &str = "events.out.tfevents.";

/// Writer of TensorBoard event files, shown by `tensorboard --logdir DIRECTORY`.
///
/// Each value of a record is a point of the curve of that name; `epoch` has a curve too. TensorBoard stores values as
/// f32. [`record`](Sink::record) passes the event to the operating system.
pub struct TensorBoard {
    file: AppendFile,
}

impl TensorBoard {
    /// Starts a run in this directory, which is created if missing. Event files of earlier runs stay, but TensorBoard
    /// shows the new run in their place.
    ///
    /// # Errors
    /// [`LogError::Io`] and [`LogError::NotADirectory`].
    pub fn create(directory: impl AsRef<Path>) -> Result<Self, LogError> {
        Self::start(directory.as_ref(), 0)
    }

    /// Resumes the run in this directory after `step` updates, with a new file that makes TensorBoard discard the
    /// events of later steps.
    ///
    /// # Errors
    /// [`LogError::Io`] and [`LogError::NotADirectory`].
    pub fn resume(directory: impl AsRef<Path>, step: u64) -> Result<Self, LogError> {
        Self::start(directory.as_ref(), step.saturating_add(1))
    }

    fn start(directory: &Path, void_from: u64) -> Result<Self, LogError> {
        make_directory(directory)?;
        let file = AppendFile::open(&next_path(directory)?, File::options().create_new(true))?;
        let mut board = Self { file };
        board.write(0, What::FileVersion(FILE_VERSION.into()))?;
        board.write(void_from, What::SessionLog(SessionLog { status: Status::Start.into() }))?;
        Ok(board)
    }

    /// Adds a text, such as the run's configuration. TensorBoard renders Markdown; put text with significant line
    /// breaks between lines of three backticks.
    ///
    /// # Errors
    /// [`LogError::Io`].
    pub fn text(&mut self, name: &str, step: u64, markdown: &str) -> Result<(), LogError> {
        self.write(step, What::Summary(Summary { value: vec![Value::text(name, markdown)] }))
    }

    /// Path of the event file since this run started or resumed.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    fn write(&mut self, step: u64, what: What) -> Result<(), LogError> {
        let wall_time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64());
        let step = i64::try_from(step).unwrap_or(i64::MAX);
        self.file.append(&frame(&Event { wall_time, step, what: Some(what) }))
    }
}

impl Sink for TensorBoard {
    fn record(&mut self, record: &Record) -> Result<(), LogError> {
        let mut value: Vec<_> = record.values.iter().map(|(name, value)| Value::scalar(name, *value as f32)).collect();
        value.push(Value::scalar("epoch", record.epoch as f32));
        self.write(record.step, What::Summary(Summary { value }))
    }

    fn flush(&mut self) -> Result<(), LogError> {
        self.file.sync()
    }
}

/// Returns the name of the next file, `events.out.tfevents.SECONDS.HOST.PID.grove`.
///
/// TensorBoard reads the files of a directory in the order of their names and does not return to an earlier one. The
/// seconds must therefore exceed those of every existing file: a run may resume within a second, or on a machine whose
/// clock is behind.
fn next_path(directory: &Path) -> Result<PathBuf, LogError> {
    let mut seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    for entry in std::fs::read_dir(directory).map_err(FileError::io("list", directory))? {
        let name = entry.map_err(FileError::io("list", directory))?.file_name();
        let earlier = name.to_str().and_then(|name| name.strip_prefix(PREFIX)).and_then(|rest| rest.split('.').next());
        // Ten digits suffice until the year 2286; a longer number is not a time.
        if let Some(earlier) = earlier.filter(|text| text.len() == 10).and_then(|text| text.parse::<u64>().ok()) {
            seconds = seconds.max(earlier.saturating_add(1));
        }
    }
    let host = gethostname::gethostname().to_string_lossy().replace(std::path::is_separator, "-");
    Ok(directory.join(format!("{PREFIX}{seconds:010}.{host}.{}.grove", std::process::id())))
}
