//! Directories of runs, for all training examples: exclusive use, resumption with the same settings, and non-finite
//! steps.

use std::fs;

use crate::common::{Example, Place, TINY};
#[cfg(unix)]
use crate::common::{signal, stop, wait_until};

const GPT2: Example = Example("train_gpt2");

#[cfg(unix)]
#[test]
fn a_running_directory_is_refused() {
    let place = Place::new();
    let (book, run) = (place.book(), place.named("run"));
    let base =
        [&["--data", &book, "--output", &run, "--checkpoint-every", "2", "--log-every", "1"], &TINY[..]].concat();
    let mut live = GPT2.start(&[&base[..], &["--steps", "1000000"]].concat());
    let newest = || {
        let entries = fs::read_dir(place.path("run/checkpoints")).ok()?;
        entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.strip_prefix("step-")?.parse::<u64>().ok()).max()
    };
    wait_until("a checkpoint", || newest().is_some_and(|step| step >= 4));
    // Stop the run, so that it cannot end while the others start.
    stop(&live);
    let metrics = fs::read(place.path("run/metrics.jsonl")).expect("the log");
    let process = format!("process {}", live.id());
    let words = ["is in use by another run", &process, "give another directory"];
    for resume in [&[][..], &["--resume"], &["--resume-anyway"]] {
        GPT2.assert_refused(&[&base[..], &["--steps", "8"], resume].concat(), 1, &words);
    }
    assert_eq!(fs::read(place.path("run/metrics.jsonl")).expect("the log"), metrics, "the log is as it was");
    signal(&live, "-KILL");
    live.wait().expect("it is dead");
    // The lock is released with the process.
    let steps = (newest().expect("a checkpoint") + 2).to_string();
    let made = GPT2.json(&[&base[..], &["--steps", &steps, "--resume", "--json"]].concat());
    assert_eq!(made["steps"].to_string(), steps);
}

/// Begins a run, then resumes it with changed options. Each change is an error that names the difference.
fn other_settings(example: Example, base: &[&str], cases: &[(&[&str], &str)]) {
    example.json(&[base, &["--steps", "2", "--json"]].concat());
    for (options, difference) in cases {
        let resumed = [base, &["--steps", "4", "--resume", "--json"], options].concat();
        example.assert_fails(&resumed, 1, &["belongs to a run with other settings", difference, "--resume-anyway"]);
    }
    let free = [
        "--steps",
        "4",
        "--resume",
        "--json",
        "--log-every",
        "3",
        "--checkpoint-every",
        "7",
        "--keep-checkpoints",
        "3",
    ];
    assert_eq!(example.json(&[base, &free].concat())["steps"], 4, "these may change");
    if let Some((options, _)) = cases.first() {
        let anyway = [base, &["--steps", "5", "--resume-anyway", "--json"], options].concat();
        assert_eq!(example.json(&anyway)["steps"], 5);
    }
}

#[test]
fn a_language_model_is_resumed_as_it_began() {
    let place = Place::new();
    let (book, run) = (place.book(), place.named("run"));
    let other = place.write("other.txt", fs::read_to_string(&book).expect("a text").replace("river", "lake"));
    let base = [&["--data", &book, "--output", &run][..], &TINY].concat();
    let context: [&str; 2] = ["--context", "8"];
    other_settings(
        GPT2,
        &base,
        &[
            (&["--seed", "4"], "seed was 0 and is 4"),
            (&["--learning-rate", "0.01"], "learning-rate was 0.001 and is 0.01"),
            (&["--dtype", "bf16"], "dtype was f32 and is bf16"),
            (&["--dropout", "0.3"], "model.resid_pdrop was 0.1 and is 0.3"),
            (&["--accumulate", "2"], "accumulate was 1 and is 2"),
            (&["--schedule", "linear"], "schedule was cosine and is linear"),
            (&["--warmup", "1"], "warmup was none and is 1"),
            (&["--optimizer", "sgd"], "optimizer was none and is {"),
            (&["--held-out", &other], "held-out was "),
        ],
    );
    let at = base.iter().position(|word| *word == "--context").expect("an option");
    let narrow = [&base[..at], &base[at + 2..]].concat();
    let resumed = [&narrow[..], &context, &["--steps", "9", "--resume-anyway", "--json"]].concat();
    assert_eq!(GPT2.json(&resumed)["steps"], 9, "a shorter context has other windows");
    let resumed = [&narrow[..], &["--steps", "10", "--resume", "--json"]].concat();
    GPT2.assert_fails(&resumed, 1, &["context was 8 and is 16"]);
}

