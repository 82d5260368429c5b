//! Operations on arrays of every kind.

use burn::tensor::{DType, Scalar, Slice, TensorMetadata};
use grove_backend::{Backend, ops::Value};

use super::{Target, boolean, int, kind, shape};
use crate::primitive::Reduction;

/// Applies the one of Burn's functions that fits the kind of a value.
macro_rules! by_kind {
    ($value:expr, $x:ident => $float:expr, $int:expr, $bool:expr) => {
        match $value {
            Value::Float($x) => Value::Float($float),
            Value::Int($x) => Value::Int($int),
            Value::Bool($x) => Value::Bool($bool),
        }
    };
}

/// Applies the one of Burn's functions that fits the kind of two values, which is the same.
macro_rules! by_kinds {
    ($a:expr, $b:expr, ($x:ident, $y:ident) => $float:expr, $int:expr, $bool:expr) => {
        match ($a, $b) {
            (Value::Float($x), Value::Float($y)) => Value::Float($float),
            (Value::Int($x), Value::Int($y)) => Value::Int($int),
            (Value::Bool($x), Value::Bool($y)) => Value::Bool($bool),
            (a, b) => panic!("a graph pairs {} with {}", kind(&a), kind(&b)),
        }
    };
}

pub(super) fn reduce<B: Backend>(op: Reduction, x: Value<B>, axis: Option<usize>) -> Value<B> {
    match (x, axis) {
        (Value::Float(x), None) => Value::Float(match op {
            Reduction::Sum => B::float_sum(x),
            Reduction::Mean => B::float_mean(x),
            Reduction::Prod => B::float_prod(x),
            Reduction::Max => B::float_max(x),
            Reduction::Min => B::float_min(x),
            Reduction::MaxAbs => B::float_max_abs(x),
        }),
        (Value::Float(x), Some(axis)) => Value::Float(match op {
            Reduction::Sum => B::float_sum_dim(x, axis),
            Reduction::Mean => B::float_mean_dim(x, axis),
            Reduction::Prod => B::float_prod_dim(x, axis),
            Reduction::Max => B::float_max_dim(x, axis),
            Reduction::Min => B::float_min_dim(x, axis),
            Reduction::MaxAbs => B::float_max_abs_dim(x, axis),
        }),
        (Value::Int(x), None) => Value::Int(match op {
            Reduction::Sum => B::int_sum(x),
            Reduction::Mean => B::int_mean(x),
            Reduction::Prod => B::int_prod(x),
            Reduction::Max => B::int_max(x),
            Reduction::Min => B::int_min(x),
            Reduction::MaxAbs => B::int_max_abs(x),
        }),
        (Value::Int(x), Some(axis)) => Value::Int(match op {
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

pub(super) fn cumulative<B: Backend>(op: Reduction, x: Value<B>, axis: usize) -> Value<B> {
    match (op, x) {
        (Reduction::Sum, Value::Float(x)) => Value::Float(B::float_cumsum(x, axis)),
        (Reduction::Prod, Value::Float(x)) => Value::Float(B::float_cumprod(x, axis)),
        (Reduction::Max, Value::Float(x)) => Value::Float(B::float_cummax(x, axis)),
        (Reduction::Min, Value::Float(x)) => Value::Float(B::float_cummin(x, axis)),
        (Reduction::Sum, Value::Int(x)) => Value::Int(B::int_cumsum(x, axis)),
        (Reduction::Prod, Value::Int(x)) => Value::Int(B::int_cumprod(x, axis)),
        (Reduction::Max, Value::Int(x)) => Value::Int(B::int_cummax(x, axis)),
        (Reduction::Min, Value::Int(x)) => Value::Int(B::int_cummin(x, axis)),
        (op, x) => panic!("cumulative {op:?} is not defined for {}", kind(&x)),
    }
}

fn numeric<B: Backend>(name: &str, x: &Value<B>) -> ! {
    panic!("{name} is not defined for {}", kind(x))
}

pub(super) fn argmax<B: Backend>(x: Value<B>, axis: usize, target: &Target<'_, B>) -> Value<B> {
    Value::Int(match x {
        Value::Float(x) => B::float_argmax(x, axis, target.int(DType::I64)),
        Value::Int(x) => B::int_argmax(x, axis),
        x => numeric("argmax", &x),
    })
}

pub(super) fn argmin<B: Backend>(x: Value<B>, axis: usize, target: &Target<'_, B>) -> Value<B> {
    Value::Int(match x {
        Value::Float(x) => B::float_argmin(x, axis, target.int(DType::I64)),
        Value::Int(x) => B::int_argmin(x, axis),
        x => numeric("argmin", &x),
    })
}

pub(super) fn top_k<B: Backend>(x: Value<B>, axis: usize, k: usize) -> Value<B> {
    match x {
        Value::Float(x) => Value::Float(B::float_topk(x, axis, k)),
        Value::Int(x) => Value::Int(B::int_topk(x, axis, k)),
        x => numeric("top_k", &x),
    }
}

pub(super) fn arg_top_k<B: Backend>(x: Value<B>, axis: usize, k: usize, target: &Target<'_, B>) -> Value<B> {
    Value::Int(match x {
        Value::Float(x) => B::float_argtopk(x, axis, k, target.int(DType::I64)),
        Value::Int(x) => B::int_argtopk(x, axis, k),
        x => numeric("arg_top_k", &x),
    })
}

pub(super) fn max_with_indices<B: Backend>(x: Value<B>, axis: usize, target: &Target<'_, B>) -> Vec<Option<Value<B>>> {
    let (values, indices) = match x {
        Value::Float(x) => {
            let (values, indices) = B::float_max_dim_with_indices(x, axis, target.int(DType::I64));
            (Value::Float(values), indices)
        }
        Value::Int(x) => {
            let (values, indices) = B::int_max_dim_with_indices(x, axis);
            (Value::Int(values), indices)
        }
        x => numeric("max_with_indices", &x),
    };
    vec![Some(values), Some(Value::Int(indices))]
}

pub(super) fn min_with_indices<B: Backend>(x: Value<B>, axis: usize, target: &Target<'_, B>) -> Vec<Option<Value<B>>> {
    let (values, indices) = match x {
        Value::Float(x) => {
            let (values, indices) = B::float_min_dim_with_indices(x, axis, target.int(DType::I64));
            (Value::Float(values), indices)
        }
        Value::Int(x) => {
            let (values, indices) = B::int_min_dim_with_indices(x, axis);
            (Value::Int(values), indices)
        }
        x => numeric("min_with_indices", &x),
    };
    vec![Some(values), Some(Value::Int(indices))]
}

pub(super) fn clamp<B: Backend>(x: Value<B>, min: Scalar, max: Scalar) -> Value<B> {
    match x {
        Value::Float(x) => Value::Float(B::float_clamp(x, min, max)),
        Value::Int(x) => Value::Int(B::int_clamp(x, min, max)),
        x => numeric("clamp", &x),
    }
}

/// `y` where the mask is true, `x` elsewhere.
pub(super) fn select<B: Backend>(x: Value<B>, mask: Value<B>, y: Value<B>) -> Value<B> {
    let mask = boolean(mask);
    by_kinds!(x, y, (x, y) => B::float_mask_where(x, mask, y), B::int_mask_where(x, mask, y), B::bool_mask_where(x, mask, y))
}

pub(super) fn mask_fill<B: Backend>(x: Value<B>, mask: Value<B>, value: Scalar) -> Value<B> {
    let mask = boolean(mask);
    by_kind!(x, x => B::float_mask_fill(x, mask, value), B::int_mask_fill(x, mask, value), B::bool_mask_fill(x, mask, value))
}

pub(super) fn reshape<B: Backend>(x: Value<B>, sizes: &[usize]) -> Value<B> {
    let shape = shape(sizes);
    by_kind!(x, x => B::float_reshape(x, shape), B::int_reshape(x, shape), B::bool_reshape(x, shape))
}

pub(super) fn swap_axes<B: Backend>(x: Value<B>, a: usize, b: usize) -> Value<B> {
    by_kind!(x, x => B::float_swap_dims(x, a, b), B::int_swap_dims(x, a, b), B::bool_swap_dims(x, a, b))
}

pub(super) fn transpose<B: Backend>(x: Value<B>, axes: &[usize]) -> Value<B> {
    by_kind!(x, x => B::float_permute(x, axes), B::int_permute(x, axes), B::bool_permute(x, axes))
}

pub(super) fn flip<B: Backend>(x: Value<B>, axes: &[usize]) -> Value<B> {
    by_kind!(x, x => B::float_flip(x, axes), B::int_flip(x, axes), B::bool_flip(x, axes))
}

pub(super) fn broadcast_to<B: Backend>(x: Value<B>, sizes: &[usize]) -> Value<B> {
    let shape = shape(sizes);
    by_kind!(x, x => B::float_expand(x, shape), B::int_expand(x, shape), B::bool_expand(x, shape))
}

pub(super) fn unfold<B: Backend>(x: Value<B>, axis: usize, size: usize, step: usize) -> Value<B> {
    by_kind!(x, x =>
        B::float_unfold(x, axis, size, step),
        B::int_unfold(x, axis, size, step),
        B::bool_unfold(x, axis, size, step))
}

pub(super) fn slice<B: Backend>(x: Value<B>, ranges: &[Slice]) -> Value<B> {
    by_kind!(x, x => B::float_slice(x, ranges), B::int_slice(x, ranges), B::bool_slice(x, ranges))
}

pub(super) fn update_slice<B: Backend>(x: Value<B>, part: Value<B>, ranges: &[Slice]) -> Value<B> {
    by_kinds!(x, part, (x, part) =>
        B::float_slice_assign(x, ranges, part),
        B::int_slice_assign(x, ranges, part),
        B::bool_slice_assign(x, ranges, part))
}

pub(super) fn take<B: Backend>(x: Value<B>, indices: Value<B>, axis: usize) -> Value<B> {
    let indices = int(indices);
    by_kind!(x, x => B::float_select(x, axis, indices), B::int_select(x, axis, indices), B::bool_select(x, axis, indices))
}

pub(super) fn take_add<B: Backend>(x: Value<B>, indices: Value<B>, part: Value<B>, axis: usize) -> Value<B> {
    let indices = int(indices);
    by_kinds!(x, part, (x, part) =>
        B::float_select_add(x, axis, indices, part),
        B::int_select_add(x, axis, indices, part),
        B::bool_select_or(x, axis, indices, part))
}

pub(super) fn gather<B: Backend>(x: Value<B>, indices: Value<B>, axis: usize) -> Value<B> {
    let indices = int(indices);
    by_kind!(x, x => B::float_gather(axis, x, indices), B::int_gather(axis, x, indices), B::bool_gather(axis, x, indices))
}

pub(super) fn scatter_add<B: Backend>(x: Value<B>, indices: Value<B>, part: Value<B>, axis: usize) -> Value<B> {
    let indices = int(indices);
    by_kinds!(x, part, (x, part) =>
        B::float_scatter_add(axis, x, indices, part),
        B::int_scatter_add(axis, x, indices, part),
        B::bool_scatter_or(axis, x, indices, part))
}

pub(super) fn repeat<B: Backend>(x: Value<B>, axis: usize, times: usize) -> Value<B> {
    by_kind!(x, x => B::float_repeat_dim(x, axis, times), B::int_repeat_dim(x, axis, times), B::bool_repeat_dim(x, axis, times))
}

pub(super) fn concatenate<B: Backend>(parts: Vec<Value<B>>, axis: usize) -> Value<B> {
    match parts.first() {
        Some(Value::Int(_)) => Value::Int(B::int_cat(parts.into_iter().map(int).collect(), axis)),
        Some(Value::Bool(_)) => Value::Bool(B::bool_cat(parts.into_iter().map(boolean).collect(), axis)),
        _ => Value::Float(B::float_cat(parts.into_iter().map(super::float).collect(), axis)),
    }
}

pub(super) fn convert<B: Backend>(x: Value<B>, dtype: DType, target: &Target<'_, B>) -> Value<B> {
    match (x, dtype) {
        (Value::Float(x), dtype) if dtype.is_float() => Value::Float(B::float_cast(x, target.float(dtype))),
        (Value::Int(x), dtype) if dtype.is_float() => Value::Float(B::int_into_float(x, target.float(dtype))),
        (Value::Bool(x), dtype) if dtype.is_float() => Value::Float(B::bool_into_float(x, target.float(dtype))),
        // Burn's casts within a kind may stay where the type is the same.
        (Value::Int(x), dtype) if DType::from(target.int(dtype)) == x.dtype() => Value::Int(x),
        (Value::Int(x), dtype) => Value::Int(B::int_cast(x, target.int(dtype))),
        (Value::Float(x), dtype) => Value::Int(B::float_into_int(x, target.int(dtype))),
        (Value::Bool(x), dtype) => Value::Int(B::bool_into_int(x, target.int(dtype))),
    }
}

pub(super) fn full<B: Backend>(sizes: &[usize], dtype: DType, value: Scalar, target: &Target<'_, B>) -> Value<B> {
    let (shape, device) = (shape(sizes), target.device);
    match dtype {
        dtype if dtype.is_float() => Value::Float(B::float_full(shape, value, device, target.float(dtype))),
        DType::Bool(_) if value.elem::<bool>() => Value::Bool(B::bool_ones(shape, device, target.boolean())),
        DType::Bool(_) => Value::Bool(B::bool_zeros(shape, device, target.boolean())),
        dtype => Value::Int(B::int_full(shape, value, device, target.int(dtype))),
    }
}

pub(super) fn matmul<B: Backend>(a: Value<B>, b: Value<B>) -> Value<B> {
    match (a, b) {
        (Value::Float(a), Value::Float(b)) => Value::Float(B::float_matmul(a, b)),
        (Value::Int(a), Value::Int(b)) => Value::Int(B::int_matmul(a, b)),
        (a, b) => panic!("a graph multiplies {} by {}", kind(&a), kind(&b)),
    }
}
