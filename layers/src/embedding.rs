use burn::tensor::{Int, Tensor, TensorPrimitive};
use grove_backend::Backend;
use grove_tree::{Array, Init, Tree};

/// An embedding table: one row for each symbol.
#[derive(Tree, Clone, Debug)]
pub struct Embedding<B: Backend> {
    /// `[symbols, size]`.
    pub weight: Array<B, 2>,
}

impl<B: Backend> Embedding<B> {
    /// Creates a table with normally distributed rows of standard deviation `std`.
    pub fn normal(symbols: usize, size: usize, std: f64, init: &Init<B>) -> Self {
        Self { weight: init.named("weight").normal([symbols, size], std) }
    }

    /// Looks up rows. Symbols must lie in `0..symbols`, which is not checked here; callers check outside input.
    ///
    /// # Shapes
    /// - input `[b, t]`
    /// - output `[b, t, size]`
    pub fn forward(&self, symbols: Tensor<B, 2, Int>) -> Tensor<B, 3> {
        let table = self.weight.val().into_primitive().tensor();
        Tensor::from_primitive(TensorPrimitive::Float(B::embed(table, symbols.into_primitive())))
    }

    /// Output layer of a language model with tied weights: the product of `x` with each row of the table.
    ///
    /// # Shapes
    /// - input `[b, t, size]`
    /// - output `[b, t, symbols]`
    pub fn attend(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        let weight = self.weight.val().transpose().into_primitive().tensor();
        Tensor::from_primitive(TensorPrimitive::Float(B::affine(x.into_primitive().tensor(), weight, None)))
    }
}
