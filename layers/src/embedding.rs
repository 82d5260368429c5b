use burn::tensor::{Int, Tensor};
use grove_backend::{Backend, ops};
use grove_tree::{Array, Init, Tree};

/// An embedding table with one row per symbol.
///
/// ```
/// use burn::tensor::Tensor;
/// use grove_layers::Embedding;
/// use grove_tree::{Init, Key};
/// # type B = burn_flex::Flex;
/// let device = Default::default();
/// let table = Embedding::<B>::normal(10, 4, 0.02, &Init::new(Key::new(0), &device));
/// assert_eq!(table.forward(Tensor::from_ints([[1, 2, 3]], &device)).dims(), [1, 3, 4]);
/// ```
#[derive(Tree, Clone, Debug)]
pub struct Embedding<B: Backend> {
    /// Table, `[symbols, size]`.
    pub weight: Array<B, 2>,
}

impl<B: Backend> Embedding<B> {
    /// Creates a table with rows from the standard normal distribution, as in PyTorch and Equinox. `init` is a key, or the
    /// [`Init`] of a part of a model.
    pub fn new(symbols: usize, size: usize, init: impl Into<Init<B>>) -> Self {
        Self::normal(symbols, size, 1.0, init)
    }

    /// Creates a table with normally distributed rows of standard deviation `std`.
    pub fn normal(symbols: usize, size: usize, std: f64, init: impl Into<Init<B>>) -> Self {
        Self { weight: init.into().named("weight").normal([symbols, size], std) }
    }

    /// Looks up rows. Symbols must be in `0..symbols`. The range is not checked here; callers check untrusted input.
    ///
    /// # Shapes
    /// - input `[b, t]`
    /// - output `[b, t, size]`
    #[track_caller]
    pub fn forward(&self, symbols: Tensor<B, 2, Int>) -> Tensor<B, 3> {
        ops::embedding(self.weight.val(), symbols)
    }

    /// Applies the table as the output layer of a language model with tied weights: the product of `x` with each row.
    ///
    /// # Shapes
    /// - input `[b, t, size]`
    /// - output `[b, t, symbols]`
    #[track_caller]
    pub fn attend(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        ops::linear(x, self.weight.val().transpose(), None)
    }
}
