//! Tiny models trained on 2, 3 and 4 ranks, compared with one rank on the whole batch.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

/// Timeout of a run, which then hangs.
const LONGEST: Duration = Duration::from_secs(120);

fn mpirun(ranks: usize, words: &[&str], output: &Path) -> Command {
    let (model, rest) = (&words[..3], &words[3..]);
    let mut command = Command::new("mpirun");
    command
        .args(["--oversubscribe", "-n", &ranks.to_string(), env!("CARGO_BIN_EXE_grove-rank")])
        .args(model)
        .arg(output)
        .args(rest)
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .env("RAYON_NUM_THREADS", "1")
        .env("GROVE_COMM_TIMEOUT", "60")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Trains to the end, and returns the output and the parameters. `words` are MODEL BATCH STEPS [WAY].
fn trained(ranks: usize, words: &[&str]) -> (String, Vec<f32>) {
    let directory = tempfile::tempdir().expect("a directory");
    let output = directory.path().join("parameters");
    let ended = mpirun(ranks, words, &output).output().expect("mpirun (is openmpi-bin installed?)");
    assert!(ended.status.success(), "{words:?} on {ranks}: {}", String::from_utf8_lossy(&ended.stderr));
    (String::from_utf8_lossy(&ended.stdout).into_owned(), read(&output))
}

fn read(path: &Path) -> Vec<f32> {
    let bytes = fs::read(path).expect("parameters");
    bytes.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().expect("4 bytes"))).collect()
}

