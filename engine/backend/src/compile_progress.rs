//! Progress of the compilation of a GPU's kernels, which takes a while at the first start; on standard error, if it is a
//! terminal.

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
            // Behind the cursor, which goes back to where a text is being written.
            eprint!("\x1b7 [compiling kernels: {count}]\x1b8");
        }
    }

    fn flush(&self) {}
}

/// Shows the number of compiled kernels from here on. It sets the logger of the crate `log`; where a program has one, nothing
/// is shown.
pub fn show() {
    if std::io::stderr().is_terminal() && log::set_logger(&Listener).is_ok() {
        log::set_max_level(log::LevelFilter::Trace);
    }
}

/// Clears the number, before something else is written to the terminal.
pub fn clear() {
    if COMPILED.load(Ordering::Relaxed) > 0 && std::io::stderr().is_terminal() {
        let mut stderr = std::io::stderr().lock();
        let _ = write!(stderr, "\x1b[K").and_then(|()| stderr.flush());
    }
}
