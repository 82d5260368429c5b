use std::time::{Duration, Instant};

/// Polling with decreasing frequency.
pub(crate) struct Watch {
    /// Start of the wait, postponed by the time for which this process was suspended.
    pub(crate) begun: Instant,
    polls: u32,
    looked: Instant,
    /// Start of the wait for a rank that has left.
    pub(crate) left: Option<Instant>,
    /// True if this process was suspended during the wait.
    pub(crate) suspended: bool,
}

/// Number of polls without sleep, of about a microsecond each.
const EAGER_POLLS: u32 = 2_000;

/// Time between checks of the other ranks.
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);

/// Time between checks after which this process itself may have been suspended; the excess does not count as waiting for others.
/// A poll may also be slow because memory is swapped out: this much of its time counts, so that a wait ends.
const SUSPENDED: Duration = Duration::from_millis(500);

impl Watch {
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        Self { begun: now, polls: 0, looked: now, left: None, suspended: false }
    }

    /// Waits briefly. Returns true if it is time to check the other ranks.
    pub(crate) fn pause(&mut self) -> bool {
        self.polls = self.polls.saturating_add(1);
        match self.polls {
            0..EAGER_POLLS => std::thread::yield_now(),
            _ => std::thread::sleep(Duration::from_micros(50)),
        }
        let since = self.looked.elapsed();
        if since > SUSPENDED {
            (self.begun, self.suspended) = (self.begun + (since - SUSPENDED), true);
        }
        let look = since > BETWEEN_LOOKS;
        if look {
            self.looked = Instant::now();
        }
        look
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread::sleep;

    /// Returns the time counted for slow polls.
    fn waited(polls: &[u64]) -> Duration {
        let mut watch = Watch::new();
        for &milliseconds in polls {
            sleep(Duration::from_millis(milliseconds));
            assert!(watch.pause());
        }
        watch.begun.elapsed()
    }

    #[test]
    fn slow_polls_count() {
        let waited = waited(&[600, 600, 600]);
        assert!(waited >= 3 * SUSPENDED && waited < Duration::from_millis(1700), "{waited:?}");
    }

    #[test]
    fn time_while_the_process_is_stopped_does_not_count() {
        let waited = waited(&[20, 2000, 20]);
        assert!(waited >= SUSPENDED && waited < 4 * SUSPENDED, "{waited:?}");
    }
}
