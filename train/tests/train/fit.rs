//! Tests of the training loop through its public interface.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

use burn::tensor::{DType, FloatDType, Tensor, TensorData, activation};
use grove_backend::{Autodiff, Backend, Flex};
use grove_distributed::Communicator;
use grove_layers::{BatchNorm, Linear, dropout};
use grove_optim::{Adamw, GradientTransformation, Sgd, adamw, chain, clip_by_global_norm, constant_schedule, sgd};
use grove_train::{
    Ended, Evaluation, FitOptions, Fitted, JitLoss, KeepModel, Outcome, RateSearch, Result, RunDuration, StepOptions,
    TrainError,
    data::Examples,
    find_learning_rate, fit, fit_jitted,
    log::{Record, TRAIN_LOSS, on_record, read_metrics},
    train_step,
};
use grove_tree::{Array, Filter, Init, Key, Tree, all_close, by_path, eq, leaves};
use grove_weights::TensorFiles;
use tempfile::TempDir;

type Ad = Autodiff<Flex>;

/// Two layers, and a buffer that counts training steps.
#[derive(Tree, Clone, Debug)]
struct Net<B: Backend> {
    first: Linear<B>,
    second: Linear<B>,
    #[tree(buffer)]
    seen: Array<B, 1>,
}

impl<B: Backend> Net<B> {
    fn forward(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        self.second.forward(activation::tanh(self.first.forward(x)))
    }

    /// Returns the mean squared error, in the dtype of the model.
    fn loss(&self, batch: &Rows, key: Option<Key>) -> Tensor<B, 1> {
        let (x, y) = batch.tensors::<B>(self.first.weight.dtype());
        let x = dropout(x, 0.2, key);
        (self.forward(x) - y).powf_scalar(2.0).mean()
    }
}

fn net() -> Net<Flex> {
    let init = Init::new(Key::new(1), &Default::default());
    Net {
        first: Linear::normal(3, 8, 0.5, init.named("first")),
        second: Linear::normal(8, 1, 0.5, init.named("second")),
        seen: init.zeros([1]),
    }
}

/// Points and their values.
#[derive(Clone, Debug, PartialEq)]
struct Rows {
    x: Vec<f32>,
    y: Vec<f32>,
}

impl Rows {
    fn tensors<B: Backend>(&self, dtype: DType) -> (Tensor<B, 2>, Tensor<B, 2>) {
        let tensor = |values: &Vec<f32>, columns| {
            let data = TensorData::new(values.clone(), [values.len() / columns, columns]);
            Tensor::<B, 2>::from_data(data, &Default::default()).cast(dtype)
        };
        (tensor(&self.x, 3), tensor(&self.y, 1))
    }
}

type Points = Examples<[f32; 4], Rows>;

/// Returns 64 points of a plane, in batches and in order.
fn points(batch_size: usize) -> Points {
    let bits = Key::new(9).bits(64 * 3);
    let coordinate = |i: usize| bits[i] as f32 / u32::MAX as f32 - 0.5;
    let point = |i: usize| {
        let [x, y, z] = [0, 1, 2].map(|axis| coordinate(3 * i + axis));
        [x, y, z, x - 0.5 * y + 2.0 * z]
    };
    rows((0..64).map(point).collect(), batch_size)
}

fn rows(points: Vec<[f32; 4]>, batch_size: usize) -> Points {
    let collate = |batch: Vec<[f32; 4]>| Rows {
        x: batch.iter().flat_map(|point| point[..3].to_vec()).collect(),
        y: batch.iter().map(|point| point[3]).collect(),
    };
    Examples::new(points, batch_size).expect("points").collate(collate)
}

fn loss(model: Net<Ad>, batch: &Rows, _key: Key) -> Tensor<Ad, 1> {
    model.loss(batch, None)
}

fn unevaluated<M>(_: &M) -> Result<Evaluation> {
    Ok(Evaluation::new())
}

fn evaluation(loss: f64) -> Result<Evaluation> {
    Ok(BTreeMap::from([("loss".to_owned(), loss)]))
}

fn options(steps: u64) -> FitOptions<Flex> {
    FitOptions { length: RunDuration::Steps(steps), log_every: 1, ..FitOptions::default() }
}

fn in_directory(directory: &TempDir, options: FitOptions<Flex>) -> FitOptions<Flex> {
    FitOptions { directory: Some(directory.path().into()), ..options }
}

/// Trains with `sgd` and without evaluations.
fn simple(data: Points, rate: f64, options: &FitOptions<Flex>) -> Result<Fitted<Net<Flex>>> {
    fit(net(), &sgd(rate, Sgd::default()), &Arc::new(data), loss, unevaluated, Key::new(0), options)
}

fn records(directory: &TempDir, name: &str) -> Vec<f64> {
    let records: Vec<Record> = read_metrics(directory.path().join("metrics.jsonl")).expect("records");
    records.iter().filter_map(|record| record.get(name)).collect()
}

fn directory() -> TempDir {
    TempDir::new().expect("a directory")
}

/// Returns the value of a leaf `[1]` of a checkpoint.
fn saved(directory: &Path, step: u64, name: &str) -> f64 {
    let file = directory.join(format!("checkpoints/step-{step:010}/state.safetensors"));
    let data = TensorFiles::open(file).expect("opened").tensor(name).expect("there");
    data.iter::<f64>().next().expect("one number")
}

