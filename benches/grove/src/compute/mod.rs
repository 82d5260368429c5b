//! grove's side of the rows: what is measured, as closures.

mod layers;
mod models;
mod training;

use grove::{prelude::*, tensor::FloatDType};

use crate::work::Work;

/// One run of a row's work, finished on the device when it returns.
pub type Run = Box<dyn FnMut() -> Result<(), String>>;

/// Device and dtype of a row.
pub struct Place<B: Backend> {
    pub device: B::Device,
    pub dtype: FloatDType,
}

impl<B: Backend> Clone for Place<B> {
    fn clone(&self) -> Self {
        Self { device: self.device.clone(), dtype: self.dtype }
    }
}

impl<B: Backend> Place<B> {
    /// Random numbers; other ones for each number of theirs.
    fn normal<const D: usize>(&self, number: u32, shape: [usize; D]) -> Tensor<B, D> {
        Key::new(1).fold_in(number).normal::<B, D>(shape, &self.device).cast(self.dtype)
    }

    /// Random tokens or labels below `bound`.
    fn integers<const D: usize>(&self, number: u32, shape: [usize; D], bound: usize) -> Tensor<B, D, Int> {
        Key::new(2).fold_in(number).randint(shape, 0, bound as i32, &self.device)
    }

    /// Initializer of layers.
    fn init(&self, number: u32) -> Init<B> {
        Init::new(Key::new(3).fold_in(number), &self.device)
    }

    /// Runs a function and waits for its result, which stays until it is there: a backend that fuses would else not
    /// compute it.
    fn finish<T>(&self, compute: impl FnOnce() -> T) -> Result<T, String> {
        let result = compute();
        B::sync(&self.device).map_err(|error| error.to_string())?;
        Ok(result)
    }

    /// A run that makes something and throws it away.
    fn run<T>(self, mut compute: impl FnMut() -> T + 'static) -> Run {
        Box::new(move || self.finish(&mut compute).map(drop))
    }
}

/// Makes inputs and weights, and says how the work is done.
pub fn prepare<B: Backend>(work: &Work, place: Place<B>) -> Result<Run, String> {
    match work {
        Work::Gemm { .. }
        | Work::Activation { .. }
        | Work::Chain { .. }
        | Work::Softmax { .. }
        | Work::LayerNorm { .. }
        | Work::Ffn { .. }
        | Work::Mha { .. }
        | Work::Attention { .. }
        | Work::Conv { .. }
        | Work::Rnn { .. } => Ok(layers::prepare(work, place)),
        Work::Resnet { train: true, .. }
        | Work::Vit { train: true, .. }
        | Work::FfnStep { .. }
        | Work::VitPerExample(_)
        | Work::Optimizer { .. } => training::prepare(work, place),
        Work::Bert(text) | Work::Gpt2(text) | Work::GptNeo(text) | Work::Llama(text) if text.train => {
            training::prepare(work, place)
        }
        _ => models::prepare(work, place),
    }
}

pub use models::write_gpt2;
