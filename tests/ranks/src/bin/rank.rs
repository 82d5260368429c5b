//! A rank of the tests: `grove-rank MODEL BATCH STEPS OUTPUT [WAY]` trains a tiny model, and rank 0 writes its
//! parameters.
//!
//! With `BACKEND=xla` in the environment, it runs on XLA's CPU device.
//!
//! WAY is `fit` or `fit_adam`, with a sharded optimizer `fit_zero1`, or a custom loop: `chain`, `zero1`,
//! `zero1_reduced`, `clipped`, `bf16`.

use grove::{
    distributed::{
        BucketTimes, Communicator, OverlappedSum, ReduceOptions, Wire, all_reduce_gradients, broadcast, world, zero1,
    },
    models::resnet::LayerType,
    optim::{GradientTransformation, Sgd, sgd},
    prelude::*,
    tensor::TensorData,
    train::{
        RunDuration, TrainError,
        data::{Data, Examples, Part, Parts},
    },
    transform::GradOptions,
    tree::leaves,
};
use std::{error::Error, fs, path::PathBuf, process::ExitCode, sync::Arc, time::Instant};

type Device<B> = <B as grove::tensor::backend::BackendTypes>::Device;

/// Number of examples in every data set.
const EXAMPLES: usize = 40;

/// Number of tokens in a row.
const ROW: usize = 9;

/// Side length of an image, in pixels.
const SIDE: usize = 16;

fn main() -> ExitCode {
    let ranks = match world() {
        Ok(ranks) => ranks,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::FAILURE;
        }
    };
    println!("process {} {}", ranks.rank(), std::process::id());
    let done = match std::env::var("BACKEND").as_deref() {
        Ok("xla") => on_xla(&ranks),
        _ => run::<Flex>(&ranks, &Default::default()),
    };
    match done {
        Ok(()) => match ranks.close() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => ranks.end_job(&error),
        },
        Err(error) => {
            if ranks.fails_first() {
                eprintln!("error: {error}");
            } else {
                std::thread::sleep(std::time::Duration::from_secs(10));
            }
            ranks.abort(1)
        }
    }
}

fn on_xla(ranks: &Communicator) -> Result<(), Box<dyn Error>> {
    grove::xla::use_ranks(ranks);
    let device = grove::xla::device(DeviceSpec::new(BackendName::XlaCpu, 0))?;
    run::<Xla>(ranks, &device.lazy())
}

/// Arguments of the command line.
struct Job {
    ranks: Communicator,
    model: String,
    batch: usize,
    steps: u64,
    output: PathBuf,
    way: String,
}

fn run<B: Backend>(ranks: &Communicator, device: &Device<B>) -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let mut word = || words.next().ok_or("MODEL BATCH STEPS OUTPUT [WAY]");
    let job = Job {
        ranks: ranks.clone(),
        model: word()?,
        batch: word()?.parse()?,
        steps: word()?.parse()?,
        output: word()?.into(),
        way: word().unwrap_or("fit".into()),
    };
    let key = Key::new(3);
    match job.model.as_str() {
        "gpt2" => {
            let config =
                Gpt2Config { vocab_size: 50, n_positions: 16, n_embd: 24, n_layer: 2, n_head: 3, ..no_dropout() };
            language(&job, Gpt2::<B>::init(&config, key, device)?)
        }
        "lstm" => {
            let config = RnnLmConfig {
                vocab_size: 50,
                embedding_size: 12,
                hidden_size: 12,
                num_layers: 2,
                dropout: 0.0,
                ..RnnLmConfig::default()
            };
            language(&job, RnnLm::<B>::init(&config, key, device)?)
        }
        "bench" => bench::<B>(&job, key, device),
        "bert" => bert::<B>(&job, key, device),
        "resnet" => resnet::<B>(&job, key, device),
        other => Err(format!("no model '{other}'").into()),
    }
}

