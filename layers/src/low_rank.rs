use burn::tensor::Tensor;
use grove_backend::{Backend, matmul};
use grove_tree::{Array, Init, Tree};

use crate::linear::affine;

/// Low-rank update of a linear map, `x -> scale * (x A) B` (LoRA; Hu et al., 2021,
/// <https://arxiv.org/abs/2106.09685>).
///
/// ```
/// use burn::tensor::Tensor;
/// use grove_layers::Linear;
/// use grove_tree::{Init, Key, by_path, count_params, filter};
/// # type B = burn_flex::Flex;
/// let device = Default::default();
/// let linear = Linear::<B>::normal(64, 32, 0.02, &Init::new(Key::new(0), &device));
/// let adapted = linear.adapted(4, 8.0, Key::new(1));
/// let trained = filter(adapted.clone(), &by_path("low_rank.**"));   // what an optimizer gets
/// assert_eq!(count_params(&adapted), 64 * 32 + 32 + 4 * (64 + 32));
/// # let present: usize = grove_tree::leaves(&trained).iter().filter(|(_, l)| l.is_present()).map(|(_, l)| l.len()).sum();
/// # assert_eq!(present, 4 * (64 + 32));
/// let whole = adapted.merged();                                      // after training: one matrix again
/// assert!(whole.low_rank.is_none());
/// # whole.forward(Tensor::<B, 2>::ones([1, 64], &device));
/// ```
#[derive(Tree, Clone, Debug)]
pub struct LowRank<B: Backend> {
    /// `[in, rank]`.
    pub a: Array<B, 2>,
    /// `[rank, out]`.
    pub b: Array<B, 2>,
    /// Factor of the product: `alpha / rank`.
    pub scale: f64,
}

impl<B: Backend> LowRank<B> {
    /// Creates an update that is zero: `A` uniform in `±1 / sqrt(inputs)` and `B` zero, as in peft.
    ///
    /// # Panics
    /// If the rank is 0.
    pub fn new(inputs: usize, outputs: usize, rank: usize, alpha: f64, init: &Init<B>) -> Self {
        assert!(rank > 0, "a change of rank 0 has no parameters");
        let bound = 1.0 / (inputs as f32).sqrt();
        Self {
            a: init.named("a").uniform([inputs, rank], -bound, bound),
            b: init.named("b").zeros([rank, outputs]),
            scale: alpha / rank as f64,
        }
    }

    /// Applies the update.
    ///
    /// # Shapes
    /// - input `[..., in]`
    /// - output `[..., out]`
    pub fn forward<const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
        affine(affine(x, &self.a, None).mul_scalar(self.scale), &self.b, None)
    }

    /// The update as a matrix, `[in, out]`.
    pub fn matrix(&self) -> Tensor<B, 2> {
        matmul(self.a.val(), self.b.val()).mul_scalar(self.scale)
    }
}
