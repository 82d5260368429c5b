//! Checks published recurrent weights from PyPI packages against the packages' own results:
//! `python tools/check_rnn_real.py --out DIR ...`, then `cargo run --example rnn_real -p grove-models -- DIR`.
//!
//! `resemblyzer`: a speaker encoder of three LSTM layers, from a PyTorch file. `g2p-en`: a GRU encoder and decoder from
//! spelling to phonemes, from numpy files. Exits with status 1 if a result differs by more than 1e-4.
#![recursion_limit = "256"]

use std::{error::Error, path::Path, process::ExitCode};

use burn::tensor::{Int, Tensor, TensorData, activation::relu};
use grove_backend::Flex as B;
use grove_layers::{
    Embedding, Linear,
    rnn::{Gru, Lstm, RnnOptions},
};
use grove_models::rnn::torch_rnn_names;
use grove_tree::{Array, Init, Tree};
use grove_weights::{LoadOptions, NameMap, Step, TensorFiles, load};

/// Maximum difference to the packages' results, relative to the largest value.
const TOLERANCE: f64 = 1e-4;

/// Speaker encoder: from speech features to a vector.
#[derive(Tree, Clone, Debug)]
struct VoiceEncoder<T: grove_backend::Backend> {
    lstm: Lstm<T>,
    linear: Linear<T>,
}

/// Encoder-decoder from letters to phonemes.
#[derive(Tree, Clone, Debug)]
struct Speller<T: grove_backend::Backend> {
    letters: Embedding<T>,
    encoder: Gru<T>,
    phonemes: Embedding<T>,
    decoder: Gru<T>,
    head: Linear<T>,
}

fn linear(inputs: usize, outputs: usize) -> Linear<B> {
    Linear::from_arrays(Array::absent([inputs, outputs]), Some(Array::absent([outputs])))
}

/// Comparison with reference values. Prints each difference.
struct Compared {
    reference: TensorFiles,
    worst: f64,
}

impl Compared {
    fn open(directory: &Path) -> Result<Self, Box<dyn Error>> {
        Ok(Self { reference: TensorFiles::open(directory.join("reference.safetensors"))?, worst: 0.0 })
    }

    fn floats<const D: usize>(&self, name: &str) -> Result<Tensor<B, D>, Box<dyn Error>> {
        Ok(Tensor::from_data(self.reference.tensor(name)?, &Default::default()))
    }

    fn numbers(&self, name: &str) -> Result<Vec<usize>, Box<dyn Error>> {
        Ok(self.reference.tensor(name)?.iter::<i64>().map(|number| number as usize).collect())
    }

    /// Compares a result with its reference; the difference is relative to the largest value.
    fn note<const D: usize>(&mut self, name: &str, found: Tensor<B, D>) -> Result<(), Box<dyn Error>> {
        let expected = self.floats::<D>(name)?;
        let largest = expected.clone().abs().max().into_scalar();
        let apart = f64::from((found - expected).abs().max().into_scalar() / largest);
        println!("{name:20} apart by {apart:.1e} of the largest, {largest:.3}");
        self.worst = if apart > self.worst || apart.is_nan() { apart } else { self.worst };
        Ok(())
    }
}

fn voices(directory: &Path) -> Result<f64, Box<dyn Error>> {
    println!("resemblyzer");
    let options = RnnOptions { layers: 3, batch_first: true, ..RnnOptions::default() };
    let skeleton = VoiceEncoder { lstm: Lstm::new(40, 256, &options, Init::skeleton()), linear: linear(256, 256) };
    let names = torch_rnn_names(NameMap::new(), "lstm.", "lstm.")
        .rule("linear.weight", "linear.weight")
        .then(Step::Transpose)
        .rule("linear.bias", "linear.bias")
        .prefix("model_state.");
    let file = TensorFiles::open(directory.join("pretrained.pt"))?;
    let options = LoadOptions::new(&Default::default()).strict(false);
    let (model, report) = load(skeleton, &file, &names, &options)?;
    println!("{report}");
    let mut compared = Compared::open(directory)?;
    let embed = |h: Tensor<B, 3>| {
        let [layers, b, n] = h.dims();
        let y = relu(model.linear.forward(h.narrow(0, layers - 1, 1).reshape([b, n])));
        let length = y.clone().powi_scalar(2).sum_dim(1).sqrt();
        y / length
    };
    let (y, [h, c]) = model.lstm.forward(compared.floats("mels")?, None, None);
    compared.note("y", y)?;
    compared.note("h_n", h.val())?;
    compared.note("c_n", c.val())?;
    compared.note("embeds", embed(h.val()))?;
    let lengths = compared.numbers("unequal.lengths")?;
    let (y, [h, c]) = model.lstm.forward_lengths(compared.floats("unequal.mels")?, &lengths, None, None)?;
    compared.note("unequal.y", y)?;
    compared.note("unequal.h_n", h.val())?;
    compared.note("unequal.c_n", c.val())?;
    compared.note("unequal.embeds", embed(h.val()))?;
    Ok(compared.worst)
}

