use std::time::Duration;

/// Errors of a collective. Each sentence names the collective and the rank that is the reason. After any of them the ranks are
/// out of step: the job has to end, which [`Communicator::end_job`](crate::Communicator::end_job) does.
#[derive(Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CommError {
    /// Ranks did not join a collective in time.
    #[error(
        "{} did not take part in {collective} within {}: stopped, hung or slower than the others (GROVE_COMM_TIMEOUT sets the \
         seconds to wait)",
        ranks(missing), seconds(*waited)
    )]
    TimedOut {
        /// The collective, and what for.
        collective: String,
        /// The ranks from which, or to which, something is still under way.
        missing: Vec<Rank>,
        /// Time since the collective began.
        waited: Duration,
    },

    /// A rank's process is no more.
    #[error("{rank} died during {collective}: the job ends with it")]
    Died {
        /// The collective, and what for.
        collective: String,
        /// The rank.
        rank: Rank,
    },

    /// A rank has ended its program with an error, which it tells itself.
    #[error("{rank} has failed, which ended {collective}; it says why itself")]
    Failed {
        /// The collective, and what for.
        collective: String,
        /// The rank.
        rank: Rank,
    },

    /// A rank has ended its program, where others still wait for it.
    #[error(
        "{rank} has ended its program, and the others wait for it in {collective}: every rank must run the same program"
    )]
    Left {
        /// The collective, and what for.
        collective: String,
        /// The rank.
        rank: Rank,
    },

    /// A rank sent something else than the others.
    #[error(
        "{rank} sent {found} bytes in {collective}, and {expected} are expected: every rank must run the same program on arrays of the same shape"
    )]
    OtherSize {
        /// The collective, and what for.
        collective: String,
        /// The rank.
        rank: Rank,
        /// Bytes that it sent, or at least so many.
        found: usize,
        /// Bytes that belong to the collective.
        expected: usize,
    },

    /// Ranks differ where they must not.
    #[error(
        "{rank} differs from rank 0: {name} is {is} there and {was} on rank 0; every rank must run the same program with the same options on the same data"
    )]
    Differs {
        /// The rank.
        rank: Rank,
        /// The name of the fact.
        name: String,
        /// Its value on rank 0.
        was: String,
        /// Its value on that rank.
        is: String,
    },

    /// No rank has put a key in time.
    #[error("no rank has put the key '{key}' within {}", seconds(*timeout))]
    NoKey {
        /// The key.
        key: String,
        /// The time that it was waited for.
        timeout: Duration,
    },

    /// A key that has a value was to be put.
    #[error("{rank} has put the key '{key}' before: a key is put once")]
    AlreadyPut {
        /// The key.
        key: String,
        /// The rank that put it.
        rank: Rank,
    },

    /// Two ranks have put different values under one key, at the same time.
    #[error("{} and {} have put different values under the key '{key}': a key is put once", ranks[0], ranks[1])]
    TwoValues {
        /// The key.
        key: String,
        /// The ranks.
        ranks: Box<[Rank; 2]>,
    },

    /// A key or a value is too large to be put.
    #[error("{part} the key '{key}' has {bytes} bytes, and {most} are the most")]
    TooLarge {
        /// The part that is too large.
        part: &'static str,
        /// The key, cut.
        key: String,
        /// Its bytes.
        bytes: usize,
        /// The most bytes.
        most: usize,
    },

    /// The environment names a time-out that is none.
    #[error("GROVE_COMM_TIMEOUT is '{0}': give a number of seconds, greater than 0")]
    Timeout(String),

    /// The library of the transport refuses.
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

/// A rank, for people: its number, and where its process runs, where that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rank {
    /// Its number.
    pub number: usize,
    /// Its process, such as `process 1234 on node7`.
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

/// At most three of them by name.
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
