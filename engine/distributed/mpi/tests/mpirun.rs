//! Ranks under `mpirun`, and their behaviour when one of them hangs or dies.

use std::{
    io::{BufRead, BufReader},
    process::{Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

/// Timeout of a run, which counts as hung after it.
const LONGEST: Duration = Duration::from_secs(60);

/// Builds the command of a task. A task whose name ends with ` over TCP` does not use shared memory.
fn mpirun(ranks: usize, task: &str, timeout: f64) -> Command {
    let mut command = Command::new("mpirun");
    let task = match task.strip_suffix(" over TCP") {
        Some(task) => {
            command.env("OMPI_MCA_btl", "tcp,self");
            task
        }
        None => task,
    };
    command
        .args(["--oversubscribe", "-n", &ranks.to_string(), env!("CARGO_BIN_EXE_grove-mpi-worker"), task])
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .env("GROVE_COMM_TIMEOUT", timeout.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Runs a task to its end. `signal` is sent to the process of a rank, some time after all ranks have started.
fn run(ranks: usize, task: &str, timeout: f64, signal: Option<(usize, i32, Duration)>) -> (Output, Vec<u32>) {
    let begun = Instant::now();
    let mut child = mpirun(ranks, task, timeout).spawn().expect("mpirun (is openmpi-bin installed?)");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let mut processes = vec![0u32; ranks];
    let mut stdout = String::new();
    for _ in 0..ranks {
        let Some(Ok(line)) = lines.next() else { break };
        let mut words = line.split(' ').skip(1).map(|word| word.parse::<u32>());
        if let (Some(Ok(rank)), Some(Ok(process))) = (words.next(), words.next()) {
            processes[rank as usize] = process;
        }
    }
    if let Some((rank, signal, after)) = signal {
        thread::sleep(after);
        // SAFETY: sends a signal to a process of this test.
        assert_eq!(unsafe { libc::kill(processes[rank] as i32, signal) }, 0, "the rank has ended before");
    }
    let reader = thread::spawn(move || lines.map_while(Result::ok).map(|line| line + "\n").collect::<String>());
    while child.try_wait().expect("a child").is_none() {
        if begun.elapsed() > LONGEST {
            processes.iter().for_each(|&process| {
                // SAFETY: sends signals to processes of this test.
                unsafe { libc::kill(process as i32, libc::SIGKILL) };
            });
            child.kill().expect("killed");
            panic!("{task} hangs");
        }
        thread::sleep(Duration::from_millis(20));
    }
    let mut output = child.wait_with_output().expect("ended");
    stdout += &reader.join().expect("no panic");
    output.stdout = stdout.into_bytes();
    let ended = Instant::now();
    while let Some(process) = processes.iter().find(|&&process| runs(process)) {
        assert!(ended.elapsed() < Duration::from_secs(5), "{task}: process {process} goes on after the job's end");
        thread::sleep(Duration::from_millis(20));
    }
    (output, processes)
}

/// Returns true if the process exists and is not a zombie.
fn runs(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(['Z', 'X']))
}

/// Returns the only error message of the ranks. Messages of mpirun itself do not count.
fn sentence(output: &Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let errors: Vec<&str> = stderr.lines().filter(|line| line.starts_with("error: ")).collect();
    let [error] = errors[..] else { panic!("one sentence: {stderr}") };
    error.to_owned()
}

#[test]
fn collectives() {
    for ranks in [1, 2, 3, 4] {
        let (output, _) = run(ranks, "collectives", 30.0, None);
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{ranks}: {stdout} {}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(stdout.matches("done").count(), ranks, "{stdout}");
    }
}

#[test]
fn values_by_key() {
    // Over TCP, large values make progress only during MPI calls.
    for (ranks, task) in [(1, "pairs"), (2, "pairs"), (3, "pairs"), (3, "pairs over TCP")] {
        let (output, _) = run(ranks, task, 50.0, None);
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{ranks}: {stdout} {}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(stdout.matches("done").count(), ranks, "{stdout}");
    }
    let (output, _) = run(2, "no_key", 30.0, None);
    let message = sentence(&output);
    assert_eq!((&*message, output.status.code()), ("error: no rank stored the key 'an oak' within 0.3 s", Some(1)));
}

#[test]
fn a_rank_that_is_killed_while_others_wait_for_a_key_is_named() {
    for rank in [0, 1, 2] {
        let begun = Instant::now();
        let (output, processes) = run(3, "wait_for_key", 30.0, Some((rank, libc::SIGKILL, Duration::from_millis(300))));
        assert!(!output.status.success());
        let message = sentence(&output);
        let named = format!("rank {rank} (process {} on ", processes[rank]);
        assert!(
            message.contains(&named) && message.contains("died during get of the key 'local_topology/cuda/7'"),
            "{message}"
        );
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    }
    for i in 0..10u64 {
        // Kills a rank while values are in transit.
        let (rank, after) = (i as usize % 3, Duration::from_micros(100_000 + i * i * 977 % 50_000));
        let (output, processes) = run(3, "pairs_forever", 30.0, Some((rank, libc::SIGKILL, after)));
        let message = sentence(&output);
        let named = format!("rank {rank} (process {} on ", processes[rank]);
        assert!(message.contains(&named) && message.contains("died during get of the key"), "{i}: {message}");
    }
}

#[test]
fn a_rank_that_is_killed_at_any_moment_is_named() {
    for i in 0..30u64 {
        // Kills every rank in turn, at irregular moments.
        let (rank, after) = (i as usize % 3, Duration::from_micros(300 + i * i * 977 % 150_000));
        let (output, processes) = run(3, "forever", 30.0, Some((rank, libc::SIGKILL, after)));
        assert!(!output.status.success());
        let message = sentence(&output);
        let named = format!("rank {rank} (process {} on ", processes[rank]);
        assert!(message.contains(&named) && message.contains("died during "), "{i}: {message}");
        assert!(message.contains("all_reduce of numbers") || message.contains("broadcast of numbers"), "{message}");
    }
}

#[test]
fn a_rank_that_is_stopped_is_named_after_the_time() {
    for rank in [0, 1, 2] {
        let begun = Instant::now();
        let (output, processes) = run(3, "forever", 1.0, Some((rank, libc::SIGSTOP, Duration::from_millis(200))));
        assert_eq!(output.status.code(), Some(1));
        let message = sentence(&output);
        let named = format!("rank {rank} (process {} on ", processes[rank]);
        assert!(message.contains(&named) && message.contains("did not take part in "), "{message}");
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    }
}

#[test]
fn a_rank_that_fails_ends_the_job_with_its_own_sentence() {
    let (output, _) = run(3, "failure", 30.0, None);
    assert_eq!((sentence(&output).as_str(), output.status.code()), ("error: the disk is full", Some(1)));
    let (output, _) = run(3, "same_failure", 30.0, None);
    assert_eq!((sentence(&output).as_str(), output.status.code()), ("error: no such file", Some(1)));
}

#[test]
fn ranks_that_run_other_programs_are_refused() {
    let (output, _) = run(2, "early_end", 30.0, None);
    let message = sentence(&output);
    assert!(message.contains("rank 0") || message.contains("rank 1"), "{message}");
    let (output, _) = run(2, "other_lengths", 5.0, None);
    assert!(sentence(&output).contains("bytes in all_reduce of gradients"), "{}", sentence(&output));
    let (output, _) = run(3, "differ", 30.0, None);
    let message = sentence(&output);
    assert!(
        message.contains("rank 2") && message.contains("seed is 1 on rank 2") && message.contains("and 0 on rank 0"),
        "{message}"
    );
    assert_eq!(output.status.code(), Some(1));
}
