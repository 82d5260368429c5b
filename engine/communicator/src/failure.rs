//! Ranks that fail, and the one that says so.

use std::time::{Duration, Instant};

use crate::{Absence, CommError, Communicator, Exchange, Result, watch::Watch};

/// Time after which a message of a rank that has left is not awaited any more. What it sent before has arrived by then.
pub(crate) const AFTER_LEAVING: Duration = Duration::from_secs(2);

/// Time in which it is seen that a rank on the same machine is dead.
const SEEN_DEAD: Duration = Duration::from_secs(1);

/// Time in which a rank that tells an error is ended by the one that speaks for all.
const TO_BE_ENDED: Duration = Duration::from_secs(10);

impl Communicator {
    /// Tells the other ranks that this one has failed and says why itself, and ends the job. `error` is printed, as one
    /// sentence, by one rank: the lowest of those that know it.
    pub fn end_job(&self, error: &CommError) -> ! {
        if self.speaks_for_all(error) {
            // In one piece: other ranks write to the same place.
            let sentence = format!("error: {error}\n");
            eprint!("{sentence}");
        }
        self.abort(1)
    }

    /// True if this rank is the one that tells an error of a collective. The others wait to be ended, and come back where
    /// that does not happen.
    pub fn speaks_for_all(&self, error: &CommError) -> bool {
        if self.inner.is_none() {
            return true;
        }
        let gone: Vec<usize> = match error {
            CommError::TimedOut { missing, .. } => missing.iter().map(|rank| rank.number).collect(),
            CommError::Died { rank, .. } | CommError::Left { rank, .. } => vec![rank.number],
            // All ranks have come to the same conclusion.
            CommError::Differs { .. } => vec![],
            CommError::Failed { .. } => (0..self.size()).collect(),
            // Perhaps of this rank alone.
            CommError::NoKey { .. } | CommError::TwoValues { .. } => {
                return self.fails_first() || {
                    std::thread::sleep(TO_BE_ENDED);
                    false
                };
            }
            _ => return true,
        };
        let first = (0..self.size()).find(|rank| !gone.contains(rank));
        // Ranks in different collectives give each other up at the same time. The launcher ends the ranks soon where one has died.
        let timed_out = matches!(error, CommError::TimedOut { .. });
        if first == Some(self.rank()) && (!timed_out || self.fails_first()) {
            return true;
        }
        std::thread::sleep(TO_BE_ENDED);
        false
    }

    /// Tells the other ranks that this one has failed; false if a lower rank has done so already, so that one sentence is
    /// enough where all ranks fail for the same reason.
    pub fn fails_first(&self) -> bool {
        let Some(inner) = &self.inner else { return true };
        inner.transport.leave(Absence::Failed);
        let begun = Instant::now();
        while self.rank() > 0 && begun.elapsed() < Duration::from_secs(1) {
            if (0..self.rank()).any(|rank| inner.transport.absence(rank) == Some(Absence::Failed)) {
                return false;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        true
    }

    /// Ends all ranks' processes.
    pub fn abort(&self, status: i32) -> ! {
        match &self.inner {
            Some(inner) => inner.transport.abort(status),
            None => std::process::exit(status),
        }
    }

    /// An error of a transport with the collective's name and the rank's process.
    pub(crate) fn named(&self, name: &str, error: CommError) -> CommError {
        match error {
            CommError::OtherSize { rank, found, expected, .. } => {
                CommError::OtherSize { collective: name.into(), rank: self.describe(rank.number), found, expected }
            }
            CommError::Transport(reason) => CommError::Transport(format!("{name}: {reason}")),
            error => error,
        }
    }

    /// Waits a little; an error if the exchange cannot come to an end any more.
    pub(crate) fn check(&self, name: &str, exchange: &dyn Exchange, watch: &mut Watch) -> Result<()> {
        self.check_ranks(name, || exchange.missing(), watch)
    }

    /// [`check`](Self::check) of what waits for some ranks.
    pub(crate) fn check_ranks(&self, name: &str, missing: impl Fn() -> Vec<usize>, watch: &mut Watch) -> Result<()> {
        let Some(inner) = &self.inner else { return Ok(()) };
        if !watch.pause() {
            return Ok(());
        }
        let (missing, waited) = (missing(), watch.begun.elapsed());
        let collective = || name.to_owned();
        match self.look_after(name, missing.iter().copied(), watch.suspended)?.last() {
            Some(&number) => {
                let since = *watch.left.get_or_insert_with(Instant::now);
                if since.elapsed() > AFTER_LEAVING {
                    return Err(CommError::Left { collective: collective(), rank: self.describe(number) });
                }
            }
            None => watch.left = None,
        }
        if waited > inner.timeout {
            let missing = missing.into_iter().map(|number| self.describe(number)).collect();
            return Err(CommError::TimedOut { collective: collective(), missing, waited });
        }
        Ok(())
    }

    /// Those of some ranks that have left; an error that names one that is dead or has failed.
    pub(crate) fn look_after(
        &self,
        name: &str,
        ranks: impl Iterator<Item = usize>,
        suspended: bool,
    ) -> Result<Vec<usize>> {
        let Some(inner) = &self.inner else { return Ok(vec![]) };
        let mut left = Vec::new();
        for number in ranks {
            let (collective, rank) = (|| name.to_owned(), || self.describe(number));
            match inner.transport.absence(number) {
                // The others have given up this rank, and have said so.
                Some(Absence::Died) if suspended => {
                    return Err(CommError::Failed { collective: collective(), rank: rank() });
                }
                Some(Absence::Died) => return Err(CommError::Died { collective: collective(), rank: rank() }),
                Some(Absence::Failed) => return Err(CommError::Failed { collective: collective(), rank: rank() }),
                Some(Absence::Left) => left.push(number),
                None => {}
            }
        }
        Ok(left)
    }

    /// Runs a collective of the ranks' devices, such as one of NCCL's: starts it when all ranks are there, and waits until it is done.
    /// `name` is the collective's; errors of `start` and `done` are sentences.
    ///
    /// A device waits for others without end, and cannot tell which of them is missing.
    ///
    /// # Errors
    /// [`CommError`].
    pub fn run_on_devices(
        &self,
        name: &str,
        start: impl FnOnce() -> std::result::Result<(), String>,
        mut done: impl FnMut() -> std::result::Result<bool, String>,
    ) -> Result<()> {
        self.meet(name)?;
        start().map_err(|reason| self.of_device(name, &reason))?;
        let mut watch = Watch::new();
        while !done().map_err(|reason| self.of_device(name, &reason))? {
            self.check_ranks(name, || self.others().collect(), &mut watch)?;
        }
        Ok(())
    }

    /// The error of a device, which may see that another rank is gone before this one does.
    fn of_device(&self, name: &str, reason: &str) -> CommError {
        let begun = Instant::now();
        while self.is_shared() && begun.elapsed() < SEEN_DEAD {
            if let Err(gone) = self.look_after(name, self.others(), false) {
                return gone;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        CommError::Transport(format!("{name}: {reason}"))
    }
}
