//! Computation of the rows in grove, as closures to measure.

mod layers;
mod loops;
mod models;
mod training;

use grove::{
    prelude::*,
    tensor::{FloatDType, TensorData},
    tree::{AnyArray, cast, leaves},
};

use crate::work::Work;
use models::text_of;

/// Runs the work of a row once and returns when the device has finished.
pub type Run = Box<dyn FnMut() -> Result<Outputs, String>>;

/// Results of a run, which are copied from the device only by [`Outputs::read`].
pub struct Outputs(Box<dyn FnOnce() -> Vec<(String, TensorData)>>);

impl Outputs {
    /// Outputs with the leaves of a tree.
    fn new<B: Backend>(tree: impl Tree<B> + 'static) -> Self {
        let read = |(path, leaf): (String, AnyArray<B>)| Some((path, leaf.into_data()?));
        Self(Box::new(move || leaves(&tree).into_iter().filter_map(read).collect()))
    }

    /// Outputs of a run whose results are not compared.
    fn none() -> Self {
        Self(Box::new(Vec::new))
    }

    /// Reads the results, each with its path.
    pub fn read(self) -> Vec<(String, TensorData)> {
        (self.0)()
    }
}

/// Device and dtype of a row.
pub struct Place<B: Backend> {
    pub device: B::Device,
    pub dtype: FloatDType,
    /// Type to which weights and inputs are rounded before they are cast to `dtype`.
    pub rounding: Option<FloatDType>,
}

impl<B: Backend> Clone for Place<B> {
    fn clone(&self) -> Self {
        Self { device: self.device.clone(), ..*self }
    }
}

impl<B: Backend> Place<B> {
    /// Returns normal random values, which differ for each `number`.
    fn normal<const D: usize>(&self, number: u32, shape: [usize; D]) -> Tensor<B, D> {
        let x = Key::new(1).fold_in(number).normal::<B, D>(shape, &self.device);
        match self.rounding {
            Some(rounding) => x.cast(rounding).cast(self.dtype),
            None => x.cast(self.dtype),
        }
    }

    /// Casts weights to the dtype of the row.
    fn cast<T: Tree<B>>(&self, weights: T) -> T {
        match self.rounding {
            Some(rounding) => cast(cast(weights, rounding), self.dtype),
            None => cast(weights, self.dtype),
        }
    }

    /// Initialises a model.
    fn model<M: Pretrained<B>>(&self, config: &M::Config) -> Result<M, String> {
        M::init(config, Key::new(0), &self.device).map(|model| self.cast(model)).map_err(text_of)
    }

    /// Returns random tokens or labels below `bound`.
    fn integers<const D: usize>(&self, number: u32, shape: [usize; D], bound: usize) -> Tensor<B, D, Int> {
        Key::new(2).fold_in(number).randint(shape, 0, bound as i32, &self.device)
    }

    /// Returns the initializer of layer `number`.
    fn init(&self, number: u32) -> Init<B> {
        Init::new(Key::new(3).fold_in(number), &self.device)
    }

    /// Runs a function and waits until the device has finished. The result is kept alive until then, because a fusing backend
    /// would skip the computation of a dropped tensor.
    fn finish<T>(&self, compute: impl FnOnce() -> T) -> Result<T, String> {
        let result = compute();
        B::sync(&self.device).map_err(|error| error.to_string())?;
        Ok(result)
    }

    /// Returns a run that computes a tree.
    fn run<T: Tree<B> + 'static>(self, mut compute: impl FnMut() -> T + 'static) -> Run {
        Box::new(move || self.finish(&mut compute).map(Outputs::new))
    }

    /// Returns a run that computes a tensor.
    fn run_tensor<const D: usize>(self, mut compute: impl FnMut() -> Tensor<B, D> + 'static) -> Run {
        self.run(move || Array::new(compute()))
    }
}

/// Creates inputs and weights, and returns the run of the work.
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
        Work::While { .. } | Work::Scan { .. } => Ok(loops::prepare(work, place)),
        work if work.trains() => training::prepare(work, place),
        _ => models::prepare(work, place),
    }
}

pub use models::write_gpt2;
