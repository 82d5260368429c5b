//! A word to whoever waits while a GPU's kernels are compiled, which at a first start takes a while.

use std::{
    io::{IsTerminal, Write},
    sync::atomic::{AtomicUsize, Ordering},
};

static COMPILED: AtomicUsize = AtomicUsize::new(0);

/// Listens to what CubeCL logs, of which the only thing that counts is that it compiles.
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

/// From here on shows how many kernels were compiled, if standard error is a terminal.
pub(crate) fn show_compiling() {
    if std::io::stderr().is_terminal() && log::set_logger(&Listener).is_ok() {
        log::set_max_level(log::LevelFilter::Trace);
    }
}

/// Takes the words away before something else is written.
pub(crate) fn clear() {
    if COMPILED.load(Ordering::Relaxed) > 0 && std::io::stderr().is_terminal() {
        let mut stderr = std::io::stderr().lock();
        // Nobody is told that nothing could be told.
        let _ = write!(stderr, "\x1b[K").and_then(|()| stderr.flush());
    }
}