/// Measures the median time of the parts of a step of a GPT-2 of 11.5 million parameters, with BATCH rows of 128 tokens
/// on each rank. With the WAY `after`, gradients are sent after the backward pass; with BUCKETS in the environment, the
/// buckets of the last step are listed.
fn bench<B: Backend>(job: &Job, key: Key, device: &Device<B>) -> Result<(), Box<dyn Error>> {
    const TOKENS: usize = 128;
    let config = Gpt2Config { vocab_size: 2048, n_positions: 256, n_embd: 384, n_layer: 6, n_head: 6, ..no_dropout() };
    let mut model = broadcast(Gpt2::<B>::init(&config, key, device)?, &job.ranks)?;
    let optimizer = adamw(1e-3, Adamw::default());
    let mut state = optimizer.init(&model);
    let rows =
        (0..job.batch * (TOKENS + 1)).map(|i| ((i * 7919 + job.ranks.rank() * 31) % 2048) as i64).collect::<Vec<_>>();
    let ids = |from: usize| {
        let ids: Vec<i64> = rows.chunks(TOKENS + 1).flat_map(|row| row[from..from + TOKENS].to_vec()).collect();
        Tensor::<Autodiff<B>, 2, Int>::from_data(TensorData::new(ids, [job.batch, TOKENS]), device)
    };
    let mut times = [vec![], vec![], vec![], vec![]];
    let (mut sent, mut buckets) = (0, vec![]);
    for _ in 0..job.steps + 3 {
        let mut laps = vec![Instant::now()];
        let before = job.ranks.bytes_sent();
        let options = ReduceOptions { bucket_bytes: 4 << 20, ..ReduceOptions::default() };
        let sums = Arc::new(OverlappedSum::new(&model, |path, _| !path.is_buffer(), &job.ranks, options));
        let mut grad_options = GradOptions::new();
        if job.way != "after" {
            let early = sums.clone();
            grad_options = grad_options.on_gradient(move |leaf, gradient| early.add(leaf, gradient));
        }
        let share = 1.0 / job.ranks.size() as f64;
        let loss = |model: Gpt2<Autodiff<B>>| (model.next_token_loss(ids(0), ids(1), None).mul_scalar(share), ());
        let (_, grads, ()) = grad_options.value_and_grad_aux(&model, loss);
        laps.push(Instant::now());
        let grads = sums.finish(grads)?;
        sent = job.ranks.bytes_sent() - before;
        laps.push(Instant::now());
        (model, state) = optimizer.step(grads, state, model);
        laps.push(Instant::now());
        let parts = laps.windows(2).map(|lap| lap[1] - lap[0]).chain([laps[3] - laps[0]]);
        times.iter_mut().zip(parts).for_each(|(times, part)| times.push(part.as_secs_f64() * 1e3));
        buckets = sums.times();
    }
    let last = times[0].last().copied().unwrap_or_default();
    let [gradients, reduction, update, all] = times.map(|times| {
        let mut times = times[3..].to_vec();
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    });
    if job.ranks.rank() == 0 {
        let (parameters, ranks, way) = (tree::count_params(&model), job.ranks.size(), &job.way);
        println!(
            "grove {way}, {parameters} parameters, {ranks} ranks: {all:.0} ms a step: gradients {gradients:.0}, then waiting \
             for sums {reduction:.1}, update {update:.0}; {sent} bytes sent a step"
        );
        let trace = std::env::var_os("BUCKETS").is_some();
        for (i, BucketTimes { bytes, left, arrived }) in buckets.iter().enumerate().filter(|_| trace) {
            let [left, arrived] = [left, arrived].map(|time| time.as_secs_f64() * 1e3);
            println!(
                "bucket {i}: {bytes} bytes, left at {left:.1} ms, arrived by {arrived:.1} ms; backward pass ended at {last:.1}"
            );
        }
    }
    Ok(())
}

fn no_dropout() -> Gpt2Config {
    Gpt2Config { embd_pdrop: 0.0, attn_pdrop: 0.0, resid_pdrop: 0.0, ..Gpt2Config::default() }
}

/// Returns rows of token ids below 50.
fn rows() -> Vec<Vec<i64>> {
    (0..EXAMPLES).map(|i| (0..ROW).map(|j| ((i * 7 + j * j * 3 + i * j) % 50) as i64).collect()).collect()
}

