//! Burn's single operations as functions of tensors. Fusion runs such an operation if it does not fuse it with others.
#![allow(clippy::type_complexity)] // each type occurs once

use burn_backend::{
    BoolDType, FloatDType, IntDType, Scalar, Slice,
    ops::{BoolTensorOps, ConvOptions, FloatTensorOps, IntTensorOps, ModuleOps},
};
use burn_cubecl::CubeBackend;

use super::{R, X};

type B = CubeBackend<R, f32, i32, u8>;

/// Functions of one tensor.
pub static OF_ONE: &[fn(X) -> X] = &[
    B::float_abs,
    B::float_acos,
    B::float_acosh,
    B::float_asin,
    B::float_asinh,
    B::float_atan,
    B::float_atanh,
    B::float_ceil,
    B::float_cos,
    B::float_cosh,
    B::float_erf,
    B::float_exp,
    B::float_floor,
    B::float_log,
    B::float_log1p,
    B::float_max,
    B::float_max_abs,
    B::float_mean,
    B::float_min,
    B::float_prod,
    B::float_recip,
    B::float_round,
    B::float_sign,
    B::float_sin,
    B::float_sinh,
    B::float_sqrt,
    B::float_sum,
    B::float_tan,
    B::float_tanh,
    B::float_trunc,
    B::bitwise_not,
    B::bool_not,
    B::int_abs,
    B::int_max,
    B::int_max_abs,
    B::int_min,
    B::int_prod,
    B::int_sign,
    B::int_sum,
];

/// Functions of two tensors.
pub static OF_TWO: &[fn(X, X) -> X] = &[
    B::float_add,
    B::float_sub,
    B::float_mul,
    B::float_div,
    B::float_remainder,
    B::float_powf,
    B::float_atan2,
    B::float_matmul,
    B::int_add,
    B::int_sub,
    B::int_mul,
    B::int_div,
    B::int_remainder,
    B::bitwise_and,
    B::bitwise_or,
    B::bitwise_xor,
    B::bitwise_left_shift,
    B::bitwise_right_shift,
    B::int_matmul,
    B::bool_and,
    B::bool_or,
    B::bool_equal,
];

/// Functions of a tensor and a scalar.
pub static OF_A_NUMBER: &[fn(X, Scalar) -> X] = &[
    B::float_add_scalar,
    B::float_sub_scalar,
    B::float_mul_scalar,
    B::float_div_scalar,
    B::float_remainder_scalar,
    B::int_add_scalar,
    B::int_sub_scalar,
    B::int_mul_scalar,
    B::int_div_scalar,
    B::int_remainder_scalar,
    B::float_powf_scalar_impl,
    B::bitwise_and_scalar,
    B::bitwise_or_scalar,
    B::bitwise_xor_scalar,
    B::bitwise_left_shift_scalar,
    B::bitwise_right_shift_scalar,
];

/// Comparisons of two tensors.
pub static COMPARISONS: &[fn(X, X, BoolDType) -> X] = &[
    B::float_equal,
    B::float_greater,
    B::float_greater_equal,
    B::float_lower,
    B::float_lower_equal,
    B::int_equal,
    B::int_greater,
    B::int_greater_equal,
    B::int_lower,
    B::int_lower_equal,
];

/// Comparisons with a scalar.
pub static COMPARISONS_WITH_A_NUMBER: &[fn(X, Scalar, BoolDType) -> X] = &[
    B::float_equal_elem,
    B::float_greater_elem,
    B::float_greater_equal_elem,
    B::float_lower_elem,
    B::float_lower_equal_elem,
    B::int_equal_elem,
    B::int_greater_elem,
    B::int_greater_equal_elem,
    B::int_lower_elem,
    B::int_lower_equal_elem,
];

/// Reductions along an axis.
pub static ALONG_AN_AXIS: &[fn(X, usize) -> X] = &[
    B::float_sum_dim,
    B::float_mean_dim,
    B::float_max_dim,
    B::float_min_dim,
    B::float_max_abs_dim,
    B::float_prod_dim,
    B::float_cumsum,
    B::float_cumprod,
    B::float_cummax,
    B::float_cummin,
    B::int_sum_dim,
    B::int_mean_dim,
    B::int_max_dim,
    B::int_min_dim,
    B::int_max_abs_dim,
    B::int_prod_dim,
    B::int_cumsum,
    B::int_cumprod,
    B::int_cummax,
    B::int_cummin,
];

/// Indices of the largest and smallest values.
pub static POSITIONS: &[fn(X, usize, IntDType) -> X] = &[B::float_argmax, B::float_argmin];

