//! Helpers for the tests of the examples, which run an example as a user does, without a network.

// Each test program uses some of these functions.
#![allow(dead_code)]

use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};

/// An example program, by name.
#[derive(Clone, Copy)]
pub struct Example(pub &'static str);

impl Example {
    /// Returns the path of the binary, which `cargo test` builds next to the tests.
    pub fn program(self) -> PathBuf {
        let test = std::env::current_exe().expect("a running test has a path");
        let target = test.ancestors().nth(2).expect("tests lie in target/PROFILE/deps");
        let program = target.join("examples").join(format!("{}{}", self.0, std::env::consts::EXE_SUFFIX));
        assert!(program.is_file(), "{} is missing; build it with `cargo build --examples`", program.display());
        program
    }

    /// Starts the example without a network and without the caches of this machine, with a pipe as its standard input.
    pub fn start(self, arguments: &[&str]) -> Child {
        self.start_with(arguments, Stdio::piped())
    }

    fn start_with(self, arguments: &[&str], input: Stdio) -> Child {
        let home = tempfile::tempdir().expect("a temporary directory");
        let mut command = Command::new(self.program());
        command.args(arguments).env("HF_HOME", home.path()).env("HF_HUB_OFFLINE", "1").env_remove("HF_TOKEN");
        command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the example starts")
    }

    /// Runs the example to its end. Without input it has no standard input, which differs from an empty one.
    pub fn run(self, arguments: &[&str], input: &str) -> Output {
        if input.is_empty() {
            return self.start_with(arguments, Stdio::null()).wait_with_output().expect("the example ends");
        }
        self.run_piped(arguments, input)
    }

    /// Runs the example to its end with a pipe as its standard input, which may be empty.
    pub fn run_piped(self, arguments: &[&str], input: &str) -> Output {
        let mut child = self.start(arguments);
        // The example may end without reading.
        let _ = std::io::Write::write_all(&mut child.stdin.take().expect("piped"), input.as_bytes());
        child.wait_with_output().expect("the example ends")
    }

    /// Runs the example and returns the JSON object that it prints.
    #[track_caller]
    pub fn json(self, arguments: &[&str]) -> Value {
        let output = self.run(arguments, "");
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("one JSON object on standard output")
    }

    /// Asserts that the example ends with the status and prints only one error message, which has all the words.
    #[track_caller]
    pub fn assert_refused(self, arguments: &[&str], status: i32, words: &[&str]) {
        let message = self.assert_fails(arguments, status, words);
        assert!(message.starts_with("error: "), "{arguments:?}: {message}");
    }

    /// As [`assert_refused`](Self::assert_refused), but other messages may precede the error.
    #[track_caller]
    pub fn assert_fails(self, arguments: &[&str], status: i32, words: &[&str]) -> String {
        let output = self.run(arguments, "");
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {message}");
        assert!(output.stdout.is_empty(), "{arguments:?} wrote to standard output");
        let sentences: Vec<&str> = message.lines().filter(|line| line.starts_with("error: ")).collect();
        assert_eq!(sentences.len(), 1, "{arguments:?}: {message}");
        for word in words {
            assert!(message.contains(word), "{arguments:?} does not say '{word}': {message}");
        }
        message
    }
}

/// Returns the path of a GPT-2 fixture. Tests run in the folder of their package, so the path is relative: a
/// compiled-in absolute path would be that of the machine that built last.
pub fn fixture(name: &str) -> String {
    format!("models/tests/fixtures/gpt2/{name}")
}

/// Returns a path as an argument.
pub fn text(path: &Path) -> &str {
    path.to_str().expect("a path that is text")
}

/// Copies a fixture and changes one of its files.
pub fn damaged(fixture_name: &str, file: &str, change: impl FnOnce(Vec<u8>) -> Vec<u8>) -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a temporary directory");
    for entry in fs::read_dir(fixture(fixture_name)).expect("a fixture") {
        let path = entry.expect("a file").path();
        fs::copy(&path, directory.path().join(path.file_name().expect("a name"))).expect("copied");
    }
    let path = directory.path().join(file);
    fs::write(&path, change(fs::read(&path).expect("readable"))).expect("writable");
    directory
}

/// Options of a tiny GPT-2 that trains quickly; the batch size comes last.
pub const TINY: [&str; 12] = [
    "--n-layer",
    "1",
    "--n-head",
    "2",
    "--n-embd",
    "16",
    "--context",
    "16",
    "--vocab-size",
    "280",
    "--batch-size",
    "4",
];

/// A temporary directory for data and runs.
pub struct Place {
    pub directory: tempfile::TempDir,
}

impl Place {
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Self { directory: tempfile::tempdir().expect("a temporary directory") }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Returns the path as an argument.
    pub fn named(&self, name: &str) -> String {
        text(&self.path(name)).to_owned()
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        fs::write(self.path(name), content).expect("written");
        self.named(name)
    }

    pub fn book(&self) -> String {
        let (who, what) = (["The cat", "A dog", "My aunt"], ["sleeps", "sings", "eats fish", "runs away"]);
        let sentence = |i: usize| format!("{} {} by the river {}. ", who[i * i % 3], what[(i / 3 + i) % 4], i % 7);
        self.write("book.txt", (0..150).map(sentence).collect::<String>())
    }

    /// Writes `texts.tsv`, a table with the columns `label` and `text`.
    pub fn labelled_table(&self) -> String {
        let rows = fs::read_to_string(self.labelled("rows", |label, text| format!("{label}\t{text}\n"))).expect("rows");
        self.write("texts.tsv", "label\ttext\n".to_owned() + &rows)
    }

    /// Writes 120 sentences whose words determine the label.
    pub fn labelled(&self, name: &str, line: impl Fn(&str, String) -> String) -> String {
        let words = [("animal", ["cat", "dog", "hen"]), ("fruit", ["fig", "lime", "plum"])];
        let lines = (0..120).map(|i| {
            let (label, words) = words[i % 2];
            line(label, format!("{} {} {}", "very ".repeat(i % 5), words[i % 3], words[(i / 3) % 3]))
        });
        self.write(name, lines.collect::<String>())
    }
}

/// Reads a JSON file.
pub fn json_file(path: PathBuf) -> Value {
    serde_json::from_slice(&fs::read(path).expect("a file")).expect("JSON")
}

/// Waits until a condition holds, for at most a minute.
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = std::time::Instant::now();
    while !holds() {
        assert!(start.elapsed().as_secs() < 60, "waited in vain: {what}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// Sends a signal, such as `-INT`, to a child.
#[cfg(unix)]
pub fn signal(child: &Child, name: &str) {
    let status = Command::new("kill").args([name, &child.id().to_string()]).status().expect("kill runs");
    assert!(status.success(), "kill {name}");
}

/// Stops a child and waits until all of its threads have stopped. `kill` alone returns earlier, and a thread finishes
/// its system call first.
#[cfg(unix)]
pub fn stop(child: &Child) {
    signal(child, "-STOP");
    let mut status = 0;
    let pid = child.id().cast_signed();
    // SAFETY: `status` outlives the call. With WUNTRACED, `waitpid` reports a stopped child without reaping it, so the
    // pid of `child` stays valid.
    let stopped = unsafe { libc::waitpid(pid, &raw mut status, libc::WUNTRACED) };
    assert!(stopped == pid && libc::WIFSTOPPED(status), "the child ended instead: status {status:#x}");
}
