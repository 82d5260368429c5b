//! Conversion of library panics to errors.

use std::{
    any::Any,
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook},
    sync::Once,
};

use crate::printable::excerpt;

/// Maximum length of a panic message, in characters. A library can include a whole text in one.
const LONGEST_MESSAGE: usize = 200;

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Runs library code on untrusted text or files. A panic becomes an error with its message, shortened to one line.
///
/// This is a safeguard; known invalid input is refused beforehand. The panic prints nothing: the first call installs a
/// panic hook that is silent on threads inside this function and otherwise calls the previous hook.
///
/// # Errors
/// The code panicked. Values that it was modifying must not be used any more.
pub fn catch_panic<T>(body: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    // A thread that is already panicking must not change the hook; its message has been printed.
    if !std::thread::panicking() {
        HOOK.call_once(put_hook);
    }
    let outer = QUIET.replace(true);
    let result = catch_unwind(AssertUnwindSafe(body));
    QUIET.set(outer);
    result.map_err(|payload| message(&*payload))
}

/// Installs a hook that is silent on threads inside [`catch_panic`].
fn put_hook() {
    let before = take_hook();
    set_hook(Box::new(move |info| {
        // During the destruction of thread-locals the flag is gone; such a thread is not inside `catch_panic`.
        if !QUIET.try_with(Cell::get).unwrap_or(false) {
            before(info);
        }
    }));
}

fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    excerpt(text.unwrap_or("it panicked"), LONGEST_MESSAGE)
}

#[cfg(test)]
mod tests {
    use super::catch_panic;

    #[test]
    fn a_panic_becomes_a_short_message() {
        assert_eq!(catch_panic(|| 7), Ok(7));
        let error = catch_panic(|| -> u8 { panic!("{}", "x".repeat(1 << 20)) }).unwrap_err();
        assert!(error.starts_with("xxxx") && error.len() < 300, "{error}");
        let nested = catch_panic(|| catch_panic(|| panic!("inner")).unwrap_err());
        assert_eq!(nested.as_deref(), Ok("inner"));
        assert_eq!(catch_panic(|| std::panic::panic_any(3)), Err::<(), _>("it panicked".into()));
    }
}
