//! Measured programs. Each runs as one process per row.

use clap::ValueEnum;
use grove_terminal::{Exit, usage};
use std::{
    collections::VecDeque,
    io::{BufRead, BufReader, Read, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread,
    time::{Duration, Instant},
};

use crate::{
    protocol::{ErrorKind, Event, Request},
    worker::Spec,
};

/// Library to compare grove with.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    Torch,
    Jax,
    Candle,
}

/// Column of the table: a program in one of its modes.
#[derive(Clone, Debug)]
pub struct Column {
    /// Displayed name.
    pub name: String,
    /// Library; `None` for grove.
    pub peer: Option<Peer>,
    pub form: String,
    pub start: Start,
    /// True if the column computes on a GPU.
    pub on_gpu: bool,
}

/// Command line of a column's process, without the row.
#[derive(Clone, Debug)]
pub struct Start {
    pub program: PathBuf,
    pub arguments: Vec<String>,
}

impl Start {
    /// Returns a command line without the row.
    pub fn new(program: impl Into<PathBuf>, arguments: impl IntoIterator<Item = String>) -> Self {
        Self { program: program.into(), arguments: arguments.into_iter().collect() }
    }
}

/// Reason why a column has no measurement in a row.
#[derive(Clone, Debug)]
pub struct Failure {
    pub kind: ErrorKind,
    pub message: String,
}

impl Failure {
    fn new(message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Failed, message: message.into() }
    }
}

/// Running process that computes a row.
pub struct Worker {
    child: Child,
    stdin: ChildStdin,
    events: Receiver<String>,
    messages: Receiver<String>,
    started: Instant,
    timeout: Duration,
}

/// Maximum time for a process to exit after its last message.
const EXIT_TIMEOUT: Duration = Duration::from_secs(10);

/// Number of last lines of standard error to search for the reason of a failure.
const LINES: usize = 20;

impl Worker {
    /// Starts a process for a row.
    pub fn start(start: &Start, spec: &Spec, timeout: Duration) -> Result<Self, Failure> {
        let json = serde_json::to_string(spec).map_err(|error| Failure::new(error.to_string()))?;
        let threads = spec.threads.to_string();
        let started = Instant::now();
        let mut child = Command::new(&start.program)
            .args(&start.arguments)
            .arg(json)
            .env("RAYON_NUM_THREADS", &threads)
            .env("OMP_NUM_THREADS", &threads)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| Failure::new(format!("{}: {error}", start.program.display())))?;
        let (Some(stdin), Some(stdout), Some(stderr)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(Failure::new("the process has no pipes"));
        };
        let (sender, events) = channel();
        thread::spawn(move || send_lines(stdout, &sender));
        let (sender, messages) = channel();
        thread::spawn(move || send_lines(stderr, &sender));
        Ok(Self { child, stdin, events, messages, started, timeout })
    }

    /// Waits for the next event of the process. Returns it with the time since the process was started.
    pub fn next(&mut self) -> Result<(Event, Duration), Failure> {
        let line = match self.events.recv_timeout(self.timeout) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => {
                let seconds = self.timeout.as_secs();
                return Err(Failure::new(format!("the process did not answer within {seconds} s (--timeout)")));
            }
            Err(RecvTimeoutError::Disconnected) => return Err(self.end()),
        };
        let since = self.started.elapsed();
        match serde_json::from_str(&line) {
            Ok(Event::Error { kind, message }) => Err(Failure { kind, message }),
            Ok(event) => Ok((event, since)),
            Err(error) => Err(Failure::new(format!("the process wrote '{line}', which is not an event: {error}"))),
        }
    }

    /// Sends a request to the process.
    pub fn send(&mut self, request: Request) -> Result<(), Failure> {
        let line = serde_json::to_string(&request).map_err(|error| Failure::new(error.to_string()))?;
        match writeln!(self.stdin, "{line}").and_then(|()| self.stdin.flush()) {
            Ok(()) => Ok(()),
            Err(_) => Err(self.end()),
        }
    }

    /// Returns the panic message of a thread of a grove process, if one arrives within a short time. If a device's thread panics,
    /// the process keeps running and returns results of kernels that never ran.
    pub fn panicked(&self) -> Option<Failure> {
        let mut heading = false;
        while let Ok(line) = self.messages.recv_timeout(Duration::from_millis(50)) {
            let line = line.trim();
            // grove's panic hook prints the message after `error: `, Rust's on the line after `panicked at`.
            if let Some(message) = line.strip_prefix("error: ") {
                return Some(Failure::new(message));
            }
            if heading && !line.is_empty() {
                return Some(Failure::new(line));
            }
            heading |= line.contains("panicked at");
        }
        heading.then(|| Failure::new("a thread of the process panicked"))
    }

    /// Returns the reason why the process ended without an event.
    fn end(&mut self) -> Failure {
        let deadline = Instant::now() + self.timeout.min(EXIT_TIMEOUT);
        let status = loop {
            match self.child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if Instant::now() < deadline => thread::sleep(Duration::from_millis(10)),
                Ok(None) => return Failure::new("the process closed its output and does not exit"),
                Err(error) => return Failure::new(error.to_string()),
            }
        };
        // A timeout, because child processes of the process may keep the pipe open.
        let mut lines = VecDeque::new();
        while let Ok(line) = self.messages.recv_timeout(Duration::from_millis(200)) {
            if lines.len() == LINES {
                lines.pop_front();
            }
            lines.push_back(line);
        }
        // The message of a panic is the line after its heading. Other errors are on the last line.
        let heading = lines.iter().position(|line| line.contains("panicked at"));
        let message = heading
            .and_then(|at| lines.get(at + 1))
            .or_else(|| lines.iter().rev().find(|line| !line.trim().is_empty()));
        let last = message.cloned().unwrap_or_default();
        let out_of_memory = killed(&status) || lines.iter().any(|line| line.contains("memory allocation of"));
        match out_of_memory {
            true => Failure { kind: ErrorKind::OutOfMemory, message: format!("{status}") },
            false => Failure::new(format!("{status}: {last}")),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // The results are complete, so a computation that still runs is not needed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns true if a process was killed by SIGKILL, which the system sends when memory runs out.
fn killed(status: &std::process::ExitStatus) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::process::ExitStatusExt;
        const SIGKILL: i32 = 9;
        status.signal() == Some(SIGKILL)
    }
    #[cfg(not(unix))]
    {
        let _ = status;
        false
    }
}

