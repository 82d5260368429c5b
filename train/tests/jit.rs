//! Training with a compiled loss matches eager training.

use burn::tensor::FloatDType;
use grove_backend::{Flex, set_deterministic};
use grove_models::{
    Gpt2Config, Pretrained, ResNet, ResNetConfig, Vit, VitConfig,
    bert::{BertConfig, BertForMaskedLm, BertForSequenceClassification, ProblemType},
    sequence_classification::Gpt2ForSequenceClassification,
};
use grove_optim::{Adamw, adamw};
use grove_text::TextIds;
use grove_train::{
    FitOptions, Fitted, MaskedLmTask, RunDuration, StepOptions,
    classify::{TextExample, TextTarget, TextTask, TrainableTextClassifier, fit_texts},
    data::{Examples, Masking},
    fit_masked_lm,
};
use grove_tree::{Key, Tree, all_close};
use std::sync::Arc;

/// Options of six steps, in f32 or another compute dtype.
fn options(compute: Option<FloatDType>) -> FitOptions<Flex> {
    let step = StepOptions { compute, ..StepOptions::default() };
    FitOptions { length: RunDuration::Steps(6), evaluate_every: 3, step, ..FitOptions::default() }
}

/// With the default eps, a gradient that is only rounding noise would move its parameter by the whole learning rate.
fn settings() -> Adamw<Flex> {
    Adamw { eps: 1e-3.into(), ..Adamw::default() }
}

fn bert() -> BertConfig {
    BertConfig {
        vocab_size: 40,
        hidden_size: 16,
        num_hidden_layers: 2,
        num_attention_heads: 2,
        intermediate_size: 32,
        max_position_embeddings: 24,
        labels: ["a", "b", "c"].map(String::from).to_vec(),
        ..BertConfig::default()
    }
}

/// Returns a text of `len` tokens.
fn text(i: usize, len: usize) -> TextIds {
    (0..len).map(|j| ((i * 31 + j * 7) % 37 + 3) as u32).collect::<Vec<_>>().into()
}

/// Asserts that two runs ended with the same model and evaluations, and changed the model. The tolerance covers
/// rounding in f32, and in bf16 a part of a step, which moves a parameter by at most the learning rate of 0.01.
fn same<M: Tree<Flex>>(found: &Fitted<M>, expected: &Fitted<M>, begun: &M, compute: Option<FloatDType>) {
    let (absolute, loss) = if compute.is_some() { (1e-2, 1e-2) } else { (1e-5, 1e-4) };
    assert!(all_close(&found.model, &expected.model, 1e-4, absolute), "{compute:?}");
    assert!(!all_close(&found.model, begun, 1e-4, 2e-2), "it was trained");
    let [found, expected] = [found, expected].map(|fitted| fitted.best.as_ref().expect("an evaluation").2);
    assert!((found - expected).abs() < loss, "{found} {expected}");
}

/// Texts of various lengths without dropout, and texts that need no padding with dropout.
#[test]
fn classifiers_of_texts_train_alike() {
    type Case = (f64, fn(usize) -> usize, Option<FloatDType>);
    let cases: [Case; 3] =
        [(0.0, |i| 3 + i % 14, None), (0.1, |i| [8, 16][i % 2], None), (0.0, |i| 3 + i % 14, Some(FloatDType::BF16))];
    for (dropout, len, compute) in cases {
        let config = BertConfig { hidden_dropout_prob: dropout, attention_probs_dropout_prob: dropout, ..bert() };
        train(&BertForSequenceClassification::init(&config, Key::new(0), &Default::default()).unwrap(), len, compute);
    }
    let labels = serde_json::json!({"0": "a", "1": "b", "2": "c"});
    let sizes =
        Gpt2Config { vocab_size: 40, n_positions: 24, n_embd: 16, n_layer: 2, n_head: 2, ..Gpt2Config::default() };
    let rates = Gpt2Config { embd_pdrop: 0.0, attn_pdrop: 0.0, resid_pdrop: 0.0, ..sizes };
    let config = Gpt2Config { other: [("id2label".to_owned(), labels)].into_iter().collect(), ..rates };
    let decoder = Gpt2ForSequenceClassification::init(&config, Key::new(0), &Default::default()).unwrap();
    train(&decoder, |i| 3 + i % 14, None);
}

fn train<M: TrainableTextClassifier<Flex>>(model: &M, len: fn(usize) -> usize, compute: Option<FloatDType>) {
    let examples = |from| {
        (from..from + 30)
            .map(|i| TextExample { text: text(i, len(i)), target: TextTarget::Class(i % 3) })
            .collect::<Vec<TextExample>>()
    };
    let held_out = examples(100);
    let data = Examples::bucketed(examples(0), 8, |example| example.text.ids.len(), Key::new(1)).unwrap();
    let (data, optimizer) = (Arc::new(data), adamw(0.01, settings()));
    // Tokens of another model's tokenizer, in a training text.
    let foreign = TextExample { text: vec![3, 4000].into(), target: TextTarget::Class(0) };
    let foreign = Arc::new(Examples::new([examples(0), vec![foreign]].concat(), 8).unwrap());
    for jit in [false, true] {
        let task =
            TextTask { problem: ProblemType::SingleLabel, weights: &[1.0; 3], held_out: &held_out, batch_size: 7, jit };
        let error = fit_texts(model.clone(), &optimizer, &foreign, task, Key::new(2), &options(compute)).err().unwrap();
        assert!(error.to_string().contains("is outside the vocabulary"), "{error}");
    }
    let (data, optimizer) = (Arc::new(data), adamw(0.01, settings()));
    let [expected, found] = [false, true].map(|jit| {
        let task = TextTask {
            problem: ProblemType::SingleLabel,
            weights: &[1.0, 0.5, 2.0],
            held_out: &held_out,
            batch_size: 7,
            jit,
        };
        fit_texts(model.clone(), &optimizer, &data, task, Key::new(2), &options(compute)).unwrap()
    });
    same(&found, &expected, model, compute);
}