/// Largest values along an axis.
pub static LARGEST: &[fn(X, usize, usize) -> X] = &[B::float_topk, B::int_topk];

/// Indices of the largest values along an axis.
pub static POSITIONS_OF_LARGEST: &[fn(X, usize, usize, IntDType) -> X] = &[B::float_argtopk];

/// Indices of the largest and smallest integers.
pub static POSITIONS_IN_INTEGERS: &[fn(X, usize) -> X] = &[B::int_argmax, B::int_argmin];

/// Gathers of elements.
pub static AT_POSITIONS: &[fn(usize, X, X) -> X] = &[B::float_gather, B::int_gather, B::bool_gather];

/// Selections of slices by index.
pub static SELECTED: &[fn(X, usize, X) -> X] = &[B::float_select, B::int_select, B::bool_select];

/// Scatter-adds of elements.
pub static SUMS_AT_POSITIONS: &[fn(usize, X, X, X) -> X] =
    &[B::float_scatter_add, B::int_scatter_add, B::bool_scatter_or];

/// Scatter-adds of slices.
pub static SUMS_SELECTED: &[fn(X, usize, X, X) -> X] = &[B::float_select_add, B::int_select_add, B::bool_select_or];

/// Slices.
pub static PARTS: &[fn(X, &[Slice]) -> X] = &[B::float_slice, B::int_slice, B::bool_slice];

/// Slice assignments.
pub static WITH_PARTS: &[fn(X, &[Slice], X) -> X] = &[B::float_slice_assign, B::int_slice_assign, B::bool_slice_assign];

/// Selections between two tensors by a mask.
pub static MASKED: &[fn(X, X, X) -> X] = &[B::float_mask_where, B::int_mask_where, B::bool_mask_where];

/// Fills with a scalar by a mask.
pub static MASKED_BY_A_NUMBER: &[fn(X, X, Scalar) -> X] = &[B::float_mask_fill, B::int_mask_fill, B::bool_mask_fill];

/// Repetitions along an axis.
pub static REPEATED: &[fn(X, usize, usize) -> X] = &[B::float_repeat_dim, B::int_repeat_dim, B::bool_repeat_dim];

/// Reversals of axes.
pub static FLIPPED: &[fn(X, &[usize]) -> X] = &[B::float_flip, B::int_flip, B::bool_flip];

/// Clamps between two scalars.
pub static CLAMPED: &[fn(X, Scalar, Scalar) -> X] = &[B::float_clamp, B::int_clamp];

/// Conversions to integers.
pub static INTO_INTEGERS: &[fn(X, IntDType) -> X] = &[B::float_into_int, B::int_cast, B::bool_into_int];

/// Conversions to floating-point values.
pub static INTO_FLOATS: &[fn(X, FloatDType) -> X] = &[B::float_cast, B::int_into_float, B::bool_into_float];

/// Tests of floating-point values.
pub static TESTS: &[fn(X, BoolDType) -> X] = &[B::float_is_nan, B::float_is_inf];

/// Sliding windows along an axis.
pub static WINDOWS: &[fn(X, usize, usize, usize) -> X] = &[B::float_unfold, B::int_unfold, B::bool_unfold];

/// 1-D convolutions.
pub static CONVOLUTIONS: &[fn(X, X, Option<X>, ConvOptions<1>) -> X] = &[B::conv1d];

/// Input and weight gradients of 1-D convolutions.
pub static CONVOLUTION_GRADIENTS: &[fn(X, X, X, ConvOptions<1>) -> X] =
    &[B::conv1d_x_backward, B::conv1d_weight_backward];

type Pair = [usize; 2];

/// 2-D average pooling.
pub static MEANS: &[fn(X, Pair, Pair, Pair, bool, bool) -> X] = &[B::avg_pool2d];

/// Gradients of 2-D average pooling.
pub static MEAN_GRADIENTS: &[fn(X, X, Pair, Pair, Pair, bool, bool) -> X] = &[B::avg_pool2d_backward];

/// 2-D max pooling.
pub static MAXIMA: &[fn(X, Pair, Pair, Pair, Pair, bool) -> X] = &[B::max_pool2d];

/// Adaptive average pooling.
pub static MEANS_OF_A_SIZE: &[fn(X, Pair) -> X] = &[B::adaptive_avg_pool2d];

/// Gradients of adaptive average pooling.
pub static MEANS_OF_A_SIZE_GRADIENTS: &[fn(X, X) -> X] = &[B::adaptive_avg_pool2d_backward];