/// Sends the lines of a stream to a channel until either end closes.
fn send_lines(stream: impl Read, sender: &Sender<String>) {
    for line in BufReader::new(stream).lines().map_while(Result::ok) {
        if sender.send(line).is_err() {
            break;
        }
    }
}

impl Peer {
    /// Checks that the library is installed.
    pub fn check(self, python: &Path, candle: &Path) -> Result<(), Exit> {
        let module = match self {
            Self::Torch => "torch",
            Self::Jax => "jax",
            Self::Candle if candle.is_file() => return Ok(()),
            Self::Candle => {
                return Err(usage(format!(
                    "{} does not exist: build it with `cargo build --release` in benches/candle, or name it with --candle",
                    candle.display()
                )));
            }
        };
        let find = format!("import importlib.util as u, sys; sys.exit(0 if u.find_spec('{module}') else 3)");
        let named = python.display();
        match Command::new(python).args(["-c", &find]).status() {
            Ok(status) if status.success() => Ok(()),
            Ok(_) => Err(usage(format!(
                "{named} has no module '{module}': run `{named} -m pip install -r benches/requirements.txt`, or \
                 name another Python with --python"
            ))),
            Err(error) => Err(usage(format!("--python {named}: {error}"))),
        }
    }

    /// Returns the columns of the library.
    pub fn columns(self, python: &Path, peers: &Path, candle: &Path, on_gpu: bool) -> Vec<Column> {
        let column = |name: &str, form: &str, start: Start| Column {
            name: name.to_owned(),
            peer: Some(self),
            form: form.to_owned(),
            start,
            on_gpu: on_gpu && self != Self::Candle,
        };
        let script = |name: &str| Start::new(python, [peers.join(name).display().to_string()]);
        match self {
            Self::Torch => vec![
                column("PyTorch", "eager", script("torch_peer.py")),
                column("PyTorch, channels last", "channels_last", script("torch_peer.py")),
                column("torch.compile", "compile", script("torch_peer.py")),
            ],
            Self::Jax => vec![column("JAX", "jit", script("jax_peer.py"))],
            Self::Candle => vec![column("candle", "eager", Start::new(candle, []))],
        }
    }
}
