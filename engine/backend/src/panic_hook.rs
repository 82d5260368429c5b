//! A panic hook for programs: prints one sentence with a likely cause instead of a backtrace per thread.
//!
//! Burn's backends panic if a device fails: out of memory, a kernel rejected by the driver, a faulty kernel.

use std::{
    any::Any,
    cell::Cell,
    panic::{self, AssertUnwindSafe, PanicHookInfo},
    sync::{
        Once,
        atomic::{AtomicBool, Ordering},
    },
};

/// Start of the message for an out-of-memory device, with remedies.
pub const OUT_OF_MEMORY: &str = "the device is out of memory: use a smaller batch, a shorter context or a 16-bit dtype";

/// True once a panic has been reported.
static TOLD: AtomicBool = AtomicBool::new(false);

/// Returns true if any thread has panicked since [`install`]. Later output may be wrong, because a device's thread
/// continues without the failed kernel.
pub fn panicked() -> bool {
    TOLD.load(Ordering::Relaxed)
}

/// Installs a hook that passes one sentence with a likely cause to `report` on the first panic of any thread. Later panics,
/// which usually follow from the first, are silent. With `RUST_BACKTRACE` set, Rust's own hook runs instead.
pub fn install(report: fn(&str)) {
    let backtraces = std::env::var_os("RUST_BACKTRACE").is_some_and(|value| value != "0");
    let default = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        if QUIET.get() {
            return;
        }
        let first = !TOLD.swap(true, Ordering::Relaxed);
        if backtraces {
            default(panic);
        } else if first {
            report(&sentence(panic));
        }
    }));
}

thread_local! {
    /// True while this thread's panics are errors that a caller handles.
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Calls a function and returns the message of a panic as an error. The panic hook does not run.
///
/// In a program compiled with `panic = "abort"`, a panic still ends the process.
pub fn catch<T>(f: impl FnOnce() -> T) -> Result<T, String> {
    static FILTER: Once = Once::new();
    // Wraps the hook that is set at the first call. A hook set later also reports these panics, except `install`'s.
    FILTER.call_once(|| {
        let hook = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if !QUIET.get() {
                hook(panic);
            }
        }));
    });
    let before = QUIET.replace(true);
    let result = panic::catch_unwind(AssertUnwindSafe(f));
    QUIET.set(before);
    result.map_err(|panic| message(&*panic).unwrap_or("a panic without a message").to_owned())
}

/// Returns the message of a caught panic, if it has one.
pub fn message(panic: &(dyn Any + Send)) -> Option<&str> {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
}

fn sentence(panic: &PanicHookInfo<'_>) -> String {
    let text = panic.payload_as_str().unwrap_or("for an unknown reason");
    let place = panic.location().map_or(String::new(), |place| format!(" at {}:{}", place.file(), place.line()));
    let rest = "RUST_BACKTRACE=1 shows where";
    match likely_cause(text) {
        Some(cause) => format!("{cause} ({}; {rest})", beginning(text)),
        None => format!("the program panicked, which is a bug{place}: {}; {rest}", beginning(text)),
    }
}

/// Returns the first lines, cut to fit a screen: a compiler's message includes the whole kernel.
fn beginning(text: &str) -> String {
    const LINES: usize = 6;
    const LETTERS: usize = 600;
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).take(LINES).collect();
    let mut beginning: String = lines.join(" ").chars().take(LETTERS).collect();
    if beginning.len() < text.trim().len() && lines.len() == LINES || beginning.chars().count() == LETTERS {
        beginning.push('…');
    }
    beginning
}

/// Returns the likely cause of a fusing backend's panic and its remedy, from the message.
fn likely_cause(text: &str) -> Option<&'static str> {
    let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
    if has(&["OUT_OF_MEMORY", "OutOfMemory", "out of memory"]) {
        return Some(OUT_OF_MEMORY);
    }
    if has(&["can't allocate buffer"]) {
        return Some(
            "the device is out of memory, or an array of the model exceeds the device's largest buffer (128 MiB on a \
             software Vulkan device): use a smaller model or batch, or a 16-bit dtype",
        );
    }
    if has(&["UNSUPPORTED_PTX_VERSION", "NO_BINARY_FOR_GPU", "INVALID_PTX", "INVALID_IMAGE", "Unable to load the PTX"])
    {
        return Some(
            "the GPU driver rejects a compiled kernel: update the driver, or remove the folder ~/.cache/grove/kernels \
             if it was written for another GPU",
        );
    }
    if has(&["Compilation Error", "CompilationError"]) {
        return Some(
            "CUDA's run-time compiler rejects a kernel: the headers and the compiler must have the same version",
        );
    }
    if has(&["ILLEGAL_ADDRESS", "LAUNCH_FAILED", "LAUNCH_TIMEOUT", "DEVICE_LOST", "device lost"]) {
        return Some(
            "a kernel failed on the device, which cannot be used any more in this process: start the program again, \
             and report the bug",
        );
    }
    // Burn's message has no further details.
    if text == "not implemented" {
        return Some(
            "Burn's methods `scatter` and `select_assign` support only the update `Add`: use the functions of these \
             names in `grove::backend::ops`",
        );
    }
    if has(&["attempt to divide", "attempt to calculate the remainder"]) {
        return Some(
            "an integer was divided by 0, or the lowest integer by -1: use `int_div` and `int_remainder` of \
             `grove::backend::ops`, which are defined for all divisors",
        );
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panics_are_errors() {
        assert_eq!(catch(|| 3), Ok(3));
        assert_eq!(catch(|| panic!("a message")), Err::<(), _>("a message".to_owned()));
        assert_eq!(catch(|| panic!("{} parts", 2)), Err::<(), _>("2 parts".to_owned()));
        assert!(!QUIET.get());
    }

    #[test]
    fn causes_are_recognised() {
        assert_eq!(likely_cause("DriverError(CUDA_ERROR_OUT_OF_MEMORY)"), Some(OUT_OF_MEMORY));
        assert!(likely_cause("index out of bounds").is_none());
        assert_eq!(beginning("\n one\n\n two \n"), "one two");
    }

    #[test]
    #[cfg(feature = "flex")]
    fn causes_of_burn_are_recognised() {
        use burn::tensor::{IndexingUpdateOp, IntDType, Tensor};
        let x = Tensor::<crate::Flex, 1>::zeros([2], &Default::default());
        let maximum = || x.clone().scatter(0, x.clone().int(), x.clone(), IndexingUpdateOp::Max);
        let cause = likely_cause(&catch(maximum).unwrap_err());
        assert!(cause.is_some_and(|cause| cause.contains("grove::backend::ops")));
        let ints = || x.clone().int().cast(IntDType::I64);
        for message in [catch(|| ints() / ints()), catch(|| ints() % 0), catch(|| (ints() + i64::MIN) / -1)] {
            let cause = likely_cause(&message.unwrap_err());
            assert!(cause.is_some_and(|cause| cause.contains("`int_div`")), "{cause:?}");
        }
    }
}
