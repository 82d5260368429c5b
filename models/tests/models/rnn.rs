//! Recurrent models against PyTorch: logits, losses, gradients, names in files, and invalid input.
//! Fixtures: tools/fixtures/rnn_models.py.

use crate::common;
use burn::tensor::{Int, Tensor, TensorData};
use grove_backend::Backend;
use grove_models::{
    CausalLm, Pretrained, PretrainedConfig, RnnClassifier, RnnClassifierConfig, RnnKind, RnnLm, RnnLmConfig,
    rnn::{RnnState, classifier_names, published_names},
};
use grove_transform::value_and_grad;
use grove_tree::{Key, Tree, count_params, eq, paths};
use grove_weights::{NameMap, SaveOptions, TensorFiles, save_model};
use std::path::{Path, PathBuf};

const LMS: [&str; 3] = ["lm_lstm_tied", "lm_gru", "lm_rnn_relu"];
const CLASSIFIERS: [&str; 2] = ["classifier_lstm", "classifier_gru"];

fn fixture(name: &str) -> PathBuf {
    Path::new("tests/fixtures/rnn").join(name)
}

/// Reference values from PyTorch.
struct Reference(TensorFiles);

impl Reference {
    fn of(model: &str) -> Self {
        Self(TensorFiles::open(fixture(model).join("reference.safetensors")).unwrap())
    }

    fn data(&self, name: &str) -> TensorData {
        self.0.tensor(name).unwrap()
    }

    fn ids(&self, name: &str) -> Vec<u32> {
        self.data(name).iter::<i64>().map(|id| id as u32).collect()
    }

    fn int<B: Backend, const D: usize>(&self, name: &str, device: &B::Device) -> Tensor<B, D, Int> {
        Tensor::from_data(self.data(name), device)
    }

    /// Compares all gradients under their published names.
    fn check_gradients<B: Backend, M: Tree<B>>(&self, model: &str, grads: &M, names: &NameMap) {
        let directory = tempfile::tempdir().unwrap();
        save_model(grads, names, directory.path(), &SaveOptions::default()).unwrap();
        let grads = TensorFiles::open(directory.path()).unwrap();
        let of_file = |name: &&str| name.starts_with("grad.");
        assert_eq!(grads.names().count(), self.0.names().filter(of_file).count(), "{model}");
        for name in grads.names() {
            let expected = self.data(&format!("grad.{name}"));
            assert_close(&format!("{model} {name}"), grads.tensor(name).unwrap(), expected, 1e-3);
        }
    }
}

/// Asserts `max |a - b| <= tolerance * max |b|`.
fn assert_close(what: &str, a: TensorData, b: TensorData, tolerance: f64) {
    assert_eq!(a.shape, b.shape, "{what}");
    let (a, b): (Vec<f64>, Vec<f64>) = (a.iter().collect(), b.iter().collect());
    let (apart, largest) = common::distance(&a, &b);
    assert!(apart <= tolerance * largest, "{what}: apart by {apart}, the largest is {largest}");
}

fn lm<B: Backend>(name: &str, device: &B::Device) -> RnnLm<B> {
    let whole = fixture(name);
    let path = if whole.join("model.pt").exists() { whole.join("model.pt") } else { whole.join("model.safetensors") };
    RnnLm::from_path(path, device, None).unwrap().0
}

fn classifier<B: Backend>(name: &str, device: &B::Device) -> RnnClassifier<B> {
    RnnClassifier::from_path(fixture(name).join("model.safetensors"), device, None).unwrap().0
}

fn language_models<B: Backend>(device: B::Device) {
    for name in LMS {
        let (model, reference) = (lm::<B>(name, &device), Reference::of(name));
        let ids = || reference.int::<B, 2>("ids", &device);
        let (logits, state) = model.forward_from(ids(), None, None);
        assert_close(name, logits.into_data(), reference.data("logits"), 1e-4);
        assert_close(name, state.h.val().into_data(), reference.data("h"), 1e-4);
        assert_eq!(state.c.is_some(), reference.0.contains("c"));
        if let Some(c) = state.c {
            assert_close(name, c.val().into_data(), reference.data("c"), 1e-4);
        }

        let targets = reference.int::<B, 2>("targets", &device);
        let (loss, grads) = value_and_grad(&model, |m| {
            let lift = |x: Tensor<B, 2, Int>| Tensor::from_inner(x);
            m.next_token_loss(lift(ids()), lift(targets.clone()), None)
        });
        assert_close(name, loss.into_data(), reference.data("loss"), 1e-4);
        reference.check_gradients(name, &grads, &published_names(&model.config));
    }
}

