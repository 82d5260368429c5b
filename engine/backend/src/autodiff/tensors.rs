//! Methods of tensors, one line each: Burn's methods where grove has no rule of its own.

use ::burn::tensor::{
    BoolDType, Device, Distribution, FloatDType, IndexingUpdateOp, IntDType, Scalar, Shape, Slice, TensorData,
    backend::ExecutionError,
    ops::{BoolTensorOps, FloatTensorOps, IntTensorOps},
};
use burn_autodiff::checkpoint::strategy::CheckpointStrategy;
use std::future::Future;

use super::{Autodiff, Bool, Burn, Float, Int, captured, compositions, rules::Rule};
use crate::{
    Backend,
    ops::{int_division, reshape},
};

impl<B: Backend, C: CheckpointStrategy> FloatTensorOps<Self> for Autodiff<B, C> {
    burn! {
        float_from_data(data: TensorData, device: &Device<B>) -> Float<B>;
        float_random(shape: Shape, distribution: Distribution, device: &Device<B>, dtype: FloatDType) -> Float<B>;
        float_zeros(shape: Shape, device: &Device<B>, dtype: FloatDType) -> Float<B>;
        float_ones(shape: Shape, device: &Device<B>, dtype: FloatDType) -> Float<B>;
        float_device(tensor: &Float<B>) -> Device<B>;
        float_empty(shape: Shape, device: &Device<B>, dtype: FloatDType) -> Float<B>;
        float_set_require_grad(tensor: Float<B>, require_grad: bool) -> Float<B>;
        float_is_require_grad(tensor: &Float<B>) -> bool;
    }

