//! One download, and what to make of its failure.

use std::cell::Cell;
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use hf_hub::api::Progress;
use hf_hub::api::sync::{Api, ApiError, ApiRepo};
use indicatif::{ProgressBar, ProgressStyle};

/// Pause before the first repetition; each later one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// Longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Why a request failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// The hub answered with an error.
    Status(u16),
    /// There was no answer.
    Unreachable(String),
    /// The answer broke off.
    Broken(String),
    /// What was kept of an earlier transfer does not fit; it has been removed.
    Resume(String),
    /// The answer is not what a hub answers.
    Answer(String),
    /// The cache cannot be written.
    Disk(std::io::Error),
}

impl Failure {
    /// Whether another attempt may succeed.
    fn is_passing(&self) -> bool {
        match self {
            Self::Status(status) => *status >= 500 || matches!(status, 408 | 425 | 429),
            Self::Broken(_) | Self::Resume(_) => true,
            Self::Unreachable(_) | Self::Answer(_) | Self::Disk(_) => false,
        }
    }
}

impl Failure {
    /// Why a question that writes nothing failed: whatever the system forbids, it is not the disk.
    pub(super) fn of_question(error: ApiError) -> Self {
        match Self::from(error) {
            Self::Disk(error) => Self::Unreachable(error.to_string()),
            failure => failure,
        }
    }
}

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Self {
        match error {
            ApiError::RequestError(error) => match *error {
                ureq::Error::StatusCode(status) => Self::Status(status),
                ureq::Error::Io(error) => Self::from(error),
                ureq::Error::HostNotFound => Self::Unreachable("the host's name is not known".into()),
                error @ (ureq::Error::ConnectionFailed | ureq::Error::Timeout(_) | ureq::Error::Tls(_)) => {
                    Self::Unreachable(error.to_string())
                }
                ureq::Error::Rustls(error) => Self::Unreachable(format!(
                    "{error} (certificates are checked against the public authorities, not the system's)"
                )),
                error @ ureq::Error::Protocol(_) => Self::Broken(error.to_string()),
                error => Self::Answer(error.to_string()),
            },
            ApiError::IoError(error) => Self::from(error),
            ApiError::TooManyRetries(error) => Self::from(*error),
            ApiError::InvalidResume => Self::Resume("what was kept of it is longer than the file".into()),
            ApiError::LockAcquisition(path) => {
                Self::Answer(format!("another program is downloading it (lock {})", path.display()))
            }
            error @ (ApiError::MissingHeader(_) | ApiError::InvalidHeader(_) | ApiError::ParseIntError(_)) => {
                Self::Answer(format!("its answer is not that of a hub: {error}"))
            }
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            ErrorKind::UnexpectedEof
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::BrokenPipe
            | ErrorKind::Interrupted
            | ErrorKind::WouldBlock => Self::Broken(error.to_string()),
            ErrorKind::PermissionDenied
            | ErrorKind::StorageFull
            | ErrorKind::QuotaExceeded
            | ErrorKind::ReadOnlyFilesystem
            | ErrorKind::NotADirectory
            | ErrorKind::AlreadyExists
            | ErrorKind::NotFound => Self::Disk(error),
            // Refused, no route, a name that cannot be looked up (which has no kind of its own), ….
            _ => Self::Unreachable(error.to_string()),
        }
    }
}

/// Runs `attempt` until it succeeds, fails for good, or has failed `attempts` times.
pub(super) fn with_retries<T>(attempts: usize, mut attempt: impl FnMut() -> Result<T, Failure>) -> Result<T, Failure> {
    let mut pause = FIRST_PAUSE;
    for _ in 1..attempts {
        match attempt() {
            Err(failure) if failure.is_passing() => std::thread::sleep(pause),
            result => return result,
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
    attempt()
}

/// Downloads `file` to where the cache keeps it, `path`, continuing what an earlier attempt left.
pub(super) fn download(api: &Api, repo: &ApiRepo, file: &str, path: &Path, progress: bool) -> Result<(), Failure> {
    let size = Rc::new(Cell::new(None));
    let meter = Meter { size: size.clone(), bar: progress.then(bar), file: file.into() };
    // `hf-hub` panics at answers such as a redirect without a target; the message it prints cannot be helped.
    let result = catch_unwind(AssertUnwindSafe(|| repo.download_with_progress(file, meter)))
        .unwrap_or_else(|_| Err(ApiError::InvalidHeader("location")));
    match result {
        Ok(found) if found != path => {
            Err(Failure::Answer(format!("it served {file} of another commit than it was asked for")))
        }
        // A server that ignores ranges sends the beginning again, and a transfer may end early without an error.
        Ok(found) if size.get().is_some_and(|size| !super::has_size(&found, size)) => {
            let blob = found.canonicalize().unwrap_or_else(|_| found.clone());
            for path in [&found, &blob] {
                let _ = std::fs::remove_file(path);
            }
            Err(Failure::Resume("it did not arrive in its full length".into()))
        }
        Ok(_) => Ok(()),
        Err(error) => match Failure::from(error) {
            // 416: the part that was kept is as long as the file, or longer. Begin anew.
            Failure::Status(416) => {
                forget_part(api, repo, file, path);
                Err(Failure::Resume("what was kept of it does not fit the file".into()))
            }
            Failure::Resume(reason) => {
                forget_part(api, repo, file, path);
                Err(Failure::Resume(reason))
            }
            failure => Err(failure),
        },
    }
}

/// Removes what `hf-hub` kept of a broken transfer.
fn forget_part(api: &Api, repo: &ApiRepo, file: &str, path: &Path) {
    // path: …/models--owner--name/snapshots/commit/file, where the file may lie deeper
    let blobs =
        path.ancestors().find(|folder| folder.ends_with("snapshots")).map(|folder| folder.with_file_name("blobs"));
    if let (Some(blobs), Ok(metadata)) = (blobs, api.metadata(&repo.url(file))) {
        let mut part = blobs.join(metadata.etag());
        part.set_extension("part");
        let _ = std::fs::remove_file(part);
    }
}

/// Notes the size that the hub announced, and draws the progress.
struct Meter {
    size: Rc<Cell<Option<u64>>>,
    bar: Option<ProgressBar>,
    file: String,
}

/// On standard error; `indicatif` draws nothing where that is not a terminal.
fn bar() -> ProgressBar {
    let style = ProgressStyle::with_template("{msg:30} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}");
    ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

impl Progress for Meter {
    fn init(&mut self, size: usize, _: &str) {
        self.size.set(Some(size as u64));
        if let Some(bar) = &self.bar {
            bar.set_length(size as u64);
            bar.set_position(0);
            bar.set_message(self.file.clone());
        }
    }

    fn update(&mut self, size: usize) {
        if let Some(bar) = &self.bar {
            bar.inc(size as u64);
        }
    }

    fn finish(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_only_what_may_pass() {
        let tries = |failure: fn() -> Failure, attempts| {
            let mut count = 0;
            let result: Result<(), Failure> = with_retries(attempts, || {
                count += 1;
                Err(failure())
            });
            assert!(result.is_err());
            count
        };
        assert_eq!(tries(|| Failure::Status(404), 3), 1);
        assert_eq!(tries(|| Failure::Unreachable(String::new()), 3), 1);
        assert_eq!(tries(|| Failure::Status(503), 2), 2);
        assert_eq!(tries(|| Failure::Broken(String::new()), 3), 3);
        assert_eq!(with_retries(1, || Ok::<_, Failure>(7)).ok(), Some(7));
    }
}