fn state_carries_over<B: Backend>(device: B::Device) {
    for name in LMS {
        let (model, reference) = (lm::<B>(name, &device), Reference::of(name));
        let [ids, targets] = ["ids", "targets"].map(|part| reference.int::<B, 2>(part, &device));
        let part = |x: &Tensor<B, 2, Int>, from: usize, to: usize| x.clone().slice([0..3, from..to]);
        let mut state: Option<RnnState<B>> = None;
        let (mut sum, mut counted) = (0.0, 0);
        for (from, to) in [(0, 4), (4, 5), (5, 9)] {
            let (logits, after) = model.forward_from(part(&ids, from, to), state.clone(), None);
            let expected = Tensor::<B, 3>::from_data(reference.data("logits"), &device).slice([0..3, from..to]);
            assert_close(&format!("{name} {from}..{to}"), logits.into_data(), expected.into_data(), 1e-4);
            let targets = part(&targets, from, to);
            let count = targets.to_data().iter::<i64>().filter(|&id| id >= 0).count();
            let (loss, continued) = model.continued_loss(part(&ids, from, to), targets, state, None);
            assert!(eq(&continued, &after));
            sum += loss.into_data().iter::<f64>().next().unwrap() * count as f64;
            counted += count;
            state = Some(after);
        }
        let expected = reference.data("loss").iter::<f64>().next().unwrap();
        assert!(
            (sum / counted as f64 - expected).abs() < 1e-4 * expected,
            "{name}: {sum} of {counted}, not {expected}"
        );
    }
}

/// The state of a row is that of its own tokens, however padded prompts are split into calls.
fn padding_leaves_the_state<B: Backend>(device: B::Device) {
    let ids = |rows: &[Vec<u32>]| {
        let all: Vec<i64> = rows.iter().flatten().map(|&id| id.into()).collect();
        Tensor::<B, 2, Int>::from_data(TensorData::new(all, [rows.len(), rows[0].len()]), &device)
    };
    for name in LMS {
        let model = lm::<B>(name, &device);
        let prompts: Vec<Vec<u32>> = vec![vec![5, 6], vec![9, 8, 7, 6, 5, 4, 3], vec![2], vec![1, 2, 3, 4, 5]];
        let padding: Vec<usize> = prompts.iter().map(|prompt| 7 - prompt.len()).collect();
        let padded: Vec<Vec<u32>> =
            prompts.iter().map(|prompt| [vec![11; 7 - prompt.len()], prompt.clone()].concat()).collect();
        for cuts in [vec![0, 7], vec![0, 2, 7], vec![0, 3, 6, 7], vec![0, 1, 2, 3, 4, 5, 6, 7]] {
            let mut state = model.new_cache(0);
            let mut logits = None;
            for cut in cuts.windows(2) {
                let (last, next) = model.decode(ids(&padded).slice([0..4, cut[0]..cut[1]]), &padding, state);
                (logits, state) = (Some(last), next);
            }
            for (i, prompt) in prompts.iter().enumerate() {
                let (alone, after) = model.forward_from(ids(std::slice::from_ref(prompt)), None, None);
                let alone = alone.narrow(1, prompt.len() - 1, 1).squeeze_dim::<2>(0);
                let what = format!("{name} {cuts:?} row {i}");
                assert_close(&what, logits.clone().unwrap().narrow(0, i, 1).into_data(), alone.into_data(), 1e-5);
                let h = state.state.as_ref().unwrap().h.val().narrow(1, i, 1);
                assert_close(&what, h.into_data(), after.h.val().into_data(), 1e-5);
            }
        }
    }
}

