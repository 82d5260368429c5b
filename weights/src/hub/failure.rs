//! Failures of requests and transfers, and retries of temporary failures.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;

/// Pause before the first retry; each later pause is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// Maximum pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// The reason why a request failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// The hub answered with an HTTP error.
    Status(u16),
    /// The connection failed.
    Unreachable(String),
    /// The response timed out, or the transfer stalled.
    TimedOut(String),
    /// The response ended too early.
    Broken(String),
    /// The partial file does not match; it has been removed.
    Resume(String),
    /// The response does not come from a hub.
    Answer(String),
    /// More bytes arrived than announced; the file has been removed.
    Excess(String),
    /// The content's sha256 differs from the announced one; the content has been removed.
    Checksum {
        /// The hub's sha256, in hexadecimal digits.
        announced: String,
        /// The sha256 of the received bytes.
        received: String,
    },
    /// The cache cannot be written.
    Disk {
        /// The file or directory.
        path: PathBuf,
        /// The operating system's error.
        source: std::io::Error,
    },
}

impl Failure {
    /// Returns true if another attempt may succeed.
    fn is_passing(&self) -> bool {
        match self {
            Self::Status(status) => *status >= 500 || matches!(status, 408 | 425 | 429),
            Self::TimedOut(_) | Self::Broken(_) | Self::Resume(_) => true,
            Self::Unreachable(_) | Self::Answer(_) | Self::Excess(_) | Self::Checksum { .. } | Self::Disk { .. } => {
                false
            }
        }
    }

    /// Returns a function for `map_err` on an operation on the cache's files.
    pub(super) fn disk(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Disk { path, source }
    }

    /// Converts an error of a request or of reading its response. `waited` returns the message for timeouts.
    pub(super) fn of_request(error: ureq::Error, waited: impl FnOnce() -> String) -> Self {
        match error {
            ureq::Error::Timeout(_) => Self::TimedOut(waited()),
            ureq::Error::Io(error) => match error.kind() {
                ErrorKind::TimedOut | ErrorKind::WouldBlock => Self::TimedOut(waited()),
                ErrorKind::UnexpectedEof
                | ErrorKind::ConnectionReset
                | ErrorKind::ConnectionAborted
                | ErrorKind::BrokenPipe
                | ErrorKind::Interrupted => Self::Broken(error.to_string()),
                // Connection refused, no route, a failed name lookup (which has no error kind), TLS and others.
                _ => Self::Unreachable(with_advice(&error)),
            },
            ureq::Error::HostNotFound => Self::Unreachable("the host's name is not known".into()),
            ureq::Error::Rustls(error) => Self::Unreachable(with_advice(&error)),
            error @ (ureq::Error::ConnectionFailed
            | ureq::Error::ConnectProxyFailed(_)
            | ureq::Error::InvalidProxyUrl
            | ureq::Error::Tls(_)) => Self::Unreachable(error.to_string()),
            error @ ureq::Error::Protocol(_) => Self::Broken(error.to_string()),
            error => Self::Answer(error.to_string()),
        }
    }
}

/// Returns the error's text, with advice if it concerns a certificate.
fn with_advice(error: &dyn std::error::Error) -> String {
    let text = error.to_string();
    match text.to_ascii_lowercase().contains("certificate") {
        true => format!(
            "{text} (to trust the system's certificate authorities set GROVE_SYSTEM_CERTS=1, to trust those of a PEM file SSL_CERT_FILE)"
        ),
        false => text,
    }
}

/// Runs `attempt` until it succeeds, fails permanently, or has failed `attempts` times. `told` is called with each
/// failure that is followed by another attempt.
pub(super) fn with_retries<T>(
    attempts: usize,
    told: impl Fn(&Failure),
    mut attempt: impl FnMut() -> Result<T, Failure>,
) -> Result<T, Failure> {
    let mut pause = FIRST_PAUSE;
    for _ in 1..attempts {
        match attempt() {
            Err(failure) if failure.is_passing() => told(&failure),
            result => return result,
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
    attempt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_only_what_may_pass() {
        let tries = |failure: fn() -> Failure, attempts| {
            let (mut count, told) = (0, std::cell::Cell::new(0));
            let result: Result<(), Failure> = with_retries(
                attempts,
                |_| told.set(told.get() + 1),
                || {
                    count += 1;
                    Err(failure())
                },
            );
            assert!(result.is_err());
            assert_eq!(told.get() + 1, count, "the last failure is the error");
            count
        };
        assert_eq!(tries(|| Failure::Status(404), 3), 1);
        assert_eq!(tries(|| Failure::Unreachable(String::new()), 3), 1);
        assert_eq!(tries(|| Failure::Answer(String::new()), 3), 1);
        assert_eq!(tries(|| Failure::Status(503), 2), 2);
        assert_eq!(tries(|| Failure::TimedOut(String::new()), 2), 2);
        assert_eq!(tries(|| Failure::Broken(String::new()), 3), 3);
        assert_eq!(with_retries(1, |_| (), || Ok::<_, Failure>(7)).ok(), Some(7));
    }

    #[test]
    fn distinguishes_timeouts_from_refusals() {
        let of = |error: ureq::Error| Failure::of_request(error, || "waited".into());
        let io = |kind: ErrorKind| of(ureq::Error::Io(kind.into()));
        assert!(matches!(of(ureq::Error::Timeout(ureq::Timeout::Connect)), Failure::TimedOut(why) if why == "waited"));
        assert!(matches!(io(ErrorKind::TimedOut), Failure::TimedOut(_)));
        assert!(matches!(io(ErrorKind::ConnectionReset), Failure::Broken(_)));
        assert!(matches!(io(ErrorKind::ConnectionRefused), Failure::Unreachable(_)));
    }
}
