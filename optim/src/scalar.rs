use burn::tensor::{DType, FloatDType, Tensor};
use grove_backend::Backend;
use grove_tree::Tree;

use crate::{
    Count, Schedule,
    leafwise::precision,
    transformation::{has_no_leaves, increment, zero_count},
};

/// A hyperparameter: a constant, or an array `[1]` that [`inject_hyperparams`](crate::inject_hyperparams) reads from
/// its state.
#[derive(Clone, Debug)]
pub enum Scalar<B: Backend> {
    /// A constant of the program.
    Number(f64),
    /// A value of the state.
    Array(Tensor<B, 1>),
}

impl<B: Backend> Scalar<B> {
    /// Product with a tensor `[n]`.
    pub(crate) fn times(&self, x: Tensor<B, 1>) -> Tensor<B, 1> {
        match self {
            Self::Number(number) => x.mul_scalar(*number),
            Self::Array(array) => scaled(x, array.clone()),
        }
    }

    /// Sum with a tensor `[n]`. The constant 0 launches nothing.
    pub(crate) fn plus(&self, x: Tensor<B, 1>) -> Tensor<B, 1> {
        match self {
            Self::Number(0.0) => x,
            Self::Number(number) => x.add_scalar(*number),
            Self::Array(array) => {
                let array = like(array.clone(), &x);
                x + array
            }
        }
    }

    /// 1 minus this.
    pub(crate) fn complement(&self) -> Self {
        match self {
            Self::Number(number) => Self::Number(1.0 - number),
            Self::Array(array) => Self::Array(array.clone().neg().add_scalar(1.0)),
        }
    }

    /// The negated value.
    pub(crate) fn negated(&self) -> Self {
        match self {
            Self::Number(number) => Self::Number(-number),
            Self::Array(array) => Self::Array(array.clone().neg()),
        }
    }

    /// Converts to an array `[1]` of a type.
    pub(crate) fn array(&self, device: &B::Device, dtype: FloatDType) -> Tensor<B, 1> {
        match self {
            Self::Number(number) => Tensor::full([1], *number, (device, DType::from(dtype))),
            Self::Array(array) if array.dtype() == DType::from(dtype) => array.clone(),
            Self::Array(array) => array.clone().cast(dtype),
        }
    }

    /// Converts to an array `[1]` of the type of a tensor, on its device.
    pub(crate) fn array_like(&self, x: &Tensor<B, 1>) -> Tensor<B, 1> {
        self.array(&x.device(), x.dtype().into())
    }

    /// Returns true if this is the constant 0.
    pub(crate) fn is_zero(&self) -> bool {
        matches!(self, Self::Number(0.0))
    }
}

impl<B: Backend> From<f64> for Scalar<B> {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl<B: Backend> From<Tensor<B, 1>> for Scalar<B> {
    fn from(array: Tensor<B, 1>) -> Self {
        Self::Array(array)
    }
}

/// Casts a value `[1]` to the type of a tensor `[n]`: a tree may have leaves of f32 and of f64.
fn like<B: Backend>(number: Tensor<B, 1>, x: &Tensor<B, 1>) -> Tensor<B, 1> {
    if number.dtype() == x.dtype() { number } else { number.cast(x.dtype()) }
}

/// Product of `[n]` and a value `[1]` of any type.
pub(crate) fn scaled<B: Backend>(x: Tensor<B, 1>, factor: Tensor<B, 1>) -> Tensor<B, 1> {
    let factor = like(factor, &x);
    x * factor
}

/// Quotient of `[n]` and a value `[1]` of any type.
pub(crate) fn divided<B: Backend>(x: Tensor<B, 1>, divisor: Tensor<B, 1>) -> Tensor<B, 1> {
    let divisor = like(divisor, &x);
    x / divisor
}

/// A hyperparameter, such as a learning rate, that may follow a schedule.
#[derive(Clone, Debug)]
pub enum ScalarOrSchedule<B: Backend> {
    /// The same at each step, unless it is an injected hyperparameter that is set.
    Scalar(Scalar<B>),
    /// A function of the step count.
    Schedule(Schedule),
}

impl<B: Backend> ScalarOrSchedule<B> {
    /// Initial state: the step count for a schedule, `None` otherwise.
    pub(crate) fn init<P: Tree<B>>(&self, params: &P) -> Option<Count<B>> {
        matches!(self, Self::Schedule(_)).then(|| zero_count(params))
    }

    /// Returns the value at this step, and the count for the next one. A schedule is computed in the precision of the
    /// updates; without leaves its value is 0, which nothing uses.
    #[track_caller]
    pub(crate) fn step<P: Tree<B>>(&self, count: Option<Count<B>>, updates: &P) -> (Scalar<B>, Option<Count<B>>) {
        match (self, count) {
            (Self::Scalar(scalar), count) => (scalar.clone(), count),
            (Self::Schedule(_), Some(count)) if has_no_leaves(updates, &count) => (0.0.into(), Some(count)),
            (Self::Schedule(schedule), Some(count)) => {
                (Scalar::Array(schedule.at_in(count.val(), precision(updates))), Some(increment(count)))
            }
            (Self::Schedule(_), None) => {
                panic!("the state does not belong to this chain: a number became a schedule")
            }
        }
    }
}

impl<B: Backend> From<Scalar<B>> for ScalarOrSchedule<B> {
    fn from(scalar: Scalar<B>) -> Self {
        Self::Scalar(scalar)
    }
}

impl<B: Backend> From<f64> for ScalarOrSchedule<B> {
    fn from(number: f64) -> Self {
        Self::Scalar(number.into())
    }
}

impl<B: Backend> From<Tensor<B, 1>> for ScalarOrSchedule<B> {
    fn from(array: Tensor<B, 1>) -> Self {
        Self::Scalar(array.into())
    }
}

/// A closure of the step count is a schedule.
impl<B: Backend, F: Fn(u64) -> f64 + Send + Sync + 'static> From<F> for ScalarOrSchedule<B> {
    fn from(function: F) -> Self {
        Self::Schedule(function.into())
    }
}

impl<B: Backend> From<Schedule> for ScalarOrSchedule<B> {
    fn from(schedule: Schedule) -> Self {
        Self::Schedule(schedule)
    }
}