    differentiated! {
        float_add(lhs: Float<B>, rhs: Float<B>) -> Float<B>;
        float_add_scalar(lhs: Float<B>, rhs: Scalar) -> Float<B>;
        float_sub(lhs: Float<B>, rhs: Float<B>) -> Float<B>;
        float_sub_scalar(lhs: Float<B>, rhs: Scalar) -> Float<B>;
        float_mul(lhs: Float<B>, rhs: Float<B>) -> Float<B>;
        float_mul_scalar(lhs: Float<B>, rhs: Scalar) -> Float<B>;
        float_div(lhs: Float<B>, rhs: Float<B>) -> Float<B>;
        float_remainder(lhs: Float<B>, rhs: Float<B>) -> Float<B>;
        float_remainder_scalar(lhs: Float<B>, rhs: Scalar) -> Float<B>;
        float_matmul(lhs: Float<B>, rhs: Float<B>) -> Float<B>;
        float_cross(lhs: Float<B>, rhs: Float<B>, dim: usize) -> Float<B>;
        float_neg(tensor: Float<B>) -> Float<B>;
        float_recip(tensor: Float<B>) -> Float<B>;
        float_swap_dims(tensor: Float<B>, dim1: usize, dim2: usize) -> Float<B>;
        float_gather(dim: usize, tensor: Float<B>, indices: Int<B>) -> Float<B>;
        float_scatter_add(dim: usize, tensor: Float<B>, indices: Int<B>, value: Float<B>) -> Float<B>;
        float_scatter_nd(data: Float<B>, indices: Int<B>, values: Float<B>, reduction: IndexingUpdateOp) -> Float<B>;
        float_gather_nd(data: Float<B>, indices: Int<B>) -> Float<B>;
        float_select(tensor: Float<B>, dim: usize, indices: Int<B>) -> Float<B>;
        float_select_add(tensor: Float<B>, dim: usize, indices: Int<B>, value: Float<B>) -> Float<B>;
        float_mask_where(tensor: Float<B>, mask: Bool<B>, source: Float<B>) -> Float<B>;
        float_mask_fill(tensor: Float<B>, mask: Bool<B>, value: Scalar) -> Float<B>;
        float_equal(lhs: Float<B>, rhs: Float<B>, out_dtype: BoolDType) -> Bool<B>;
        float_equal_elem(lhs: Float<B>, rhs: Scalar, out_dtype: BoolDType) -> Bool<B>;
        float_greater(lhs: Float<B>, rhs: Float<B>, out_dtype: BoolDType) -> Bool<B>;
        float_greater_elem(lhs: Float<B>, rhs: Scalar, out_dtype: BoolDType) -> Bool<B>;
        float_greater_equal(lhs: Float<B>, rhs: Float<B>, out_dtype: BoolDType) -> Bool<B>;
        float_greater_equal_elem(lhs: Float<B>, rhs: Scalar, out_dtype: BoolDType) -> Bool<B>;
        float_lower(lhs: Float<B>, rhs: Float<B>, out_dtype: BoolDType) -> Bool<B>;
        float_lower_elem(lhs: Float<B>, rhs: Scalar, out_dtype: BoolDType) -> Bool<B>;
        float_lower_equal(lhs: Float<B>, rhs: Float<B>, out_dtype: BoolDType) -> Bool<B>;
        float_lower_equal_elem(lhs: Float<B>, rhs: Scalar, out_dtype: BoolDType) -> Bool<B>;
        float_is_nan(tensor: Float<B>, out_dtype: BoolDType) -> Bool<B>;
        float_is_inf(tensor: Float<B>, out_dtype: BoolDType) -> Bool<B>;
        float_detach(tensor: Float<B>) -> Float<B>;
        float_mean(tensor: Float<B>) -> Float<B>;
        float_sum(tensor: Float<B>) -> Float<B>;
        float_mean_dim(tensor: Float<B>, dim: usize) -> Float<B>;
        float_sum_dim(tensor: Float<B>, dim: usize) -> Float<B>;
        float_cumsum(tensor: Float<B>, dim: usize) -> Float<B>;
        float_cummin(tensor: Float<B>, dim: usize) -> Float<B>;
        float_cummax(tensor: Float<B>, dim: usize) -> Float<B>;
        float_argmax(tensor: Float<B>, dim: usize, out_dtype: IntDType) -> Int<B>;
        float_argtopk(tensor: Float<B>, dim: usize, k: usize, out_dtype: IntDType) -> Int<B>;
        float_argmin(tensor: Float<B>, dim: usize, out_dtype: IntDType) -> Int<B>;
        float_exp(tensor: Float<B>) -> Float<B>;
        float_log(tensor: Float<B>) -> Float<B>;
        float_log1p(tensor: Float<B>) -> Float<B>;
        float_powf_scalar_impl(tensor: Float<B>, value: Scalar) -> Float<B>;
        float_abs(tensor: Float<B>) -> Float<B>;
        float_cos(tensor: Float<B>) -> Float<B>;
        float_sin(tensor: Float<B>) -> Float<B>;
        float_tanh(tensor: Float<B>) -> Float<B>;
        float_cosh(tensor: Float<B>) -> Float<B>;
        float_sinh(tensor: Float<B>) -> Float<B>;
        float_tan(tensor: Float<B>) -> Float<B>;
        float_asin(tensor: Float<B>) -> Float<B>;
        float_acos(tensor: Float<B>) -> Float<B>;
        float_atan(tensor: Float<B>) -> Float<B>;
        float_asinh(tensor: Float<B>) -> Float<B>;
        float_acosh(tensor: Float<B>) -> Float<B>;
        float_atanh(tensor: Float<B>) -> Float<B>;
        float_atan2(y: Float<B>, x: Float<B>) -> Float<B>;
        float_round(tensor: Float<B>) -> Float<B>;
        float_floor(tensor: Float<B>) -> Float<B>;
        float_ceil(tensor: Float<B>) -> Float<B>;
        float_trunc(tensor: Float<B>) -> Float<B>;
        float_erf(tensor: Float<B>) -> Float<B>;
        float_cat(tensors: Vec<Float<B>>, dim: usize) -> Float<B>;
        float_max_dim_with_indices(tensor: Float<B>, dim: usize, indices_dtype: IntDType) -> (Float<B>, Int<B>);
        float_min_dim_with_indices(tensor: Float<B>, dim: usize, indices_dtype: IntDType) -> (Float<B>, Int<B>);
        float_into_int(tensor: Float<B>, out_dtype: IntDType) -> Int<B>;
        float_sign(tensor: Float<B>) -> Float<B>;
        float_expand(tensor: Float<B>, shape: Shape) -> Float<B>;
        float_sort(tensor: Float<B>, dim: usize, descending: bool) -> Float<B>;
        float_sort_with_indices(tensor: Float<B>, dim: usize, descending: bool, indices_dtype: IntDType) -> (Float<B>, Int<B>);
        float_argsort(tensor: Float<B>, dim: usize, descending: bool, out_dtype: IntDType) -> Int<B>;
        float_unfold(tensor: Float<B>, dim: usize, size: usize, step: usize) -> Float<B>;
    }

