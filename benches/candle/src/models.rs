//! Rows that are whole models: forward passes, training steps, decoding, loading.

use anyhow::{Context, Result};
use candle_core::{D, DType, Device, Module, Tensor, safetensors::MmapedSafetensors};
use candle_nn::{Activation, Embedding, Func, Init, Linear, Optimizer, VarBuilder, VarMap};
use candle_transformers::models::{bert, vit};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use std::{collections::HashMap, hint::black_box, path::Path};

use crate::{
    Row, Run, Text,
    ops::{Pass, Random, adamw, attend, causal_mask, merge_heads, randn, run, split_heads, weights},
    unsupported,
};

/// Makes a model and its input and says how the row is computed.
pub fn prepare(row: &Row) -> Result<Run> {
    Ok(match row {
        Row::Resnet { train: true, .. } => {
            return Err(unsupported("candle's max pooling has no backward pass where windows overlap"));
        }
        Row::Resnet { depths, widths, classes, size, batch, .. } => {
            let model = resnet(depths, *widths, *classes, weights())?;
            let x = randn((*batch, 3, *size, *size))?;
            run(move || model.forward(&x))
        }
        Row::Vit(row) if row.train => {
            let random = trained();
            let model = Vit::load(row, random.builder())?;
            let (x, labels) = (row.pictures()?, random_ids(row.classes, &[row.batch])?);
            trainer(&random, labels, move || model.forward(&x))?
        }
        Row::Vit(row) => {
            let (model, x) = (row.published()?, row.pictures()?);
            run(move || model.forward(&x))
        }
        Row::Bert(text) if text.train => return Err(no_backward("BERT", "layer normalisation has")),
        Row::Bert(text) => bert(text)?,
        Row::Gpt2(text) => {
            let config: Gpt2Config = config(&text.config)?;
            let shape = [text.batch, text.tokens];
            let ids = random_ids(config.vocab_size, &shape)?;
            if text.train {
                let random = trained();
                let model = Gpt2::load(&config, Pass::Train, random.builder())?;
                let labels = random_ids(config.vocab_size, &shape)?.flatten_all()?;
                trainer(&random, labels, move || model.forward(&ids)?.flatten_to(1))?
            } else {
                let model = Gpt2::load(&config, Pass::Forward, weights())?;
                run(move || model.forward(&ids))
            }
        }
        Row::GptNeo(_) => return Err(unsupported("candle-transformers has no GPT-Neo")),
        Row::Llama(text) if text.train => {
            return Err(no_backward("LLaMA", "RMS normalisation, rotation and softmax have"));
        }
        Row::Llama(_) => {
            return Err(unsupported("candle-transformers' LLaMA computes the logits of the last position only"));
        }
        Row::Decode { config: fields, prompt, new_tokens } => {
            let (config, new_tokens): (Gpt2Config, _) = (config(fields)?, *new_tokens);
            let model = Gpt2::load(&config, Pass::Forward, weights())?;
            let prompt = random_ids(config.vocab_size, &[1, *prompt])?;
            Box::new(move || {
                black_box(model.decode(&prompt, new_tokens)?);
                Ok(())
            })
        }
        Row::Load { path, config: fields } => {
            let (config, path): (Gpt2Config, _) = (config(fields)?, path.clone());
            Box::new(move || {
                black_box(read(&path, &config, true)?);
                Ok(())
            })
        }
        Row::Start { path, config: fields, tokens } => {
            let (config, path): (Gpt2Config, _) = (config(fields)?, path.clone());
            let ids = random_ids(config.vocab_size, &[1, *tokens])?;
            Box::new(move || {
                black_box(read(&path, &config, false)?.forward(&ids)?);
                Ok(())
            })
        }
        _ => return Err(unsupported("candle's side has no such row")),
    })
}

/// The error of a model that candle-transformers can only infer with.
fn no_backward(model: &str, what: &str) -> anyhow::Error {
    unsupported(format!("candle-transformers' {model} cannot be trained: its {what} no backward pass"))
}

/// A configuration of published fields.
fn config<C: DeserializeOwned>(fields: &Value) -> Result<C> {
    C::deserialize(fields).context("the row's configuration")
}

