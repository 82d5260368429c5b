//! Operations on arrays of any kind.

use burn::tensor::{DType, Scalar, Slice, TensorMetadata};
use grove_backend::{
    Backend,
    ops::{self, AnyTensor, Values},
};

use super::{boolean, int, kind, shape};
use crate::{primitive::Reduction, target::Target};

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

pub(super) fn reduce<B: Backend>(op: Reduction, x: AnyTensor<B>, axis: Option<usize>) -> AnyTensor<B> {
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

pub(super) fn cumulative<B: Backend>(op: Reduction, x: AnyTensor<B>, axis: usize) -> AnyTensor<B> {
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

fn numeric<B: Backend>(name: &str, x: &AnyTensor<B>) -> ! {
    panic!("{name} is not defined for {}", kind(x))
}

pub(super) fn argmax<B: Backend>(x: AnyTensor<B>, axis: usize, target: &Target<'_, B>) -> AnyTensor<B> {
    AnyTensor::Int(match x {
        AnyTensor::Float(x) => B::float_argmax(x, axis, target.int(DType::I64)),
        AnyTensor::Int(x) => B::int_argmax(x, axis),
        x => numeric("argmax", &x),
    })
}

pub(super) fn argmin<B: Backend>(x: AnyTensor<B>, axis: usize, target: &Target<'_, B>) -> AnyTensor<B> {
    AnyTensor::Int(match x {
        AnyTensor::Float(x) => B::float_argmin(x, axis, target.int(DType::I64)),
        AnyTensor::Int(x) => B::int_argmin(x, axis),
        x => numeric("argmin", &x),
    })
}

pub(super) fn top_k<B: Backend>(x: AnyTensor<B>, axis: usize, k: usize) -> AnyTensor<B> {
    match x {
        AnyTensor::Float(x) => AnyTensor::Float(B::float_topk(x, axis, k)),
        AnyTensor::Int(x) => AnyTensor::Int(B::int_topk(x, axis, k)),
        x => numeric("top_k", &x),
    }
}

pub(super) fn arg_top_k<B: Backend>(x: AnyTensor<B>, axis: usize, k: usize, target: &Target<'_, B>) -> AnyTensor<B> {
    AnyTensor::Int(match x {
        AnyTensor::Float(x) => B::argtopk(x, axis, k, target.int(DType::I64)),
        AnyTensor::Int(x) => B::int_argtopk(x, axis, k),
        x => numeric("arg_top_k", &x),
    })
}

pub(super) fn max_with_indices<B: Backend>(
    x: AnyTensor<B>,
    axis: usize,
    target: &Target<'_, B>,
) -> Vec<Option<AnyTensor<B>>> {
    let (values, indices) = match x {
        AnyTensor::Float(x) => {
            let (values, indices) = B::float_max_dim_with_indices(x, axis, target.int(DType::I64));
            (AnyTensor::Float(values), indices)
        }
        AnyTensor::Int(x) => {
            let (values, indices) = B::int_max_dim_with_indices(x, axis);
            (AnyTensor::Int(values), indices)
        }
        x => numeric("max_with_indices", &x),
    };
    vec![Some(values), Some(AnyTensor::Int(indices))]
}

pub(super) fn min_with_indices<B: Backend>(
    x: AnyTensor<B>,
    axis: usize,
    target: &Target<'_, B>,
) -> Vec<Option<AnyTensor<B>>> {
    let (values, indices) = match x {
        AnyTensor::Float(x) => {
            let (values, indices) = B::float_min_dim_with_indices(x, axis, target.int(DType::I64));
            (AnyTensor::Float(values), indices)
        }
        AnyTensor::Int(x) => {
            let (values, indices) = B::int_min_dim_with_indices(x, axis);
            (AnyTensor::Int(values), indices)
        }
        x => numeric("min_with_indices", &x),
    };
    vec![Some(values), Some(AnyTensor::Int(indices))]
}

pub(super) fn clamp<B: Backend>(x: AnyTensor<B>, min: Scalar, max: Scalar) -> AnyTensor<B> {
    match x {
        AnyTensor::Float(x) => AnyTensor::Float(B::float_clamp(x, min, max)),
        AnyTensor::Int(x) => AnyTensor::Int(B::int_clamp(x, min, max)),
        x => numeric("clamp", &x),
    }
}

/// Returns `y` where the mask is true, `x` elsewhere.
pub(super) fn select<B: Backend>(x: AnyTensor<B>, mask: AnyTensor<B>, y: AnyTensor<B>) -> AnyTensor<B> {
    let mask = boolean(mask);
    by_kinds!(x, y, (x, y) => B::float_mask_where(x, mask, y), B::int_mask_where(x, mask, y), B::bool_mask_where(x, mask, y))
}

pub(super) fn mask_fill<B: Backend>(x: AnyTensor<B>, mask: AnyTensor<B>, value: Scalar) -> AnyTensor<B> {
    let mask = boolean(mask);
    by_kind!(x, x => B::float_mask_fill(x, mask, value), B::int_mask_fill(x, mask, value), B::bool_mask_fill(x, mask, value))
}

pub(super) fn swap_axes<B: Backend>(x: AnyTensor<B>, a: usize, b: usize) -> AnyTensor<B> {
    by_kind!(x, x => B::float_swap_dims(x, a, b), B::int_swap_dims(x, a, b), B::bool_swap_dims(x, a, b))
}

pub(super) fn flip<B: Backend>(x: AnyTensor<B>, axes: &[usize]) -> AnyTensor<B> {
    by_kind!(x, x => B::float_flip(x, axes), B::int_flip(x, axes), B::bool_flip(x, axes))
}

pub(super) fn broadcast_to<B: Backend>(x: AnyTensor<B>, sizes: &[usize]) -> AnyTensor<B> {
    let shape = shape(sizes);
    by_kind!(x, x => B::float_expand(x, shape), B::int_expand(x, shape), B::bool_expand(x, shape))
}

pub(super) fn unfold<B: Backend>(x: AnyTensor<B>, axis: usize, size: usize, step: usize) -> AnyTensor<B> {
    by_kind!(x, x =>
        B::float_unfold(x, axis, size, step),
        B::int_unfold(x, axis, size, step),
        B::bool_unfold(x, axis, size, step))
}

pub(super) fn slice<B: Backend>(x: AnyTensor<B>, ranges: &[Slice]) -> AnyTensor<B> {
    by_kind!(x, x => B::float_slice(x, ranges), B::int_slice(x, ranges), B::bool_slice(x, ranges))
}

pub(super) fn update_slice<B: Backend>(x: AnyTensor<B>, part: AnyTensor<B>, ranges: &[Slice]) -> AnyTensor<B> {
    by_kinds!(x, part, (x, part) =>
        B::float_slice_assign(x, ranges, part),
        B::int_slice_assign(x, ranges, part),
        B::bool_slice_assign(x, ranges, part))
}

pub(super) fn take<B: Backend>(x: AnyTensor<B>, indices: AnyTensor<B>, axis: usize) -> AnyTensor<B> {
    let indices = int(indices);
    by_kind!(x, x => B::float_select(x, axis, indices), B::int_select(x, axis, indices), B::bool_select(x, axis, indices))
}

/// Returns an array that additions at indices accept. candle's reshape copies an array that is not contiguous.
fn addable<B: Backend>(x: AnyTensor<B>) -> AnyTensor<B> {
    if B::ADDS_VIEWS {
        return x;
    }
    let shape = x.shape();
    by_kind!(x, x => B::float_reshape(x, shape), B::int_reshape(x, shape), B::bool_reshape(x, shape))
}

pub(super) fn take_add<B: Backend>(
    x: AnyTensor<B>,
    indices: AnyTensor<B>,
    part: AnyTensor<B>,
    axis: usize,
) -> AnyTensor<B> {
    let [x, indices, part] = [x, indices, part].map(addable);
    let indices = int(indices);
    by_kinds!(x, part, (x, part) =>
        B::float_select_add(x, axis, indices, part),
        B::int_select_add(x, axis, indices, part),
        B::bool_select_or(x, axis, indices, part))
}

pub(super) fn gather<B: Backend>(x: AnyTensor<B>, indices: AnyTensor<B>, axis: usize) -> AnyTensor<B> {
    let indices = int(indices);
    by_kind!(x, x => B::float_gather(axis, x, indices), B::int_gather(axis, x, indices), B::bool_gather(axis, x, indices))
}

pub(super) fn scatter_add<B: Backend>(
    x: AnyTensor<B>,
    indices: AnyTensor<B>,
    part: AnyTensor<B>,
    axis: usize,
) -> AnyTensor<B> {
    let [x, indices, part] = [x, indices, part].map(addable);
    let indices = int(indices);
    by_kinds!(x, part, (x, part) =>
        B::float_scatter_add(axis, x, indices, part),
        B::int_scatter_add(axis, x, indices, part),
        B::bool_scatter_or(axis, x, indices, part))
}

pub(super) fn repeat<B: Backend>(x: AnyTensor<B>, axis: usize, times: usize) -> AnyTensor<B> {
    by_kind!(x, x => B::float_repeat_dim(x, axis, times), B::int_repeat_dim(x, axis, times), B::bool_repeat_dim(x, axis, times))
}

pub(super) fn convert<B: Backend>(x: AnyTensor<B>, dtype: DType, target: &Target<'_, B>) -> AnyTensor<B> {
    match (x, dtype) {
        (AnyTensor::Float(x), dtype) if dtype.is_float() => AnyTensor::Float(B::float_cast(x, target.float(dtype))),
        (AnyTensor::Int(x), dtype) if dtype.is_float() => AnyTensor::Float(B::int_into_float(x, target.float(dtype))),
        (AnyTensor::Bool(x), dtype) if dtype.is_float() => AnyTensor::Float(B::bool_into_float(x, target.float(dtype))),
        // Burn's casts within a kind may be skipped if the dtype is the same.
        (AnyTensor::Int(x), dtype) if DType::from(target.int(dtype)) == x.dtype() => AnyTensor::Int(x),
        (AnyTensor::Int(x), dtype) => AnyTensor::Int(B::int_cast(x, target.int(dtype))),
        (AnyTensor::Float(x), dtype) => AnyTensor::Int(B::float_into_int(x, target.int(dtype))),
        (AnyTensor::Bool(x), dtype) => AnyTensor::Int(B::bool_into_int(x, target.int(dtype))),
    }
}

pub(super) fn full<B: Backend>(sizes: &[usize], dtype: DType, value: Scalar, target: &Target<'_, B>) -> AnyTensor<B> {
    let (shape, device) = (shape(sizes), target.device);
    match dtype {
        dtype if dtype.is_float() => AnyTensor::Float(B::float_full(shape, value, device, target.float(dtype))),
        DType::Bool(_) if value.elem::<bool>() => AnyTensor::Bool(B::bool_ones(shape, device, target.boolean())),
        DType::Bool(_) => AnyTensor::Bool(B::bool_zeros(shape, device, target.boolean())),
        dtype => AnyTensor::Int(B::int_full(shape, value, device, target.int(dtype))),
    }
}

pub(super) fn matmul<B: Backend>(a: AnyTensor<B>, b: AnyTensor<B>) -> AnyTensor<B> {
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
