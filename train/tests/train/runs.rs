//! Tests of runs: weights, skipped steps, rejected options and saved settings.

// Batches are `Vec`s, of which loss functions take a reference.
#![allow(clippy::ptr_arg)]

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    sync::{Arc, atomic::AtomicBool},
};

use burn::tensor::{DType, FloatDType, Tensor};
use grove_backend::{Autodiff, Backend, Flex};
use grove_optim::{Adamw, GradientTransformation, Sgd, adamw, apply_if_finite, sgd};
use grove_train::{
    Ended, Evaluation, FitOptions, Fitted, NonFinite, Outcome, Result, RunDuration, RunLock, RunSettings, StepOptions,
    TrainError,
    data::{Data, DataError},
    fit,
    log::{Record, SKIPPED_STEPS, read_metrics},
    train_step,
};
use grove_tree::{Array, Key, Tree, eq};
use grove_weights::TensorFiles;
use tempfile::TempDir;

type Ad = Autodiff<Flex>;

type Loss = fn(Point<Ad>, &Vec<f32>, Key) -> Outcome<Flex, Point<Flex>>;

/// A point, and a buffer with the sum of its targets.
#[derive(Tree, Clone, Debug)]
struct Point<B: Backend> {
    place: Array<B, 1>,
    #[tree(buffer)]
    seen: Array<B, 1>,
}

fn point(dtype: DType) -> Point<Flex> {
    let device = Default::default();
    let place = Tensor::<Flex, 1>::from_floats([0.5, -1.0], &device).cast(dtype);
    Point { place: Array::new(place), seen: Array::new(Tensor::zeros([1], &device)) }
}

/// Batches of targets, of various sizes.
struct Batches(Vec<Vec<f32>>);

impl Data for Batches {
    type Batch = Vec<f32>;

    fn order(&self, _: u64) -> Vec<Vec<usize>> {
        (0..self.0.len()).map(|i| vec![i]).collect()
    }

    fn batches_per_epoch(&self) -> usize {
        self.0.len()
    }

    fn load(&self, _: u64, examples: &[usize]) -> std::result::Result<Vec<f32>, DataError> {
        Ok(examples.iter().flat_map(|&i| self.0[i].clone()).collect())
    }
}

/// Returns the mean squared distance of both coordinates from the targets, with the updated buffer.
fn outcome(model: Point<Ad>, batch: &Vec<f32>, _: Key) -> Outcome<Flex, Point<Flex>> {
    let targets = Tensor::<Ad, 1>::from_floats(&batch[..], &Default::default());
    let place: Tensor<Ad, 2> = model.place.val().cast(DType::F32).unsqueeze_dim(1);
    let loss = (place - targets.clone().unsqueeze()).powf_scalar(2.0).mean();
    let seen = model.seen.val().cast(DType::F32) + targets.clone().sum();
    let largest = targets.mean();
    Outcome::new(loss).successor(Point { seen: Array::new(seen), ..model }).metric("target", largest)
}

/// [`outcome`] weighted by the number of targets.
fn weighted(model: Point<Ad>, batch: &Vec<f32>, key: Key) -> Outcome<Flex, Point<Flex>> {
    outcome(model, batch, key).weight(batch.len() as f64)
}

fn unevaluated<M>(_: &M) -> Result<Evaluation> {
    Ok(Evaluation::new())
}

fn options(steps: u64) -> FitOptions<Flex> {
    FitOptions { length: RunDuration::Steps(steps), log_every: 1, ..FitOptions::default() }
}

fn within(directory: &TempDir, options: FitOptions<Flex>) -> FitOptions<Flex> {
    FitOptions { directory: Some(directory.path().into()), ..options }
}

fn momentum() -> impl GradientTransformation<Flex, Point<Flex>> {
    sgd(0.05, Sgd::default().momentum(0.9))
}

fn run(
    batches: Vec<Vec<f32>>,
    loss: impl Fn(Point<Ad>, &Vec<f32>, Key) -> Outcome<Flex, Point<Flex>>,
    options: &FitOptions<Flex>,
) -> Result<Fitted<Point<Flex>>> {
    fit(point(DType::F32), &momentum(), &Arc::new(Batches(batches)), loss, unevaluated, Key::new(0), options)
}