/// Random whole numbers below `bound`.
fn random_ids(bound: usize, shape: &[usize]) -> candle_core::Result<Tensor> {
    Tensor::rand(0f64, bound as f64, shape, &Device::Cpu)?.to_dtype(DType::U32)
}

/// Weights that are variables.
fn trained() -> Random {
    Random { variables: Some(VarMap::new()) }
}

/// A run of one training step: forward, loss, backward, AdamW, and the loss read at the end.
fn trainer(
    random: &Random,
    labels: Tensor,
    forward: impl Fn() -> candle_core::Result<Tensor> + 'static,
) -> Result<Run> {
    let variables = random.variables.as_ref().map(VarMap::all_vars).unwrap_or_default();
    let mut adamw = adamw(variables)?;
    Ok(Box::new(move || {
        let loss = candle_nn::loss::cross_entropy(&forward()?, &labels)?;
        adamw.backward_step(&loss)?;
        black_box(loss.to_scalar::<f32>()?);
        Ok(())
    }))
}

/// candle-transformers' ResNet of bottlenecks, which is for inference, with any depths and any base width; it has those
/// of the published sizes alone.
fn resnet(depths: &[usize], width: usize, classes: usize, vb: VarBuilder) -> candle_core::Result<Func<'static>> {
    let stem = conv_norm([3, width, 7], 2, vb.pp("stem"))?;
    let (mut inputs, mut blocks) = (width, Vec::new());
    for (stage, &depth) in depths.iter().enumerate() {
        for block in 0..depth {
            let (planes, stride) = (width << stage, if stage > 0 && block == 0 { 2 } else { 1 });
            blocks.push(bottleneck(inputs, planes, stride, vb.pp(format!("layer{}.{block}", stage + 1)))?);
            inputs = 4 * planes;
        }
    }
    let classifier = candle_nn::linear(inputs, classes, vb.pp("fc"))?;
    Ok(Func::new(move |x| {
        let x = x.apply(&stem)?.relu()?;
        // Pads with what is at the edges, which no maximum notices.
        let mut x = x.pad_with_same(D::Minus1, 1, 1)?.pad_with_same(D::Minus2, 1, 1)?.max_pool2d_with_stride(3, 2)?;
        for block in &blocks {
            x = x.apply(block)?;
        }
        x.mean(D::Minus1)?.mean(D::Minus1)?.apply(&classifier)
    }))
}

/// A block of three convolutions beside a way past them.
fn bottleneck(inputs: usize, planes: usize, stride: usize, vb: VarBuilder) -> candle_core::Result<Func<'static>> {
    let outputs = 4 * planes;
    let narrow = conv_norm([inputs, planes, 1], 1, vb.pp("1"))?;
    let middle = conv_norm([planes, planes, 3], stride, vb.pp("2"))?;
    let wide = conv_norm([planes, outputs, 1], 1, vb.pp("3"))?;
    let past = match stride != 1 || inputs != outputs {
        true => Some(conv_norm([inputs, outputs, 1], stride, vb.pp("downsample"))?),
        false => None,
    };
    Ok(Func::new(move |x| {
        let y = x.apply(&narrow)?.relu()?.apply(&middle)?.relu()?.apply(&wide)?;
        let x = past.as_ref().map_or_else(|| Ok(x.clone()), |past| x.apply(past))?;
        (x + y)?.relu()
    }))
}

/// A convolution of inputs, outputs and size, without a bias, and batch normalisation.
fn conv_norm([inputs, outputs, size]: [usize; 3], stride: usize, vb: VarBuilder) -> candle_core::Result<Func<'static>> {
    let config = candle_nn::Conv2dConfig { stride, padding: size / 2, ..Default::default() };
    let conv = candle_nn::conv2d_no_bias(inputs, outputs, size, config, vb.pp("conv"))?;
    let norm = candle_nn::batch_norm(outputs, 1e-5, vb.pp("bn"))?;
    Ok(Func::new(move |x| x.apply(&conv)?.apply_t(&norm, false)))
}

