//! Operations with one result, on arrays of any kind.

use burn::tensor::{DType, Scalar, Shape, TensorMetadata};
use grove_backend::{
    Backend,
    ops::{self, AnyTensor, Values},
};

use super::{boolean, int, kind};
use crate::{
    Primitive, control,
    primitive::Reduction,
    target::{Target, missing},
};

/// Applies the Burn function for the kind of a value.
macro_rules! by_kind {
    ($value:expr, $x:ident => $float:expr, $int:expr, $bool:expr) => {
        match $value {
            AnyTensor::Float($x) => AnyTensor::Float($float),
            AnyTensor::Int($x) => AnyTensor::Int($int),
            AnyTensor::Bool($x) => AnyTensor::Bool($bool),
        }
    };
}

/// Applies the Burn function for the common kind of two values.
macro_rules! by_kinds {
    ($a:expr, $b:expr, ($x:ident, $y:ident) => $float:expr, $int:expr, $bool:expr) => {
        match ($a, $b) {
            (AnyTensor::Float($x), AnyTensor::Float($y)) => AnyTensor::Float($float),
            (AnyTensor::Int($x), AnyTensor::Int($y)) => AnyTensor::Int($int),
            (AnyTensor::Bool($x), AnyTensor::Bool($y)) => AnyTensor::Bool($bool),
            (a, b) => panic!("a graph pairs {} with {}", kind(&a), kind(&b)),
        }
    };
}

/// Applies the Burn function for the kind of a value that is not boolean.
macro_rules! by_number {
    ($name:literal, $value:expr, $x:ident => $float:expr, $int:expr) => {
        match $value {
            AnyTensor::Float($x) => AnyTensor::Float($float),
            AnyTensor::Int($x) => AnyTensor::Int($int),
            x => undefined($name, &x),
        }
    };
}

/// Computes indices by the Burn function for the kind of a value that is not boolean.
macro_rules! indices {
    ($name:literal, $value:expr, $x:ident => $float:expr, $int:expr) => {
        AnyTensor::Int(match $value {
            AnyTensor::Float($x) => $float,
            AnyTensor::Int($x) => $int,
            x => undefined($name, &x),
        })
    };
}

pub(super) fn undefined<B: Backend>(name: &str, x: &AnyTensor<B>) -> ! {
    panic!("{name} is not defined for {}", kind(x))
}