fn place(model: &Point<Flex>) -> Vec<f64> {
    model.place.val().into_data().iter::<f64>().collect()
}

fn records(directory: &TempDir, name: &str) -> Vec<f64> {
    let records: Vec<Record> = read_metrics(directory.path().join("metrics.jsonl")).expect("records");
    records.iter().filter_map(|record| record.get(name)).collect()
}

fn directory() -> TempDir {
    TempDir::new().expect("a directory")
}

#[track_caller]
fn close(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    let far = found.iter().zip(expected).any(|(x, y)| (x - y).abs() > 1e-6 * y.abs().max(1.0));
    assert!(!far, "{found:?} is not {expected:?}");
}

const SMALL: [&[f32]; 4] = [&[1.0], &[2.0, -3.0, 0.5], &[4.0, 4.5], &[-1.0, 7.0, 0.25, 2.0]];

#[test]
fn unequal_batches_count_by_their_weights() {
    let small: Vec<Vec<f32>> = SMALL.iter().map(|batch| batch.to_vec()).collect();
    let directories = [directory(), directory()];
    let accumulated = within(&directories[0], FitOptions { accumulate: 4, ..options(10) });
    let parts = run(small.clone(), weighted, &accumulated).expect("trained");
    let whole = run(vec![small.concat()], weighted, &within(&directories[1], options(10))).expect("trained");
    close(&place(&parts.model), &place(&whole.model));
    for name in ["train/loss", "train/target", "grad_norm"] {
        close(&records(&directories[0], name), &records(&directories[1], name));
    }

    // One step by hand: the gradient of a coordinate is twice its distance from the mean of the targets, divided by 2
    // coordinates.
    let step = |loss: Loss| {
        place(&run(small.clone(), loss, &FitOptions { accumulate: 4, ..options(1) }).expect("trained").model)
    };
    let moved = |mean: f64| [0.5, -1.0].map(|x: f64| x - 0.05 * (x - mean));
    close(&step(weighted), &moved(17.25 / 10.0));
    close(&step(outcome), &moved((1.0 - 0.5 / 3.0 + 8.5 / 2.0 + 8.25 / 4.0) / 4.0));
}

#[test]
fn a_batch_that_counts_nothing_is_left_out() {
    // The loss of an empty batch is a mean over no items, which is NaN.
    let empty = |model: Point<Ad>, batch: &Vec<f32>, key| match batch.is_empty() {
        true => Outcome::new(model.place.val().sum() * f32::NAN).successor(model).weight(0.0),
        false => weighted(model, batch, key),
    };
    let batches = vec![vec![], vec![1.0, 2.0], vec![], vec![6.0]];
    let fitted = run(batches, empty, &FitOptions { accumulate: 4, ..options(9) }).expect("trained");
    let whole = run(vec![vec![1.0, 2.0, 6.0]], weighted, &options(9)).expect("trained");
    close(&place(&fitted.model), &place(&whole.model));
    let error = run(vec![vec![]], empty, &options(1)).expect_err("nothing else counts");
    assert!(matches!(error, TrainError::NotFinite { what: "loss", step: 1, .. }), "{error:?}");
}

#[test]
fn sums_of_sixteen_bits_lose_nothing_small() {
    // One gradient of 1, then 300 of 1/512: in bf16 each of these is less than half a unit in the last place of 1.
    let batches: Vec<Vec<f32>> = (0..301).map(|i| vec![if i == 0 { 1.0 } else { 1.0 / 512.0 }]).collect();
    let linear = |model: Point<Ad>, batch: &Vec<f32>, _: Key| {
        Outcome::<Flex, Point<Flex>>::new(model.place.val().cast(DType::F32).sum() * batch[0] * 256.0)
    };
    let step = StepOptions { compute: Some(FloatDType::BF16), ..StepOptions::default() };
    for (dtype, step) in [(DType::BF16, StepOptions::default()), (DType::F32, step)] {
        let options = FitOptions { accumulate: 301, step, ..options(1) };
        let optimizer = sgd(301.0 / 256.0, Sgd::default());
        let data = Arc::new(Batches(batches.clone()));
        let fitted = fit(point(dtype), &optimizer, &data, linear, unevaluated, Key::new(0), &options).expect("trained");
        let moved = 0.5 - place(&fitted.model)[0];
        let expected = 1.0 + 300.0 / 512.0;
        assert!((moved - expected).abs() < 0.005, "{dtype:?}: {moved} is not {expected}");
    }
}

