//! Notes for the user.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

/// Prints a note to standard error; each text only once per process.
pub fn note_once(note: &str) {
    static PRINTED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut printed = PRINTED.lock().unwrap_or_else(PoisonError::into_inner);
    if printed.insert(note.to_owned()) {
        eprintln!("note: {note}");
    }
}
