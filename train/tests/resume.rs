//! Killed runs resume bitwise identically; only time is lost.
//!
//! The killed process is this test program itself; an environment variable makes it a training run: [`a_run`].
#![cfg(unix)]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::{Arc, OnceLock},
    thread::sleep,
    time::{Duration, Instant},
};

use burn::tensor::{Tensor, activation};
use grove_backend::{Autodiff, Backend, Flex};
use grove_layers::{Embedding, Linear, dropout, loss::softmax_cross_entropy_with_integer_labels};
use grove_optim::{Adamw, adamw, chain, clip_by_global_norm, matrices, warmup_cosine_decay_schedule};
use grove_train::{
    CheckpointManager, FitOptions, RunDuration, RunProgress, TrainError,
    data::{Data, TokenBatch, TokenStream, TokenWindows},
    fit,
    log::read_metrics,
    stop_on_interrupt,
};
use grove_tree::{Init, Key, Tree};
use tempfile::TempDir;

/// Environment variable with the directory of the run.
const RUN: &str = "GROVE_TEST_RUN";
const STEPS: u64 = 200;
const CHECKPOINT_EVERY: u64 = 2;
const VOCABULARY: usize = 48;

/// Predicts each token from the previous one.
#[derive(Tree, Clone, Debug)]
struct Bigram<B: Backend> {
    table: Embedding<B>,
    hidden: Linear<B>,
    head: Linear<B>,
}

impl<B: Backend> Bigram<B> {
    fn new(init: &Init<B>) -> Self {
        Self {
            table: Embedding::normal(VOCABULARY, 32, 0.3, init.named("table")),
            hidden: Linear::normal(32, 64, 0.2, init.named("hidden")),
            head: Linear::normal(64, VOCABULARY, 0.1, init.named("head")),
        }
    }

    /// Returns the mean loss over the tokens, `[1]`.
    fn loss(&self, batch: &TokenBatch, key: Option<Key>, device: &B::Device) -> Tensor<B, 1> {
        let x = dropout(self.table.forward(batch.inputs(device)), 0.1, key);
        let x = activation::tanh(self.hidden.forward(x));
        let logits = self.head.forward(dropout(x, 0.1, key.map(|key| key.fold_in(1))));
        softmax_cross_entropy_with_integer_labels(logits, batch.targets(device)).mean()
    }
}

/// Training run that the tests below start and kill. It does nothing unless a test starts it.
#[test]
#[ignore = "a part of the other tests"]
fn a_run() {
    let Some(directory) = std::env::var_os(RUN).map(PathBuf::from) else { return };
    let device = Default::default();
    let text = (0..4000u32).map(|i| (i * i / 7 + i % 5) % VOCABULARY as u32).collect();
    let (training, held_out) = TokenStream::new(text).split(0.1).expect("text");
    let data = Arc::new(TokenWindows::new(training, 16, 4, Some(Key::new(5))).expect("windows"));
    let held_out = TokenWindows::new(held_out, 16, 8, None).expect("windows");
    let model = Bigram::<Flex>::new(&Init::new(Key::new(1), &device));
    let schedule = warmup_cosine_decay_schedule(0.0, 1e-2, 20, STEPS, 1e-3);
    let weights = Adamw::default().weight_decay(0.1).mask(matrices());
    let optimizer = chain((clip_by_global_norm::<Flex>(1.0), adamw(schedule.clone(), weights)));
    let evaluate = |model: &Bigram<Flex>| {
        let losses: Vec<f64> = held_out
            .epoch(0)
            .map(|batch| Ok(model.loss(&batch?, None, &Default::default()).into_scalar().into()))
            .collect::<Result<_, TrainError>>()?;
        Ok(BTreeMap::from([("loss".to_owned(), losses.iter().sum::<f64>() / losses.len() as f64)]))
    };
    let options = FitOptions {
        length: RunDuration::Steps(STEPS),
        accumulate: 2,
        ema: Some(0.99),
        // No interval divides another, so that a run is killed in the middle of each.
        log_every: 5,
        evaluate_every: 7,
        checkpoint_every: CHECKPOINT_EVERY,
        directory: Some(directory),
        resume: true,
        learning_rate: Some(schedule),
        stop: Some(stop_on_interrupt().expect("no other handler")),
        // The other tests read the step that the run resumes from.
        progress: true,
        ..FitOptions::default()
    };
    let loss = |model: Bigram<Autodiff<Flex>>, batch: &TokenBatch, key| model.loss(batch, Some(key), &device);
    match fit(model, &optimizer, &data, loss, evaluate, Key::new(3), &options) {
        Ok(fitted) => eprintln!("{:?} at step {}", fitted.ended, fitted.steps),
        Err(error) => panic!("the run failed: {error}"),
    }
}