/// Eight batches, the sixth with a NaN.
fn corrupted() -> Vec<Vec<f32>> {
    (0..8).map(|i| vec![if i == 5 { f32::NAN } else { i as f32 }, 1.0]).collect()
}

fn skipping(max_consecutive: u64) -> FitOptions<Flex> {
    FitOptions { non_finite: NonFinite::Skip { max_consecutive }, ema: Some(0.5), ..options(16) }
}

#[test]
fn steps_that_are_not_finite_are_left_out_and_counted() {
    let directory = directory();
    let settings = within(&directory, FitOptions { checkpoint_every: 6, resume: true, ..skipping(1) });
    let stopped =
        run(corrupted(), outcome, &FitOptions { length: RunDuration::Steps(6), ..settings.clone() }).expect("trained");
    assert_eq!(stopped.skipped, 1);
    let fitted = run(corrupted(), outcome, &settings).expect("trained");
    assert_eq!((fitted.steps, fitted.skipped, fitted.ended), (16, 2, Ended::Finished));
    let counts: Vec<f64> = (1..=16).map(|step| f64::from((step >= 6) as u8 + (step >= 14) as u8)).collect();
    assert_eq!(records(&directory, SKIPPED_STEPS), counts);
    assert_eq!(records(&directory, "train/loss").len(), 14, "what was left out has no loss");

    // Parameters, running sums and momentum must equal those of a run without these batches.
    let optimizer = momentum();
    let step = train_step(outcome, &optimizer, StepOptions::default());
    let (mut model, mut state) = (point(DType::F32), optimizer.init(&point(DType::F32)));
    for batch in corrupted().iter().cycle().take(16).filter(|batch| batch[0].is_finite()) {
        (model, state, _) = step(model, state, batch, Key::new(0));
    }
    assert!(eq(&fitted.model, &model), "{:?} is not {model:?}", fitted.model);
    assert!(place(fitted.ema.as_ref().expect("an average")).iter().all(|x| x.is_finite()));
    drop(state);
}

#[test]
fn too_many_in_a_row_end_the_run() {
    let batches: Vec<Vec<f32>> = (0..9).map(|i| vec![if i % 9 > 5 { f32::INFINITY } else { 1.0 }]).collect();
    let accepting = FitOptions { length: RunDuration::Steps(15), ..skipping(3) };
    let fitted = run(batches.clone(), outcome, &accepting).expect("three are accepted");
    assert_eq!(fitted.skipped, 3);
    let error = run(batches, outcome, &skipping(2)).expect_err("the third is one too many");
    let TrainError::NotFinite { what: "loss", step: 9, skipped: 2, .. } = &error else { panic!("{error:?}") };
    assert!(error.to_string().contains("at step 9, after 2 such steps in a row that were left out"), "{error}");
}

#[test]
fn an_optimizer_that_skips_by_itself_is_left_to_do_so() {
    let directory = directory();
    let optimizer = apply_if_finite(momentum(), 5);
    let options =
        within(&directory, FitOptions { non_finite: NonFinite::Optimizer { max_consecutive: 5 }, ..options(16) });
    let data = Arc::new(Batches(corrupted()));
    let fitted =
        fit(point(DType::F32), &optimizer, &data, outcome, unevaluated, Key::new(0), &options).expect("trained");
    assert_eq!(fitted.skipped, 2);
    let skipped = run(corrupted(), outcome, &skipping(5)).expect("trained");
    assert!(eq(&fitted.model, &skipped.model), "{:?} is not {:?}", fitted.model, skipped.model);
    let file = directory.path().join("checkpoints/step-0000000016/state.safetensors");
    let file = TensorFiles::open(file).expect("opened");
    let count: Vec<i64> = file.tensor("optimizer.total_notfinite").expect("its own count").iter().collect();
    assert_eq!(count, [2]);
}

