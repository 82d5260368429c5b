//! Burn's max pooling with NaN as the maximum of its window, as in PyTorch and JAX.
//!
//! Burn's methods return the largest of the other elements of most windows with NaN.

use burn::tensor::{
    TensorMetadata,
    ops::{BoolTensor, FloatTensor, IntTensor},
};
use burn_backend::get_device_settings;

use super::Backend;

/// Returns the maxima of windows. `pool` is Burn's pooling.
pub fn maxima<B: Backend>(x: FloatTensor<B>, pool: impl Fn(FloatTensor<B>) -> FloatTensor<B>) -> FloatTensor<B> {
    if B::POOLS_NAN {
        return pool(x);
    }
    let largest = pool(places_of_nan::<B>(&x));
    with_nan::<B>(pool(x), largest).0
}

/// Returns the maxima of windows and their indices; the index of the first NaN if a window contains several. `pool` is
/// Burn's pooling.
pub fn maxima_with_indices<B: Backend>(
    x: FloatTensor<B>,
    pool: impl Fn(FloatTensor<B>) -> (FloatTensor<B>, IntTensor<B>),
) -> (FloatTensor<B>, IntTensor<B>) {
    if B::POOLS_NAN {
        return pool(x);
    }
    let (largest, indices_of_nan) = pool(places_of_nan::<B>(&x));
    let (y, indices) = pool(x);
    let (y, has_nan) = with_nan::<B>(y, largest);
    (y, B::int_mask_where(indices, has_nan, indices_of_nan))
}

/// Returns 1 for each NaN and 0 for other elements.
fn places_of_nan<B: Backend>(x: &FloatTensor<B>) -> FloatTensor<B> {
    let settings = get_device_settings::<B>(&B::float_device(x));
    B::bool_into_float(B::float_is_nan(x.clone(), settings.bool_dtype), x.dtype().into())
}

/// Replaces maxima of windows with NaN, for which `largest` is 1. Also returns these windows.
fn with_nan<B: Backend>(y: FloatTensor<B>, largest: FloatTensor<B>) -> (FloatTensor<B>, BoolTensor<B>) {
    let settings = get_device_settings::<B>(&B::float_device(&y));
    let has_nan = B::float_greater_elem(largest, 0.0.into(), settings.bool_dtype);
    (B::float_mask_fill(y, has_nan.clone(), f64::NAN.into()), has_nan)
}