fn command(directory: &Path) -> Command {
    let program = std::env::current_exe().expect("this program");
    run_with(Command::new(program), directory)
}

fn run_with(mut command: Command, directory: &Path) -> Command {
    command.args(["--exact", "a_run", "--ignored", "--nocapture"]).env(RUN, directory);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

fn start(directory: &Path) -> Child {
    command(directory).spawn().expect("started")
}

/// Returns the standard error of a process that has ended.
fn stderr(output: Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn finish(directory: &Path) {
    let output = command(directory).output().expect("started");
    let success = output.status.success();
    let stderr = stderr(output);
    assert!(success && stderr.contains(&format!("Finished at step {STEPS}")), "{stderr}");
}

fn signal(child: &Child, name: &str) {
    let status = Command::new("kill").args([name, &child.id().to_string()]).status().expect("kill is there");
    assert!(status.success(), "kill {name}");
}

/// Stops a child and waits until all of its threads have stopped. `kill` alone returns earlier, and a thread finishes
/// its system call first.
fn stop(child: &Child) {
    signal(child, "-STOP");
    let mut status = 0;
    let pid = child.id().cast_signed();
    // SAFETY: `status` outlives the call. With WUNTRACED, `waitpid` reports a stopped child without reaping it, so the
    // pid of `child` stays valid.
    let stopped = unsafe { libc::waitpid(pid, &raw mut status, libc::WUNTRACED) };
    assert!(stopped == pid && libc::WIFSTOPPED(status), "the child ended instead: status {status:#x}");
}

/// Returns the step of the newest checkpoint.
fn newest(directory: &Path) -> Option<u64> {
    let entries = fs::read_dir(directory.join("checkpoints")).ok()?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter_map(|name| name.strip_prefix("step-")?.parse().ok()).max()
}

/// Waits for a checkpoint of at least this step; returns false if the process ended before.
fn wait_for(child: &mut Child, directory: &Path, step: u64) -> bool {
    let start = Instant::now();
    while newest(directory).is_none_or(|newest| newest < step) {
        if child.try_wait().expect("waited").is_some() {
            return false;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "no checkpoint of step {step} within a minute");
        sleep(Duration::from_millis(1));
    }
    true
}

/// Returns the directory of an uninterrupted run.
fn undisturbed() -> &'static Path {
    static RUN: OnceLock<TempDir> = OnceLock::new();
    RUN.get_or_init(|| {
        let directory = TempDir::new().expect("a directory");
        finish(directory.path());
        let records = read_metrics(directory.path().join("metrics.jsonl")).expect("records");
        let loss = |record: usize| records[record].get("train/loss").expect("a loss");
        assert!(loss(records.len() - 2) < 0.8 * loss(0), "the run learns something");
        directory
    })
    .path()
}

/// Returns the lines of the metrics file without times.
fn metrics(directory: &Path) -> Vec<serde_json::Value> {
    let text = fs::read_to_string(directory.join("metrics.jsonl")).expect("metrics");
    let timeless = |line: &str| {
        let mut record: serde_json::Value = serde_json::from_str(line).expect("JSON");
        let fields = record.as_object_mut().expect("an object");
        fields.retain(|name, _| name != "seconds" && !name.ends_with("_per_second"));
        record
    };
    text.lines().map(timeless).collect()
}

/// Returns all files of a directory, recursively.
fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).expect("listed") {
        let path = entry.expect("an entry").path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

/// Asserts that two finished runs left the same files, except for times.
#[track_caller]
fn assert_same(run: &Path, expected: &Path) {
    let names = |directory: &Path| -> Vec<String> {
        let strip = |path: &PathBuf| path.strip_prefix(directory).expect("below").display().to_string();
        files(directory).iter().map(strip).filter(|name| !name.starts_with("tensorboard")).collect()
    };
    assert_eq!(names(run), names(expected), "no file more or less");
    let arrays: Vec<String> = names(run).into_iter().filter(|name| name.ends_with(".safetensors")).collect();
    assert_eq!(arrays.len(), 3, "two checkpoints and the best model: {arrays:?}");
    for name in arrays {
        let bytes = |directory: &Path| fs::read(directory.join(&name)).expect("read");
        assert!(bytes(run) == bytes(expected), "{name} differs");
    }
    let (found, expected) = (metrics(run), metrics(expected));
    assert_eq!(found.len(), expected.len(), "as many records");
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!(found, expected);
    }
}