#[test]
fn a_run_is_silent_and_records_its_notes() {
    let directory = directory();
    let settings = within(&directory, FitOptions { checkpoint_every: 2, resume: true, ..options(4) });
    let first = run(vec![vec![1.0]], outcome, &settings).expect("trained");
    assert!(first.remarks.is_empty(), "{:?}", first.remarks);
    fs::write(directory.path().join("checkpoints/step-0000000004/state.safetensors"), "").expect("damaged");
    let again = run(vec![vec![1.0]], outcome, &settings).expect("trained");
    let remarks = again.remarks.join("\n");
    assert!(remarks.contains("step-0000000004 is damaged") && remarks.contains("going on after step 2"), "{remarks}");
}

#[test]
fn early_stopping_needs_a_loss() {
    let settings = FitOptions { patience: Some(2), evaluate_every: 1, ..options(9) };
    let accuracy = |_: &Point<Flex>| Ok(BTreeMap::from([("accuracy".to_owned(), 0.5)]));
    let data = Arc::new(Batches(vec![vec![1.0]]));
    let error =
        fit(point(DType::F32), &momentum(), &data, outcome, accuracy, Key::new(0), &settings).expect_err("no loss");
    assert!(matches!(&error, TrainError::Options(remarks) if remarks.contains("only accuracy")), "{error:?}");
    assert!(error.to_string().contains("`loss`"), "{error}");
}

#[test]
fn refuses_to_resume_another_run() {
    let directory = directory();
    let with =
        |learning_rate: f64, data: &str| RunSettings::new().with("learning-rate", learning_rate).with("data", data);
    let began = FitOptions { settings: with(0.1, "a"), resume: true, ..within(&directory, options(3)) };
    let attempt = |options: &FitOptions<Flex>, key| {
        let data = Arc::new(Batches(vec![vec![1.0], vec![2.0]]));
        fit(point(DType::F32), &momentum(), &data, outcome, unevaluated, Key::new(key), options)
    };
    attempt(&began, 0).expect("trained");
    let longer = FitOptions { length: RunDuration::Steps(5), log_every: 2, ..began.clone() };
    assert_eq!(attempt(&longer, 0).expect("a longer run is the same run").steps, 5);

    let refused = |options: FitOptions<Flex>, key, remarks: &[&str]| {
        let error = attempt(&options, key).expect_err("another run");
        assert!(matches!(&error, TrainError::OtherSettings { .. }), "{error:?}");
        let words = error.to_string();
        for part in remarks.iter().chain(&["step-0000000005", "resume_anyway"]) {
            assert!(words.contains(part), "{part}: {words}");
        }
    };
    let longest = FitOptions { length: RunDuration::Steps(7), ..began.clone() };
    let other = FitOptions { settings: with(0.2, "b"), accumulate: 2, ..longest.clone() };
    refused(
        other.clone(),
        0,
        &["learning-rate was 0.1 and is 0.2", "data was a and is b", "accumulate was 1 and is 2"],
    );
    refused(FitOptions { ema: Some(0.9), ..longest.clone() }, 0, &["ema was none and is 0.9"]);
    refused(longest.clone(), 4, &["key was"]);
    let bf16 = StepOptions { compute: Some(FloatDType::BF16), ..StepOptions::default() };
    refused(FitOptions { step: bf16, ..longest.clone() }, 0, &["dtype was the model's own and is bf16"]);

    let anyway = FitOptions { resume_anyway: true, resume: false, ..other };
    let fitted = attempt(&anyway, 4).expect("it is wanted");
    let remarks = fitted.remarks.join("\n");
    assert!(fitted.steps == 7 && remarks.contains("learning-rate was 0.1 and is 0.2"), "{remarks}");
    // From now on the run has the new settings.
    let same = FitOptions { resume_anyway: false, resume: true, length: RunDuration::Steps(8), ..anyway };
    assert!(attempt(&same, 4).expect("the same run").remarks.iter().all(|remark| !remark.contains(" was ")));
}