/// candle-transformers' BERT and, since it has none, the pooler.
fn bert(text: &Text) -> Result<Run> {
    #[derive(Deserialize)]
    struct Fields {
        vocab_size: usize,
        hidden_size: usize,
        num_hidden_layers: usize,
        num_attention_heads: usize,
        intermediate_size: usize,
        max_position_embeddings: usize,
        type_vocab_size: usize,
    }
    let fields: Fields = config(&text.config)?;
    let config = bert::Config {
        vocab_size: fields.vocab_size,
        hidden_size: fields.hidden_size,
        num_hidden_layers: fields.num_hidden_layers,
        num_attention_heads: fields.num_attention_heads,
        intermediate_size: fields.intermediate_size,
        max_position_embeddings: fields.max_position_embeddings,
        type_vocab_size: fields.type_vocab_size,
        ..Default::default()
    };
    let model = bert::BertModel::load(weights(), &config)?;
    let pooler = candle_nn::linear(fields.hidden_size, fields.hidden_size, weights())?;
    let ids = random_ids(fields.vocab_size, &[text.batch, text.tokens])?;
    let types = ids.zeros_like()?;
    Ok(Box::new(move || {
        let states = model.forward(&ids, &types, None)?;
        let pooled = states.narrow(1, 0, 1)?.squeeze(1)?.contiguous()?.apply(&pooler)?.tanh()?;
        black_box((states, pooled));
        Ok(())
    }))
}

/// Layer normalisation by candle's kernel, or in training by its plain operations.
struct Norm {
    weight: Tensor,
    bias: Tensor,
    eps: f32,
    pass: Pass,
}

impl Norm {
    fn load(sizes: &Sizes, vb: VarBuilder) -> candle_core::Result<Self> {
        let weight = vb.get_with_hints(sizes.width, "weight", Init::Const(1.0))?;
        let bias = vb.get_with_hints(sizes.width, "bias", Init::Const(0.0))?;
        Ok(Self { weight, bias, eps: sizes.eps, pass: sizes.pass })
    }
}

impl Module for Norm {
    fn forward(&self, x: &Tensor) -> candle_core::Result<Tensor> {
        match self.pass {
            Pass::Forward => candle_nn::ops::layer_norm(x, &self.weight, &self.bias, self.eps),
            Pass::Train => candle_nn::ops::layer_norm_slow(x, &self.weight, &self.bias, self.eps),
        }
    }
}

/// What the blocks of a transformer are made with.
#[derive(Clone, Copy)]
struct Sizes {
    width: usize,
    heads: usize,
    inner: usize,
    eps: f32,
    activation: Activation,
    pass: Pass,
}

/// A block of a transformer that normalises first, with GPT-2's names and order of axes.
struct Block {
    ln_1: Norm,
    c_attn: Linear,
    c_proj: Linear,
    ln_2: Norm,
    mlp_fc: Linear,
    mlp_proj: Linear,
    sizes: Sizes,
}

/// Keys and values of the tokens so far, in one block.
type Memory = Option<(Tensor, Tensor)>;

impl Block {
    fn load(sizes: &Sizes, vb: VarBuilder) -> candle_core::Result<Self> {
        let Sizes { width, inner, .. } = *sizes;
        Ok(Self {
            ln_1: Norm::load(sizes, vb.pp("ln_1"))?,
            c_attn: conv_1d(width, 3 * width, vb.pp("attn.c_attn"))?,
            c_proj: conv_1d(width, width, vb.pp("attn.c_proj"))?,
            ln_2: Norm::load(sizes, vb.pp("ln_2"))?,
            mlp_fc: conv_1d(width, inner, vb.pp("mlp.c_fc"))?,
            mlp_proj: conv_1d(inner, width, vb.pp("mlp.c_proj"))?,
            sizes: *sizes,
        })
    }

