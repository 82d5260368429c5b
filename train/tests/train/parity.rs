//! Training parity with PyTorch: a tiny GPT-2 on the same batches for 200 steps, with AdamW, clipping, warm-up and
//! cosine decay.
//! Fixtures: tools/fixtures/train_gpt2.py.

use crate::common;
use grove_backend::{Autodiff, Backend};
use grove_models::{CausalLm, Gpt2, Pretrained};
use grove_optim::{
    Adamw, GradientTransformation, Schedule, adamw, chain, clip_by_global_norm, matrices, warmup_cosine_decay_schedule,
};
use grove_train::{
    Ended, Evaluation, FitOptions, Outcome, RunDuration, StepOptions,
    data::{Data, DataError, TokenBatch},
    fit, train_step,
};
use grove_tree::{Key, leaves};
use grove_weights::TensorFiles;
use serde::Deserialize;
use std::{fs, path::Path, sync::Arc};

/// Maximum difference of a loss from PyTorch's, at any step.
const TOLERANCE: f64 = 1e-4;

/// `settings.json`.
#[derive(Deserialize)]
struct Settings {
    learning_rate: f64,
    warmup: u64,
    final_learning_rate: f64,
    b1: f64,
    b2: f64,
    eps: f64,
    weight_decay: f64,
    clip: f64,
}

/// Reference run of PyTorch.
struct Reference {
    settings: Settings,
    tensors: TensorFiles,
}

impl Reference {
    fn open() -> Self {
        let settings = fs::read_to_string(fixtures().join("settings.json")).expect("a fixture");
        Self {
            settings: serde_json::from_str(&settings).expect("the settings"),
            tensors: TensorFiles::open(fixtures().join("reference.safetensors")).expect("a fixture"),
        }
    }

    fn numbers(&self, name: &str) -> Vec<f64> {
        self.tensors.tensor(name).expect("in the fixture").iter().collect()
    }

    fn batches(&self) -> Batches {
        let tokens = self.tensors.tensor("tokens").expect("in the fixture");
        let [_, rows, columns] = tokens.shape[..] else { panic!("tokens are [steps, rows, columns]") };
        let tokens: Vec<u32> = tokens.iter().collect();
        let batch = |tokens: &[u32]| TokenBatch { tokens: tokens.to_vec(), rows, columns };
        Batches(tokens.chunks(rows * columns).map(batch).collect())
    }

    fn schedule(&self) -> Schedule {
        let Settings { learning_rate, warmup, final_learning_rate, .. } = self.settings;
        warmup_cosine_decay_schedule(0.0, learning_rate, warmup, self.numbers("loss").len() as u64, final_learning_rate)
    }

    fn optimizer<B: Backend>(&self) -> impl GradientTransformation<B, Gpt2<B>> {
        let settings = &self.settings;
        let options = Adamw::default()
            .b1(settings.b1)
            .b2(settings.b2)
            .eps(settings.eps)
            .weight_decay(settings.weight_decay)
            .mask(matrices());
        chain((clip_by_global_norm(settings.clip), adamw(self.schedule(), options)))
    }
}

/// Returns the batches in their original order.
struct Batches(Vec<TokenBatch>);

impl Data for Batches {
    type Batch = TokenBatch;

    fn order(&self, _epoch: u64) -> Vec<Vec<usize>> {
        (0..self.0.len()).map(|i| vec![i]).collect()
    }

    fn batches_per_epoch(&self) -> usize {
        self.0.len()
    }

    fn load(&self, _epoch: u64, examples: &[usize]) -> Result<TokenBatch, DataError> {
        Ok(self.0[examples[0]].clone())
    }
}

fn fixtures() -> &'static Path {
    Path::new("tests/fixtures/train_gpt2")
}

fn initial<B: Backend>(device: &B::Device) -> Gpt2<B> {
    Gpt2::from_path(fixtures(), device, None).expect("the model before the first step").0
}

fn loss<B: Backend>(model: Gpt2<Autodiff<B>>, batch: &TokenBatch, device: &B::Device, key: Key) -> Outcome<B, Gpt2<B>> {
    model.next_token_loss(batch.inputs(device), batch.targets(device), Some(key)).into()
}

