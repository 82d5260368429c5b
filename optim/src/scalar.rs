use burn::tensor::{DType, FloatDType, Tensor};
use grove_backend::{Backend, to_dtype};
use grove_tree::{Array, Tree};

use crate::{
    Count, Schedule,
    leafwise::precision,
    transformation::{device_of, has_no_leaves, increment, zero_count},
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
    /// Multiplies a tensor `[n]` by the value.
    pub(crate) fn times(&self, x: Tensor<B, 1>) -> Tensor<B, 1> {
        match self {
            Self::Number(number) => x.mul_scalar(*number),
            Self::Array(array) => scaled(x, array.clone()),
        }
    }

    /// Adds the value to a tensor `[n]`. The constant 0 launches no kernel.
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

    /// Returns 1 minus the value.
    pub(crate) fn complement(&self) -> Self {
        match self {
            Self::Number(number) => Self::Number(1.0 - number),
            Self::Array(array) => Self::Array(array.clone().neg().add_scalar(1.0)),
        }
    }

    /// Returns the negated value.
    pub(crate) fn negated(&self) -> Self {
        match self {
            Self::Number(number) => Self::Number(-number),
            Self::Array(array) => Self::Array(array.clone().neg()),
        }
    }

    /// Converts to an array `[1]` of a dtype.
    pub(crate) fn array(&self, device: &B::Device, dtype: FloatDType) -> Tensor<B, 1> {
        match self {
            Self::Number(number) => Tensor::full([1], *number, (device, DType::from(dtype))),
            Self::Array(array) if array.dtype() == DType::from(dtype) => array.clone(),
            Self::Array(array) => array.clone().cast(dtype),
        }
    }

    /// Converts to an array `[1]` with the dtype and device of a tensor.
    pub(crate) fn array_like(&self, x: &Tensor<B, 1>) -> Tensor<B, 1> {
        self.array(&x.device(), x.dtype().into())
    }

    /// Returns the value as a leaf `[1]` of a state, in the precision of the parameters. It is absent for a skeleton and
    /// for a tree without leaves.
    pub(crate) fn leaf<P: Tree<B>>(&self, params: &P) -> Array<B, 1> {
        let dtype = precision(params);
        match device_of(params) {
            Some(device) => Array::new(self.array(&device, dtype)),
            None => Array::absent_of([1], dtype.into()),
        }
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

/// Casts a value `[1]` to the dtype of a tensor `[n]`: a tree may have f32 and f64 leaves.
fn like<B: Backend>(number: Tensor<B, 1>, x: &Tensor<B, 1>) -> Tensor<B, 1> {
    to_dtype(number, x.dtype())
}

/// Multiplies `[n]` by a value `[1]` of any dtype.
pub(crate) fn scaled<B: Backend>(x: Tensor<B, 1>, factor: Tensor<B, 1>) -> Tensor<B, 1> {
    let factor = like(factor, &x);
    x * factor
}

/// Divides `[n]` by a value `[1]` of any dtype.
pub(crate) fn divided<B: Backend>(x: Tensor<B, 1>, divisor: Tensor<B, 1>) -> Tensor<B, 1> {
    let divisor = like(divisor, &x);
    x / divisor
}

/// A hyperparameter, such as a learning rate, that may follow a schedule.
#[derive(Clone, Debug)]
pub enum ScalarOrSchedule<B: Backend> {
    /// A constant, or the current value of an injected hyperparameter.
    Scalar(Scalar<B>),
    /// A function of the step count.
    Schedule(Schedule),
}

impl<B: Backend> ScalarOrSchedule<B> {
    /// Returns the initial state: the step count for a schedule, `None` otherwise.
    pub(crate) fn init<P: Tree<B>>(&self, params: &P) -> Option<Count<B>> {
        matches!(self, Self::Schedule(_)).then(|| zero_count(params))
    }

    /// Returns the value at this step, and the count for the next one. A schedule is evaluated in the precision of the
    /// updates. Without leaves its value is 0 and unused.
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

/// Converts a closure of the step count into a schedule.
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
