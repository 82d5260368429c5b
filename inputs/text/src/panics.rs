//! Panics of libraries, as errors.

use std::{
    any::Any,
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook},
    sync::Once,
};

use crate::printable::excerpt;

/// The longest panic message that is kept, in characters. A library may put all of a text into one.
const LONGEST_MESSAGE: usize = 200;

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Runs a library's code on text or files from outside, and turns a panic into an error: its message, cut to a line.
///
/// It is the last line of defence; damage that is known is refused beforehand. The panic prints nothing: the first call
/// puts a panic hook before the present one, which stays silent on a thread for as long as that thread is in here and
/// leaves everything else to the hook that was there.
///
/// # Errors
/// The code panicked. What it was changing must not be used any more.
pub fn catch_panic<T>(body: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    // A thread that is panicking already may not change the hook, and has had its say.
    if !std::thread::panicking() {
        HOOK.call_once(put_hook);
    }
    let outer = QUIET.replace(true);
    let result = catch_unwind(AssertUnwindSafe(body));
    QUIET.set(outer);
    result.map_err(|payload| message(&*payload))
}

/// Silences the present hook on threads that are in [`catch_panic`].
fn put_hook() {
    let before = take_hook();
    set_hook(Box::new(move |info| {
        // A thread that is being torn down has no flag any more, and is in no call of ours.
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
