//! Progress display of kernel compilation on a GPU, which takes a while on the first run. Written to standard error if it
//! is a terminal.

use std::{
    io::{IsTerminal, Write},
    sync::atomic::{AtomicUsize, Ordering},
};

static COMPILED: AtomicUsize = AtomicUsize::new(0);

/// Counts the kernels that CubeCL logs as it compiles them.
struct Listener;

impl log::Log for Listener {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.target() == "cubecl_cuda::compute::context"
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) && record.args().as_str() == Some("Compiling kernel") {
            let count = COMPILED.fetch_add(1, Ordering::Relaxed) + 1;
            // Saves and restores the cursor, so that text being written continues where it was.
            eprint!("\x1b7 [compiling kernels: {count}]\x1b8");
        }
    }

    fn flush(&self) {}
}

/// Starts showing the number of compiled kernels. Sets the logger of the crate `log`; if the program already has one,
/// nothing is shown.
pub fn show() {
    if std::io::stderr().is_terminal() && log::set_logger(&Listener).is_ok() {
        log::set_max_level(log::LevelFilter::Trace);
    }
}

/// Clears the displayed number, before other output to the terminal.
pub fn clear() {
    if COMPILED.load(Ordering::Relaxed) > 0 && std::io::stderr().is_terminal() {
        let mut stderr = std::io::stderr().lock();
        let _ = write!(stderr, "\x1b[K").and_then(|()| stderr.flush());
    }
}
