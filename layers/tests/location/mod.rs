//! Location of a panic, for tests of `#[track_caller]`.

use std::{
    cell::RefCell,
    panic::{self, AssertUnwindSafe},
    sync::Once,
};

thread_local! {
    /// File and line of this thread's last panic, if the thread records them.
    static LAST: RefCell<Option<(String, u32)>> = const { RefCell::new(None) };
}

/// Runs a function that panics, and returns the file and the line that the panic names.
pub fn location(f: impl FnOnce()) -> (String, u32) {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let place = info.location().map(|location| (location.file().to_owned(), location.line()));
            if LAST.with(|last| last.borrow().is_some()) {
                LAST.with(|last| *last.borrow_mut() = place);
            } else {
                previous(info);
            }
        }));
    });
    LAST.with(|last| *last.borrow_mut() = Some((String::new(), 0)));
    panic::catch_unwind(AssertUnwindSafe(f)).expect_err("a wrong shape");
    LAST.with(|last| last.take()).expect("a location")
}
