use std::time::{Duration, Instant};

/// Polls, first often, then less.
pub(crate) struct Watch {
    pub(crate) begun: Instant,
    polls: u32,
    looked: Instant,
    /// The time since which the exchange waits for a rank that has left.
    pub(crate) left: Option<Instant>,
    /// True if this process was stopped meanwhile.
    pub(crate) suspended: bool,
}

/// Polls without sleep, of a microsecond or so each.
const EAGER_POLLS: u32 = 2_000;

/// Time between looks after the other ranks.
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);

/// Time between looks after which this process itself has been stopped: it does not blame others for that time.
const SUSPENDED: Duration = Duration::from_millis(500);

impl Watch {
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        Self { begun: now, polls: 0, looked: now, left: None, suspended: false }
    }

    /// Waits a little; true if it is time to look after the other ranks.
    pub(crate) fn pause(&mut self) -> bool {
        self.polls = self.polls.saturating_add(1);
        match self.polls {
            0..EAGER_POLLS => std::thread::yield_now(),
            _ => std::thread::sleep(Duration::from_micros(50)),
        }
        let since = self.looked.elapsed();
        if since > SUSPENDED {
            (self.begun, self.suspended) = (Instant::now(), true);
        }
        let look = since > BETWEEN_LOOKS;
        if look {
            self.looked = Instant::now();
        }
        look
    }
}