#[test]
fn the_loss_falls() {
    let directory = directory();
    let optimizer = chain((clip_by_global_norm::<Flex>(1.0), adamw(2e-2, Adamw::default())));
    let settings = FitOptions {
        length: RunDuration::Epochs(20.0),
        learning_rate: Some(constant_schedule(2e-2)),
        unit: Some(("points", 16)),
        ..in_directory(&directory, options(0))
    };
    let with_root = |model: Net<Ad>, batch: &Rows, _: Key| {
        let loss = model.loss(batch, None);
        Outcome::new(loss.clone()).metric("root", loss.sqrt())
    };
    let fitted =
        fit(net(), &optimizer, &Arc::new(points(16)), with_root, unevaluated, Key::new(0), &settings).expect("ok");
    assert_eq!((fitted.steps, fitted.ended), (80, Ended::Finished), "20 epochs of 4 batches");
    let losses = records(&directory, "train/loss");
    let mean = |losses: &[f64]| losses.iter().sum::<f64>() / losses.len() as f64;
    assert!(mean(&losses[70..]) < 0.2 * mean(&losses[..5]), "{losses:?}");
    for (root, loss) in records(&directory, "train/root").iter().zip(&losses) {
        assert!((root * root - loss).abs() < 1e-5 * loss.max(1e-3), "{root} is the root of {loss}");
    }
    assert!(records(&directory, "grad_norm").iter().all(|norm| *norm > 0.0));
    assert!(records(&directory, "points_per_second").iter().all(|rate| *rate > 16.0));
    assert_eq!(records(&directory, "learning_rate"), [2e-2; 80]);
}

#[test]
fn accumulated_batches_are_one_large_batch() {
    let directories = [directory(), directory()];
    let large = in_directory(&directories[0], options(24));
    let small = in_directory(&directories[1], FitOptions { accumulate: 2, ..options(24) });
    let large = simple(points(16), 0.1, &large).expect("trained");
    let small = simple(points(8), 0.1, &small).expect("trained");
    assert!(!eq(&large.model, &net()), "it learned something");
    assert!(all_close(&small.model, &large.model, 1e-6, 1e-6), "{:?}\n{:?}", small.model, large.model);
    for name in ["train/loss", "grad_norm"] {
        let [large, small] = directories.each_ref().map(|directory| records(directory, name));
        assert_eq!(large.len(), 24);
        for (large, small) in large.iter().zip(&small) {
            assert!((large - small).abs() < 1e-6, "{name}: {large} of a large batch, {small} of two small ones");
        }
    }
}

/// Loss with a constant gradient of 1.
fn falling(model: Array<Ad, 1>, _: &Rows, _: Key) -> Tensor<Ad, 1> {
    model.val()
}

fn number(value: f32) -> Array<Flex, 1> {
    Array::new(Tensor::from_floats([value], &Default::default()))
}

#[test]
fn the_average_matches_the_formula() {
    let decay = 0.6;
    let settings = FitOptions { ema: Some(decay), ..options(30) };
    let optimizer = sgd(0.5, Sgd::default());
    let fitted =
        fit(number(10.0), &optimizer, &Arc::new(points(8)), falling, unevaluated, Key::new(0), &settings).expect("ok");
    assert_eq!(fitted.model.val().into_scalar(), 10.0 - 0.5 * 30.0);
    // Closed form: each x_t = 10 - t / 2 enters with the weight 1 - decay_t, which later steps decay. The decay
    // schedule is that of TensorFlow's ExponentialMovingAverage with `num_updates`.
    let decays: Vec<f64> = (0..30).map(|t| f64::min(decay, (1.0 + t as f64) / (10.0 + t as f64))).collect();
    let left = |t: usize| decays[t..].iter().product::<f64>();
    let terms = (1..=30).map(|t| (10.0 - 0.5 * t as f64) * (1.0 - decays[t - 1]) * left(t));
    let expected = 10.0 * left(0) + terms.sum::<f64>();
    let average = fitted.ema.expect("an average");
    let found = f64::from(average.val().into_scalar());
    assert!((found - expected).abs() < 1e-5, "{found} is not {expected}");
    assert_eq!(Fitted { ema: Some(average.clone()), ..fitted }.into_model().val().into_scalar(), found as f32);
}

#[test]
fn stops_early_and_returns_the_best_model() {
    let directory = directory();
    let losses = [f64::NAN, 3.0, 2.0, f64::NAN, 1.0, 1.0, f64::INFINITY, 0.5];
    let settings = FitOptions {
        evaluate_every: 2,
        patience: Some(2),
        checkpoint_every: 1,
        log_every: 100,
        ..in_directory(&directory, options(100))
    };
    let (mut seen, mut count) = (Vec::new(), 0);
    let evaluate = |model: &Net<Flex>| {
        seen.push(model.clone());
        count += 1;
        evaluation(losses[count - 1])
    };
    let optimizer = sgd(0.1, Sgd::default());
    let fitted = fit(net(), &optimizer, &Arc::new(points(8)), loss, evaluate, Key::new(0), &settings).expect("trained");
    assert_eq!((fitted.steps, fitted.ended), (14, Ended::EarlyStop), "two evaluations after the best");
    let (best, step, value) = fitted.best.clone().expect("a best model");
    assert_eq!((step, value), (10, 1.0));
    assert!(eq(&best, &seen[4]) && !eq(&best, &fitted.model));
    assert!(eq(&fitted.into_model(), &seen[4]), "the best is the one to keep");
    assert_eq!(records(&directory, "train/loss").len(), 1, "the last steps are on record");
    let names: Vec<_> = fs::read_dir(directory.path().join("best")).expect("listed").collect();
    assert_eq!(names.len(), 1, "one best model on the disk");

    // Resuming a run that stopped early trains nothing; its best model is restored.
    let settings = FitOptions { resume: true, ..settings };
    let evaluate = |_: &Net<Flex>| panic!("there is nothing to evaluate");
    let again = fit(net(), &optimizer, &Arc::new(points(8)), loss, evaluate, Key::new(0), &settings).expect("read");
    assert_eq!((again.steps, again.ended), (14, Ended::EarlyStop));
    assert!(eq(&again.into_model(), &seen[4]));
}

