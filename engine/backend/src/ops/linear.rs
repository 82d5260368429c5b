//! Linear layer: one product for all rows, in the forward and the backward pass.

use burn::tensor::{
    DType, Shape, Tensor, TensorMetadata,
    ops::{FloatTensor, ModuleOps},
};

use super::{
    Backend, BatchAxis, Differentiation, Outcome, Residuals, Rules, Shapes, Values, Wanted, at_least_f32, float,
    matmul, operation::needed, precision::cast, primitive, shapes::with_last,
};

/// Linear layer over the last axis, `x W + b`, correct on every backend. The weight may have another floating-point dtype
/// than the input; the product is computed in the input's dtype.
///
/// # Shapes
/// - inputs: `x` `[.., in]`; weight `[in, out]`; optional bias `[out]`
/// - output `[.., out]`
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Linear;

impl Rules for Linear {
    /// A cheap input, such as an activation, may be recomputed instead of retained.
    const DIFFERENTIATION: Differentiation = Differentiation::Checkpointed;
    const BATCH_AXIS: Option<BatchAxis> = Some(BatchAxis { inputs: &[0], broadcast: &[], min_rank: 2 });

    #[track_caller]
    fn shapes(&self, inputs: &Shapes) -> Vec<Shape> {
        let ([rows, columns], x) = (inputs.dims("linear", 1), inputs.get(0).unwrap_or_default());
        inputs.require(x.last() == Some(&rows), "linear", "x [.., in] by weight [in, out]");
        inputs.require_optional(2, &[columns], "linear", "bias [out] for weight [in, out]");
        vec![with_last(x, columns)]
    }

    fn residuals(&self, needs: &[bool]) -> Residuals {
        Residuals::default().input_if(needed(needs, 1), 0).input_if(needed(needs, 0), 1)
    }

    fn compose<B: Backend>(&self, inputs: Values<B>, _needs: &[bool]) -> Outcome<B> {
        let shape = inputs.shape(0);
        let (rows, outputs) = (&shape[..shape.num_dims() - 1], inputs.shape(1)[1]);
        if rows.is_empty() || B::BROKEN_FUSED_GEMV && (outputs == 1 || rows.ends_with(&[1])) {
            return by_rows(inputs);
        }
        let (x, weight, bias) = in_one_dtype(inputs);
        Outcome::new([<B as ModuleOps<B>>::linear(x, weight, bias)])
    }

    fn compose_vjp<B: Backend>(&self, residuals: Values<B>, grads: Values<B>, wanted: &Wanted) -> Values<B> {
        let sum = |grad: Tensor<B, 2>, dtype| cast::<B>(sum_of_rows(at_least_f32(grad)), dtype);
        vjp(residuals, grads, wanted, sum)
    }
}

/// Computes the gradients. `sum` sums a matrix over its rows, for the bias.
pub(super) fn vjp<B: Backend>(
    mut residuals: Values<B>,
    mut grads: Values<B>,
    wanted: &Wanted,
    sum: impl Fn(Tensor<B, 2>, DType) -> FloatTensor<B>,
) -> Values<B> {
    let grad = grads.take_float(0);
    let (dtype, shape, grad) = (grad.dtype(), grad.shape(), rows::<B>(grad));
    let (x, weight) = (residuals.take_optional_float(0), residuals.take_optional_float(1));
    let weight = weight.map(|weight| float::<B, 2>(cast::<B>(weight, dtype)));
    Values::optional_floats([
        weight.map(|weight| unflatten(matmul(grad.clone(), weight.transpose()), shape)),
        x.map(|x| primitive(matmul(rows::<B>(x).transpose(), grad.clone()))),
        wanted.get(2).map(|_| sum(grad, dtype)),
    ])
}

/// Sums a matrix over its rows. GPUs have no sum of no elements.
pub(super) fn sum_of_rows<B: Backend>(x: Tensor<B, 2>) -> FloatTensor<B> {
    match x.dims() {
        [0, columns] => B::float_zeros([columns].into(), &x.device(), x.dtype().into()),
        _ => primitive(x.sum_dim(0).squeeze_dim::<1>(0)),
    }
}

/// Casts weight and bias to the input's dtype.
fn in_one_dtype<B: Backend>(mut inputs: Values<B>) -> (FloatTensor<B>, FloatTensor<B>, Option<FloatTensor<B>>) {
    let (x, weight, bias) = (inputs.take_float(0), inputs.take_float(1), inputs.take_optional_float(2));
    let dtype = x.dtype();
    (x, cast::<B>(weight, dtype), bias.map(|bias| cast::<B>(bias, dtype)))
}

/// Composes the layer as one product of two matrices.
pub(super) fn by_rows<B: Backend>(inputs: Values<B>) -> Outcome<B> {
    let (x, weight, bias) = in_one_dtype(inputs);
    let shape = x.shape();
    let y = matmul(rows::<B>(x), float(weight));
    let y = match bias {
        Some(bias) => y + float::<B, 1>(bias).unsqueeze(),
        None => y,
    };
    Outcome::new([unflatten(y, shape)])
}

/// Reshapes `[.., n]` to `[rows, n]`.
pub(super) fn rows<B: Backend>(x: FloatTensor<B>) -> Tensor<B, 2> {
    let shape = x.shape();
    let n = shape[shape.num_dims() - 1];
    let rows = shape[..shape.num_dims() - 1].iter().product::<usize>();
    float(B::float_reshape(x, Shape::from([rows, n])))
}

/// Reshapes `[rows, n]` to `shape` with its last axis replaced by `n`.
pub(super) fn unflatten<B: Backend>(y: Tensor<B, 2>, shape: Shape) -> FloatTensor<B> {
    let shape = with_last(&shape[..], y.dims()[1]);
    B::float_reshape(primitive(y), shape)
}
