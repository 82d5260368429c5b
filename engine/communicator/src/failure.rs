//! Failures of ranks, and the choice of the rank that reports one.

use std::time::{Duration, Instant};

use crate::{Absence, CommError, Communicator, Exchange, Result, watch::Watch};

/// Time to wait for messages of a rank that has left. Everything that it sent before has arrived by then.
pub(crate) const AFTER_LEAVING: Duration = Duration::from_secs(2);

/// Time within which the death of a rank on the same machine is noticed.
const SEEN_DEAD: Duration = Duration::from_secs(1);

/// Time within which the reporting rank ends the ranks that know of an error.
const TO_BE_ENDED: Duration = Duration::from_secs(10);

impl Communicator {
    /// Notifies the other ranks that this rank has failed, and ends the job. The lowest of the ranks that know `error` prints it
    /// as one sentence.
    pub fn end_job(&self, error: &CommError) -> ! {
        if self.speaks_for_all(error) {
            // Printed in one piece, because other ranks write to the same stream.
            let sentence = format!("error: {error}\n");
            eprint!("{sentence}");
        }
        self.abort(1)
    }

    /// Returns true if this rank must report an error of a collective. Other ranks wait to be ended, and return false if that
    /// does not happen.
    fn speaks_for_all(&self, error: &CommError) -> bool {
        if self.inner.is_none() {
            return true;
        }
        let gone: Vec<usize> = match error {
            CommError::TimedOut { missing, .. } => missing.iter().map(|rank| rank.number).collect(),
            CommError::Died { rank, .. } | CommError::Left { rank, .. } => vec![rank.number],
            // All ranks have detected the same difference.
            CommError::Differs { .. } => vec![],
            CommError::Failed { .. } => (0..self.size()).collect(),
            // Possibly an error of this rank only.
            CommError::NoKey { .. } | CommError::TwoValues { .. } => {
                return self.fails_first() || {
                    std::thread::sleep(TO_BE_ENDED);
                    false
                };
            }
            _ => return true,
        };
        let first = (0..self.size()).find(|rank| !gone.contains(rank));
        // Ranks in different collectives time out at the same time. If a rank has died, the launcher soon ends the others.
        let timed_out = matches!(error, CommError::TimedOut { .. });
        if first == Some(self.rank()) && (!timed_out || self.fails_first()) {
            return true;
        }
        std::thread::sleep(TO_BE_ENDED);
        false
    }

    /// Notifies the other ranks that this rank has failed. Returns false if a lower rank has already done so: if all ranks fail
    /// for the same reason, one message is enough.
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

    /// Ends the processes of all ranks.
    pub fn abort(&self, status: i32) -> ! {
        match &self.inner {
            Some(inner) => inner.transport.abort(status),
            None => std::process::exit(status),
        }
    }

    /// Adds the collective's name and the rank's process to an error of a transport.
    pub(crate) fn named(&self, name: &str, error: CommError) -> CommError {
        match error {
            CommError::OtherSize { rank, found, expected, .. } => {
                CommError::OtherSize { collective: name.into(), rank: self.describe(rank.number), found, expected }
            }
            CommError::Transport(reason) => CommError::Transport(format!("{name}: {reason}")),
            error => error,
        }
    }

    /// Waits briefly. Returns an error if the exchange can no longer complete.
    pub(crate) fn check(&self, name: &str, exchange: &dyn Exchange, watch: &mut Watch) -> Result<()> {
        self.check_ranks(name, || exchange.missing(), watch)
    }

    /// [`check`](Self::check) for a wait for some ranks.
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

    /// Returns those of some ranks that have left. Returns an error that names a rank if one has died or failed.
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
                // The others have already given up this rank, and have reported it.
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

    /// Runs a collective of the ranks' devices, such as one of NCCL: starts it when all ranks are ready, and waits for its end.
    /// `name` is the name of the collective; errors of `start` and `done` are sentences.
    ///
    /// The check is necessary because a device waits for others indefinitely, and cannot determine which rank is missing.
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

    /// Converts the error of a device, which may notice the loss of another rank before this rank does.
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