#[test]
fn a_non_finite_first_evaluation_is_ignored() {
    let directory = directory();
    let settings =
        FitOptions { evaluate_every: 1, checkpoint_every: 1, resume: true, ..in_directory(&directory, options(2)) };
    let run = |loss_of_evaluation| {
        let evaluate = move |_: &Net<Flex>| evaluation(loss_of_evaluation);
        fit(net(), &sgd(0.1, Sgd::default()), &Arc::new(points(8)), loss, evaluate, Key::new(0), &settings)
    };
    let fitted = run(f64::NAN).expect("trained");
    assert!(fitted.best.is_none(), "nothing is the best: {:?}", fitted.best);
    assert_eq!(run(1.0).expect("its checkpoint can be read").steps, 2);
}

#[test]
fn a_damaged_best_model_does_not_stop_a_resumed_run() {
    let directory = directory();
    let run = |steps, value: f64| {
        let settings = FitOptions {
            evaluate_every: 2,
            checkpoint_every: 2,
            resume: true,
            ..in_directory(&directory, options(steps))
        };
        let evaluate = move |_: &Net<Flex>| evaluation(value);
        fit(net(), &sgd(0.1, Sgd::default()), &Arc::new(points(8)), loss, evaluate, Key::new(0), &settings)
    };
    let (_, step, _) = run(2, 1.0).expect("trained").best.expect("a best model");
    assert_eq!(step, 2);
    fs::write(directory.path().join("best/step-0000000002/state.safetensors"), "").expect("damaged");
    let fitted = run(4, 7.0).expect("it goes on");
    let (best, step, value) = fitted.best.expect("a new best model");
    assert_eq!((step, value), (4, 7.0), "what was lost is not what others are measured by");
    assert!(eq(&best, &fitted.model));
}

#[test]
fn the_best_model_of_a_checkpoint_outlives_better_ones() {
    let names = |directory: &TempDir| {
        let listing = fs::read_dir(directory.path().join("best")).expect("listed");
        let mut names: Vec<_> = listing.map(|item| item.expect("an item").file_name().into_string()).collect();
        names.sort();
        names.into_iter().map(|name| name.expect("a name")).collect::<Vec<_>>()
    };
    let run = |data, settings: &FitOptions<Flex>| {
        // Each evaluation is better than the last.
        let mut value = 10.0;
        let evaluate = move |_: &Net<Flex>| {
            value -= 1.0;
            evaluation(value)
        };
        fit(net(), &sgd(0.1, Sgd::default()), &Arc::new(data), loss, evaluate, Key::new(0), settings)
    };
    let directory = directory();
    let settings =
        FitOptions { evaluate_every: 1, checkpoint_every: 3, resume: true, ..in_directory(&directory, options(8)) };
    run(corrupted(), &settings).expect_err("the sixth loss is NaN");
    assert_eq!(names(&directory), ["step-0000000003", "step-0000000005"], "that of the checkpoint, and the best");
    let stop = Some(Arc::new(AtomicBool::new(true)));
    let stopped = run(points(8), &FitOptions { stop, ..settings.clone() }).expect("it only reads");
    assert_eq!(stopped.best.map(|(model, step, _)| (eq(&model, &stopped.model), step)), Some((true, 3)));
    assert_eq!(names(&directory), ["step-0000000003"], "what came after is forgotten");
    let finished = run(points(8), &settings).expect("trained");
    // The best value was 7; the evaluations are now 9, 8, 7, 6, 5.
    assert_eq!(finished.best.map(|(_, step, value)| (step, value)), Some((8, 5.0)));
    assert_eq!(names(&directory), ["step-0000000008"]);

    // Files of a run killed before its first checkpoint must not become the best model of the next run.
    let other = self::directory();
    let settings = FitOptions { checkpoint_every: 50, ..in_directory(&other, settings) };
    run(corrupted(), &settings).expect_err("the sixth loss is NaN");
    assert_eq!(names(&other), ["step-0000000005"]);
    run(points(8), &FitOptions { length: RunDuration::Steps(2), ..settings }).expect("trained");
    assert_eq!(names(&other), ["step-0000000002"]);
}

/// Points with a NaN in the batch of step 6.
fn corrupted() -> Points {
    let mut points: Vec<[f32; 4]> = points(8).items().to_vec();
    points[5 * 8 + 3][1] = f32::NAN;
    rows(points, 8)
}

