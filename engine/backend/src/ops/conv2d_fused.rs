//! Convolution with an epilogue, for inference.

use burn::tensor::{Shape, Tensor, activation};

use super::{
    AnyTensor, Backend, Conv2dOptions, Differentiation, Outcome, Rules, Shapes, Values, apply, at_least_f32, float,
    precision::cast, primitive,
};

/// Convolution ([`Conv2dOptions`]) with an epilogue in one pass: `relu(scale * conv + shift + residual)`. For 16-bit inputs
/// the epilogue is computed in f32 and rounded once.
///
/// # Shapes
/// - inputs: `x` `[b, in, h, w]`; weight `[out, in / groups, kh, kw]`; scale and shift `[out]`; optional residual, the
///   output's shape
/// - output `[b, out, h', w']`
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Conv2dFused {
    /// The convolution.
    pub conv: Conv2dOptions,
    /// If true, a ReLU is applied last.
    pub relu: bool,
}

impl Rules for Conv2dFused {
    const DIFFERENTIATION: Differentiation = Differentiation::Composed;

    #[track_caller]
    fn shapes(&self, inputs: &Shapes) -> Vec<Shape> {
        let shapes = self.conv.shapes(inputs);
        let channels = [shapes[0][1]];
        let rows = inputs.get(2) == Some(&channels) && inputs.get(3) == Some(&channels);
        inputs.require(rows, "conv2d_fused", "scale and shift [out]");
        inputs.require_optional(4, &shapes[0][..], "conv2d_fused", "residual of the output's shape");
        shapes
    }

    fn compose<B: Backend>(&self, mut inputs: Values<B>, _needs: &[bool]) -> Outcome<B> {
        let dtype = inputs.dtype(0);
        let (x, weight) = (inputs.take_float(0), inputs.take_float(1));
        let mut y = apply(self.conv, Values::default().with(AnyTensor::Float(x)).with(AnyTensor::Float(weight)));
        let y = at_least_f32(y.take_tensor::<4>(0));
        let (channels, computing) = (y.dims()[1], y.dtype());
        let [scale, shift] = [2, 3].map(|i| {
            let row: Tensor<B, 1> = float(cast::<B>(inputs.take_float(i), computing));
            row.reshape([1, channels, 1, 1])
        });
        let y = y * scale + shift;
        let y = match inputs.take_optional_float(4) {
            Some(residual) => y + float(cast::<B>(residual, computing)),
            None => y,
        };
        Outcome::new([cast::<B>(primitive(if self.relu { activation::relu(y) } else { y }), dtype)])
    }
}