    fn float_to_device(tensor: Float<B>, device: &Device<B>) -> Float<B> {
        Burn::<B, C>::float_to_device(captured::tensor(tensor), device)
    }

    fn float_reshape(tensor: Float<B>, shape: Shape) -> Float<B> {
        compositions::reshape::<B, C>(captured::tensor(tensor), shape)
    }

    fn float_permute(tensor: Float<B>, axes: &[usize]) -> Float<B> {
        Burn::<B, C>::float_permute(captured::tensor(tensor), axes)
    }

    fn float_flip(tensor: Float<B>, axes: &[usize]) -> Float<B> {
        Burn::<B, C>::float_flip(captured::tensor(tensor), axes)
    }

    fn float_slice(tensor: Float<B>, slices: &[Slice]) -> Float<B> {
        Burn::<B, C>::float_slice(captured::tensor(tensor), slices)
    }

    fn float_slice_assign(tensor: Float<B>, slices: &[Slice], value: Float<B>) -> Float<B> {
        Burn::<B, C>::float_slice_assign(captured::tensor(tensor), slices, captured::tensor(value))
    }

    fn float_into_data(tensor: Float<B>) -> impl Future<Output = Result<TensorData, ExecutionError>> + Send {
        Burn::<B, C>::float_into_data(tensor)
    }

    fn float_cast(tensor: Float<B>, dtype: FloatDType) -> Float<B> {
        compositions::cast::<Self>(captured::tensor(tensor), dtype.into())
    }

    fn float_repeat_dim(tensor: Float<B>, dim: usize, times: usize) -> Float<B> {
        compositions::repeat_dim::<Self>(tensor, dim, times)
    }

    fn float_prod(tensor: Float<B>) -> Float<B> {
        compositions::prod::<Self>(tensor)
    }

    fn float_prod_dim(tensor: Float<B>, dim: usize) -> Float<B> {
        Rule::Product { dim }.of::<Self>([tensor])
    }

    fn float_cumprod(tensor: Float<B>, dim: usize) -> Float<B> {
        compositions::cumprod::<B, C>(captured::tensor(tensor), dim)
    }

    fn float_powf(base: Float<B>, exponent: Float<B>) -> Float<B> {
        Rule::Power.of::<Self>([base, exponent])
    }

    fn float_powi_scalar(base: Float<B>, exponent: Scalar) -> Float<B> {
        compositions::powi_scalar::<B, C>(captured::tensor(base), exponent)
    }

    fn float_sqrt(tensor: Float<B>) -> Float<B> {
        Rule::Sqrt.of::<Self>([tensor])
    }

    fn float_max_dim(tensor: Float<B>, dim: usize) -> Float<B> {
        Rule::Extreme { dim, max: true }.of::<Self>([tensor])
    }

    fn float_min_dim(tensor: Float<B>, dim: usize) -> Float<B> {
        Rule::Extreme { dim, max: false }.of::<Self>([tensor])
    }

    fn float_topk(tensor: Float<B>, dim: usize, k: usize) -> Float<B> {
        compositions::topk::<B, C>(captured::tensor(tensor), dim, k)
    }

    fn float_div_scalar(tensor: Float<B>, number: Scalar) -> Float<B> {
        compositions::div_scalar::<B, C>(captured::tensor(tensor), number)
    }
}