#[track_caller]
fn assert_follows(what: &str, ours: &[f64], theirs: &[f64]) {
    assert_eq!(ours.len(), theirs.len(), "{what}: as many steps");
    let mut worst = (0, 0.0);
    for (step, (a, b)) in ours.iter().zip(theirs).enumerate() {
        let apart = (a - b).abs();
        assert!(apart <= TOLERANCE, "{what} at step {}: {a}, and PyTorch has {b}", step + 1);
        worst = if apart > worst.1 { (step + 1, apart) } else { worst };
    }
    println!("{what}: apart by {:.1e} at most, at step {}", worst.1, worst.0);
}

/// Asserts that each parameter matches PyTorch's final one.
fn assert_ends_where_it_did<B: Backend>(model: &Gpt2<B>, reference: &Reference) {
    let n_embd = model.config.n_embd;
    for (path, leaf) in leaves(model) {
        let mut ours: Vec<f64> = leaf.into_data().expect("present").iter().collect();
        let mut theirs = reference.numbers(&format!("final.transformer.{path}"));
        if path.ends_with("c_attn.bias") {
            // The key bias adds a constant to each row of scores, which softmax cancels. Its gradient is rounding
            // noise, which Adam scales to full steps.
            ours.drain(n_embd..2 * n_embd);
            theirs.drain(n_embd..2 * n_embd);
        }
        let (apart, largest) = common::distance(&ours, &theirs);
        assert!(apart <= 1e-3 * largest, "{path} ends apart by {apart}, the largest is {largest}");
    }
}

fn steps_follow_pytorch<B: Backend>(device: B::Device) {
    let reference = Reference::open();
    let optimizer = reference.optimizer::<B>();
    let loss = |model, batch: &TokenBatch, key| loss(model, batch, &device, key);
    let step = train_step(loss, &optimizer, StepOptions::default());
    let mut model = initial::<B>(&device);
    let mut state = optimizer.init(&model);
    let (mut losses, mut grad_norms) = (Vec::new(), Vec::new());
    for (i, batch) in reference.batches().0.iter().enumerate() {
        let metrics;
        (model, state, metrics) = step(model, state, batch, Key::new(0).fold_in(i as u32));
        losses.extend(metrics.loss.val().into_data().iter::<f64>());
        grad_norms.extend(metrics.grad_norm.val().into_data().iter::<f64>());
    }
    let name = B::name(&device);
    assert_follows(&format!("loss, {name}"), &losses, &reference.numbers("loss"));
    assert_follows(&format!("norm of the gradient, {name}"), &grad_norms, &reference.numbers("grad_norm"));
    assert_ends_where_it_did(&model, &reference);
}

fn a_fit_follows_pytorch<B: Backend>(device: B::Device) {
    let reference = Reference::open();
    let data = Arc::new(reference.batches());
    let directory = tempfile::tempdir().expect("a temporary directory");
    let options = FitOptions {
        length: RunDuration::Epochs(1.0),
        log_every: 1,
        directory: Some(directory.path().into()),
        learning_rate: Some(reference.schedule()),
        ..FitOptions::default()
    };
    let optimizer = reference.optimizer::<B>();
    let loss = |model, batch: &TokenBatch, key| loss::<B>(model, batch, &device, key);
    let evaluate = |_: &Gpt2<B>| Ok(Evaluation::new());
    let fitted = fit(initial::<B>(&device), &optimizer, &data, loss, evaluate, Key::new(0), &options).expect("it ends");
    assert_eq!((fitted.steps, fitted.ended), (data.batches_per_epoch() as u64, Ended::Finished));
    assert_ends_where_it_did(&fitted.model, &reference);

    let logged = fs::read_to_string(directory.path().join("metrics.jsonl")).expect("the log");
    let logged = logged.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("a JSON object"));
    let losses: Vec<f64> = logged.map(|record| record["train/loss"].as_f64().expect("a number")).collect();
    assert_follows(&format!("logged loss, {}", B::name(&device)), &losses, &reference.numbers("loss"));
}

on_each_backend!(steps_follow_pytorch, a_fit_follows_pytorch);