/// Computes an operation.
pub(super) fn apply<B: Backend>(
    primitive: &Primitive,
    inputs: Vec<AnyTensor<B>>,
    target: &Target<'_, B>,
) -> AnyTensor<B> {
    if let Primitive::Concatenate(axis) = primitive {
        return AnyTensor::cat(inputs, *axis);
    }
    let mut inputs = inputs.into_iter();
    let mut next = || inputs.next().unwrap_or_else(|| missing());
    let index = || target.int(DType::I64);
    match primitive {
        Primitive::Unary(op) => op.evaluate(next(), target),
        Primitive::Binary(op) => op.evaluate(next(), next(), target),
        Primitive::BinaryScalar(op, number) => op.evaluate_scalar(next(), (*number).into(), target),
        Primitive::Reduce(op, axis) => reduce(*op, next(), *axis),
        Primitive::Cumulative(op, axis) => cumulative(*op, next(), *axis),
        Primitive::Argmax(axis) => {
            indices!("argmax", next(), x => B::float_argmax(x, *axis, index()), B::int_argmax(x, *axis))
        }
        Primitive::Argmin(axis) => {
            indices!("argmin", next(), x => B::float_argmin(x, *axis, index()), B::int_argmin(x, *axis))
        }
        Primitive::ArgTopK(axis, k) => {
            indices!("arg_top_k", next(), x => B::argtopk(x, *axis, *k, index()), B::int_argtopk(x, *axis, *k))
        }
        Primitive::TopK(axis, k) => {
            by_number!("top_k", next(), x => B::float_topk(x, *axis, *k), B::int_topk(x, *axis, *k))
        }
        Primitive::Clamp(min, max) => {
            let (min, max) = ((*min).into(), (*max).into());
            by_number!("clamp", next(), x => B::float_clamp(x, min, max), B::int_clamp(x, min, max))
        }
        Primitive::Where => {
            let (x, mask, y) = (next(), boolean(next()), next());
            by_kinds!(x, y, (x, y) =>
                B::float_mask_where(x, mask, y),
                B::int_mask_where(x, mask, y),
                B::bool_mask_where(x, mask, y))
        }
        Primitive::MaskFill(value) => {
            let (x, mask, value) = (next(), boolean(next()), (*value).into());
            by_kind!(x, x =>
                B::float_mask_fill(x, mask, value),
                B::int_mask_fill(x, mask, value),
                B::bool_mask_fill(x, mask, value))
        }
        Primitive::Reshape(shape) => next().reshape(shape.clone()),
        Primitive::SwapAxes(a, b) => {
            by_kind!(next(), x => B::float_swap_dims(x, *a, *b), B::int_swap_dims(x, *a, *b), B::bool_swap_dims(x, *a, *b))
        }
        Primitive::Transpose(axes) => next().permute(axes),
        Primitive::Flip(axes) => {
            by_kind!(next(), x => B::float_flip(x, axes), B::int_flip(x, axes), B::bool_flip(x, axes))
        }
        Primitive::BroadcastTo(sizes) => {
            let shape = Shape::from(sizes.clone());
            by_kind!(next(), x => B::float_expand(x, shape), B::int_expand(x, shape), B::bool_expand(x, shape))
        }
        Primitive::Unfold(axis, size, step) => by_kind!(next(), x =>
            B::float_unfold(x, *axis, *size, *step),
            B::int_unfold(x, *axis, *size, *step),
            B::bool_unfold(x, *axis, *size, *step)),
        Primitive::Slice(ranges) => {
            by_kind!(next(), x => B::float_slice(x, ranges), B::int_slice(x, ranges), B::bool_slice(x, ranges))
        }
        Primitive::UpdateSlice(ranges) => by_kinds!(next(), next(), (x, part) =>
            B::float_slice_assign(x, ranges, part),
            B::int_slice_assign(x, ranges, part),
            B::bool_slice_assign(x, ranges, part)),
        Primitive::Take(axis) => {
            let (x, indices) = (next(), int(next()));
            by_kind!(x, x =>
                B::float_select(x, *axis, indices),
                B::int_select(x, *axis, indices),
                B::bool_select(x, *axis, indices))
        }
        Primitive::TakeAdd(axis) => {
            let (x, indices, part) = (addable(next()), int(addable(next())), addable(next()));
            by_kinds!(x, part, (x, part) =>
                B::float_select_add(x, *axis, indices, part),
                B::int_select_add(x, *axis, indices, part),
                B::bool_select_or(x, *axis, indices, part))
        }
        Primitive::Gather(axis) => {
            let (x, indices) = (next(), int(next()));
            by_kind!(x, x =>
                B::float_gather(*axis, x, indices),
                B::int_gather(*axis, x, indices),
                B::bool_gather(*axis, x, indices))
        }
        Primitive::ScatterAdd(axis) => {
            let (x, indices, part) = (addable(next()), int(addable(next())), addable(next()));
            by_kinds!(x, part, (x, part) =>
                B::float_scatter_add(*axis, x, indices, part),
                B::int_scatter_add(*axis, x, indices, part),
                B::bool_scatter_or(*axis, x, indices, part))
        }
        Primitive::Repeat(axis, times) => by_kind!(next(), x =>
            B::float_repeat_dim(x, *axis, *times),
            B::int_repeat_dim(x, *axis, *times),
            B::bool_repeat_dim(x, *axis, *times)),
        Primitive::Convert(dtype) => convert(next(), *dtype, target),
        Primitive::Full(shape, dtype, value) => full(shape, *dtype, (*value).into(), target),
        Primitive::MatMul => matmul(next(), next()),
        Primitive::StopGradient => control::stopped(next()),
        Primitive::DebugPrint(name) => control::printed(name, next()),
        Primitive::Concatenate(_)
        | Primitive::MaxWithIndices(_)
        | Primitive::MinWithIndices(_)
        | Primitive::Module(_)
        | Primitive::Grove(_)
        | Primitive::WithKey(_)
        | Primitive::Fused(_)
        | Primitive::HigherOrder(_) => unreachable!("`{}` is not computed here", primitive.name()),
    }
}

fn reduce<B: Backend>(op: Reduction, x: AnyTensor<B>, axis: Option<usize>) -> AnyTensor<B> {
    match (x, axis) {
        (AnyTensor::Float(x), None) => match op {
            Reduction::Sum => AnyTensor::Float(B::float_sum(x)),
            Reduction::Mean => AnyTensor::Float(B::float_mean(x)),
            Reduction::Prod => AnyTensor::Float(B::float_prod(x)),
            // Reduce along an axis: some of Burn's backends drop NaN in reductions over all elements.
            Reduction::Max | Reduction::Min | Reduction::MaxAbs => {
                let count = x.shape().num_elements();
                reduce(op, AnyTensor::Float(B::float_reshape(x, [count].into())), Some(0))
            }
        },
        (AnyTensor::Float(x), Some(axis)) => AnyTensor::Float(match op {
            Reduction::Sum => B::float_sum_dim(x, axis),
            Reduction::Mean => B::float_mean_dim(x, axis),
            Reduction::Prod => B::float_prod_dim(x, axis),
            Reduction::Max => B::float_max_dim(x, axis),
            Reduction::Min => B::float_min_dim(x, axis),
            Reduction::MaxAbs => B::float_max_abs_dim(x, axis),
        }),
        (AnyTensor::Int(x), None) => AnyTensor::Int(match op {
            Reduction::Sum => B::int_sum(x),
            Reduction::Mean => B::int_mean(x),
            Reduction::Prod => B::int_prod(x),
            Reduction::Max => B::int_max(x),
            Reduction::Min => B::int_min(x),
            Reduction::MaxAbs => B::int_max_abs(x),
        }),
        (AnyTensor::Int(x), Some(axis)) => AnyTensor::Int(match op {
            Reduction::Sum => B::int_sum_dim(x, axis),
            Reduction::Mean => B::int_mean_dim(x, axis),
            Reduction::Prod => B::int_prod_dim(x, axis),
            Reduction::Max => B::int_max_dim(x, axis),
            Reduction::Min => B::int_min_dim(x, axis),
            Reduction::MaxAbs => B::int_max_abs_dim(x, axis),
        }),
        (x, _) => panic!("{op:?} is not defined for {}", kind(&x)),
    }
}

