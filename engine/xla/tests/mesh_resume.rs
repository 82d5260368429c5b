//! A run that is killed on four devices continues on two, with the result of an undisturbed run.
//!
//! The killed process is this test program, which environment variables turn into a training run: [`a_run`].
#![cfg(unix)]
#![recursion_limit = "256"]

mod common;

use burn::tensor::{Int, Tensor};
use grove_backend::{Autodiff, Backend, Flex};
use grove_models::{CausalLm, Gpt2, Gpt2Config, Pretrained};
use grove_optim::{Adamw, GradientTransformation, adamw};
use grove_train::{
    Ended, FitOptions, RunDuration,
    data::{TokenBatch, TokenStream, TokenWindows},
    fit,
    log::read_metrics,
};
use grove_tree::{Array, Key, leaves};
use grove_xla::{Mesh, PartitionSpec, Xla, fully_sharded};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    thread::sleep,
    time::{Duration, Instant},
};

/// Environment variables of the killed run: its directory and its number of devices.
const RUN: &str = "GROVE_TEST_MESH_RUN";
const DEVICES: &str = "GROVE_TEST_MESH_DEVICES";
const STEPS: u64 = 60;
const ROWS: usize = 4;
const COLUMNS: usize = 8;

fn model() -> Gpt2<Flex> {
    let config = Gpt2Config {
        n_embd: 16,
        n_layer: 2,
        n_head: 2,
        vocab_size: 32,
        n_positions: COLUMNS,
        resid_pdrop: 0.1,
        ..Gpt2Config::default()
    };
    Gpt2::init(&config, Key::new(0), &Default::default()).unwrap()
}

fn optimizer<B: Backend>() -> impl GradientTransformation<B, Gpt2<B>> {
    adamw(0.01, Adamw { eps: 1e-3.into(), ..Default::default() })
}

/// Trains in a directory, and returns the size of the parameters in bytes.
fn train<B: Backend>(model: Gpt2<B>, device: &B::Device, directory: &Path) -> usize {
    let tokens = (0..600_u32).map(|i| i * 3 % 17).collect();
    let data = Arc::new(TokenWindows::new(TokenStream::new(tokens), COLUMNS, ROWS, Some(Key::new(5))).unwrap());
    let bytes = leaves(&model).iter().map(|(_, leaf)| 4 * leaf.shape().iter().product::<usize>()).sum();
    let loss = |model: Gpt2<Autodiff<B>>, batch: &TokenBatch, key| {
        let [inputs, targets] = [batch.inputs::<B>(device), batch.targets::<B>(device)];
        let lift = |x: Tensor<B, 2, Int>| Tensor::from_primitive(x.into_primitive());
        model.next_token_loss(lift(inputs), lift(targets), Some(key))
    };
    let options = FitOptions {
        length: RunDuration::Steps(STEPS),
        log_every: 1,
        checkpoint_every: 3,
        directory: Some(directory.to_owned()),
        resume: true,
        ..FitOptions::default()
    };
    let evaluate = |_: &Gpt2<B>| Ok(BTreeMap::new());
    let fitted = fit(model, &optimizer(), &data, loss, evaluate, Key::new(3), &options).unwrap();
    assert!(fitted.ended == Ended::Finished && fitted.steps == STEPS);
    bytes
}

/// The killed program. Not a test by itself: it does nothing unless the test below starts it.
#[test]
#[ignore = "a part of the other test"]
fn a_run() {
    let Some(directory) = std::env::var_os(RUN).map(PathBuf::from) else { return };
    let devices: usize = std::env::var(DEVICES).unwrap().parse().unwrap();
    let client = common::client(devices as i64).unwrap();
    let mesh = Mesh::new(&client.devices(), [("data", devices)]).unwrap();
    let on = mesh.lazy();
    let model = model();
    let specs = fully_sharded(&model, &mesh, "data");
    let model = on.shard(model, &specs).unwrap();
    // Later batches have the specification of this first batch.
    let batch = Array::<Xla, 2, Int>::new(Tensor::zeros([ROWS, COLUMNS], on.device()));
    on.shard(batch, &[("**", PartitionSpec::new([Some("data")]))]).unwrap();
    let parameters = train(model, on.device(), &directory);
    // Parameters and both moments are split, whether new or from a checkpoint of another mesh.
    let steps = on.programs().into_iter().filter_map(|program| Some(program.memory?.arguments as usize));
    let arguments = steps.max().unwrap();
    let whole = 3 * parameters;
    assert!(arguments < whole / devices + whole / 8, "{arguments} bytes a device of {whole}");
}

fn command(directory: &Path, devices: usize) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "a_run", "--ignored", "--nocapture"]);
    command.env(RUN, directory).env(DEVICES, devices.to_string());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

fn newest(directory: &Path) -> Option<u64> {
    let entries = std::fs::read_dir(directory.join("checkpoints")).ok()?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter_map(|name| name.strip_prefix("step-")?.parse().ok()).max()
}

fn losses(directory: &Path) -> Vec<f64> {
    let records = read_metrics(directory.join("metrics.jsonl")).unwrap();
    records.iter().filter_map(|record| record.get("train/loss")).collect()
}

#[test]
fn a_run_killed_on_four_devices_resumes_on_two() {
    if common::client(1).is_none() {
        return;
    }
    let [alone, killed] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    train(model(), &Default::default(), alone.path());
    let mut child = command(killed.path(), 4).spawn().unwrap();
    let start = Instant::now();
    while newest(killed.path()).is_none_or(|step| step < 20) {
        assert!(child.try_wait().unwrap().is_none(), "the run ended before it was killed");
        assert!(start.elapsed() < Duration::from_secs(300), "no checkpoint of step 20");
        sleep(Duration::from_millis(2));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let at = newest(killed.path()).unwrap();
    assert!(at < STEPS, "the run was over when it was killed");
    let output = command(killed.path(), 2).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let [expected, found] = [alone, killed].map(|directory| losses(directory.path()));
    assert!(
        expected.len() == STEPS as usize && found.len() == expected.len(),
        "{} and {}",
        expected.len(),
        found.len()
    );
    assert!(expected[STEPS as usize - 1] < 0.9 * expected[0], "the run learns something: {expected:?}");
    for (step, (found, expected)) in found.iter().zip(&expected).enumerate() {
        let size = expected.abs().max(1.0);
        assert!((found - expected).abs() <= 1e-4 * size, "step {step}, killed after {at}: {found} for {expected}");
    }
}
