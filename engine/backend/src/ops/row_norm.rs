//! Layer norm and RMS norm.

use burn::tensor::{Shape, Tensor};

use super::{
    Backend, BatchAxis, Outcome, Residuals, Rules, Shapes, Values, Wanted, at_least_f32, float,
    linear::sum_of_rows,
    operation::{run_in_f32, run_vjp_in_f32},
    precision::{cast, to_dtype},
    primitive,
};

/// Layer norm (Ba et al., 2016): subtracts the mean of each row, divides by the square root of its variance plus `eps`,
/// scales and shifts. Without centring, an RMS norm (Zhang and Sennrich, 2019). 16-bit rows are normalised in f32.
///
/// # Shapes
/// - inputs: `x` `[rows, size]`; weight and optional bias `[size]`
/// - outputs: the shape of `x`; means and inverse roots `[rows, 2]`, in f32 for 16-bit rows, which get no gradient
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct RowNorm {
    /// If true, the mean is subtracted from each row first: layer norm. If false, RMS norm.
    pub centred: bool,
    /// Added to the variance for numerical stability.
    #[serde(with = "grove_kernels::exact")]
    pub eps: f64,
}

impl Rules for RowNorm {
    const SAVES: bool = true;
    const BATCH_AXIS: Option<BatchAxis> = BatchAxis::of(&[0]);

    #[track_caller]
    fn shapes(&self, inputs: &Shapes) -> Vec<Shape> {
        let shape @ [rows, size] = inputs.dims("row_norm", 0);
        inputs.require(inputs.get(1) == Some(&[size]), "row_norm", "weight [size] for rows [rows, size]");
        inputs.require_optional(2, &[size], "row_norm", "bias [size] for rows [rows, size]");
        vec![shape.into(), Shape::from([rows, 2])]
    }

    fn residuals(&self, _needs: &[bool]) -> Residuals {
        Residuals::default().inputs([0, 1]).outputs([1])
    }

    fn compose<B: Backend>(&self, mut inputs: Values<B>, needs: &[bool]) -> Outcome<B> {
        let dtype = inputs.dtype(0);
        if self.centred && inputs.is_half() {
            return run_in_f32(&(*self).into(), inputs, needs);
        }
        let x = at_least_f32(inputs.take_tensor::<2>(0));
        let scale_or_shift = |x| float::<B, 1>(cast::<B>(x, dtype)).unsqueeze::<2>();
        let mean = if self.centred { x.clone().mean_dim(1) } else { x.clone().narrow(1, 0, 1).zeros_like() }; // [rows, 1]
        let centred = if self.centred { x - mean.clone() } else { x };
        let inverse = centred.clone().powi_scalar(2).mean_dim(1).add_scalar(self.eps).sqrt().recip(); // [rows, 1]
        // Rounded before scaling, as in LLaMA's layers.
        let y = to_dtype(centred * inverse.clone(), dtype) * scale_or_shift(inputs.take_float(1));
        let y = match inputs.take_optional_float(2) {
            Some(bias) => y + scale_or_shift(bias),
            None => y,
        };
        Outcome::new([primitive(y), primitive(Tensor::cat(vec![mean, inverse], 1))])
    }

    fn compose_vjp<B: Backend>(&self, mut residuals: Values<B>, mut grads: Values<B>, wanted: &Wanted) -> Values<B> {
        let dtype = grads.dtype(0);
        if grads.is_half() {
            return run_vjp_in_f32(&(*self).into(), residuals, grads, wanted);
        }
        let needs = wanted.needs::<3>();
        let (x, grad, stats) =
            (residuals.take_tensor::<2>(0), grads.take_tensor::<2>(0), residuals.take_tensor::<2>(2));
        let weight = float::<B, 1>(cast::<B>(residuals.take_float(1), dtype));
        let (mean, inverse) = (stats.clone().narrow(1, 0, 1), stats.narrow(1, 1, 1));
        let normal = if self.centred { x - mean } else { x } * inverse.clone();
        let d_weight = needs[1].then(|| sum_of_rows(grad.clone() * normal.clone()));
        let d_bias = needs[2].then(|| sum_of_rows(grad.clone()));
        let dx = needs[0].then(|| {
            let scaled = grad * weight.unsqueeze();
            let along = (scaled.clone() * normal.clone()).mean_dim(1);
            let rest = if self.centred { scaled.clone() - scaled.mean_dim(1) } else { scaled };
            primitive((rest - normal * along) * inverse)
        });
        Values::optional_floats([dx, d_weight, d_bias])
    }
}