    fn forward(&self, x: &Tensor, mask: Option<&Tensor>, memory: Option<&mut Memory>) -> candle_core::Result<Tensor> {
        let [q, mut k, mut v] = split_heads(&x.apply(&self.ln_1)?.apply(&self.c_attn)?, self.sizes.heads)?;
        if let Some(memory) = memory {
            if let Some((old_k, old_v)) = memory {
                (k, v) = (Tensor::cat(&[&*old_k, &k], 2)?, Tensor::cat(&[&*old_v, &v], 2)?);
            }
            *memory = Some((k.clone(), v.clone()));
        }
        let mixed = merge_heads(&attend(&q, &k, &v, mask, self.sizes.pass)?)?;
        let x = (x + mixed.apply(&self.c_proj)?)?;
        let inner = x.apply(&self.ln_2)?.apply(&self.mlp_fc)?.apply(&self.sizes.activation)?;
        x + inner.apply(&self.mlp_proj)?
    }
}

/// A linear layer whose weights are written inputs first, as GPT-2's are.
fn conv_1d(inputs: usize, outputs: usize, vb: VarBuilder) -> candle_core::Result<Linear> {
    let weight = vb.get_with_hints((inputs, outputs), "weight", NORMAL)?;
    Ok(Linear::new(weight.t()?, Some(vb.get(outputs, "bias")?)))
}

/// How GPT-2's weights begin.
const NORMAL: Init = Init::Randn { mean: 0.0, stdev: 0.02 };

/// GPT-2's published configuration.
#[derive(Deserialize)]
struct Gpt2Config {
    vocab_size: usize,
    n_positions: usize,
    n_embd: usize,
    n_layer: usize,
    n_head: usize,
}

/// GPT-2, which candle-transformers has not, written as its models are.
struct Gpt2 {
    wte: Embedding,
    wpe: Tensor,
    blocks: Vec<Block>,
    ln_f: Norm,
    head: Linear,
}