#[test]
fn a_nan_loss_ends_the_run_without_changes() {
    for (checkpoint_every, newest) in [(2, Some(4)), (5, Some(5)), (1, Some(5)), (50, None)] {
        let directory = directory();
        let settings = FitOptions {
            checkpoint_every,
            ema: Some(0.9),
            resume: true,
            log_every: 3,
            ..in_directory(&directory, options(16))
        };
        let error = simple(corrupted(), 0.1, &settings).expect_err("the sixth loss is NaN");
        let TrainError::NotFinite { what: "loss", value, step: 6, kept, skipped: 0 } = &error else {
            panic!("{error:?}")
        };
        assert!(value.is_nan());
        let expected = newest.map(|step| directory.path().join(format!("checkpoints/step-{step:010}")));
        assert_eq!(kept, &expected, "a checkpoint every {checkpoint_every} steps");
        let message = error.to_string();
        assert!(message.starts_with("the loss is NaN at step 6; "), "{message}");
        assert_eq!(message.contains("the last good checkpoint is"), newest.is_some(), "{message}");
        assert!(message.contains("a lower learning rate"), "{message}");

        // With corrected data the run resumes and equals an uninterrupted one.
        let mended = simple(points(8), 0.1, &settings).expect("trained");
        let undisturbed = FitOptions { directory: None, ..settings };
        let undisturbed = simple(points(8), 0.1, &undisturbed).expect("trained");
        assert!(eq(&mended.model, &undisturbed.model) && eq(&mended.ema, &undisturbed.ema));
    }
}

#[test]
fn a_nan_gradient_ends_the_run() {
    // The square root of 0 is 0, and its derivative infinite.
    let root = |model: Array<Ad, 1>, _: &Rows, _: Key| (model.val() * 0.0).sqrt();
    let optimizer = sgd(0.5, Sgd::default());
    let error = fit(number(1.0), &optimizer, &Arc::new(points(8)), root, unevaluated, Key::new(0), &options(5))
        .expect_err("the slope is not a number");
    assert!(matches!(error, TrainError::NotFinite { what: "norm of the gradient", step: 1, .. }), "{error:?}");
}

#[test]
fn non_finite_parameters_are_not_saved() {
    let directory = directory();
    let settings = FitOptions { checkpoint_every: 1, ..in_directory(&directory, options(1)) };
    // Loss and gradient are finite, but the updated parameter is not.
    let steep = |model: Array<Ad, 1>, _: &Rows, _: Key| model.val() * 10.0;
    let optimizer = sgd(1e38, Sgd::default());
    let error = fit(number(1.0), &optimizer, &Arc::new(points(8)), steep, unevaluated, Key::new(0), &settings)
        .expect_err("the parameter is infinite");
    assert!(matches!(error, TrainError::NotFinite { what: "norm of the parameters", step: 1, .. }), "{error:?}");
    assert!(!directory.path().join("checkpoints/step-0000000001").exists());
}

#[test]
fn frozen_leaves_do_not_change_and_cost_nothing() {
    let directory = directory();
    let step = StepOptions { trainable: by_path("second.**"), ..StepOptions::default() };
    let settings = FitOptions { step, ema: Some(0.9), ..in_directory(&directory, options(5)) };
    let optimizer = adamw(1e-2, Adamw::default().weight_decay(0.5));
    let run = |settings: &FitOptions<Flex>| {
        fit(net(), &optimizer, &Arc::new(points(8)), loss, unevaluated, Key::new(0), settings)
    };
    let fitted = run(&settings).expect("trained");
    assert!(eq(&fitted.model.first, &net().first), "not even decayed");
    assert!(!eq(&fitted.model.second, &net().second));
    let file = directory.path().join("checkpoints/step-0000000005/state.safetensors");
    let file = TensorFiles::open(file).expect("opened");
    let names: Vec<&str> = file.names().filter(|name| name.starts_with("optimizer.")).collect();
    assert!(names.iter().any(|name| name.contains("second.weight")), "{names:?}");
    assert!(!names.iter().any(|name| name.contains("first")), "{names:?}");
    assert!(file.contains("model.first.weight") && file.contains("model.seen"), "the model is whole");

    let resumed =
        run(&FitOptions { length: RunDuration::Steps(9), resume: true, ..settings.clone() }).expect("resumed");
    let undisturbed = run(&FitOptions { length: RunDuration::Steps(9), directory: None, ..settings }).expect("trained");
    assert!(eq(&resumed.model, &undisturbed.model));
}

#[test]
fn buffers_come_from_the_successor() {
    let counting = |model: Net<Ad>, batch: &Rows, _: Key| {
        let successor = Net { seen: Array::new(model.seen.val() + 1.0), ..model.clone() };
        Outcome::new(model.loss(batch, None)).successor(successor)
    };
    let optimizer = sgd(0.1, Sgd::default());
    let run = |options: &FitOptions<Flex>| {
        fit(net(), &optimizer, &Arc::new(points(8)), counting, unevaluated, Key::new(0), options).expect("trained")
    };
    let plain = run(&options(5));
    assert_eq!(plain.model.seen.val().into_scalar(), 5.0);
    assert!(!eq(&plain.model.second, &net().second), "and the parameters are trained");
    let several = run(&FitOptions { accumulate: 3, ..options(5) });
    assert_eq!(several.model.seen.val().into_scalar(), 15.0, "each batch goes on from the one before");
    let half = StepOptions { compute: Some(FloatDType::BF16), ..StepOptions::default() };
    let half = run(&FitOptions { step: half, ..options(5) });
    assert_eq!((half.model.seen.val().into_scalar(), half.model.seen.dtype()), (5.0, DType::F32));

    let step = train_step(counting, &optimizer, StepOptions::default());
    let batch = Rows { x: vec![1.0, 2.0, 3.0], y: vec![4.0] };
    let (model, _, _) = step(net(), optimizer.init(&net()), &batch, Key::new(0));
    assert_eq!(model.seen.val().into_scalar(), 1.0);
}