fn language<B, M>(job: &Job, model: M) -> Result<(), Box<dyn Error>>
where
    B: Backend,
    M: CausalLm<B> + Tree<B, On<Autodiff<B>>: CausalLm<Autodiff<B>>>,
{
    let data = Examples::new(rows(), job.batch)?;
    // For the test of ranks with different metrics.
    let measures_more = std::env::var_os("ODD_METRIC").is_some() && job.ranks.rank() == 1;
    let loss = |model: M::On<Autodiff<B>>, rows: &Vec<Vec<i64>>, key: Key| {
        let ids = |from: usize| {
            let ids: Vec<i64> = rows.iter().flat_map(|row| row[from..from + ROW - 1].to_vec()).collect();
            Tensor::from_data(TensorData::new(ids, [rows.len(), ROW - 1]), &Device::<B>::default())
        };
        let loss = model.next_token_loss(ids(0), ids(1), Some(key));
        let outcome = Outcome::<B, M>::new(loss.clone()).weight((rows.len() * (ROW - 1)) as f64);
        if measures_more { outcome.metric("odd", loss) } else { outcome }
    };
    train(job, model, data.shuffle(Key::new(9)), loss)
}

fn bert<B: Backend>(job: &Job, key: Key, device: &Device<B>) -> Result<(), Box<dyn Error>> {
    let config = BertConfig {
        vocab_size: 50,
        hidden_size: 24,
        num_hidden_layers: 2,
        num_attention_heads: 3,
        intermediate_size: 40,
        max_position_embeddings: 16,
        hidden_dropout_prob: 0.0,
        attention_probs_dropout_prob: 0.0,
        labels: ["a", "b", "c"].map(String::from).to_vec(),
        ..BertConfig::default()
    };
    let model = BertForSequenceClassification::<B>::init(&config, key, device)?;
    // Texts of 3 to 9 tokens, so that several ranks pad to other lengths than a single one.
    let texts: Vec<(Vec<u32>, usize)> = rows()
        .iter()
        .enumerate()
        .map(|(i, row)| (row[..3 + i % 7].iter().map(|&id| id as u32).collect(), i % 3))
        .collect();
    let data = Examples::new(texts, job.batch)?;
    let loss = |model: BertForSequenceClassification<Autodiff<B>>, texts: &Vec<(Vec<u32>, usize)>, key: Key| {
        use grove::{layers::loss::cross_entropy, models::TextClassifier, text::TextIds};
        let ids: Vec<TextIds> =
            texts.iter().map(|(ids, _)| TextIds { ids: ids.clone(), token_types: vec![0; ids.len()] }).collect();
        let classes: Vec<i64> = texts.iter().map(|(_, class)| *class as i64).collect();
        let classes = Tensor::from_data(TensorData::new(classes, [texts.len()]), &Device::<B>::default());
        let logits = model.logits(&model.texts(&ids).expect("valid texts"), Some(key));
        Outcome::<B, BertForSequenceClassification<B>>::new(cross_entropy(logits, classes)).weight(texts.len() as f64)
    };
    train(job, model, data.shuffle(Key::new(9)), loss)
}

fn resnet<B: Backend>(job: &Job, key: Key, device: &Device<B>) -> Result<(), Box<dyn Error>> {
    let config = ResNetConfig {
        num_channels: 2,
        embedding_size: 8,
        hidden_sizes: vec![8, 12],
        depths: vec![1, 1],
        layer_type: LayerType::Basic,
        labels: ["a", "b", "c"].map(String::from).to_vec(),
        ..ResNetConfig::default()
    };
    let model = ResNet::<B>::init(&config, key, device)?;
    let images: Vec<(Vec<f32>, usize)> = (0..EXAMPLES)
        // No two pixels are equal: otherwise rounding, which depends on the number of ranks, would decide the argmax of
        // max pooling.
        .map(|i| ((0..2 * SIDE * SIDE).map(|j| ((i * 37 + j * 11 + i * j) as f32).sin()).collect(), i % 3))
        .collect();
    let data = Examples::new(images, job.batch)?;
    // Without a weight, each rank's part counts by its examples.
    let loss = |model: ResNet<Autodiff<B>>, images: &Vec<(Vec<f32>, usize)>, _: Key| {
        let (device, count) = (Device::<B>::default(), images.len());
        let pixels: Vec<f32> = images.iter().flat_map(|(pixels, _)| pixels.clone()).collect();
        let classes: Vec<i64> = images.iter().map(|(_, class)| *class as i64).collect();
        let pixels = Tensor::from_data(TensorData::new(pixels, [count, 2, SIDE, SIDE]), &device);
        let (loss, successor) = model.train_loss(pixels, Tensor::from_data(TensorData::new(classes, [count]), &device));
        Outcome::<B, ResNet<B>>::new(loss).successor(successor)
    };
    train(job, model, data.shuffle(Key::new(9)), loss)
}