#[test]
fn masked_language_models_train_alike() {
    let config = BertConfig { hidden_dropout_prob: 0.0, attention_probs_dropout_prob: 0.0, ..bert() };
    let model = BertForMaskedLm::<Flex>::init(&config, Key::new(0), &Default::default()).unwrap();
    let texts = |from| (from..from + 30).map(|i| text(i, 3 + i % 20)).collect::<Vec<TextIds>>();
    let (held_out, masking) = (texts(100), Masking { rate: 0.3, ..Masking::new(2, vec![0, 1, 2], 40) });
    let data = Arc::new(Examples::bucketed(texts(0), 8, |text| text.ids.len(), Key::new(1)).unwrap());
    let optimizer = adamw(0.01, settings());
    // Tokens of another model's tokenizer, in a training text.
    let foreign = Arc::new(Examples::new([texts(0), vec![vec![3, 4000].into()]].concat(), 8).unwrap());
    // Masking hides most of them in a step, which changes nothing.
    let hiding = Masking { rate: 1.0, ..Masking::new(2, vec![0, 1, 2], 40) };
    let task = MaskedLmTask { masking: &hiding, held_out: &held_out, batch_size: 7, jit: false };
    let error = fit_masked_lm(model.clone(), &optimizer, &foreign, task, Key::new(2), &options(None)).err().unwrap();
    assert!(error.to_string().contains("is outside the vocabulary"), "{error}");
    for compute in [None, Some(FloatDType::BF16)] {
        let [expected, found] = [false, true].map(|jit| {
            let task = MaskedLmTask { masking: &masking, held_out: &held_out, batch_size: 7, jit };
            fit_masked_lm(model.clone(), &optimizer, &data, task, Key::new(2), &options(compute)).unwrap()
        });
        same(&found, &expected, &model, compute);
    }
}

/// A ResNet has running statistics, a ViT dropout; with and without mixed images.
#[cfg(feature = "images")]
#[test]
fn classifiers_of_images_train_alike() {
    use grove_images::{
        Preprocessor,
        augment::{Mix, Recipe, TrainTransform},
        datasets::open_labelled,
    };
    use grove_models::vision::TrainableImageClassifier;
    use grove_train::classify::{ImageBatches, ImageTask, fit_images};

    fn check<M: TrainableImageClassifier<Flex>>(
        model: &M,
        mix: Option<Mix>,
        inference: bool,
        compute: Option<FloatDType>,
    ) {
        let (training, held_out) = open_labelled("../models/assets/digits".as_ref(), |_| ()).unwrap();
        let batches = |mut images: grove_images::datasets::LabelledImages| {
            images.examples.truncate(30);
            ImageBatches::new(images, 8, Preprocessor::for_images(Some([1, 28, 28]), 28).unwrap(), [28, 28]).unwrap()
        };
        let transform = TrainTransform { recipe: Recipe::Shift, jitter: 0.0, affine: 0.0, erasing: 0.0 };
        let data = Arc::new(batches(training).training(transform, mix, Key::new(1)).unwrap());
        let (held_out, optimizer) = (held_out.map(batches), adamw(0.01, settings()));
        let [expected, found] = [false, true].map(|jit| {
            let task = ImageTask { held_out: held_out.as_ref(), label_smoothing: 0.1, inference, jit };
            let device = Default::default();
            fit_images(model.clone(), &optimizer, &data, task, Key::new(2), &options(compute), &device).unwrap()
        });
        same(&found, &expected, model, compute);
    }

    set_deterministic(true);
    let labels: Vec<String> = (0..10).map(|i| i.to_string()).collect();
    let config = ResNetConfig::basic(1, 28, vec![4, 8], vec![1, 1]).with_labels(labels.clone());
    let resnet = ResNet::<Flex>::init(&config, Key::new(0), &Default::default()).unwrap();
    check(&resnet, None, false, None);
    check(&resnet, None, true, None);
    check(&resnet, None, false, Some(FloatDType::BF16));
    let config = VitConfig {
        hidden_size: 16,
        num_hidden_layers: 2,
        num_attention_heads: 2,
        intermediate_size: 32,
        image_size: [28, 28],
        patch_size: 7,
        num_channels: 1,
        hidden_dropout_prob: 0.1,
        ..VitConfig::default()
    };
    let vit = Vit::<Flex>::init(&config.with_labels(labels), Key::new(0), &Default::default()).unwrap();
    check(&vit, Some(Mix::default()), false, None);
    check(&vit, None, false, Some(FloatDType::BF16));
}