#[test]
fn half_precision_trains_parameters_in_f32() {
    for (dtype, loss_scaling) in [(FloatDType::BF16, false), (FloatDType::F16, false), (FloatDType::F16, true)] {
        let directory = directory();
        let step = StepOptions { compute: Some(dtype), ..StepOptions::default() };
        let settings = FitOptions { step, loss_scaling, ..in_directory(&directory, options(60)) };
        let computed = |model: Net<Ad>, batch: &Rows, _: Key| {
            assert_eq!(model.first.weight.dtype(), dtype.into(), "the loss is computed in this type");
            model.loss(batch, None)
        };
        let optimizer = adamw(1e-2, Adamw::default());
        let fitted =
            fit(net(), &optimizer, &Arc::new(points(16)), computed, unevaluated, Key::new(0), &settings).expect("ok");
        for (path, leaf) in leaves(&fitted.model) {
            assert_eq!(leaf.dtype(), DType::F32, "{path}");
        }
        let losses = records(&directory, "train/loss");
        assert!(losses[56..].iter().sum::<f64>() < 0.3 * losses[..4].iter().sum::<f64>(), "{dtype:?}: {losses:?}");
        // Close to f32, but not identical.
        let exact = simple_adamw(&options(60)).expect("trained");
        assert!(all_close(&fitted.model, &exact, 0.1, 0.1) && !eq(&fitted.model, &exact), "{dtype:?}");
    }
}

fn simple_adamw(options: &FitOptions<Flex>) -> Result<Net<Flex>> {
    let optimizer = adamw(1e-2, Adamw::default());
    fit(net(), &optimizer, &Arc::new(points(16)), loss, unevaluated, Key::new(0), options).map(|fitted| fitted.model)
}

#[test]
fn a_step_that_overflows_is_left_out() {
    let directory = directory();
    let step = StepOptions { compute: Some(FloatDType::F16), ..StepOptions::default() };
    let settings = FitOptions { step, loss_scaling: true, ..in_directory(&directory, options(1)) };
    // The gradient is 1; times the factor of 65,536 it overflows f16.
    let optimizer = adamw(0.5, Adamw::default());
    let run = |steps| {
        let settings = FitOptions { length: RunDuration::Steps(steps), resume: true, ..settings.clone() };
        fit(number(4.0), &optimizer, &Arc::new(points(8)), falling, unevaluated, Key::new(0), &settings).expect("ok")
    };
    let first = run(1);
    assert_eq!(first.model.val().into_scalar(), 4.0, "nothing has moved");
    let at = |step, name| saved(directory.path(), step, name);
    assert_eq!(at(1, "loss_scale.factor"), 32_768.0, "the factor is halved");
    assert_eq!(at(1, "optimizer.0.count"), 0.0, "the optimizer has not counted it");
    assert_eq!(at(1, "optimizer.0.mu"), 0.0);
    let second = run(2);
    assert!((second.model.val().into_scalar() - 3.5).abs() < 1e-3, "{:?}", second.model);
    assert_eq!(at(2, "loss_scale.factor"), 32_768.0);
    assert_eq!(at(2, "loss_scale.good_steps"), 1.0);
    assert_eq!(at(2, "optimizer.0.count"), 1.0);
    assert_eq!(records(&directory, "grad_norm"), [1.0], "what was left out has no norm");
    assert_eq!(records(&directory, "train/loss"), [4.0, 4.0]);
}

#[test]
fn gradients_that_always_overflow_end_the_run() {
    let step = StepOptions { compute: Some(FloatDType::F16), ..StepOptions::default() };
    let settings = FitOptions { step, loss_scaling: true, ..options(100) };
    let root = |model: Array<Ad, 1>, _: &Rows, _: Key| (model.val() * 0.0).sqrt();
    let optimizer = sgd(0.5, Sgd::default());
    let error = fit(number(1.0), &optimizer, &Arc::new(points(8)), root, unevaluated, Key::new(0), &settings)
        .expect_err("no factor is small enough");
    // 65,536 is 2^16: sixteen steps halve the factor, and one runs with a factor of 1.
    assert!(matches!(error, TrainError::NotFinite { what: "norm of the gradient", step: 17, .. }), "{error:?}");
}

#[test]
fn a_run_is_not_overwritten() {
    let directory = directory();
    let settings = in_directory(&directory, options(3));
    simple(points(8), 0.1, &settings).expect("trained");
    let error = simple(points(8), 0.1, &settings).expect_err("there is a run");
    assert!(matches!(&error, TrainError::RunExists { step: 3, .. }), "{error:?}");
    let expected = format!("{} already has a run at step 3: resume it, or give another", directory.path().display());
    assert!(error.to_string().starts_with(&expected), "{error}");
    // Resuming with an incompatible state is an error too.
    let other = FitOptions { resume_anyway: true, ema: Some(0.9), ..settings };
    let error = simple(points(8), 0.1, &other).expect_err("that run had no average");
    assert!(matches!(&error, TrainError::OtherModel { .. }) && error.to_string().contains("ema.first"), "{error}");
}