#[test]
fn classifiers_and_encoders_are_resumed_as_they_began() {
    let place = Place::new();
    let table = place.labelled_table();
    let run = place.named("rnn");
    let base = ["classify", "--data", &table, "--output", &run, "--layers", "1", "--hidden", "8", "--batch-size", "8"];
    let fewer = place.write("fewer.tsv", fs::read_to_string(&table).expect("a table").replace("dog", "cow"));
    other_settings(
        Example("train_rnn"),
        &base,
        &[(&["--dropout", "0.1"], "dropout was 0.3 and is 0.1"), (&["--weight-decay", "0"], "weight-decay was 0.01")],
    );
    let moved = [&["classify", "--data", &fewer], &base[3..], &["--steps", "9", "--resume"]].concat();
    Example("train_rnn").assert_fails(&moved, 1, &["data was 108 texts ("]);

    let book = place.book();
    let lines = place.write("lines.txt", fs::read_to_string(book).expect("a book").replace(". ", ".\n"));
    let run = place.named("bert");
    let sizes = ["--layers", "1", "--hidden", "8", "--heads", "1", "--context", "16", "--vocab-size", "500"];
    let base = [&["--data", &lines, "--output", &run, "--batch-size", "8"][..], &sizes].concat();
    other_settings(
        Example("train_bert"),
        &base,
        &[(&["--mask", "0.3"], "mask was 0.15 and is 0.3"), (&["--val-fraction", "0.2"], "data was ")],
    );

    let run = place.named("tuned");
    let base = ["--output", &run, "--batch-size", "8", "--max-length", "16", "--val-fraction", "0.5"];
    other_settings(
        Example("finetune_bert"),
        &base,
        &[
            (&["--layer-decay", "0.9"], "layer-decay was 1 and is 0.9"),
            (&["--balance"], "balance was false and is true"),
        ],
    );
}

#[test]
fn classifiers_of_images_are_resumed_as_they_began() {
    let place = Place::new();
    let run = place.named("run");
    let base = ["--data", "models/assets/digits", "--output", &run, "--batch-size", "8"];
    let base = [&base[..], &["--channels", "4,8", "--depths", "1,1"]].concat();
    other_settings(
        Example("train_vision"),
        &base,
        &[
            (&["--mixup", "0.2"], "mixup was 0 and is 0.2"),
            (&["--label-smoothing", "0.1"], "label-smoothing was 0 and is 0.1"),
            (&["--jitter", "0.2"], "jitter was 0 and is 0.2"),
        ],
    );
    let run = place.named("tuned");
    let base = ["--output", &run, "--batch-size", "8"];
    other_settings(
        Example("finetune_vision"),
        &base,
        &[
            (&["--augment", "none"], "augment was shift and is none"),
            (&["--freeze", "backbone"], "freeze was  and is backbone"),
        ],
    );
}

#[test]
fn steps_that_are_not_numbers_can_be_left_out() {
    let place = Place::new();
    let (book, run) = (place.book(), place.named("run"));
    // The first step makes all parameters so large that the loss is not finite.
    let diverging = ["--learning-rate", "1e30", "--clip", "0", "--warmup", "0", "--weight-decay", "0"];
    let base = [&["--data", &book, "--output", &run, "--steps", "40"], &TINY[..], &diverging].concat();
    let words = ["at step 5, after 3 such steps in a row that were left out", "a lower learning rate"];
    GPT2.assert_fails(&[&base[..], &["--skip-non-finite", "3"]].concat(), 1, &words);
    let other = place.named("other");
    let base =
        [&["--data", &book, "--output", &other, "--steps", "6", "--log-every", "1"], &TINY[..], &diverging].concat();
    let more = ["--skip-non-finite", "9", "--val-fraction", "0", "--json"];
    let made = GPT2.json(&[&base[..], &more].concat());
    assert_eq!((&made["steps"], &made["skipped_steps"]), (&6.into(), &5.into()), "{made}");
    let log = fs::read_to_string(place.path("other/metrics.jsonl")).expect("the log");
    assert_eq!(log.lines().filter(|line| line.contains("\"skipped_steps\"")).count(), 6, "{log}");
    GPT2.assert_refused(&["--skip-non-finite", "0"], 2, &["--skip-non-finite is 0"]);
}
