//! Greedy decoding of a GGUF file with candle's quantized LLaMA: `candle-llama MODEL.gguf 5,17,40 NEW_TOKENS`, see
//! benches/llama_decode.sh.
//!
//! The output has the fields of `llama_decode.py`. End tokens are ignored.

use candle_core::{Device, Tensor, quantized::gguf_file::Content};
use candle_transformers::models::quantized_llama::ModelWeights;
use std::{error::Error, fs::File, io::BufReader, time::Instant};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let model = arguments.next().ok_or("give a GGUF file, the prompt's ids and the number of new tokens")?;
    let prompt = arguments.next().ok_or("give the prompt as comma-separated token ids")?;
    let prompt = prompt.split(',').map(str::parse).collect::<Result<Vec<u32>, _>>()?;
    let count: usize = arguments.next().ok_or("give the number of new tokens")?.parse()?;
    let device = Device::Cpu;

    let start = Instant::now();
    let mut file = BufReader::new(File::open(&model)?);
    let content = Content::read(&mut file)?;
    let mut llama = ModelWeights::from_gguf(content, &mut file, &device)?;
    let load_seconds = start.elapsed().as_secs_f64();

    let (mut ids, mut position) = (prompt, 0);
    let (mut generated, mut times) = (vec![], vec![]);
    let start = Instant::now();
    for _ in 0..count {
        let logits = llama.forward(&Tensor::new(&*ids, &device)?.unsqueeze(0)?, position)?;
        let next = logits.squeeze(0)?.argmax(0)?.to_scalar::<u32>()?;
        position += ids.len();
        ids = vec![next];
        generated.push(next);
        times.push(start.elapsed().as_secs_f64());
    }

    let (first, last) = (times.first().copied(), times.last().copied());
    let rest = last.zip(first).map(|(last, first)| last - first).filter(|&rest| rest > 0.0);
    let json = serde_json::json!({
        "tokens_per_second": rest.map(|rest| (count - 1) as f64 / rest),
        "first_token_seconds": first,
        "load_seconds": load_seconds,
        "generated_ids": generated,
    });
    println!("{json}");
    Ok(())
}