/// The splitmix64 generator.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Returns the number of kills: 10, or `GROVE_KILLS`.
fn wanted_kills() -> usize {
    std::env::var("GROVE_KILLS").map_or(10, |kills| kills.parse().expect("GROVE_KILLS is a number"))
}

#[test]
fn killed_runs_resume_bit_for_bit() {
    let (mut kills, mut seed, mut halfway) = (0, 20, 0);
    let mut finished = 0;
    while kills < wanted_kills() {
        let directory = TempDir::new().expect("a directory");
        let directory = directory.path();
        loop {
            let before = newest(directory);
            let mut child = start(directory);
            // Kill a quarter of the runs while they start, read and clean up, and the others between two checkpoints.
            let running = if random(&mut seed).is_multiple_of(4) {
                sleep(Duration::from_micros(random(&mut seed) % 60_000));
                true
            } else {
                let running = wait_for(&mut child, directory, before.map_or(CHECKPOINT_EVERY, |step| step + 1));
                sleep(Duration::from_micros(random(&mut seed) % 60_000));
                running
            };
            let ended = child.try_wait().expect("waited").is_some();
            if !ended {
                signal(&child, "-KILL");
                kills += 1;
            }
            let drafts = |path: &PathBuf| path.to_string_lossy().contains(".grove-");
            halfway += usize::from(files(directory).iter().any(drafts));
            let output = child.wait_with_output().expect("waited");
            let success = output.status.success();
            let stderr = stderr(output);
            assert!(!stderr.contains("damaged") && !stderr.contains("lost"), "{stderr}");
            if let Some(before) = before.filter(|_| stderr.contains("going on")) {
                assert!(
                    stderr.contains(&format!("going on after step {before} ")),
                    "went on from the newest: {stderr}"
                );
            }
            if ended && success {
                assert!(stderr.contains(&format!("Finished at step {STEPS}")), "{stderr}");
                break;
            }
            assert!(!ended, "the run failed by itself ({running}): {stderr}");
            let newest = newest(directory).unwrap_or(0);
            assert!(before.is_none_or(|before| before <= newest), "a checkpoint is not lost");
            if let Ok(records) = read_metrics(directory.join("metrics.jsonl")) {
                let logged = records.last().map_or(0, |record| record.step);
                assert!(newest + CHECKPOINT_EVERY >= logged, "step {logged} was made, and {newest} is the newest");
            }
        }
        assert_same(directory, undisturbed());
        finished += 1;
    }
    eprintln!("{kills} kills, {halfway} of them halfway through a file, {finished} runs finished");
    // With only a few kills, none may hit a checkpoint while it is written.
    assert!(halfway > 0 || kills < 50, "some kills hit a checkpoint that was being written");
}

#[test]
fn an_interrupt_writes_a_checkpoint_and_exits() {
    let directory = TempDir::new().expect("a directory");
    let directory = directory.path();
    for until in [9, 60] {
        let mut child = start(directory);
        assert!(
            wait_for(&mut child, directory, until),
            "it did not run: {}",
            stderr(child.wait_with_output().expect(""))
        );
        signal(&child, "-INT");
        let output = child.wait_with_output().expect("waited");
        assert!(output.status.success(), "an interrupted run is not a failure: {:?}", output.status);
        let stderr = stderr(output);
        assert!(stderr.contains("stopping after this step"), "{stderr}");
        let stopped = newest(directory).expect("a checkpoint");
        assert!(
            stderr.contains(&format!("Interrupted at step {stopped}")),
            "the checkpoint is of the last step: {stderr}"
        );
    }
    finish(directory);
    assert_same(directory, undisturbed());
}