fn classifiers<B: Backend>(device: B::Device) {
    for name in CLASSIFIERS {
        let (model, reference) = (classifier::<B>(name, &device), Reference::of(name));
        let (all, lengths) = (reference.ids("ids"), reference.ids("lengths"));
        let width = all.len() / lengths.len();
        let text = |(i, &length): (usize, &u32)| all[i * width..i * width + length as usize].to_vec();
        let texts: Vec<Vec<u32>> = lengths.iter().enumerate().map(text).collect();
        let logits = model.forward(&model.pack(&texts).unwrap(), None);
        assert_close(name, logits.into_data(), reference.data("logits"), 1e-4);
        for (i, text) in texts.iter().enumerate() {
            let alone = model.forward(&model.pack(std::slice::from_ref(text)).unwrap(), None).into_data();
            let expected = Tensor::<B, 2>::from_data(reference.data("logits"), &device).narrow(0, i, 1);
            assert_close(&format!("{name} text {i}"), alone, expected.into_data(), 1e-4);
        }

        let labels = reference.int::<B, 1>("labels", &device);
        let (loss, grads) =
            value_and_grad(&model, |m| m.loss(&m.pack(&texts).unwrap(), Tensor::from_inner(labels.clone()), None));
        assert_close(name, loss.into_data(), reference.data("loss"), 1e-4);
        reference.check_gradients(name, &grads, &classifier_names());

        let logits: Vec<f64> = reference.data("logits").iter().collect();
        let rows = logits.chunks(model.config.labels.len());
        for (prediction, row) in model.predict(&model.pack(&texts).unwrap()).into_iter().zip(rows) {
            let best = (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap();
            let probability = 1.0 / row.iter().map(|x| (x - row[best]).exp()).sum::<f64>();
            assert_eq!((prediction.class, &prediction.label), (best, &model.config.labels[best]));
            assert!((f64::from(prediction.score) - probability).abs() < 1e-4);
        }
    }
}

on_each_backend!(language_models, state_carries_over, padding_leaves_the_state, classifiers);

type Flex = grove_backend::Flex;

fn init(config: &RnnLmConfig) -> RnnLm<Flex> {
    RnnLm::init(config, Key::new(0), &Default::default()).unwrap()
}

fn small(cell: RnnKind) -> RnnLmConfig {
    RnnLmConfig { cell, vocab_size: 19, embedding_size: 6, hidden_size: 8, ..RnnLmConfig::default() }
}

#[test]
fn every_naming_loads() {
    for (variant, original) in [("only_encoder", LMS[0]), ("module", LMS[1]), ("model", LMS[1])] {
        let original = lm::<Flex>(original, &Default::default());
        assert!(eq(&lm::<Flex>(&format!("variants/{variant}"), &Default::default()), &original), "{variant}");
    }
    let (_, report) = RnnLm::<Flex>::from_path(fixture("lm_lstm_tied/model.pt"), &Default::default(), None).unwrap();
    let ignored: Vec<&str> = report.ignored.iter().map(|ignored| &*ignored.name).collect();
    assert_eq!(ignored, ["decoder.weight"], "the tied matrix is there twice");
}

#[test]
fn saved_models_come_back() {
    let directory = tempfile::tempdir().unwrap();
    for name in LMS {
        let model = lm::<Flex>(name, &Default::default());
        model.save_pretrained(directory.path()).unwrap();
        let again = RnnLm::<Flex>::from_pretrained(directory.path().to_str().unwrap(), &Default::default()).unwrap();
        assert!(eq(&again, &model) && again.config == model.config, "{name}");
    }
    for name in CLASSIFIERS {
        let model = classifier::<Flex>(name, &Default::default());
        model.save_pretrained(directory.path()).unwrap();
        let (again, report) = RnnClassifier::<Flex>::from_path(directory.path(), &Default::default(), None).unwrap();
        assert!(eq(&again, &model) && again.config == model.config && report.is_complete(), "{name}");
        let files = [fixture(name).join("model.safetensors"), directory.path().join("model.safetensors")];
        let [theirs, ours] = files.map(|file| TensorFiles::open(file).unwrap());
        assert!(theirs.names().eq(ours.names()), "{name}");
        assert!(theirs.names().all(|tensor| theirs.tensor(tensor).unwrap() == ours.tensor(tensor).unwrap()), "{name}");
    }
}

#[test]
fn initial_weights_match_the_reference() {
    // Counted by PyTorch: `sum(p.numel() for p in RNNModel("LSTM", 33278, 200, 200, 2).parameters())`.
    assert_eq!(count_params(&RnnLm::<Flex>::skeleton(&RnnLmConfig::default()).unwrap()), 13_987_678);
    let model = init(&RnnLmConfig { vocab_size: 400, hidden_size: 25, ..small(RnnKind::Gru) });
    let of = |x: Tensor<Flex, 2>| x.into_data().iter::<f64>().map(f64::abs).fold(0.0, f64::max);
    assert!((0.09..0.1).contains(&of(model.encoder.weight.val())));
    assert!((0.09..0.1).contains(&of(model.decoder.weight.as_ref().unwrap().val())));
    assert_eq!(of(model.decoder.bias.val().unsqueeze()), 0.0);
    let paths = paths(&model);
    assert_eq!(paths[1], "rnn.layers.0.forward.weight_ih");
    let grove_models::rnn::RnnLayers::Gru(layers) = &model.rnn else { panic!("a GRU was asked for") };
    assert!((0.19..0.2).contains(&of(layers.layers[1].forward.weight_ih.val())));
}

#[test]
fn dropout_follows_its_key() {
    let ids = || Tensor::from_ints([[1, 2, 3], [4, 5, 6]], &Default::default());
    for cell in RnnKind::ALL {
        let model = init(&small(cell));
        let logits = |key: Option<u64>| model.forward_from(ids(), None, key.map(Key::new)).0.into_data();
        assert_eq!(logits(Some(1)), logits(Some(1)));
        assert_ne!(logits(Some(1)), logits(Some(2)));
        assert_ne!(logits(Some(1)), logits(None));
        assert_eq!(cell.to_string().parse::<RnnKind>().unwrap(), cell);
    }
    assert!("elman".parse::<RnnKind>().unwrap_err().to_string().contains("lstm, gru"));
}

#[test]
fn files_that_do_not_fit_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::copy(fixture("lm_gru/model.safetensors"), directory.path().join("model.safetensors")).unwrap();
    let good = RnnLmConfig::from_file(fixture("lm_gru")).unwrap();
    let message = |config: RnnLmConfig| {
        std::fs::write(directory.path().join("config.json"), serde_json::to_string(&config).unwrap()).unwrap();
        RnnLm::<Flex>::from_path(directory.path(), &Default::default(), None).unwrap_err().to_string()
    };
    let huge = RnnLmConfig { vocab_size: 1 << 28, hidden_size: 1 << 28, num_layers: 1000, ..good.clone() };
    for (config, expected) in [
        (RnnLmConfig { hidden_size: 15, ..good.clone() }, vec!["rnn.weight_hh_l0", "[42, 14]"]),
        (RnnLmConfig { cell: RnnKind::Lstm, ..good.clone() }, vec!["rnn.weight_hh_l0", "[56, 14]"]),
        (RnnLmConfig { num_layers: 2, ..good.clone() }, vec!["missing", "rnn.weight_ih_l1"]),
        (RnnLmConfig { model_type: "gpt2".into(), ..good.clone() }, vec!["config.json", "gpt2"]),
        (RnnLmConfig { tie_word_embeddings: true, ..good.clone() }, vec!["config.json", "embedding_size, 9"]),
        (RnnLmConfig { vocab_size: usize::MAX, ..good.clone() }, vec!["config.json", "vocab_size"]),
        (huge, vec!["encoder.weight", "268435456", "rnn.weight_ih_l1"]),
    ] {
        let message = message(config);
        assert!(expected.iter().all(|part| message.contains(part)), "{expected:?}: {message}");
    }
    let untied = RnnLmConfig { tie_word_embeddings: false, ..RnnLmConfig::from_file(fixture(LMS[0])).unwrap() };
    std::fs::copy(fixture("variants/only_encoder/model.safetensors"), directory.path().join("model.safetensors"))
        .unwrap();
    let message = message(untied);
    assert!(message.contains("missing") && message.contains("decoder.weight"), "{message}");
    let error = RnnClassifierConfig::beside(fixture("lm_gru")).unwrap_err().to_string();
    assert!(error.contains("config.json") && error.contains("grove_rnn_lm"), "{error}");
}

#[test]
fn impossible_texts_are_refused() {
    let model = classifier::<Flex>("classifier_gru", &Default::default());
    let message = |texts: &[Vec<u32>]| model.pack(texts).unwrap_err().to_string();
    assert!(message(&[]).contains("no sequences"));
    assert!(message(&[vec![1], vec![]]).contains("sequence 1 has length 0"));
    assert!(message(&[vec![1], vec![30, 31]]).contains("token id 31 is outside the vocabulary, which has 31"));
}

#[test]
#[should_panic(expected = "an LSTM's state has cell states")]
fn the_state_of_other_cells_is_refused() {
    let ids = || Tensor::from_ints([[1, 2, 3]], &Default::default());
    let (_, state) = init(&small(RnnKind::Gru)).forward_from(ids(), None, None);
    init(&small(RnnKind::Lstm)).forward_from(ids(), Some(state), None);
}