/// Trains, and writes the resulting parameters and buffers.
fn train<B, M, T, O>(
    job: &Job,
    model: M,
    data: Examples<T, Vec<T>>,
    loss: impl Fn(M::On<Autodiff<B>>, &Vec<T>, Key) -> O,
) -> Result<(), Box<dyn Error>>
where
    B: Backend,
    M: Tree<B>,
    T: Clone + Send + Sync + 'static,
    O: Into<Outcome<B, M>>,
{
    let (ranks, data) = (&job.ranks, Arc::new(data));
    let momentum = || sgd(0.05, Sgd::default().momentum(0.9));
    let adam = || adamw(1e-3, Adamw::default().weight_decay(0.1).mask(matrices()));
    let options = FitOptions {
        length: RunDuration::Steps(job.steps),
        ranks: ranks.clone(),
        directory: std::env::var_os("RUN_DIRECTORY").map(PathBuf::from),
        checkpoint_every: 3,
        resume: true,
        ..FitOptions::default()
    };
    let nothing = |_: &M| Ok(Default::default());
    let model = match job.way.as_str() {
        "fit" => fit(model, &momentum(), &data, loss, nothing, Key::new(1), &options)?.model,
        "fit_adam" => fit(model, &adam(), &data, loss, nothing, Key::new(1), &options)?.model,
        "fit_zero1" => {
            let divided = zero1(adam(), ranks).of_reduced();
            fit(model, &divided, &data, loss, nothing, Key::new(1), &options)?.model
        }
        "chain" => by_hand(job, model, &data, loss, &chain((all_reduce_gradients(ranks), adam())))?,
        "bf16" => by_hand(job, model, &data, loss, &chain((all_reduce_gradients(ranks).wire(Wire::Bf16), adam())))?,
        "zero1" => by_hand(job, model, &data, loss, &zero1(adam(), ranks))?,
        "zero1_reduced" => {
            let clipped = (clip_by_global_norm::<B>(1.0), zero1(adam(), ranks).of_reduced());
            by_hand(job, model, &data, loss, &chain((all_reduce_gradients(ranks), clipped)))?
        }
        "clipped" => {
            let optimizer = chain((all_reduce_gradients(ranks), clip_by_global_norm::<B>(1.0), adam()));
            by_hand(job, model, &data, loss, &optimizer)?
        }
        other => return Err(format!("no way '{other}'").into()),
    };
    let mut bytes = Vec::new();
    for (_, leaf) in leaves(&model) {
        bytes.extend(leaf.into_data().ok_or("a leaf is missing")?.as_bytes().to_vec());
    }
    // All ranks must be bitwise identical.
    let all = ranks.all_gather("the parameters", bytes.clone())?;
    if all.iter().any(|other| *other != bytes) {
        return Err("the ranks' parameters differ".into());
    }
    if ranks.rank() == 0 {
        fs::write(&job.output, bytes)?;
        println!("bytes sent {}", ranks.bytes_sent());
    }
    Ok(())
}

/// A custom training loop, with batches divided among the ranks.
fn by_hand<B, M, T, O, G>(
    job: &Job,
    model: M,
    data: &Arc<Examples<T, Vec<T>>>,
    loss: impl Fn(M::On<Autodiff<B>>, &Vec<T>, Key) -> O,
    optimizer: &G,
) -> Result<M, TrainError>
where
    B: Backend,
    M: Tree<B>,
    T: Clone + Send + Sync + 'static,
    O: Into<Outcome<B, M>>,
    G: GradientTransformation<B, M>,
{
    let parts = Parts::new(data.clone(), &job.ranks);
    let step = train_step(loss, optimizer, StepOptions::default());
    let mut model = broadcast(model, &job.ranks).unwrap_or_else(|error| job.ranks.end_job(&error));
    let mut state = optimizer.init(&model);
    let batches = (0..).flat_map(|i| parts.epoch(i).collect::<Vec<_>>());
    for (i, part) in batches.take(job.steps as usize).enumerate() {
        let Part { batch, .. } = part?;
        (model, state, _) = step(model, state, &batch, Key::new(1).fold_in(i as u32));
    }
    Ok(model)
}