/// `timeout` signals the process, and then its process group.
#[test]
fn two_signals_at_once_count_once() {
    use std::os::unix::process::CommandExt;
    let directory = TempDir::new().expect("a directory");
    let directory = directory.path();
    for _ in 0..4 {
        let until = newest(directory).map_or(9, |step| step + 12);
        let mut child = command(directory).process_group(0).spawn().expect("started");
        assert!(
            wait_for(&mut child, directory, until),
            "it did not run: {}",
            stderr(child.wait_with_output().expect(""))
        );
        let id = child.id();
        let kill = format!("kill -TERM {id}; kill -TERM -{id}; kill -TERM {id}");
        Command::new("sh").args(["-c", &kill]).status().expect("sh is there");
        let output = child.wait_with_output().expect("waited");
        assert!(output.status.success(), "it ends by itself: {:?}", output.status);
        let stderr = stderr(output);
        let stopped = newest(directory).expect("a checkpoint");
        assert!(
            stderr.contains(&format!("Interrupted at step {stopped}")),
            "the checkpoint is of the last step: {stderr}"
        );
    }
    finish(directory);
    assert_same(directory, undisturbed());
}

#[test]
fn a_second_run_in_the_directory_is_refused_while_the_first_lives() {
    let directory = TempDir::new().expect("a directory");
    let directory = directory.path();
    let mut first = start(directory);
    assert!(wait_for(&mut first, directory, 3), "it runs");
    // Stop the first run, so that it cannot end while the second one starts.
    stop(&first);
    let before: Vec<_> = files(directory).into_iter().map(|path| (fs::read(&path).ok(), path)).collect();
    let output = command(directory).output().expect("started");
    let success = output.status.success();
    let stderr = stderr(output);
    assert!(!success, "{stderr}");
    let part = format!("{} is in use by another run, process {}", directory.display(), first.id());
    assert!(stderr.contains(&part), "{part}: {stderr}");
    let after: Vec<_> = files(directory).into_iter().map(|path| (fs::read(&path).ok(), path)).collect();
    assert!(before == after, "it has touched nothing, drafts of the first run neither");

    // Readers do not remove incomplete checkpoints.
    let draft = directory.join("checkpoints/.grove-abc.writing");
    fs::create_dir(&draft).expect("made");
    let reader = CheckpointManager::open(directory.join("checkpoints"), 1).expect("opened beside the run");
    assert!(reader.list().expect("listed").len() > 1 && draft.exists());
    let like = Bigram::<Flex>::new(&Init::new(Key::new(1), &Default::default()));
    let state = RunProgress { step: 1, ..RunProgress::default() };
    let error = reader.save::<Flex, _>(&like, &state).expect_err("the run is alive");
    assert!(matches!(error, TrainError::RunLocked { .. }), "{error:?}");

    // The lock is released when the process ends, even by SIGKILL.
    signal(&first, "-KILL");
    first.wait().expect("waited");
    finish(directory);
    assert!(!draft.exists(), "who holds the lock clears away");
    assert_same(directory, undisturbed());
}

#[test]
fn a_full_disk_is_one_sentence_and_older_checkpoints_stay() {
    let directory = TempDir::new().expect("a directory");
    let directory = directory.path();
    let mut child = start(directory);
    assert!(wait_for(&mut child, directory, 10), "it runs");
    signal(&child, "-KILL");
    child.wait().expect("waited");
    let kept = newest(directory).expect("a checkpoint");

    // Limit files to 50 KB: enough for the logs, but not for a checkpoint.
    let mut shell = Command::new("sh");
    let program = std::env::current_exe().expect("this program");
    shell.args(["-c", r#"trap "" XFSZ; ulimit -f 100; exec "$0" "$@""#]).arg(program);
    let output = run_with(shell, directory).output().expect("started");
    let success = output.status.success();
    let stderr = stderr(output);
    let next = directory.join(format!("checkpoints/step-{:010}", kept + CHECKPOINT_EVERY));
    let sentence = format!("the run failed: cannot write {}: File too large", next.display());
    assert!(!success && stderr.contains(&sentence), "it says which checkpoint and why: {stderr}");
    assert_eq!(newest(directory), Some(kept), "the older checkpoint is there");
    let left: Vec<_> = files(directory).into_iter().filter(|path| path.to_string_lossy().contains(".grove-")).collect();
    assert!(left.is_empty(), "nothing half-written is left: {left:?}");

    // Resume without the limit.
    finish(directory);
    assert_same(directory, undisturbed());
}
