//! GPT-2: forward passes, training, decoding and loading.

use anyhow::{Context, Result};
use candle_core::{DType, Device, Tensor, safetensors::MmapedSafetensors};
use candle_nn::{Activation, Embedding, Linear, VarBuilder};
use serde::Deserialize;
use std::{collections::HashMap, hint::black_box, path::Path};

use super::transformer::{Block, Memory, NORMAL, Norm, Sizes};
use crate::ops::{Pass, causal_mask};

/// GPT-2's published configuration.
#[derive(Deserialize)]
pub(super) struct Gpt2Config {
    pub(super) vocab_size: usize,
    n_positions: usize,
    n_embd: usize,
    n_layer: usize,
    n_head: usize,
}

/// GPT-2 in the style of candle-transformers, which does not have it.
pub(super) struct Gpt2 {
    wte: Embedding,
    wpe: Tensor,
    blocks: Vec<Block>,
    ln_f: Norm,
    head: Linear,
}

impl Gpt2 {
    pub(super) fn load(config: &Gpt2Config, pass: Pass, vb: VarBuilder) -> candle_core::Result<Self> {
        let (width, heads) = (config.n_embd, config.n_head);
        let sizes = Sizes { width, heads, inner: 4 * width, eps: 1e-5, activation: Activation::NewGelu, pass };
        let wte = vb.get_with_hints((config.vocab_size, width), "wte.weight", NORMAL)?;
        Ok(Self {
            wpe: vb.get_with_hints((config.n_positions, width), "wpe.weight", NORMAL)?,
            blocks: (0..config.n_layer).map(|i| Block::load(&sizes, vb.pp("h").pp(i))).collect::<Result<_, _>>()?,
            ln_f: Norm::load(&sizes, vb.pp("ln_f"))?,
            head: Linear::new(wte.clone(), None),
            wte: Embedding::new(wte, width),
        })
    }

    /// Returns the logits of all positions.
    pub(super) fn forward(&self, ids: &Tensor) -> candle_core::Result<Tensor> {
        self.states(ids, None)?.apply(&self.head)
    }

    /// Returns the hidden states of all positions of `[batch, tokens]`. With memories (KV caches), the positions follow
    /// those in them.
    fn states(&self, ids: &Tensor, mut memories: Option<&mut [Memory]>) -> candle_core::Result<Tensor> {
        let past = match memories.as_deref() {
            Some([Some((k, _)), ..]) => k.dim(2)?,
            _ => 0,
        };
        let tokens = ids.dim(1)?;
        // Only the prompt has several tokens.
        let mask = (tokens > 1).then(|| causal_mask(tokens)).transpose()?;
        let mut x = ids.apply(&self.wte)?.broadcast_add(&self.wpe.narrow(0, past, tokens)?)?;
        for (i, block) in self.blocks.iter().enumerate() {
            x = block.forward(&x, mask.as_ref(), memories.as_deref_mut().map(|memories| &mut memories[i]))?;
        }
        x.apply(&self.ln_f)
    }

    /// Decodes one sequence greedily, and reads each id back as soon as it is computed.
    pub(super) fn decode(&self, prompt: &Tensor, new_tokens: usize) -> candle_core::Result<Vec<u32>> {
        let mut memories = vec![None; self.blocks.len()];
        let (mut ids, mut found) = (prompt.clone(), Vec::new());
        for _ in 0..new_tokens {
            let states = self.states(&ids, Some(&mut memories))?;
            let last = states.narrow(1, states.dim(1)? - 1, 1)?.contiguous()?;
            let id = last.apply(&self.head)?.flatten_all()?.argmax(0)?.to_scalar::<u32>()?;
            ids = Tensor::new(&[[id]], &Device::Cpu)?;
            found.push(id);
        }
        Ok(found)
    }
}

/// Loads GPT-2 from a directory. With `touch`, the row includes the sums of all tensors, which read every byte.
pub(super) fn read(directory: &Path, config: &Gpt2Config, touch: bool) -> Result<Gpt2> {
    let path = directory.join("model.safetensors");
    // SAFETY: the benchmark wrote the file before it started this process, and no process modifies it while it is
    // mapped.
    let file = unsafe { MmapedSafetensors::new(&path) }.with_context(|| path.display().to_string())?;
    let mut tensors = HashMap::new();
    for (name, _) in file.tensors() {
        let tensor = file.load(&name, &Device::Cpu)?;
        if touch {
            black_box(tensor.sum_all()?.to_scalar::<f32>()?);
        }
        tensors.insert(name, tensor);
    }
    let vb = VarBuilder::from_tensors(tensors, DType::F32, &Device::Cpu);
    let vb = if vb.contains_tensor("wte.weight") { vb } else { vb.pp("transformer") };
    Ok(Gpt2::load(config, Pass::Forward, vb)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        models::{
            random_ids,
            tests::{largest_difference, moves_every_variable},
            trained,
        },
        ops::weights,
    };

    const CONFIG: Gpt2Config = Gpt2Config { vocab_size: 97, n_positions: 16, n_embd: 24, n_layer: 2, n_head: 3 };

    #[test]
    fn decoding_with_memories_finds_what_whole_passes_find() {
        let model = Gpt2::load(&CONFIG, Pass::Forward, weights()).expect("a model");
        let prompt = random_ids(97, &[1, 4]).expect("ids");
        let found = model.decode(&prompt, 5).expect("ids");
        let mut ids: Vec<u32> = prompt.flatten_all().and_then(|ids| ids.to_vec1()).expect("ids");
        for id in found {
            let logits = model.forward(&Tensor::new(&*ids, &Device::Cpu).unwrap().unsqueeze(0).unwrap()).unwrap();
            let last = logits.squeeze(0).unwrap().get(ids.len() - 1).unwrap();
            assert_eq!(last.argmax(0).unwrap().to_scalar::<u32>().unwrap(), id);
            ids.push(id);
        }
    }

    #[test]
    fn training_computes_the_same_and_moves_every_variable() {
        let random = trained();
        let model = Gpt2::load(&CONFIG, Pass::Train, random.builder()).expect("a model");
        let same = Gpt2::load(&CONFIG, Pass::Forward, random.builder()).expect("a model");
        let ids = random_ids(97, &[2, 5]).expect("ids");
        assert!(largest_difference(&model.forward(&ids).unwrap(), &same.forward(&ids).unwrap()) < 1e-5);
        moves_every_variable(&random, random_ids(97, &[10]).expect("ids"), move || model.forward(&ids)?.flatten_to(1));
    }
}