impl Gpt2 {
    fn load(config: &Gpt2Config, pass: Pass, vb: VarBuilder) -> candle_core::Result<Self> {
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

    /// Logits of all positions.
    fn forward(&self, ids: &Tensor) -> candle_core::Result<Tensor> {
        self.states(ids, None)?.apply(&self.head)
    }

    /// States of all positions of `[batch, tokens]`, which come after those in the memories, where these are given.
    fn states(&self, ids: &Tensor, mut memories: Option<&mut [Memory]>) -> candle_core::Result<Tensor> {
        let past = match memories.as_deref() {
            Some([Some((k, _)), ..]) => k.dim(2)?,
            _ => 0,
        };
        let tokens = ids.dim(1)?;
        // Several tokens come only at the beginning.
        let mask = (tokens > 1).then(|| causal_mask(tokens)).transpose()?;
        let mut x = ids.apply(&self.wte)?.broadcast_add(&self.wpe.narrow(0, past, tokens)?)?;
        for (i, block) in self.blocks.iter().enumerate() {
            x = block.forward(&x, mask.as_ref(), memories.as_deref_mut().map(|memories| &mut memories[i]))?;
        }
        x.apply(&self.ln_f)
    }

    /// Goes on with one text greedily; each id is read as soon as it is there.
    fn decode(&self, prompt: &Tensor, new_tokens: usize) -> candle_core::Result<Vec<u32>> {
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

/// Reads GPT-2 from a directory, with `touch` every byte of it: the tensors' sums are then part of the row.
fn read(directory: &Path, config: &Gpt2Config, touch: bool) -> Result<Gpt2> {
    let path = directory.join("model.safetensors");
    // SAFETY: the benchmark wrote the file before it started this process, and nobody changes it.
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

/// The row of a vision transformer.
#[derive(Deserialize)]
pub struct VitRow {
    size: usize,
    patch: usize,
    width: usize,
    depth: usize,
    heads: usize,
    mlp: usize,
    classes: usize,
    batch: usize,
    train: bool,
}

impl VitRow {
    fn pictures(&self) -> candle_core::Result<Tensor> {
        randn((self.batch, 3, self.size, self.size))
    }

    /// candle-transformers' model, which is for inference alone.
    fn published(&self) -> candle_core::Result<vit::Model> {
        let config = vit::Config {
            hidden_size: self.width,
            num_hidden_layers: self.depth,
            num_attention_heads: self.heads,
            intermediate_size: self.mlp,
            hidden_act: Activation::Gelu,
            layer_norm_eps: 1e-6,
            image_size: self.size,
            patch_size: self.patch,
            num_channels: 3,
            qkv_bias: true,
        };
        vit::Model::new(&config, self.classes, weights())
    }
}

/// The same model, so that it can be trained.
struct Vit {
    patches: candle_nn::Conv2d,
    class: Tensor,
    positions: Tensor,
    blocks: Vec<Block>,
    norm: Norm,
    head: Linear,
}

impl Vit {
    fn load(row: &VitRow, vb: VarBuilder) -> candle_core::Result<Self> {
        let (width, heads, inner) = (row.width, row.heads, row.mlp);
        let sizes = Sizes { width, heads, inner, eps: 1e-6, activation: Activation::Gelu, pass: Pass::Train };
        let tokens = 1 + (row.size / row.patch).pow(2);
        let config = candle_nn::Conv2dConfig { stride: row.patch, ..Default::default() };
        Ok(Self {
            patches: candle_nn::conv2d(3, width, row.patch, config, vb.pp("patches"))?,
            class: vb.get_with_hints((1, 1, width), "class", NORMAL)?,
            positions: vb.get_with_hints((1, tokens, width), "positions", NORMAL)?,
            blocks: (0..row.depth).map(|i| Block::load(&sizes, vb.pp("h").pp(i))).collect::<Result<_, _>>()?,
            norm: Norm::load(&sizes, vb.pp("norm"))?,
            head: candle_nn::linear(width, row.classes, vb.pp("head"))?,
        })
    }
}

impl Module for Vit {
    fn forward(&self, x: &Tensor) -> candle_core::Result<Tensor> {
        let patches = x.apply(&self.patches)?.flatten_from(2)?.transpose(1, 2)?;
        let (batch, _, width) = patches.dims3()?;
        let class = self.class.broadcast_as((batch, 1, width))?;
        let mut x = Tensor::cat(&[class, patches], 1)?.broadcast_add(&self.positions)?;
        for block in &self.blocks {
            x = block.forward(&x, None, None)?;
        }
        x.narrow(1, 0, 1)?.squeeze(1)?.apply(&self.norm)?.apply(&self.head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: Gpt2Config = Gpt2Config { vocab_size: 97, n_positions: 16, n_embd: 24, n_layer: 2, n_head: 3 };

    fn largest_difference(a: &Tensor, b: &Tensor) -> f32 {
        (a - b).and_then(|d| d.abs()?.max_all()?.to_scalar()).expect("tensors of one shape")
    }

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

    #[test]
    fn training_moves_every_variable_of_a_vit() {
        let [size, patch, width, depth, heads, mlp, classes, batch] = [16, 4, 12, 2, 3, 20, 5, 2];
        let row = VitRow { size, patch, width, depth, heads, mlp, classes, batch, train: true };
        let random = trained();
        let model = Vit::load(&row, random.builder()).expect("a model");
        let x = row.pictures().expect("pictures");
        moves_every_variable(&random, random_ids(5, &[2]).expect("ids"), move || model.forward(&x));
    }

    fn moves_every_variable(
        random: &Random,
        labels: Tensor,
        forward: impl Fn() -> candle_core::Result<Tensor> + 'static,
    ) {
        let variables = random.variables.as_ref().expect("variables").data().lock().unwrap().clone();
        let before: HashMap<_, _> = variables.iter().map(|(name, var)| (name, var.copy().unwrap())).collect();
        let loss = |forward: &dyn Fn() -> candle_core::Result<Tensor>| {
            candle_nn::loss::cross_entropy(&forward().unwrap(), &labels).unwrap().to_scalar::<f32>().unwrap()
        };
        let first = loss(&forward);
        let forward = std::rc::Rc::new(forward);
        let again = forward.clone();
        let mut run = trainer(random, labels.clone(), move || again()).expect("a trainer");
        (0..20).for_each(|_| run().expect("a step"));
        for (name, before) in before {
            // Embeddings that no token has may stay as they are.
            assert!(largest_difference(&before, &variables[name]) > 1e-6, "{name} stays");
        }
        assert!(loss(&*forward) < first);
    }
}