#[test]
fn the_kept_model_is_the_one_that_was_asked_for() {
    // The loss is lowest at step 1, the accuracy greatest at step 2.
    let measures = [(1.0, 0.2), (2.0, 0.9), (3.0, 0.5)];
    let run = |keep_model: KeepModel| {
        let mut evaluations = measures.into_iter();
        let evaluate = |_: &Net<Flex>| {
            let (loss, accuracy) = evaluations.next().expect("three evaluations");
            Ok(Evaluation::from([("loss".to_owned(), loss), ("accuracy".to_owned(), accuracy)]))
        };
        let options = FitOptions { keep_model, evaluate_every: 1, ..options(3) };
        fit(net(), &sgd(0.1, Sgd::default()), &Arc::new(points(8)), loss, evaluate, Key::new(0), &options)
    };
    for (keep_model, step, held_out) in [
        (KeepModel::default(), Some(1), 1.0),
        (KeepModel::Greatest("accuracy"), Some(2), 2.0),
        (KeepModel::Last, None, 3.0),
    ] {
        let fitted = run(keep_model).expect("trained");
        let summary = fitted.summary();
        assert_eq!((summary.best_step, summary.held_out_loss), (step, Some(held_out)), "{keep_model}");
        let last = fitted.model.clone();
        assert_eq!(eq(&fitted.into_model(), &last), step.is_none(), "{keep_model}");
    }
    let error = run(KeepModel::Greatest("macro_f1")).expect_err("there is no macro F1").to_string();
    assert!(error.contains("`keep_model` compares the `macro_f1`") && error.contains("only accuracy, loss"), "{error}");
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let refused = |options: FitOptions<Flex>, part: &str| {
        let error = simple(points(8), 0.1, &options).expect_err(part);
        assert!(matches!(&error, TrainError::Options(message) if message.contains(part)), "{part}: {error:?}");
    };
    refused(options(0), "0 steps: there is nothing to train");
    refused(FitOptions { accumulate: 0, ..options(1) }, "0 batches a step");
    refused(FitOptions { log_every: 0, ..options(1) }, "0 steps between records");
    refused(FitOptions { checkpoint_every: 0, ..options(1) }, "0 steps between records or checkpoints");
    for decay in [1.0, -0.1, f64::NAN] {
        refused(FitOptions { ema: Some(decay), ..options(1) }, "the moving average's decay is");
    }
    for epochs in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        refused(FitOptions { length: RunDuration::Epochs(epochs), ..options(1) }, "epochs: the number must be");
    }
    refused(FitOptions { patience: Some(3), ..options(1) }, "early stopping needs evaluations");
    let unjudged = FitOptions { patience: Some(3), evaluate_every: 1, ..options(1) };
    refused(unjudged, "`patience` compares the `loss` of evaluations, but this evaluation has nothing");
    let nothing = StepOptions { trainable: by_path("third.**"), ..StepOptions::default() };
    let misspelt = "`trainable`: the pattern `third.**` matches no path of this tree; similar paths: ";
    refused(FitOptions { step: nothing, ..options(1) }, misspelt);
    let nothing = StepOptions { trainable: Filter::new(|_, _| false), ..StepOptions::default() };
    refused(FitOptions { step: nothing, ..options(1) }, "`trainable` selects no");
    let skeleton = grove_tree::skeleton(net());
    let optimizer = sgd(0.1, Sgd::default());
    let error = fit(skeleton, &optimizer, &Arc::new(points(8)), loss, unevaluated, Key::new(0), &options(1));
    assert!(error.expect_err("no numbers").to_string().contains("is it a skeleton?"));
}

#[test]
fn epochs_are_counted_in_batches() {
    let steps = |epochs, accumulate| {
        let settings = FitOptions { length: RunDuration::Epochs(epochs), accumulate, ..options(0) };
        simple(points(16), 0.1, &settings).expect("trained").steps
    };
    assert_eq!([steps(1.0, 1), steps(2.5, 1), steps(0.01, 1)], [4, 10, 1]);
    assert_eq!([steps(1.0, 2), steps(3.0, 4), steps(1.0, 3), steps(3.0, 3), steps(1.0, 100)], [2, 3, 2, 4, 1]);
}

#[test]
fn a_step_is_a_pure_function() {
    let optimizer = adamw(1e-2, Adamw::default());
    let noisy = |model: Net<Ad>, batch: &Rows, key| model.loss(batch, Some(key));
    let step = train_step(noisy, &optimizer, StepOptions::default());
    let batch = Rows { x: (0..12).map(|i| i as f32 * 0.1).collect(), y: vec![1.0, 0.0, -1.0, 2.0] };
    let (model, state) = (net(), optimizer.init(&net()));
    let once = step(model.clone(), state.clone(), &batch, Key::new(4));
    let twice = step(model.clone(), state.clone(), &batch, Key::new(4));
    assert!(eq(&once.0, &twice.0) && eq(&once.1, &twice.1) && eq(&once.2, &twice.2), "the same bits");
    assert!(eq(&model, &net()) && eq(&state, &optimizer.init(&net())), "what it was given is as it was");
    assert!(!eq(&once.0, &model) && !eq(&once.1, &state));
    let other = step(model, state, &batch, Key::new(5));
    assert!(!eq(&once.0, &other.0), "another key is another dropout");
}