#[test]
fn a_checkpoint_without_settings_is_accepted_with_a_remark() {
    let directory = directory();
    let settings = RunSettings::new().with("learning-rate", 0.1);
    let options = FitOptions { settings, resume: true, ..within(&directory, options(2)) };
    run(vec![vec![1.0]], outcome, &options).expect("trained");
    let manifest = directory.path().join("checkpoints/step-0000000002/checkpoint.json");
    forget_settings(&manifest);
    let options =
        FitOptions { settings: RunSettings::new().with("learning-rate", 9), length: RunDuration::Steps(3), ..options };
    let fitted = run(vec![vec![1.0]], outcome, &options).expect("resumed");
    assert!(fitted.remarks.iter().any(|remark| remark.contains("nothing was compared")), "{:?}", fitted.remarks);
}

/// Rewrites a manifest in the form of earlier versions, without settings.
fn forget_settings(manifest: &Path) {
    use sha2::{Digest, Sha256};
    let mut fields: serde_json::Value = serde_json::from_slice(&fs::read(manifest).expect("read")).expect("JSON");
    for name in ["settings", "skipped", "skipped_in_a_row"] {
        fields.as_object_mut().expect("an object").remove(name).expect("it was there");
    }
    fields["manifest_sha256"] = "0".repeat(64).into();
    let text = serde_json::to_string_pretty(&fields).expect("JSON");
    let digest: String = Sha256::digest(&text).iter().map(|byte| format!("{byte:02x}")).collect();
    fs::write(manifest, text.replacen(&"0".repeat(64), &digest, 1)).expect("written");
}

#[test]
fn a_lock_that_the_program_holds_is_the_runs() {
    let directory = directory();
    let lock = RunLock::acquire(directory.path()).expect("free");
    let without = within(&directory, options(2));
    let error = run(vec![vec![1.0]], outcome, &without).expect_err("somebody else holds it");
    assert!(matches!(error, TrainError::RunLocked { .. }), "{error:?}");
    assert!(!directory.path().join("checkpoints").exists(), "nothing was written");
    let holding = FitOptions { lock: Some(lock.clone()), ..without.clone() };
    run(vec![vec![1.0]], outcome, &holding).expect("it is the program's own");
    RunLock::acquire(directory.path()).expect_err("the program holds it after the run too");
    drop((lock, holding));
    // A run releases its own lock, also after an error or when stopped.
    let stop = Some(Arc::new(AtomicBool::new(true)));
    run(vec![vec![1.0]], outcome, &FitOptions { resume: true, stop, ..without.clone() }).expect("stopped at once");
    run(vec![vec![f32::NAN]], outcome, &FitOptions { resume: true, length: RunDuration::Steps(3), ..without })
        .expect_err("not finite");
    RunLock::acquire(directory.path()).expect("free again");

    let other = self::directory();
    let lock = RunLock::acquire(other.path()).expect("free");
    let wrong = FitOptions { lock: Some(lock), ..within(&directory, options(2)) };
    let error = run(vec![vec![1.0]], outcome, &wrong).expect_err("the lock of another directory");
    assert!(matches!(error, TrainError::Options(_)), "{error:?}");
}

#[test]
fn loss_scaling_and_skipping_work_together() {
    let step = StepOptions { compute: Some(FloatDType::F16), ..StepOptions::default() };
    let options = FitOptions { loss_scaling: true, step, ..skipping(1) };
    let optimizer = adamw(0.05, Adamw::default());
    let data = Arc::new(Batches(corrupted()));
    let fitted =
        fit(point(DType::F32), &optimizer, &data, outcome, unevaluated, Key::new(0), &options).expect("trained");
    assert_eq!(fitted.skipped, 2);
    assert!(place(&fitted.model).iter().all(|x| x.is_finite() && x.abs() < 10.0), "{:?}", fitted.model);
}
