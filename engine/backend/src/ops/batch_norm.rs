//! Batch normalisation in training.

use burn::tensor::{Shape, Tensor, activation, ops::FloatTensor};

use super::{Backend, Outcome, Residuals, Rules, Shapes, Values, Wanted, float, precision::cast, primitive};

/// Batch normalisation in training (Ioffe and Szegedy, 2015): normalises each channel to mean 0 and variance 1 over batch
/// and pixels, scales and shifts it, and applies the epilogue of a residual network,
/// `relu(weight * normal + bias + residual)`. 16-bit batches are normalised in f32.
///
/// # Shapes
/// - inputs: `x` `[b, c, h, w]`; weight and bias `[c]`; optional residual, the shape of `x`
/// - outputs: the shape of `x`; mean and biased variance of each channel `[c]`, in f32 for 16-bit batches, which get no
///   gradient
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct BatchNorm {
    /// If true, a ReLU is applied last.
    pub relu: bool,
    /// Added to the variance for numerical stability.
    #[serde(with = "grove_kernels::exact")]
    pub eps: f64,
}

impl Rules for BatchNorm {
    const SAVES: bool = true;
    const IN_F32: bool = true;

    #[track_caller]
    fn shapes(&self, inputs: &Shapes) -> Vec<Shape> {
        let shape @ [_, c, _, _] = inputs.dims("batch_norm", 0);
        let rows = inputs.get(1) == Some(&[c]) && inputs.get(2) == Some(&[c]);
        inputs.require(rows, "batch_norm", "weight and bias [c] for x [b, c, h, w]");
        inputs.require_optional(3, &shape, "batch_norm", "residual of the shape of x");
        vec![shape.into(), Shape::from([c]), Shape::from([c])]
    }

    fn residuals(&self, _needs: &[bool]) -> Residuals {
        Residuals::default().inputs([0, 1]).outputs(0..3)
    }

    fn compose<B: Backend>(&self, mut inputs: Values<B>, _needs: &[bool]) -> Outcome<B> {
        let dtype = inputs.dtype(0);
        let [weight, bias] = [1, 2].map(|i| cast::<B>(inputs.take_float(i), dtype));
        let x = inputs.take_tensor::<4>(0);
        let [b, c, h, w] = x.dims();
        let count = (b * h * w) as f64;
        let mean = channel_sums(x.clone()) / count;
        let centred = x - mean.clone().reshape([1, c, 1, 1]);
        let variance = channel_sums(centred.clone().powi_scalar(2)) / count;
        let scale = float::<B, 1>(weight) / variance.clone().add_scalar(self.eps).sqrt();
        let y = centred * scale.reshape([1, c, 1, 1]) + each::<B>(bias);
        let y = match inputs.take_optional_float(3) {
            Some(residual) => y + float(cast::<B>(residual, dtype)),
            None => y,
        };
        let y = if self.relu { activation::relu(y) } else { y };
        Outcome::new([primitive(y), primitive(mean), primitive(variance)])
    }

    fn compose_vjp<B: Backend>(&self, mut residuals: Values<B>, mut grads: Values<B>, wanted: &Wanted) -> Values<B> {
        let dtype = residuals.dtype(0);
        let weight = cast::<B>(residuals.take_float(1), dtype);
        let (x, grad) = (residuals.take_tensor::<4>(0), float::<B, 4>(cast::<B>(grads.take_float(0), dtype)));
        let (mean, variance) = (residuals.take_float(3), residuals.take_float(4));
        let [b, c, h, w] = x.dims();
        let count = (b * h * w) as f64;
        let grad = if self.relu { grad.mask_fill(residuals.take_tensor::<4>(2).lower_equal_elem(0), 0) } else { grad };
        let inverse_std = each::<B>(variance).add_scalar(self.eps).sqrt().recip();
        let normal = (x - each(mean)) * inverse_std.clone();
        let db = channel_sums(grad.clone());
        let dw = channel_sums(grad.clone() * normal.clone());
        let mean = |sums: &Tensor<B, 1>| sums.clone().reshape([1, c, 1, 1]) / count;
        let dx = (grad.clone() - mean(&db) - normal * mean(&dw)) * (inverse_std * each(weight));
        let of_residual = wanted.get(3).map(|_| primitive(grad));
        Values::optional_floats([Some(primitive(dx)), Some(primitive(dw)), Some(primitive(db)), of_residual])
    }
}

/// Reshapes one value per channel for broadcasting.
fn each<B: Backend>(x: FloatTensor<B>) -> Tensor<B, 4> {
    let x = float::<B, 1>(x);
    let channels = x.dims()[0];
    x.reshape([1, channels, 1, 1])
}

/// Sums each channel, `[c]`.
fn channel_sums<B: Backend>(x: Tensor<B, 4>) -> Tensor<B, 1> {
    let [b, c, h, w] = x.dims();
    x.reshape([b, c, h * w]).sum_dim(2).sum_dim(0).reshape([c])
}