#[test]
fn a_stopped_run_resumes() {
    let directory = directory();
    let (stop, evaluations) = (Arc::new(AtomicBool::new(false)), AtomicU64::new(0));
    let settings = FitOptions {
        stop: Some(stop.clone()),
        evaluate_every: 3,
        log_every: 4,
        resume: true,
        ema: Some(0.9),
        ..in_directory(&directory, options(20))
    };
    let run = |settings: &FitOptions<Flex>| {
        let evaluate = |model: &Net<Flex>| {
            if evaluations.fetch_add(1, Ordering::Relaxed) == 2 {
                stop.store(true, Ordering::Relaxed);
            }
            evaluation(model.loss(&Rows { x: vec![0.5; 3], y: vec![1.0] }, None).into_scalar().into())
        };
        let noisy = |model: Net<Ad>, batch: &Rows, key| model.loss(batch, Some(key));
        let optimizer = adamw(1e-2, Adamw::default());
        fit(net(), &optimizer, &Arc::new(points(8)), noisy, evaluate, Key::new(0), settings).expect("trained")
    };
    let stopped = run(&settings);
    assert_eq!((stopped.steps, stopped.ended), (9, Ended::Interrupted), "at the third evaluation");
    let at_once = run(&settings);
    assert_eq!((at_once.steps, at_once.ended), (9, Ended::Interrupted), "a wish that is still there");
    assert!(eq(&at_once.model, &stopped.model));
    stop.store(false, Ordering::Relaxed);
    let resumed = run(&settings);
    assert_eq!((resumed.steps, resumed.ended), (20, Ended::Finished));

    let other = self::directory();
    let undisturbed = run(&FitOptions { directory: Some(other.path().into()), ..settings });
    assert!(eq(&resumed.model, &undisturbed.model) && eq(&resumed.ema, &undisturbed.ema));
    let [(a, i, x), (b, j, y)] = [resumed.best, undisturbed.best].map(|best| best.expect("a best model"));
    assert!(eq(&a, &b) && (i, x) == (j, y));
    for name in ["train/loss", "grad_norm", "eval/loss"] {
        assert_eq!(records(&directory, name), records(&other, name), "{name}, with the means across the stop");
    }
}

#[test]
fn errors_of_others_come_through() {
    let failing = |_: &Net<Flex>| Err(TrainError::Evaluation("no reference".into()));
    let settings = FitOptions { evaluate_every: 1, ..options(3) };
    let optimizer = sgd(0.1, Sgd::default());
    let error =
        fit(net(), &optimizer, &Arc::new(points(8)), loss, failing, Key::new(0), &settings).expect_err("it fails");
    assert_eq!(error.to_string(), "the evaluation failed: no reference");
    let broken = Examples::new(vec![0; 8], 8).expect("examples");
    let broken = broken.try_collate(|_| Err::<Rows, _>(grove_train::data::DataError::other("cat.png is not an image")));
    let broken = Arc::new(broken);
    let error = fit(net(), &optimizer, &broken, loss, unevaluated, Key::new(0), &options(3)).expect_err("it fails");
    assert_eq!(error.to_string(), "cat.png is not an image");
}

#[test]
fn a_custom_filter_applies() {
    let biases: Filter<Flex> = Filter::new(|path, _| path.as_str().ends_with("bias"));
    let step = StepOptions { trainable: biases, ..StepOptions::default() };
    let fitted = simple(points(8), 0.1, &FitOptions { step, ..options(3) }).expect("trained");
    let moved: Vec<String> = leaves(&fitted.model)
        .into_iter()
        .zip(leaves(&net()))
        .filter(|((_, a), (_, b))| a.clone().into_data() != b.clone().into_data())
        .map(|((path, _), _)| path)
        .collect();
    assert_eq!(moved, ["first.bias", "second.bias"]);
}

/// A loss with dropout, a successor and a metric.
fn outcome<B: Backend>(model: Net<Autodiff<B>>, rows: [Array<Autodiff<B>, 2>; 2], key: Key) -> Outcome<B, Net<B>> {
    let [x, y] = rows.map(|rows| rows.val().cast(model.first.weight.dtype()));
    let loss = (model.forward(dropout(x, 0.2, Some(key))) - y).powf_scalar(2.0).mean();
    let seen = Array::new(model.seen.val() + 1.0);
    Outcome::new(loss.clone()).metric("root", loss.sqrt()).successor(Net { seen, ..model })
}

fn arrays<B: Backend>(batch: &Rows) -> ([Array<B, 2>; 2], f64) {
    let (x, y) = batch.tensors::<B>(DType::F32);
    ([x, y].map(Array::new), batch.y.len() as f64)
}

/// Batches of 24, 24 and 16 points, two per step: with all parameters, and with loss scaling for f16 and only some
/// parameters trainable.
#[test]
fn a_traced_loss_trains_as_one_that_is_not() {
    let (data, optimizer) = (Arc::new(points(24)), adamw(0.01, Adamw { eps: 1e-3.into(), ..Adamw::default() }));
    for (compute, trainable) in [(None, None), (Some(FloatDType::F16), Some(by_path("first.**")))] {
        let mut step = StepOptions { compute, ..StepOptions::default() };
        step.trainable = trainable.unwrap_or(step.trainable);
        let [eager, traced] = [(), ()].map(|()| directory());
        let options = |directory: &TempDir| FitOptions {
            accumulate: 2,
            loss_scaling: compute.is_some(),
            step: step.clone(),
            ..in_directory(directory, options(6))
        };
        let loss = |model: Net<Ad>, batch: &Rows, key: Key| {
            let (rows, weight) = arrays::<Ad>(batch);
            outcome::<Flex>(model, rows, key).weight(weight)
        };
        let expected = fit(net(), &optimizer, &data, loss, unevaluated, Key::new(5), &options(&eager)).expect("a run");
        let loss = JitLoss { arrays: |_: &Net<Flex>, batch: &Rows, _| arrays::<Flex>(batch), loss: outcome };
        let found =
            fit_jitted(net(), &optimizer, &data, loss, unevaluated, Key::new(5), &options(&traced)).expect("a run");
        assert!(all_close(&found.model, &expected.model, 1e-5, 1e-5), "{compute:?}");
        assert!(!all_close(&found.model.first, &net().first, 1e-3, 1e-3), "it was trained");
        assert_eq!(found.model.seen.val().into_scalar(), 12.0);
        assert_eq!(eq(&found.model.second, &net().second), compute.is_some());
        let [expected, found] = [&eager, &traced].map(|directory| records(directory, "train/root"));
        assert_eq!(found.len(), 6);
        assert!(found.iter().zip(&expected).all(|(a, b)| (a - b).abs() <= 1e-4 * b.abs()), "{found:?} {expected:?}");
    }
}