impl<B: Backend, C: CheckpointStrategy> IntTensorOps<Self> for Autodiff<B, C> {
    inner! {
        int_from_data(data: TensorData, device: &Device<B>) -> Int<B>;
        int_to_device(tensor: Int<B>, device: &Device<B>) -> Int<B>;
        int_device(tensor: &Int<B>) -> Device<B>;
        int_slice(tensor: Int<B>, slices: &[Slice]) -> Int<B>;
        int_empty(shape: Shape, device: &Device<B>, dtype: IntDType) -> Int<B>;
        int_slice_assign(tensor: Int<B>, slices: &[Slice], value: Int<B>) -> Int<B>;
        int_cat(tensors: Vec<Int<B>>, dim: usize) -> Int<B>;
        int_equal(lhs: Int<B>, rhs: Int<B>, out_dtype: BoolDType) -> Bool<B>;
        int_equal_elem(lhs: Int<B>, rhs: Scalar, out_dtype: BoolDType) -> Bool<B>;
        int_add(lhs: Int<B>, rhs: Int<B>) -> Int<B>;
        int_add_scalar(lhs: Int<B>, rhs: Scalar) -> Int<B>;
        int_clamp_min(tensor: Int<B>, min: Scalar) -> Int<B>;
        int_clamp_max(tensor: Int<B>, max: Scalar) -> Int<B>;
        int_clamp(tensor: Int<B>, min: Scalar, max: Scalar) -> Int<B>;
        int_sub(lhs: Int<B>, rhs: Int<B>) -> Int<B>;
        int_sub_scalar(lhs: Int<B>, rhs: Scalar) -> Int<B>;
        int_mul(lhs: Int<B>, rhs: Int<B>) -> Int<B>;
        int_mul_scalar(lhs: Int<B>, rhs: Scalar) -> Int<B>;
        int_matmul(lhs: Int<B>, rhs: Int<B>) -> Int<B>;
        int_neg(tensor: Int<B>) -> Int<B>;
        int_zeros(shape: Shape, device: &Device<B>, dtype: IntDType) -> Int<B>;
        int_ones(shape: Shape, device: &Device<B>, dtype: IntDType) -> Int<B>;
        int_full(shape: Shape, fill_value: Scalar, device: &Device<B>, dtype: IntDType) -> Int<B>;
        int_sum(tensor: Int<B>) -> Int<B>;
        int_sum_dim(tensor: Int<B>, dim: usize) -> Int<B>;
        int_mean(tensor: Int<B>) -> Int<B>;
        int_mean_dim(tensor: Int<B>, dim: usize) -> Int<B>;
        int_cumsum(tensor: Int<B>, dim: usize) -> Int<B>;
        int_cumprod(tensor: Int<B>, dim: usize) -> Int<B>;
        int_cummin(tensor: Int<B>, dim: usize) -> Int<B>;
        int_cummax(tensor: Int<B>, dim: usize) -> Int<B>;
        int_repeat_dim(tensor: Int<B>, dim: usize, times: usize) -> Int<B>;
        int_greater(lhs: Int<B>, rhs: Int<B>, out_dtype: BoolDType) -> Bool<B>;
        int_greater_elem(lhs: Int<B>, rhs: Scalar, out_dtype: BoolDType) -> Bool<B>;
        int_greater_equal(lhs: Int<B>, rhs: Int<B>, out_dtype: BoolDType) -> Bool<B>;
        int_greater_equal_elem(lhs: Int<B>, rhs: Scalar, out_dtype: BoolDType) -> Bool<B>;
        int_lower(lhs: Int<B>, rhs: Int<B>, out_dtype: BoolDType) -> Bool<B>;
        int_lower_elem(lhs: Int<B>, rhs: Scalar, out_dtype: BoolDType) -> Bool<B>;
        int_lower_equal(lhs: Int<B>, rhs: Int<B>, out_dtype: BoolDType) -> Bool<B>;
        int_lower_equal_elem(lhs: Int<B>, rhs: Scalar, out_dtype: BoolDType) -> Bool<B>;
        int_gather(dim: usize, tensor: Int<B>, indices: Int<B>) -> Int<B>;
        int_scatter_add(dim: usize, tensor: Int<B>, indices: Int<B>, value: Int<B>) -> Int<B>;
        int_select(tensor: Int<B>, dim: usize, indices: Int<B>) -> Int<B>;
        int_select_add(tensor: Int<B>, dim: usize, indices: Int<B>, value: Int<B>) -> Int<B>;
        int_mask_where(tensor: Int<B>, mask: Bool<B>, value: Int<B>) -> Int<B>;
        int_mask_fill(tensor: Int<B>, mask: Bool<B>, value: Scalar) -> Int<B>;
        int_argmax(tensor: Int<B>, dim: usize) -> Int<B>;
        int_argtopk(tensor: Int<B>, dim: usize, k: usize) -> Int<B>;
        int_argmin(tensor: Int<B>, dim: usize) -> Int<B>;
        int_max(tensor: Int<B>) -> Int<B>;
        int_max_dim(tensor: Int<B>, dim: usize) -> Int<B>;
        int_topk(tensor: Int<B>, dim: usize, k: usize) -> Int<B>;
        int_max_dim_with_indices(tensor: Int<B>, dim: usize) -> (Int<B>, Int<B>);
        int_min(tensor: Int<B>) -> Int<B>;
        int_min_dim(tensor: Int<B>, dim: usize) -> Int<B>;
        int_min_dim_with_indices(tensor: Int<B>, dim: usize) -> (Int<B>, Int<B>);
        int_abs(tensor: Int<B>) -> Int<B>;
        int_swap_dims(tensor: Int<B>, dim1: usize, dim2: usize) -> Int<B>;
        int_random(shape: Shape, distribution: Distribution, device: &Device<B>, dtype: IntDType) -> Int<B>;
        int_arange(range: core::ops::Range<i64>, device: &Device<B>, dtype: IntDType) -> Int<B>;
        int_permute(tensor: Int<B>, axes: &[usize]) -> Int<B>;
        int_flip(tensor: Int<B>, axes: &[usize]) -> Int<B>;
        int_sign(tensor: Int<B>) -> Int<B>;
        int_prod(tensor: Int<B>) -> Int<B>;
        int_prod_dim(tensor: Int<B>, dim: usize) -> Int<B>;
        int_expand(tensor: Int<B>, shape: Shape) -> Int<B>;
        int_sort(tensor: Int<B>, dim: usize, descending: bool) -> Int<B>;
        int_sort_with_indices(tensor: Int<B>, dim: usize, descending: bool) -> (Int<B>, Int<B>);
        int_argsort(tensor: Int<B>, dim: usize, descending: bool) -> Int<B>;
        bitwise_and(lhs: Int<B>, rhs: Int<B>) -> Int<B>;
        bitwise_and_scalar(lhs: Int<B>, rhs: Scalar) -> Int<B>;
        bitwise_or(lhs: Int<B>, rhs: Int<B>) -> Int<B>;
        bitwise_or_scalar(lhs: Int<B>, rhs: Scalar) -> Int<B>;
        bitwise_xor(lhs: Int<B>, rhs: Int<B>) -> Int<B>;
        bitwise_xor_scalar(lhs: Int<B>, rhs: Scalar) -> Int<B>;
        bitwise_not(tensor: Int<B>) -> Int<B>;
        bitwise_left_shift(lhs: Int<B>, rhs: Int<B>) -> Int<B>;
        bitwise_left_shift_scalar(lhs: Int<B>, rhs: Scalar) -> Int<B>;
        bitwise_right_shift(lhs: Int<B>, rhs: Int<B>) -> Int<B>;
        bitwise_right_shift_scalar(lhs: Int<B>, rhs: Scalar) -> Int<B>;
        int_cast(tensor: Int<B>, dtype: IntDType) -> Int<B>;
        int_unfold(tensor: Int<B>, dim: usize, size: usize, step: usize) -> Int<B>;
    }

