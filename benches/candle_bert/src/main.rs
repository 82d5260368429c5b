//! Sentence embeddings with candle's BERT: `candle-bert MODEL_DIR SENTENCES.txt`, see benches/bert.sh.
//!
//! Batches of 32 texts, longest first. Hidden states are averaged over non-padding tokens and normalised to unit
//! length.

use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::bert::{BertModel, Config};
use std::{error::Error, time::Instant};
use tokenizers::Tokenizer;

const BATCH: usize = 32;
const MAX_LENGTH: usize = 256;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let model = arguments.next().ok_or("give a model directory and a file of sentences")?;
    let sentences = std::fs::read_to_string(arguments.next().ok_or("give a file of sentences")?)?;
    let sentences: Vec<&str> = sentences.lines().filter(|line| !line.trim().is_empty()).collect();
    let device = Device::Cpu;
    let config: Config = serde_json::from_str(&std::fs::read_to_string(format!("{model}/config.json"))?)?;
    let mut tokenizer = Tokenizer::from_file(format!("{model}/tokenizer.json")).map_err(|error| error.to_string())?;
    tokenizer.with_padding(None).with_truncation(None).map_err(|error| error.to_string())?;
    let weights = unsafe {
        VarBuilder::from_mmaped_safetensors(&[format!("{model}/model.safetensors")], DType::F32, &device)?
    };
    let bert = BertModel::load(weights, &config)?;

    let start = Instant::now();
    let mut texts = Vec::new();
    for (i, sentence) in sentences.iter().enumerate() {
        let mut encoding = tokenizer.encode(*sentence, true).map_err(|error| error.to_string())?;
        encoding.truncate(MAX_LENGTH, 0, tokenizers::TruncationDirection::Right);
        texts.push((i, encoding.get_ids().to_vec()));
    }
    texts.sort_by_key(|(i, ids)| (std::cmp::Reverse(ids.len()), *i));
    let mut embeddings = vec![vec![]; texts.len()];
    for batch in texts.chunks(BATCH) {
        let longest = batch[0].1.len();
        let padded = |of: &dyn Fn(&[u32]) -> Vec<u32>| {
            let rows = batch.iter().flat_map(|(_, ids)| {
                let mut row = of(ids);
                row.resize(longest, 0);
                row
            });
            Tensor::from_vec(rows.collect(), (batch.len(), longest), &device)
        };
        let ids = padded(&<[u32]>::to_vec)?;
        let mask = padded(&|ids| vec![1; ids.len()])?;
        let states = bert.forward(&ids, &ids.zeros_like()?, Some(&mask))?;
        let mask = mask.to_dtype(DType::F32)?.unsqueeze(2)?;
        let sums = states.broadcast_mul(&mask)?.sum(1)?;
        let means = sums.broadcast_div(&mask.sum(1)?)?;
        let lengths = means.sqr()?.sum_keepdim(1)?.sqrt()?;
        let vectors = means.broadcast_div(&lengths)?.to_vec2::<f32>()?;
        for ((i, _), vector) in batch.iter().zip(vectors) {
            embeddings[*i] = vector;
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    println!("{}", serde_json::json!({ "seconds": seconds, "embeddings": embeddings }));
    Ok(())
}
