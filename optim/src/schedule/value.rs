//! Arithmetic of schedules, on floats for logs and plots, and on arrays in a train step. The formulas are written once,
//! for both.

use burn::tensor::{Tensor, TensorData};
use grove_backend::Backend;

use super::ScheduleFunction;

/// A float, or an array of one value.
pub(super) trait Value: Clone {
    /// The constant `value`, of the type and device of `self`.
    fn constant(&self, value: f64) -> Self;
    fn plus(self, term: f64) -> Self;
    fn times(self, factor: f64) -> Self;
    /// Raises a fraction, from 0 to 1, to a power.
    fn power(self, exponent: f64) -> Self;
    /// Raises `base` to the power `self`.
    fn exponent_of(self, base: f64) -> Self;
    fn cos(self) -> Self;
    fn floor(self) -> Self;
    fn clamp(self, low: f64, high: f64) -> Self;
    /// Returns `then` if `self` is below the bound, else `otherwise`.
    fn below(&self, bound: f64, then: Self, otherwise: Self) -> Self;
    /// Returns the element of a table at index `self`; the last element for indices past the end.
    fn lookup(self, table: &[f64]) -> Self;
    /// Returns the value of a closure at step `self`; negative steps count as step 0.
    fn function(self, function: &ScheduleFunction) -> Self;
}

impl Value for f64 {
    fn constant(&self, value: f64) -> Self {
        value
    }
    fn plus(self, term: f64) -> Self {
        self + term
    }
    fn times(self, factor: f64) -> Self {
        self * factor
    }
    fn power(self, exponent: f64) -> Self {
        self.powf(exponent)
    }
    fn exponent_of(self, base: f64) -> Self {
        base.powf(self)
    }
    fn cos(self) -> Self {
        f64::cos(self)
    }
    fn floor(self) -> Self {
        f64::floor(self)
    }
    fn clamp(self, low: f64, high: f64) -> Self {
        self.max(low).min(high)
    }
    fn below(&self, bound: f64, then: Self, otherwise: Self) -> Self {
        if *self < bound { then } else { otherwise }
    }
    fn lookup(self, table: &[f64]) -> Self {
        let index = self.clamp(0.0, table.len().saturating_sub(1) as f64) as usize;
        table.get(index).copied().unwrap_or_default()
    }
    fn function(self, function: &ScheduleFunction) -> Self {
        function.value(self as u64)
    }
}

/// f32, as in optax, where counts are exact up to 2^24, or f64 for f64 parameters.
impl<B: Backend> Value for Tensor<B, 1> {
    fn constant(&self, value: f64) -> Self {
        Tensor::full([1], value, (&self.device(), self.dtype()))
    }
    fn plus(self, term: f64) -> Self {
        if term == 0.0 { self } else { self.add_scalar(term) }
    }
    fn times(self, factor: f64) -> Self {
        self.mul_scalar(factor)
    }
    fn power(self, exponent: f64) -> Self {
        // Fused multiply-add on a GPU rounds once, so a fraction that ends at 0 may be negative, and its power NaN.
        if exponent == 1.0 { self } else { self.clamp_min(0.0).powf_scalar(exponent) }
    }
    fn exponent_of(self, base: f64) -> Self {
        self.constant(base).powf(self)
    }
    fn cos(self) -> Self {
        Tensor::cos(self)
    }
    fn floor(self) -> Self {
        Tensor::floor(self)
    }
    fn clamp(self, low: f64, high: f64) -> Self {
        let raised = if low == f64::NEG_INFINITY { self } else { self.clamp_min(low) };
        if high == f64::INFINITY { raised } else { raised.clamp_max(high) }
    }
    fn below(&self, bound: f64, then: Self, otherwise: Self) -> Self {
        otherwise.mask_where(self.clone().lower_elem(bound), then)
    }
    fn lookup(self, table: &[f64]) -> Self {
        if table.is_empty() {
            return self.constant(0.0);
        }
        let numbers = TensorData::new(table.to_vec(), [table.len()]).convert_dtype(self.dtype());
        let index = Value::clamp(self.clone(), 0.0, (table.len() - 1) as f64).int();
        Tensor::from_data(numbers, (&self.device(), self.dtype())).select(0, index)
    }
    fn function(self, function: &ScheduleFunction) -> Self {
        let step = self.to_data().iter::<f64>().next().unwrap_or_default();
        self.constant(function.value(step as u64))
    }
}