type Normed<B> = (Net<B>, BatchNorm<B>);

/// Returns the loss of batch-normalised points, with updated running statistics.
fn normed<B: Backend>((net, norm): Normed<Autodiff<B>>, [x, y]: [Array<Autodiff<B>, 2>; 2]) -> Outcome<B, Normed<B>> {
    let (x, rows) = (x.val(), y.val().dims()[0]);
    let (x, norm) = norm.train(x.reshape([rows, 3, 1, 1]), None, false);
    let loss = (net.forward(x.reshape([rows, 3])) - y.val()).square().mean();
    Outcome::new(loss).successor((net, norm))
}

/// Batches of 24, 24 and 16 points on 1 to 4 ranks, and batches of 5 points, divided into 3 and 2, or 2, 2 and 1.
/// Compiled batch statistics over all ranks must match eager ones over the whole batch.
#[test]
fn a_traced_loss_normalises_over_all_ranks() {
    let init = Init::new(Key::new(2), &Default::default());
    let model = (net(), BatchNorm::<Flex>::new(3, &init));
    for batch in [24, 5] {
        let (data, optimizer) = (Arc::new(points(batch)), adamw(0.01, Adamw { eps: 1e-3.into(), ..Adamw::default() }));
        let whole = |model: Normed<Ad>, batch: &Rows, _| {
            let (rows, weight) = arrays::<Ad>(batch);
            normed::<Flex>(model, rows).weight(weight)
        };
        let expected =
            fit(model.clone(), &optimizer, &data, whole, unevaluated, Key::new(5), &options(20)).expect("a run");
        assert!(!all_close(&expected.model.0.first, &net().first, 1e-3, 1e-3), "it was trained");
        assert!(!all_close(&expected.model.1, &model.1, 1e-3, 1e-3), "statistics have moved");
        for size in [2, 3, 4] {
            let run = |ranks: Communicator| {
                let arrays = |_: &Normed<Flex>, batch: &Rows, _| arrays::<Flex>(batch);
                let loss = JitLoss { arrays, loss: |model, rows, _| normed(model, rows) };
                let options = FitOptions { ranks, ..options(20) };
                fit_jitted(model.clone(), &optimizer, &data, loss, unevaluated, Key::new(5), &options).expect("a run")
            };
            let run = &run;
            let found: Vec<_> = thread::scope(|scope| {
                let threads: Vec<_> =
                    Communicator::threads(size).into_iter().map(|ranks| scope.spawn(move || run(ranks))).collect();
                threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
            });
            let first = &found[0];
            for found in &found {
                assert!(all_close(&found.model, &expected.model, 1e-5, 1e-5), "{size} ranks, batches of {batch}");
                assert!(eq(&found.model, &first.model), "the ranks have one model");
            }
        }
    }
}

#[test]
fn a_callback_sees_each_record_and_ends_the_run() {
    let (stop, seen) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
    let (flag, records) = (stop.clone(), seen.clone());
    let callback = on_record(move |record: &Record| {
        flag.store(record.step >= 3, Ordering::Relaxed);
        records.lock().expect("no panic").push((record.step, record.get(TRAIN_LOSS).is_some()));
    });
    let settings = FitOptions { sinks: vec![callback], stop: Some(stop), evaluate_every: 2, ..options(9) };
    let optimizer = sgd(0.1, Sgd::default());
    let evaluate = |_: &Net<Flex>| evaluation(1.0);
    let fitted = fit(net(), &optimizer, &Arc::new(points(16)), loss, evaluate, Key::new(0), &settings).expect("a run");
    assert_eq!((fitted.ended, fitted.steps), (Ended::Interrupted, 3));
    assert_eq!(*seen.lock().expect("no panic"), [(1, true), (2, true), (2, false), (3, true)]);
}

#[test]
fn the_learning_rate_finder_leaves_the_model_and_stops_where_the_loss_diverges() {
    let (model, data) = (net(), Arc::new(points(64)));
    let search = RateSearch { from: 1e-4, to: 100.0, steps: 60, ..RateSearch::default() };
    let curve = find_learning_rate(&model, |rate| sgd(rate, Sgd::default()), &data, loss, Key::new(0), &search)
        .expect("a search");
    assert!(eq(&model, &net()));
    assert!(curve.points.len() < 60, "it ends early: {} points", curve.points.len());
    let first = curve.points[0];
    assert!((first.0 - 1e-4).abs() < 1e-12 && first.1 > 0.0, "{first:?}");
    let rate = curve.suggestion().expect("the loss falls");
    assert!((1e-3..2.0).contains(&rate), "{rate}");
    let wrong = RateSearch { from: 1.0, to: 0.1, ..RateSearch::default() };
    let error = find_learning_rate(&model, |rate| sgd(rate, Sgd::default()), &data, loss, Key::new(0), &wrong);
    assert!(error.expect_err("refused").to_string().contains("from 1 to 0.1"));
}