fn difference(left: &[f32], right: &[f32]) -> f32 {
    assert_eq!(left.len(), right.len());
    assert!(left.iter().all(|x| x.is_finite()));
    left.iter().zip(right).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

/// Asserts that several ranks match one rank, with batches of 12, and with batches of 7, which no number of ranks
/// divides. The last batch of 7 in an epoch has 5 examples.
fn equals_one_rank(model: &str, steps: &str) {
    for batch in ["12", "7"] {
        let words = [model, batch, steps];
        let (_, one) = trained(1, &words);
        let (_, before) = trained(1, &[model, batch, "1"]);
        assert!(difference(&one, &before) > 1e-3, "nothing is learned");
        for ranks in [2, 3, 4] {
            let (_, several) = trained(ranks, &words);
            let found = difference(&one, &several);
            println!("{model}, batches of {batch}, {ranks} ranks: {found:.1e}");
            assert!(found <= 1e-5, "{model}, batches of {batch}, {ranks} ranks: {found}");
        }
    }
}

#[test]
fn gpt2_equals_one_rank() {
    equals_one_rank("gpt2", "50");
}

#[test]
fn bert_equals_one_rank() {
    equals_one_rank("bert", "50");
}

#[test]
fn lstm_equals_one_rank() {
    equals_one_rank("lstm", "50");
}

#[test]
fn resnet_equals_one_rank() {
    // Each step of a ResNet amplifies rounding: after 30 steps it decides the argmax of max pooling.
    equals_one_rank("resnet", "20");
}

/// On XLA's CPU device: programs call MPI from threads of the plugin. Without a plugin the test prints a message.
#[test]
fn programs_of_xla_equal_one_rank() {
    for (model, ranks) in [("gpt2", 2), ("resnet", 3)] {
        let words = [model, "7", "12"];
        let (_, one) = trained(1, &words);
        let directory = tempfile::tempdir().expect("a directory");
        let output = directory.path().join("parameters");
        let ended = mpirun(ranks, &words, &output).env("BACKEND", "xla").output().expect("mpirun");
        let told = String::from_utf8_lossy(&ended.stderr);
        if told.contains("backend 'xla:cpu' cannot be used here") && std::env::var_os("GROVE_REQUIRE_PJRT").is_none() {
            println!("skipped: {told}");
            return;
        }
        assert!(ended.status.success(), "{model} on {ranks}: {told}");
        let found = difference(&one, &read(&output));
        println!("{model} on XLA, {ranks} ranks: {found:.1e}");
        assert!(found <= 1e-5, "{model} on XLA, {ranks} ranks: {found}");
    }
}

#[test]
fn the_same_ranks_give_the_same_bits() {
    for model in ["gpt2", "resnet"] {
        let runs = [(), ()].map(|()| trained(3, &[model, "7", "20"]).1);
        assert_eq!(runs[0], runs[1], "{model}");
    }
}

#[test]
fn zero1_gives_the_bits_of_the_whole_optimizer() {
    for ranks in [2, 3, 4] {
        let (_, whole) = trained(ranks, &["gpt2", "12", "20", "chain"]);
        let (_, divided) = trained(ranks, &["gpt2", "12", "20", "zero1"]);
        assert_eq!(whole, divided, "{ranks} ranks");
        let (_, clipped) = trained(ranks, &["gpt2", "12", "20", "clipped"]);
        let (_, divided) = trained(ranks, &["gpt2", "12", "20", "zero1_reduced"]);
        assert_eq!(clipped, divided, "{ranks} ranks, clipped");
    }
}

#[test]
fn zero1_in_fit_gives_the_bits_of_the_whole_optimizer() {
    for ranks in [2, 3] {
        for batch in ["12", "7"] {
            let (_, whole) = trained(ranks, &["gpt2", batch, "20", "fit_adam"]);
            let (_, divided) = trained(ranks, &["gpt2", batch, "20", "fit_zero1"]);
            assert_eq!(whole, divided, "{ranks} ranks, batches of {batch}");
        }
    }
}

/// Checkpoints contain the whole sharded state. A run killed on three ranks and resumed on three is bitwise identical
/// to an uninterrupted one; resumed on two ranks, or without sharding, it matches within rounding.
#[test]
fn zero1_in_fit_resumes_on_any_number_of_ranks() {
    let directory = || tempfile::tempdir().expect("a directory");
    let whole = directory();
    assert!(run_in(whole.path(), 3, "fit_zero1", None).0);
    let undisturbed = duration_of(whole.path());
    let expected = read(&whole.path().join("parameters"));
    for (ranks, way) in [(3, "fit_zero1"), (2, "fit_zero1"), (2, "fit_adam")] {
        let killed = killed_run("fit_zero1", 2, undisturbed);
        let (ended, output) = run_in(killed.path(), ranks, way, None);
        assert!(ended, "{}", String::from_utf8_lossy(&output.stderr));
        let found = read(&killed.path().join("parameters"));
        match ranks {
            3 => assert_eq!(found, expected),
            _ => assert!(difference(&found, &expected) <= 1e-5, "{ranks}, {way}: {}", difference(&found, &expected)),
        }
    }
}

#[test]
fn bf16_sends_about_half_and_trains_nearly_the_same() {
    let sent = |text: &str| -> f64 {
        let line = text.lines().find_map(|line| line.strip_prefix("bytes sent ")).expect("bytes");
        line.parse().expect("a number")
    };
    let (full, exact) = trained(2, &["gpt2", "12", "20", "chain"]);
    let (half, rounded) = trained(2, &["gpt2", "12", "20", "bf16"]);
    let (parameters, full, half) = (exact.len() as f64 * 4.0, sent(&full), sent(&half));
    // The model is broadcast at the start and compared at the end. In between, 20 steps each send 2 (n - 1) / n = 1
    // times the gradients.
    assert!((18.0..24.0).contains(&(full / parameters)), "{full} of {parameters}");
    assert!((full - half) / parameters > 9.5, "{half} of {full}");
    assert!(difference(&exact, &rounded) < 2e-2, "{}", difference(&exact, &rounded));
    assert_ne!(exact, rounded);
}

/// Returns the time of the last run in a directory, from the start of its ranks.
fn duration_of(directory: &Path) -> Duration {
    fs::read_to_string(directory.join("duration"))
        .expect("a duration")
        .parse()
        .map(Duration::from_secs_f64)
        .expect("seconds")
}

/// Returns the directory of a run on three ranks of which one was killed, given the time of an undisturbed run. A run that ends
/// before it is killed is started anew and killed earlier.
fn killed_run(way: &str, rank: usize, undisturbed: Duration) -> tempfile::TempDir {
    for attempt in 1..8 {
        let directory = tempfile::tempdir().expect("a directory");
        if !run_in(directory.path(), 3, way, Some((rank, undisturbed / 2u32.pow(attempt)))).0 {
            return directory;
        }
    }
    panic!("no run is killed before it ends")
}

/// Runs with checkpoints in a directory, and kills a rank after a time if `kill` is given. Returns true if the run
/// finished.
fn run_in(directory: &Path, ranks: usize, way: &str, kill: Option<(usize, Duration)>) -> (bool, Output) {
    let start = Instant::now();
    let mut command = mpirun(ranks, &["gpt2", "7", "30", way], &directory.join("parameters"));
    let mut child = command.env("RUN_DIRECTORY", directory.join("run")).spawn().expect("mpirun");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let mut processes = vec![0i32; ranks];
    for _ in 0..ranks {
        let line = lines.next().expect("a line").expect("text");
        let words: Vec<i32> = line.split(' ').skip(1).filter_map(|word| word.parse().ok()).collect();
        processes[words[0] as usize] = words[1];
    }
    let started = Instant::now();
    let reader = thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
    if let Some((rank, after)) = kill {
        thread::sleep(after);
        // SAFETY: `kill` accesses no memory. The process belongs to this test; if it has ended, the call returns an
        // error.
        unsafe { libc::kill(processes[rank], libc::SIGKILL) };
    }
    while child.try_wait().expect("a child").is_none() {
        assert!(start.elapsed() < LONGEST, "it hangs");
        thread::sleep(Duration::from_millis(10));
    }
    fs::write(directory.join("duration"), started.elapsed().as_secs_f64().to_string()).expect("written");
    reader.join().expect("no panic");
    let output = child.wait_with_output().expect("ended");
    (output.status.success(), output)
}

/// At least `GROVE_KILLS` kills, in four rounds or more.
#[test]
fn killed_and_resumed_gives_the_bits_of_a_run_that_was_not() {
    let directory = || tempfile::tempdir().expect("a directory");
    let whole = directory();
    let (ended, output) = run_in(whole.path(), 3, "fit", None);
    let undisturbed = duration_of(whole.path());
    assert!(ended, "{}", String::from_utf8_lossy(&output.stderr));
    let expected = read(&whole.path().join("parameters"));
    let wanted: u32 = std::env::var("GROVE_KILLS").map_or(0, |kills| kills.parse().expect("a number"));
    let (mut kills, mut round) = (0, 0u32);
    while round < 4 || kills < wanted {
        let mut killed = directory();
        // Repeat until a run finishes after kills, at various times and of each rank in turn. A run that ends before
        // its first kill is started anew and killed earlier.
        let (mut kills_of_round, mut attempt) = (0, 0);
        loop {
            assert!(attempt < 60, "no run is killed and comes to its end");
            let part = f64::from((round * 29 + attempt * 17) % 60 + 5) / 100.0 / f64::from(1 + attempt / 20);
            let rank = ((round + attempt) % 3) as usize;
            let (ended, output) = run_in(killed.path(), 3, "fit", Some((rank, undisturbed.mul_f64(part))));
            attempt += 1;
            match (ended, kills_of_round) {
                (true, 0) => killed = directory(),
                (true, _) => break,
                (false, _) => {
                    kills_of_round += 1;
                    let stderr = String::from_utf8_lossy(&output.stderr);
                    let errors = stderr.lines().filter(|line| line.starts_with("error: ")).count();
                    assert!(errors <= 1, "{stderr}");
                }
            }
            if kills_of_round == 12 {
                let (ended, output) = run_in(killed.path(), 3, "fit", None);
                assert!(ended, "{}", String::from_utf8_lossy(&output.stderr));
                break;
            }
        }
        assert_eq!(read(&killed.path().join("parameters")), expected, "round {round}");
        kills += kills_of_round;
        round += 1;
    }
    println!("{kills} kills");
}

#[test]
fn another_number_of_ranks_resumes_with_the_same_data() {
    let whole = tempfile::tempdir().expect("a directory");
    assert!(run_in(whole.path(), 3, "fit", None).0);
    let directory = killed_run("fit", 1, duration_of(whole.path()));
    let (finished, output) = run_in(directory.path(), 2, "fit", None);
    assert!(finished, "{}", String::from_utf8_lossy(&output.stderr));
    let several = read(&directory.path().join("parameters"));
    let (_, one) = trained(1, &["gpt2", "7", "30"]);
    assert!(difference(&one, &several) <= 1e-5, "{}", difference(&one, &several));
}

#[test]
fn a_corrupt_checkpoint_is_skipped() {
    let directory = tempfile::tempdir().expect("a directory");
    assert!(run_in(directory.path(), 2, "fit", None).0);
    let expected = read(&directory.path().join("parameters"));
    let newest = directory.path().join("run/checkpoints/step-0000000030/state.safetensors");
    let mut bytes = fs::read(&newest).expect("a checkpoint");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&newest, bytes).expect("written");
    let (ended, output) = run_in(directory.path(), 2, "fit", None);
    assert!(ended, "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(read(&directory.path().join("parameters")), expected);
}

/// A full file system under the checkpoints of rank 0: one message, from rank 0.
#[test]
fn a_full_disk_ends_the_job_with_one_sentence() {
    let directory = tempfile::tempdir().expect("a directory");
    let run = directory.path().join("run");
    fs::create_dir(&run).expect("made");
    let mount = Command::new("mount").args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"]).arg(&run).output();
    if !mount.is_ok_and(|mount| mount.status.success()) {
        eprintln!("skipped: a file system of 64 KB cannot be mounted (needs root)");
        return;
    }
    let (ended, output) = run_in(directory.path(), 2, "fit", None);
    Command::new("umount").arg(&run).status().expect("umount");
    let stderr = String::from_utf8_lossy(&output.stderr);
    let errors: Vec<&str> = stderr.lines().filter(|line| line.starts_with("error: ")).collect();
    assert!(!ended && output.status.code() == Some(1), "{stderr}");
    assert!(errors.len() == 1 && errors[0].contains("No space left"), "{stderr}");
}

#[test]
fn ranks_with_other_options_are_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let rank = |batch: &str| {
        let program = env!("CARGO_BIN_EXE_grove-rank");
        let output = directory.path().join("parameters").display().to_string();
        ["-n", "1", program, "gpt2", batch, "30", &output].map(String::from)
    };
    // Another batch size changes the number of batches in an epoch.
    let mut words = rank("7").to_vec();
    words.push(":".into());
    words.extend(rank("12"));
    let output = Command::new("mpirun")
        .arg("--oversubscribe")
        .args(words)
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .output()
        .expect("mpirun");
    let stderr = String::from_utf8_lossy(&output.stderr);
    let errors: Vec<&str> = stderr.lines().filter(|line| line.starts_with("error: ")).collect();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(errors.len() == 1 && errors[0].contains("rank 1"), "{stderr}");
    assert!(
        errors[0].contains("batches-per-epoch is 4 on rank 1") && errors[0].contains("and 6 on rank 0"),
        "{stderr}"
    );
}

#[test]
fn ranks_with_other_metrics_are_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let output = mpirun(2, &["gpt2", "7", "12"], &directory.path().join("parameters")).env("ODD_METRIC", "1").output();
    let output = output.expect("mpirun");
    let stderr = String::from_utf8_lossy(&output.stderr);
    let errors: Vec<&str> = stderr.lines().filter(|line| line.starts_with("error: ")).collect();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(
        errors.len() == 1
            && errors[0].contains("the list of metrics is 'odd' on ")
            && errors[0].contains("and '' on rank 0"),
        "{stderr}"
    );
}
