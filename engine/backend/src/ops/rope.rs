//! Rotary position embedding.

use burn::tensor::{Shape, Tensor};

use super::{AnyTensor, Backend, BatchAxis, Outcome, Residuals, Rules, Shapes, Values, Wanted, primitive};

/// Rotary position embedding (Su et al., 2021): rotates pairs of values by the angles of their position. The angles get no
/// gradient.
///
/// # Shapes
/// - inputs: `x` `[b, t, n_head, head_dim]`; `cos` and `sin` `[b or 1, t, head_dim / 2]`
/// - output: the shape of `x`
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Rope {
    /// If true, the values of a pair are adjacent; otherwise half of the last axis apart.
    pub interleaved: bool,
}

impl Rules for Rope {
    const DIFFERENTIABLE_INPUTS: usize = 1;
    const BATCH_AXIS: Option<BatchAxis> = Some(BatchAxis { inputs: &[0], broadcast: &[1, 2], min_rank: 4 });

    #[track_caller]
    fn shapes(&self, inputs: &Shapes) -> Vec<Shape> {
        let shape @ [b, t, _, head_dim] = inputs.dims("apply_rope", 0);
        for angles in [1, 2] {
            let [batch, positions, half] = inputs.dims("apply_rope", angles);
            let fits = (batch == b || batch == 1) && positions == t && 2 * half == head_dim;
            inputs.require(fits, "apply_rope", "cos and sin [b or 1, t, head_dim / 2] for x [b, t, n_head, head_dim]");
        }
        vec![shape.into()]
    }

    fn residuals(&self, _needs: &[bool]) -> Residuals {
        Residuals::default().inputs([1, 2])
    }

    fn compose<B: Backend>(&self, mut inputs: Values<B>, _needs: &[bool]) -> Outcome<B> {
        let x = inputs.take_tensor::<4>(0);
        let shape = x.dims();
        let [b, t, n_head, head_dim] = shape;
        let half = head_dim / 2;
        let [cos, sin] = [1, 2].map(|i| inputs.take_tensor::<3>(i).unsqueeze_dim::<4>(2)); // [b or 1, t, 1, half]
        // In the interleaved layout, a pair is a row of two columns.
        let pairs = x.clone().reshape([b, t, n_head * half, 2]);
        let part = |i: usize| match self.interleaved {
            true => pairs.clone().narrow(3, i, 1).reshape([b, t, n_head, half]),
            false => x.clone().narrow(3, i * half, half),
        };
        let (first, second) = (part(0), part(1));
        let rotated = [
            first.clone() * cos.clone() - second.clone() * sin.clone(), // [b, t, n_head, half]
            second * cos + first * sin,
        ];
        let y = match self.interleaved {
            true => Tensor::cat(rotated.map(|x| x.reshape([b, t, n_head * half, 1])).to_vec(), 3).reshape(shape),
            false => Tensor::cat(rotated.to_vec(), 3),
        };
        Outcome::new([primitive(y)])
    }

    /// Rotates the gradient by the negative angles.
    fn compose_vjp<B: Backend>(&self, mut residuals: Values<B>, mut grads: Values<B>, _wanted: &Wanted) -> Values<B> {
        let (cos, sin) = (residuals.take(0), B::float_neg(residuals.take_float(1)));
        let inputs = [grads.take(0), cos, Some(AnyTensor::Float(sin))].into_iter().collect();
        B::run(&(*self).into(), inputs, &[]).outputs
    }
}