    fn int_into_float(tensor: Int<B>, out_dtype: FloatDType) -> Float<B> {
        Burn::<B, C>::int_into_float(tensor, out_dtype)
    }

    fn int_into_data(tensor: Int<B>) -> impl Future<Output = Result<TensorData, ExecutionError>> + Send {
        B::int_into_data(tensor)
    }

    fn int_div(lhs: Int<B>, rhs: Int<B>) -> Int<B> {
        int_division::quotient::<B>(lhs, rhs)
    }

    fn int_div_scalar(lhs: Int<B>, rhs: Scalar) -> Int<B> {
        int_division::quotient_by::<B>(lhs, rhs)
    }

    fn int_remainder(lhs: Int<B>, rhs: Int<B>) -> Int<B> {
        int_division::remainder::<B>(lhs, rhs)
    }

    fn int_reshape(tensor: Int<B>, shape: Shape) -> Int<B> {
        reshape(tensor, shape, B::int_reshape)
    }

    fn int_remainder_scalar(lhs: Int<B>, rhs: Scalar) -> Int<B> {
        int_division::remainder_by::<B>(lhs, rhs)
    }
}

impl<B: Backend, C: CheckpointStrategy> BoolTensorOps<Self> for Autodiff<B, C> {
    inner! {
        bool_from_data(data: TensorData, device: &Device<B>) -> Bool<B>;
        bool_into_int(tensor: Bool<B>, out_dtype: IntDType) -> Int<B>;
        bool_to_device(tensor: Bool<B>, device: &Device<B>) -> Bool<B>;
        bool_device(tensor: &Bool<B>) -> Device<B>;
        bool_slice(tensor: Bool<B>, slices: &[Slice]) -> Bool<B>;
        bool_empty(shape: Shape, device: &Device<B>, dtype: BoolDType) -> Bool<B>;
        bool_zeros(shape: Shape, device: &Device<B>, dtype: BoolDType) -> Bool<B>;
        bool_ones(shape: Shape, device: &Device<B>, dtype: BoolDType) -> Bool<B>;
        bool_slice_assign(tensor: Bool<B>, slices: &[Slice], value: Bool<B>) -> Bool<B>;
        bool_cat(tensors: Vec<Bool<B>>, dim: usize) -> Bool<B>;
        bool_equal(lhs: Bool<B>, rhs: Bool<B>) -> Bool<B>;
        bool_not(tensor: Bool<B>) -> Bool<B>;
        bool_and(lhs: Bool<B>, rhs: Bool<B>) -> Bool<B>;
        bool_or(lhs: Bool<B>, rhs: Bool<B>) -> Bool<B>;
        bool_xor(lhs: Bool<B>, rhs: Bool<B>) -> Bool<B>;
        bool_swap_dims(tensor: Bool<B>, dim1: usize, dim2: usize) -> Bool<B>;
        bool_permute(tensor: Bool<B>, axes: &[usize]) -> Bool<B>;
        bool_flip(tensor: Bool<B>, axes: &[usize]) -> Bool<B>;
        bool_expand(tensor: Bool<B>, shape: Shape) -> Bool<B>;
        bool_repeat_dim(tensor: Bool<B>, dim: usize, times: usize) -> Bool<B>;
        bool_unfold(tensor: Bool<B>, dim: usize, size: usize, step: usize) -> Bool<B>;
        bool_mask_where(tensor: Bool<B>, mask: Bool<B>, source: Bool<B>) -> Bool<B>;
        bool_mask_fill(tensor: Bool<B>, mask: Bool<B>, value: Scalar) -> Bool<B>;
        bool_gather(dim: usize, tensor: Bool<B>, indices: Int<B>) -> Bool<B>;
        bool_scatter_or(dim: usize, tensor: Bool<B>, indices: Int<B>, value: Bool<B>) -> Bool<B>;
        bool_equal_elem(lhs: Bool<B>, rhs: Scalar) -> Bool<B>;
        bool_select(tensor: Bool<B>, dim: usize, indices: Int<B>) -> Bool<B>;
        bool_select_or(tensor: Bool<B>, dim: usize, indices: Int<B>, value: Bool<B>) -> Bool<B>;
    }

    fn bool_reshape(tensor: Bool<B>, shape: Shape) -> Bool<B> {
        reshape(tensor, shape, B::bool_reshape)
    }

    fn bool_into_float(tensor: Bool<B>, out_dtype: FloatDType) -> Float<B> {
        Burn::<B, C>::bool_into_float(tensor, out_dtype)
    }

    fn bool_into_data(tensor: Bool<B>) -> impl Future<Output = Result<TensorData, ExecutionError>> + Send {
        B::bool_into_data(tensor)
    }

    fn bool_argwhere(tensor: Bool<B>, out_dtype: IntDType) -> impl Future<Output = Int<B>> + Send {
        B::bool_argwhere(tensor, out_dtype)
    }
}
