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
pub const OUT_OF_MEMORY: &str =
    "the device's memory is full: a smaller batch, a shorter context or a type of 16 bits takes less";

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
    result.map_err(|panic| text_of(panic.as_ref()))
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without a message").to_owned()
}

fn sentence(panic: &PanicHookInfo<'_>) -> String {
    let text = panic.payload_as_str().unwrap_or("for an unknown reason");
    let place = panic.location().map_or(String::new(), |place| format!(" at {}:{}", place.file(), place.line()));
    let rest = "RUST_BACKTRACE=1 shows where";
    match likely_cause(text) {
        Some(cause) => format!("{cause} ({}; {rest})", beginning(text)),
        None => format!(
            "the program has stopped where it should not, which is a defect{place}: {}; {rest}",
            beginning(text)
        ),
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
            "the device's memory is full, or an array of the model is larger than the largest that the device has (a software \
             device of Vulkan: 128 MiB): a smaller model or batch, or a type of 16 bits, takes less",
        );
    }
    if has(&["UNSUPPORTED_PTX_VERSION", "NO_BINARY_FOR_GPU", "INVALID_PTX", "INVALID_IMAGE", "Unable to load the PTX"])
    {
        return Some(
            "the GPU's driver refuses a compiled kernel: update the driver, or remove the folder 'kernels' of grove's cache, \
             ~/.cache/grove, if it is of another GPU",
        );
    }
    if has(&["Compilation Error", "CompilationError"]) {
        return Some(
            "CUDA's run-time compiler refuses a kernel: its headers and the compiler have to be of one version",
        );
    }
    if has(&["ILLEGAL_ADDRESS", "LAUNCH_FAILED", "LAUNCH_TIMEOUT", "DEVICE_LOST", "device lost"]) {
        return Some(
            "a kernel failed on the device, which ends all work there: start again, and tell grove's developers",
        );
    }
    // Burn's message has no further details.
    if text == "not implemented" {
        return Some(
            "Burn lacks an operation: its methods `scatter` and `select_assign` have the update `Add` alone, where the functions of \
             these names in `grove::backend::ops` have all",
        );
    }
    if has(&["attempt to divide", "attempt to calculate the remainder"]) {
        return Some(
            "an integer was divided by 0, or the lowest one by -1: `int_div` and `int_remainder` of `grove::backend::ops` give \
             -1 and 0 there, and so do traced functions and gradients",
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
