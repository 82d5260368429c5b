use std::time::Duration;

/// Errors of a collective. Each message names the collective and the rank that caused the error. After an error the ranks are out
/// of step, and the job must end; see [`Communicator::end_job`](crate::Communicator::end_job).
#[derive(Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CommError {
    /// Ranks did not join a collective before the timeout.
    #[error(
        "{} did not take part in {collective} within {}: stopped, hung or slower than the others (GROVE_COMM_TIMEOUT sets the \
         seconds to wait)",
        ranks(missing), seconds(*waited)
    )]
    TimedOut {
        /// The collective and its purpose.
        collective: String,
        /// The ranks with pending messages, to or from this rank.
        missing: Vec<Rank>,
        /// Time since the start of the collective.
        waited: Duration,
    },

    /// The process of a rank has died.
    #[error("{rank} died during {collective}: the job ends with it")]
    Died {
        /// The collective and its purpose.
        collective: String,
        /// The rank.
        rank: Rank,
    },

    /// A rank has ended its program with an error, which it prints itself.
    #[error("{rank} failed, which ended {collective}; the output of that rank has the reason")]
    Failed {
        /// The collective and its purpose.
        collective: String,
        /// The rank.
        rank: Rank,
    },

    /// A rank has ended its program while others wait for it.
    #[error(
        "{rank} has ended its program, and the others wait for it in {collective}: every rank must run the same program"
    )]
    Left {
        /// The collective and its purpose.
        collective: String,
        /// The rank.
        rank: Rank,
    },

    /// A rank sent a different number of bytes.
    #[error(
        "{rank} sent {found} bytes in {collective} instead of {expected}: every rank must run the same program on arrays of the same shape"
    )]
    OtherSize {
        /// The collective and its purpose.
        collective: String,
        /// The rank.
        rank: Rank,
        /// Number of bytes received, or a lower bound of it.
        found: usize,
        /// Number of bytes that the collective expects.
        expected: usize,
    },

    /// Ranks differ in a fact that must be the same on all.
    #[error(
        "{name} is {is} on {rank} and {was} on rank 0: every rank must run the same program with the same options on the same data"
    )]
    Differs {
        /// The rank.
        rank: Rank,
        /// The name of the fact.
        name: String,
        /// Value on rank 0.
        was: String,
        /// Value on this rank.
        is: String,
    },

    /// No rank has put the key before the timeout.
    #[error("no rank stored the key '{key}' within {}", seconds(*timeout))]
    NoKey {
        /// The key.
        key: String,
        /// The timeout.
        timeout: Duration,
    },

    /// The key already has a value.
    #[error("{rank} stored the key '{key}' twice: store a key once")]
    AlreadyPut {
        /// The key.
        key: String,
        /// The rank that put the key first.
        rank: Rank,
    },

    /// Two ranks have put different values under the same key at the same time.
    #[error("{} and {} stored different values for the key '{key}': store a key once", ranks[0], ranks[1])]
    TwoValues {
        /// The key.
        key: String,
        /// The ranks.
        ranks: Box<[Rank; 2]>,
    },

    /// A key or a value is too large.
    #[error("{part} the key '{key}' has {bytes} bytes; the maximum is {most}")]
    TooLarge {
        /// The part that is too large.
        part: &'static str,
        /// The key, truncated.
        key: String,
        /// Size in bytes.
        bytes: usize,
        /// Maximum size in bytes.
        most: usize,
    },

    /// The timeout in the environment is invalid.
    #[error("GROVE_COMM_TIMEOUT is '{0}': give a number of seconds, greater than 0")]
    Timeout(String),

    /// The transport's library returned an error.
    #[error("{0}")]
    Transport(String),
}

// `fn main() -> Result<(), Box<dyn Error>>` prints `Debug`.
impl std::fmt::Debug for CommError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

/// Result of a collective.
pub type Result<T, E = CommError> = std::result::Result<T, E>;

/// A rank for messages: its number, and the location of its process, if known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rank {
    /// Number of the rank.
    pub number: usize,
    /// Process of the rank, such as `process 1234 on node7`.
    pub process: Option<String>,
}

impl std::fmt::Display for Rank {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.process {
            Some(process) => write!(f, "rank {} ({process})", self.number),
            None => write!(f, "rank {}", self.number),
        }
    }
}

/// Formats ranks, at most three of them by name.
fn ranks(ranks: &[Rank]) -> String {
    let named: Vec<String> = ranks.iter().take(3).map(Rank::to_string).collect();
    match ranks.len() {
        0..=3 => named.join(" and "),
        count => format!("{} and {} other ranks", named.join(", "), count - 3),
    }
}

fn seconds(time: Duration) -> String {
    let digits = usize::from(time < Duration::from_secs(10));
    format!("{:.digits$} s", time.as_secs_f64())
}
