use grove_distributed::Communicator;
use std::{
    io::Write,
    process,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// Becomes true when somebody wants the run to end: it then writes a checkpoint and returns.
pub type Stop = Arc<AtomicBool>;

/// Signals that come within this time of the first are the same wish. `timeout` sends two, one to the process and one
/// to its group; so do terminals and job schedulers.
const ONE_WISH: Duration = Duration::from_secs(2);

/// Turns Ctrl-C (and a polite request of the system to end) into a [`Stop`], so that the run ends with a checkpoint; one
/// more after two seconds ends the program at once, with status 130. For programs, not for libraries: a process has one
/// such handler.
///
/// # Errors
/// A sentence, where the program already has a handler of its own.
pub fn stop_on_interrupt() -> Result<Stop, String> {
    stop_on_interrupt_of(&Communicator::single())
}

/// [`stop_on_interrupt`] for one of several ranks, which says nothing of it: the launcher sends the signal to all of them, also
/// where one has died.
///
/// # Errors
/// As [`stop_on_interrupt`].
pub fn stop_on_interrupt_of(ranks: &Communicator) -> Result<Stop, String> {
    let speaks = !ranks.is_shared();
    static STOP: Mutex<Option<Stop>> = Mutex::new(None);
    let mut known = STOP.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(stop) = &*known {
        return Ok(stop.clone());
    }
    let stop = Stop::default();
    let seen = stop.clone();
    let mut signals = Signals::default();
    ctrlc::set_handler(move || match signals.next(Instant::now()) {
        Wish::Stop => {
            seen.store(true, Ordering::Relaxed);
            if !speaks {
                return;
            }
            // A terminal that was closed takes no words, and is no reason to panic.
            let _ = writeln!(
                std::io::stderr(),
                "\nstopping after this step, with a checkpoint; Ctrl-C once more, {} seconds from now or later, ends at \
                 once, without one",
                ONE_WISH.as_secs()
            );
        }
        Wish::Same => {}
        Wish::AtOnce => process::exit(130),
    })
    .map_err(|error| format!("cannot watch for Ctrl-C: {error}"))?;
    Ok(known.insert(stop).clone())
}

/// The request that a signal makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    /// To end, with a checkpoint.
    Stop,
    /// The same as the signal before.
    Same,
    /// To end at once.
    AtOnce,
}

/// The signals of a process.
#[derive(Default)]
struct Signals {
    first: Option<Instant>,
}

impl Signals {
    fn next(&mut self, now: Instant) -> Wish {
        match self.first {
            None => {
                self.first = Some(now);
                Wish::Stop
            }
            Some(first) if now.saturating_duration_since(first) < ONE_WISH => Wish::Same,
            Some(_) => Wish::AtOnce,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_close_together_are_one_wish() {
        let (mut signals, begun) = (Signals::default(), Instant::now());
        let mut at = |milliseconds| signals.next(begun + Duration::from_millis(milliseconds));
        assert_eq!([at(0), at(0), at(1), at(1999)], [Wish::Stop, Wish::Same, Wish::Same, Wish::Same]);
        assert_eq!([at(2000), at(60_000)], [Wish::AtOnce; 2]);
    }
}
