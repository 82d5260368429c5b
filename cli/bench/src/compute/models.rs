//! Models in inference: forward passes, decoding, loading.

use grove::{
    models::{ModelError, bert::TextBatch, vit::Pooling},
    prelude::*,
    tensor::DType,
    text::TextIds,
    tree::{AnyTensor, leaves},
};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::path::Path;

use super::{Outputs, Place, Run};
use crate::work::{Text, VitSizes, Work, is_gpt2};

pub fn prepare<B: Backend>(work: &Work, place: Place<B>) -> Result<Run, String> {
    let at = place.clone();
    Ok(match work {
        Work::Resnet { size, batch, .. } => {
            let model: ResNet<B> = at.model(&resnet_config(work))?;
            let x = at.normal::<4>(0, [*batch, 3, *size, *size]);
            place.run_tensor(move || model.forward(x.clone()))
        }
        Work::Vit { sizes, .. } => {
            let model: Vit<B> = at.model(&vit_config(*sizes))?;
            let x = at.normal::<4>(0, sizes.images());
            place.run_tensor(move || model.forward(x.clone(), None))
        }
        Work::Bert(text) => {
            let config: BertConfig = config(&text.config)?;
            let model: Bert<B> = at.model(&config)?;
            let texts = texts(text, &config, &at)?;
            place.run(move || {
                let states = model.forward(&texts, None);
                (model.pool(states.clone()).map(Array::new), Array::new(states))
            })
        }
        Work::Gpt2(text) => logits::<B, Gpt2<B>>(text, place)?,
        Work::GptNeo(text) => logits::<B, GptNeo<B>>(text, place)?,
        Work::Llama(text) => logits::<B, Llama<B>>(text, place)?,
        Work::Decode { config: fields, batch, prompt, new_tokens } => {
            let tokens = |row: usize| random_tokens(Key::new(0).fold_in(1 + row as u32), *prompt, vocabulary(fields));
            let prompts: Vec<Vec<u32>> = (0..*batch).map(tokens).collect();
            match is_gpt2(fields) {
                true => decode::<B, Gpt2<B>>(at.model(&config(fields)?)?, prompts, *new_tokens),
                false => decode::<B, Llama<B>>(at.model(&config(fields)?)?, prompts, *new_tokens),
            }
        }
        Work::Load { path, .. } => {
            let path = path.clone();
            Box::new(move || at.finish(|| load::<B>(&path, &at))?.map(|_| Outputs::none()))
        }
        Work::Start { path, tokens, .. } => {
            let (path, tokens) = (path.clone(), *tokens);
            Box::new(move || {
                at.finish(|| {
                    let model = open::<B>(&path, &at)?;
                    let ids = at.integers::<2>(0, [1, tokens], model.config.vocab_size);
                    model.forward(ids, None).into_data();
                    Ok(Outputs::none())
                })?
            })
        }
        _ => return Err("no such row on this backend".into()),
    })
}

/// Returns a run of the logits at all positions.
fn logits<B: Backend, M: CausalLm<B> + Pretrained<B> + 'static>(text: &Text, place: Place<B>) -> Result<Run, String> {
    let model: M = place.model(&config(&text.config)?)?;
    let ids = ids(text, &place);
    Ok(place.run_tensor(move || model.forward(ids.clone(), None)))
}

/// Returns a run of greedy decoding.
fn decode<B: Backend, M: CausalLm<B> + 'static>(model: M, prompts: Vec<Vec<u32>>, new_tokens: usize) -> Run {
    let options = GenerateOptions {
        max_new_tokens: new_tokens,
        sampling: Sampling::greedy(),
        ignore_eos: true,
        ..GenerateOptions::default()
    };
    Box::new(move || {
        generate(&model, &prompts, &options, |_, _| true).map_err(text_of)?;
        Ok(Outputs::none())
    })
}

fn open<B: Backend>(path: &Path, place: &Place<B>) -> Result<Gpt2<B>, String> {
    let opened = Gpt2::<B>::from_path(path, &place.device, Some(DType::from(place.dtype)));
    opened.map(|(model, _)| model).map_err(text_of)
}

/// Loads a model and reads every byte of its weights.
fn load<B: Backend>(path: &Path, place: &Place<B>) -> Result<Gpt2<B>, String> {
    let model = open::<B>(path, place)?;
    let sums = leaves(&model).into_iter().filter_map(|(_, leaf)| match leaf.into_value() {
        Some(x @ AnyTensor::Float(_)) => Some(x.sum()),
        _ => None,
    });
    std::hint::black_box(sums.map(AnyTensor::into_data).collect::<Vec<_>>());
    Ok(model)
}

/// Writes a GPT-2 with random weights, in transformers' format.
pub fn write_gpt2(fields: &Value, directory: &Path) -> Result<(), String> {
    let config: Gpt2Config = config(fields)?;
    let model = Gpt2::<Flex>::init(&config, Key::new(0), &Default::default()).map_err(text_of)?;
    model.save_pretrained(directory).map_err(text_of)
}

/// Parses a configuration with the published names. Missing fields have their published defaults.
pub fn config<C: DeserializeOwned>(fields: &Value) -> Result<C, String> {
    C::deserialize(fields).map_err(|error| format!("the row's configuration: {error}"))
}

pub fn text_of(error: ModelError) -> String {
    error.to_string()
}

/// Returns random tokens, `[b, t]`.
pub fn ids<B: Backend>(text: &Text, place: &Place<B>) -> Tensor<B, 2, Int> {
    place.integers(0, [text.batch, text.tokens], vocabulary(&text.config))
}

fn random_tokens(key: Key, count: usize, vocab_size: usize) -> Vec<u32> {
    key.randint_vec(count, 0, vocab_size as i32).into_iter().map(|id| id as u32).collect()
}

fn vocabulary(config: &Value) -> usize {
    config["vocab_size"].as_u64().unwrap_or(1) as usize
}

/// Returns random sequences of equal length.
pub fn texts<B: Backend>(text: &Text, config: &BertConfig, place: &Place<B>) -> Result<TextBatch<B>, String> {
    let tokens = |row: usize| random_tokens(Key::new(2).fold_in(row as u32), text.tokens, config.vocab_size);
    let rows: Vec<TextIds> = (0..text.batch).map(|row| tokens(row).into()).collect();
    TextBatch::new(&rows, config, &place.device).map_err(text_of)
}

fn labels(classes: usize) -> Vec<String> {
    (0..classes).map(|class| format!("class {class}")).collect()
}

pub fn resnet_config(work: &Work) -> ResNetConfig {
    let Work::Resnet { depths, widths, classes, .. } = work else { unreachable!("only ResNets come here") };
    let hidden_sizes = (0..depths.len()).map(|stage| (4 * widths) << stage).collect();
    ResNetConfig { embedding_size: *widths, hidden_sizes, depths: depths.clone(), ..ResNetConfig::default() }
        .with_labels(labels(*classes))
}

pub fn vit_config(VitSizes { size, patch, width, depth, heads, mlp, classes, .. }: VitSizes) -> VitConfig {
    VitConfig {
        hidden_size: width,
        num_hidden_layers: depth,
        num_attention_heads: heads,
        intermediate_size: mlp,
        image_size: [size; 2],
        patch_size: patch,
        pooling: Pooling::default(),
        ..VitConfig::default()
    }
    .with_labels(labels(classes))
}