fn cumulative<B: Backend>(op: Reduction, x: AnyTensor<B>, axis: usize) -> AnyTensor<B> {
    match (op, x) {
        (Reduction::Sum, AnyTensor::Float(x)) => AnyTensor::Float(B::float_cumsum(x, axis)),
        (Reduction::Prod, AnyTensor::Float(x)) => AnyTensor::Float(B::float_cumprod(x, axis)),
        (Reduction::Max, AnyTensor::Float(x)) => AnyTensor::Float(B::float_cummax(x, axis)),
        (Reduction::Min, AnyTensor::Float(x)) => AnyTensor::Float(B::float_cummin(x, axis)),
        (Reduction::Sum, AnyTensor::Int(x)) => AnyTensor::Int(B::int_cumsum(x, axis)),
        (Reduction::Prod, AnyTensor::Int(x)) => AnyTensor::Int(B::int_cumprod(x, axis)),
        (Reduction::Max, AnyTensor::Int(x)) => AnyTensor::Int(B::int_cummax(x, axis)),
        (Reduction::Min, AnyTensor::Int(x)) => AnyTensor::Int(B::int_cummin(x, axis)),
        (op, x) => panic!("cumulative {op:?} is not defined for {}", kind(&x)),
    }
}

/// Returns an array that additions at indices accept. candle's reshape copies an array that is not contiguous.
fn addable<B: Backend>(x: AnyTensor<B>) -> AnyTensor<B> {
    if B::ADDS_VIEWS {
        return x;
    }
    let shape = x.shape();
    by_kind!(x, x => B::float_reshape(x, shape), B::int_reshape(x, shape), B::bool_reshape(x, shape))
}

fn convert<B: Backend>(x: AnyTensor<B>, dtype: DType, target: &Target<'_, B>) -> AnyTensor<B> {
    match (x, dtype) {
        (AnyTensor::Float(x), dtype) if dtype.is_float() => AnyTensor::Float(B::float_cast(x, dtype.into())),
        (AnyTensor::Int(x), dtype) if dtype.is_float() => AnyTensor::Float(B::int_into_float(x, dtype.into())),
        (AnyTensor::Bool(x), dtype) if dtype.is_float() => AnyTensor::Float(B::bool_into_float(x, dtype.into())),
        // Burn's casts within a kind may be skipped if the dtype is the same.
        (AnyTensor::Int(x), dtype) if DType::from(target.int(dtype)) == x.dtype() => AnyTensor::Int(x),
        (AnyTensor::Int(x), dtype) => AnyTensor::Int(B::int_cast(x, target.int(dtype))),
        (AnyTensor::Float(x), dtype) => AnyTensor::Int(B::float_into_int(x, target.int(dtype))),
        (AnyTensor::Bool(x), dtype) => AnyTensor::Int(B::bool_into_int(x, target.int(dtype))),
    }
}

fn full<B: Backend>(sizes: &[usize], dtype: DType, value: Scalar, target: &Target<'_, B>) -> AnyTensor<B> {
    let (shape, device) = (Shape::from(sizes.to_vec()), target.device);
    match dtype {
        dtype if dtype.is_float() => AnyTensor::Float(B::float_full(shape, value, device, dtype.into())),
        DType::Bool(_) if value.elem::<bool>() => AnyTensor::Bool(B::bool_ones(shape, device, target.boolean())),
        DType::Bool(_) => AnyTensor::Bool(B::bool_zeros(shape, device, target.boolean())),
        dtype => AnyTensor::Int(B::int_full(shape, value, device, target.int(dtype))),
    }
}

fn matmul<B: Backend>(a: AnyTensor<B>, b: AnyTensor<B>) -> AnyTensor<B> {
    match (a, b) {
        // grove's own product keeps full precision on GPUs and avoids broken kernels.
        (AnyTensor::Float(a), AnyTensor::Float(b)) if B::BROKEN_FUSED_GEMV => {
            AnyTensor::Float(B::run(&ops::Matmul.into(), Values::floats([a, b]), &[]).outputs.take_float(0))
        }
        (AnyTensor::Float(a), AnyTensor::Float(b)) => AnyTensor::Float(B::float_matmul(a, b)),
        (AnyTensor::Int(a), AnyTensor::Int(b)) => AnyTensor::Int(B::int_matmul(a, b)),
        (a, b) => panic!("a graph multiplies {} by {}", kind(&a), kind(&b)),
    }
}
