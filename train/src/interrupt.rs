use std::{
    process,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

/// Becomes true when somebody wants the run to end: it then writes a checkpoint and returns.
pub type Stop = Arc<AtomicBool>;

/// Turns Ctrl-C (and a polite request of the system to end) into a [`Stop`]; the second one ends the program at once,
/// with status 130. For programs, not for libraries: a process has one such handler.
///
/// # Errors
/// A sentence, where the program already has a handler of its own.
pub fn stop_on_interrupt() -> Result<Stop, String> {
    static STOP: Mutex<Option<Stop>> = Mutex::new(None);
    let mut known = STOP.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(stop) = &*known {
        return Ok(stop.clone());
    }
    let stop = Stop::default();
    let seen = stop.clone();
    ctrlc::set_handler(move || {
        if seen.swap(true, Ordering::Relaxed) {
            process::exit(130);
        }
        eprintln!("\nstopping after this step; once more ends at once, without a checkpoint");
    })
    .map_err(|error| format!("cannot watch for Ctrl-C: {error}"))?;
    Ok(known.insert(stop).clone())
}