fn spelling(directory: &Path) -> Result<f64, Box<dyn Error>> {
    /// Tokens at the beginning and at the end of a word's phonemes.
    const BEGIN: i64 = 2;
    const END: i64 = 3;
    println!("g2p-en");
    let gru = || Gru::new(256, 256, &RnnOptions { batch_first: true, ..RnnOptions::default() }, Init::skeleton());
    let skeleton = Speller {
        letters: Embedding { weight: Array::absent([29, 256]) },
        encoder: gru(),
        phonemes: Embedding { weight: Array::absent([74, 256]) },
        decoder: gru(),
        head: linear(256, 74),
    };
    let mut names = NameMap::new().rule("enc_emb", "letters.weight").rule("dec_emb", "phonemes.weight");
    for (short, part) in [("enc", "encoder"), ("dec", "decoder")] {
        for (published, own) in [("w_ih", "weight_ih"), ("w_hh", "weight_hh"), ("b_ih", "bias_ih"), ("b_hh", "bias_hh")]
        {
            names = names.rule(&format!("{short}_{published}"), &format!("{part}.layers.0.forward.{own}"));
        }
    }
    let names = names.rule("fc_w", "head.weight").then(Step::Transpose).rule("fc_b", "head.bias");
    let file = TensorFiles::open(directory.join("checkpoint20.npz"))?;
    let (model, report) = load(skeleton, &file, &names, &LoadOptions::new(&Default::default()))?;
    println!("{report}");
    let mut compared = Compared::open(directory)?;
    let ids: Tensor<B, 2, Int> = Tensor::from_data(compared.reference.tensor("letter_ids")?, &Default::default());
    let letters = model.letters.forward(ids);
    let (y, [state]) = model.encoder.forward_lengths(letters, &compared.numbers("lengths")?, None, None)?;
    let [words, ..] = y.dims();
    compared.note("encoder.y", y)?;
    compared.note("encoder.h_n", state.val().reshape([words, 256]))?;

    // Runs the decoder on the package's tokens, then on its own.
    let steps = compared.numbers("decoder.steps")?;
    let given: Tensor<B, 2, Int> =
        Tensor::from_data(compared.reference.tensor("decoder.input_ids")?, &Default::default());
    let (y, _) = model.decoder.forward_lengths(model.phonemes.forward(given), &steps, Some([state.clone()]), None)?;
    compared.note("decoder.y", y)?;
    let (expected, lengths) = (compared.numbers("phoneme_ids")?, compared.numbers("phoneme_lengths")?);
    let width = expected.len() / words;
    let (mut spelt, mut last) = (vec![vec![]; words], vec![BEGIN; words]);
    let (mut ended, mut state) = (vec![false; words], Some([state]));
    for _ in 0..width {
        let input = Tensor::<B, 2, Int>::from_data(TensorData::new(last, [words, 1]), &Default::default());
        let (y, next) = model.decoder.forward(model.phonemes.forward(input), state, None);
        state = Some(next);
        last = model.head.forward(y).argmax(2).into_data().iter::<i64>().collect();
        for (word, &token) in last.iter().enumerate() {
            ended[word] |= token == END;
            if !ended[word] {
                spelt[word].push(token as usize);
            }
        }
    }
    let wrong = (0..words).filter(|&i| spelt[i] != expected[i * width..][..lengths[i]]).count();
    println!("{} of {words} words spelt as by the package", words - wrong);
    Ok(if wrong == 0 { compared.worst } else { f64::INFINITY })
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let directory = std::env::args().nth(1).ok_or("give the directory that tools/check_rnn_real.py wrote")?;
    let directory = Path::new(&directory);
    let worst = spelling(&directory.join("g2p"))?.max(voices(&directory.join("resemblyzer"))?);
    println!("at most {worst:.1e} apart");
    Ok(if worst <= TOLERANCE { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
