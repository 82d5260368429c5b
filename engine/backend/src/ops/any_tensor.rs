use burn::tensor::{
    Bool, DType, FloatDType, Int, Scalar, Shape, Tensor, TensorData, TensorMetadata,
    backend::{Backend, BackendTypes},
    ops::{BoolTensor, FloatTensor, IntTensor},
};

use super::{Chunk, Values, apply, float, part_of_axis, precision::cast, reshape};

/// A tensor of any kind and rank, as held by operations and leaves of trees.
///
/// Cloning copies a handle, not the values. Functions of floating-point values return other kinds unchanged, or `None` if
/// they return an option.
#[derive(Clone, Debug)]
pub enum AnyTensor<B: Backend> {
    /// Floating-point values.
    Float(FloatTensor<B>),
    /// Integers.
    Int(IntTensor<B>),
    /// Booleans.
    Bool(BoolTensor<B>),
}

/// Applies the function for the tensor's kind and keeps the kind.
macro_rules! by_kind {
    ($tensor:expr, $x:ident => $float:expr, $int:expr, $bool:expr) => {
        match $tensor {
            AnyTensor::Float($x) => AnyTensor::Float($float),
            AnyTensor::Int($x) => AnyTensor::Int($int),
            AnyTensor::Bool($x) => AnyTensor::Bool($bool),
        }
    };
}

impl<B: super::Backend> AnyTensor<B> {
    /// Casts floating-point values to another floating-point dtype.
    pub fn cast_float(self, dtype: FloatDType) -> Self {
        self.map_float(|x| cast::<B>(x, dtype.into()))
    }
}

impl<B: Backend> AnyTensor<B> {
    /// Copies values to a device. The data's dtype determines the kind and is kept.
    pub fn from_data(data: TensorData, device: &<B as BackendTypes>::Device) -> Self {
        match data.dtype {
            dtype if dtype.is_float() => Self::Float(B::float_from_data(data, device)),
            DType::Bool(_) => Self::Bool(bool_from_data::<B>(data, device)),
            _ => Self::Int(B::int_from_data(data, device)),
        }
    }

    /// Returns the shape.
    pub fn shape(&self) -> Shape {
        match self {
            Self::Float(x) => x.shape(),
            Self::Int(x) => x.shape(),
            Self::Bool(x) => x.shape(),
        }
    }

    /// Returns the dtype.
    pub fn dtype(&self) -> DType {
        match self {
            Self::Float(x) => x.dtype(),
            Self::Int(x) => x.dtype(),
            Self::Bool(x) => x.dtype(),
        }
    }

    /// Returns the device.
    pub fn device(&self) -> <B as BackendTypes>::Device {
        match self {
            Self::Float(x) => B::float_device(x),
            Self::Int(x) => B::int_device(x),
            Self::Bool(x) => B::bool_device(x),
        }
    }

    /// Returns the floating-point tensor; `None` for another kind or rank.
    pub fn into_float<const D: usize>(self) -> Option<Tensor<B, D>> {
        match self {
            Self::Float(x) if x.rank() == D => Some(float(x)),
            _ => None,
        }
    }

    /// Returns the integer tensor; `None` for another kind or rank.
    pub fn into_int<const D: usize>(self) -> Option<Tensor<B, D, Int>> {
        match self {
            Self::Int(x) if x.rank() == D => Some(Tensor::from_primitive(x)),
            _ => None,
        }
    }

    /// Returns the boolean tensor; `None` for another kind or rank.
    pub fn into_bool<const D: usize>(self) -> Option<Tensor<B, D, Bool>> {
        match self {
            Self::Bool(x) if x.rank() == D => Some(Tensor::from_primitive(x)),
            _ => None,
        }
    }

    /// Moves the tensor to another device of the same backend.
    pub fn to_device(self, device: &<B as BackendTypes>::Device) -> Self {
        by_kind!(self, x => B::float_to_device(x, device), B::int_to_device(x, device), B::bool_to_device(x, device))
    }

    /// Returns zeros (false for booleans) of the same shape and dtype on the same device.
    pub fn zeros_like(&self) -> Self {
        self.zeros(self.shape())
    }

    /// Returns [`zeros_like`](Self::zeros_like) of another shape.
    fn zeros(&self, shape: Shape) -> Self {
        let (device, dtype) = (self.device(), self.dtype());
        match self {
            Self::Float(_) => Self::Float(B::float_zeros(shape, &device, dtype.into())),
            Self::Int(_) => Self::Int(B::int_zeros(shape, &device, dtype.into())),
            Self::Bool(_) => Self::Bool(B::bool_zeros(shape, &device, dtype.into())),
        }
    }

    /// Reshapes to a shape with the same number of elements.
    pub fn reshape(self, shape: impl Into<Shape>) -> Self {
        let shape = shape.into();
        if shape.num_elements() == 0 && self.shape().num_elements() == 0 {
            // Burn 0.21 interprets a size of 0 as "unchanged".
            return self.zeros(shape);
        }
        by_kind!(
            self,
            x => reshape(x, shape, B::float_reshape),
            reshape(x, shape, B::int_reshape),
            reshape(x, shape, B::bool_reshape)
        )
    }

    /// Permutes the axes.
    pub fn permute(self, order: &[usize]) -> Self {
        by_kind!(self, x => B::float_permute(x, order), B::int_permute(x, order), B::bool_permute(x, order))
    }

    /// Slices a range of the first axis.
    pub fn rows(self, range: std::ops::Range<usize>) -> Self {
        if range.is_empty() {
            // For an empty slice, Burn 0.21 launches a kernel without blocks, which CUDA rejects.
            let shape = Shape::from([&[0], &self.shape()[1..]].concat());
            return self.zeros(shape);
        }
        let slices = part_of_axis(self.shape().num_dims(), 0, range);
        by_kind!(self, x => B::float_slice(x, &slices), B::int_slice(x, &slices), B::bool_slice(x, &slices))
    }

    /// Selects an index of the first axis and removes that axis.
    pub fn row(self, index: usize) -> Self {
        let shape = self.shape()[1..].to_vec();
        self.rows(index..index + 1).reshape(shape)
    }

    /// Selects indices of the first axis, `[n]` (`jax.numpy.take`).
    pub fn take(self, indices: &Tensor<B, 1, Int>) -> Self {
        let (indices, shape) = (indices.clone().into_primitive(), self.shape());
        // candle selects from contiguous tensors only; reshaping makes the tensor contiguous.
        let rows = self.reshape([shape.num_elements()]).reshape(shape);
        by_kind!(rows, x => B::float_select(x, 0, indices), B::int_select(x, 0, indices), B::bool_select(x, 0, indices))
    }

    /// Stacks tensors of one kind and shape along a new first axis.
    ///
    /// # Panics
    /// If the list is empty or the kinds differ.
    #[track_caller]
    pub fn stack(tensors: Vec<Self>) -> Self {
        let row = |x: Self| {
            let shape = [&[1], &x.shape()[..]].concat();
            x.reshape(shape)
        };
        Self::cat(tensors.into_iter().map(row).collect(), 0)
    }

    /// Concatenates tensors of one kind along an axis. The shapes must be equal except for that axis.
    ///
    /// # Panics
    /// If the list is empty or the kinds differ.
    #[track_caller]
    pub fn cat(tensors: Vec<Self>, axis: usize) -> Self {
        let (mut floats, mut ints, mut bools) = (vec![], vec![], vec![]);
        for tensor in tensors {
            match tensor {
                Self::Float(x) => floats.push(x),
                Self::Int(x) => ints.push(x),
                Self::Bool(x) => bools.push(x),
            }
        }
        match (floats.is_empty(), ints.is_empty(), bools.is_empty()) {
            (false, true, true) => Self::Float(B::float_cat(floats, axis)),
            (true, false, true) => Self::Int(B::int_cat(ints, axis)),
            (true, true, false) => Self::Bool(B::bool_cat(bools, axis)),
            _ => panic!("a concatenation needs at least one tensor, and tensors of the same kind"),
        }
    }

    /// Returns `self` if the condition `[1]` is true, else `otherwise`. The values are unchanged, including NaN and
    /// infinity.
    ///
    /// # Panics
    /// If the kinds differ.
    #[track_caller]
    pub fn select(self, condition: &Tensor<B, 1, Bool>, otherwise: Self) -> Self {
        let shape = self.shape();
        let mask = B::bool_reshape(condition.clone().into_primitive(), vec![1; shape.num_dims()].into());
        let mask = B::bool_expand(mask, shape);
        match (self, otherwise) {
            (Self::Float(x), Self::Float(y)) => Self::Float(B::float_mask_where(y, mask, x)),
            (Self::Int(x), Self::Int(y)) => Self::Int(B::int_mask_where(y, mask, x)),
            (Self::Bool(x), Self::Bool(y)) => {
                let y = B::bool_and(y, B::bool_not(mask.clone()));
                Self::Bool(B::bool_or(B::bool_and(x, mask), y))
            }
            (x, y) => {
                panic!("both operands of a selection must have the same kind, not {:?} and {:?}", x.dtype(), y.dtype())
            }
        }
    }

    /// Adds two floating-point tensors.
    pub fn try_add(self, other: Self) -> Option<Self> {
        self.binary(other, B::float_add)
    }

    /// Subtracts two floating-point tensors.
    pub fn try_sub(self, other: Self) -> Option<Self> {
        self.binary(other, B::float_sub)
    }

    /// Multiplies two floating-point tensors elementwise.
    pub fn try_mul(self, other: Self) -> Option<Self> {
        self.binary(other, B::float_mul)
    }

    /// Divides two floating-point tensors elementwise.
    pub fn try_div(self, other: Self) -> Option<Self> {
        self.binary(other, B::float_div)
    }

    /// Multiplies floating-point values by a scalar.
    pub fn mul_scalar(self, factor: f64) -> Self {
        self.map_float(|x| B::float_mul_scalar(x, Scalar::from(factor)))
    }

    /// Adds a scalar to floating-point values.
    pub fn add_scalar(self, term: f64) -> Self {
        self.map_float(|x| B::float_add_scalar(x, Scalar::from(term)))
    }

    /// Computes the square roots of floating-point values.
    pub fn sqrt(self) -> Self {
        self.map_float(B::float_sqrt)
    }

    /// Computes the signs of floating-point values: -1, 0 or 1.
    pub fn sign(self) -> Self {
        self.map_float(B::float_sign)
    }

    /// Computes the absolute values of floating-point values.
    pub fn abs(self) -> Self {
        self.map_float(B::float_abs)
    }

    /// Sums all floating-point values, `[1]`.
    pub fn sum(self) -> Self {
        self.map_float(B::float_sum)
    }

    /// Computes the mean of all floating-point values, `[1]`.
    pub fn mean(self) -> Self {
        self.map_float(B::float_mean)
    }

    /// Sums floating-point values along an axis, which keeps size 1.
    pub fn sum_axis(self, axis: usize) -> Self {
        self.map_float(|x| B::float_sum_dim(x, axis))
    }

    /// Computes the mean of floating-point values along an axis, which keeps size 1.
    pub fn mean_axis(self, axis: usize) -> Self {
        self.map_float(|x| B::float_mean_dim(x, axis))
    }

    fn map_float(self, f: impl FnOnce(FloatTensor<B>) -> FloatTensor<B>) -> Self {
        match self {
            Self::Float(x) => Self::Float(f(x)),
            other => other,
        }
    }

    fn binary(self, other: Self, f: impl FnOnce(FloatTensor<B>, FloatTensor<B>) -> FloatTensor<B>) -> Option<Self> {
        match (self, other) {
            (Self::Float(x), Self::Float(y)) => Some(Self::Float(f(x, y))),
            _ => None,
        }
    }
}

impl<B: super::Backend> AnyTensor<B> {
    /// Splits the first axis into tensors without that axis; the inverse of [`stack`](Self::stack).
    pub fn unstack(self) -> Vec<Self> {
        let (shape, count) = (Shape::from(self.shape()[1..].to_vec()), self.shape()[0]);
        match self {
            // The gradient of a slice has the size of the whole tensor; that of a chunk has the size of the chunk.
            Self::Float(x) if count > 0 => {
                let chunks = apply::<B>(Chunk { count, axis: 0 }, Values::floats([x]));
                chunks.into_floats().into_iter().map(|x| Self::Float(x).reshape(shape.clone())).collect()
            }
            x => (0..count).map(|i| x.clone().row(i)).collect(),
        }
    }
}

impl<B: Backend, const D: usize> From<Tensor<B, D>> for AnyTensor<B> {
    fn from(x: Tensor<B, D>) -> Self {
        Self::Float(x.into_primitive().tensor())
    }
}

impl<B: Backend, const D: usize> From<Tensor<B, D, Int>> for AnyTensor<B> {
    fn from(x: Tensor<B, D, Int>) -> Self {
        Self::Int(x.into_primitive())
    }
}

impl<B: Backend, const D: usize> From<Tensor<B, D, Bool>> for AnyTensor<B> {
    fn from(x: Tensor<B, D, Bool>) -> Self {
        Self::Bool(x.into_primitive())
    }
}

/// Converts host booleans through integers, because not every backend accepts booleans directly.
fn bool_from_data<B: Backend>(data: TensorData, device: &<B as BackendTypes>::Device) -> BoolTensor<B> {
    let (shape, count) = (data.shape.clone(), data.num_elements());
    let numbers = TensorData::new(data.iter::<bool>().map(i64::from).collect(), [count]);
    let flat = Tensor::<B, 1, Int>::from_data(numbers, device).not_equal_elem(0);
    B::bool_reshape(flat.into_primitive(), shape)
}

impl<B: super::Backend> AnyTensor<B> {
    /// Reads the values in their dtype.
    ///
    /// # Panics
    /// If the device reports an error.
    pub fn into_data(self) -> TensorData {
        let shape = self.shape();
        let mut data = match self.reshape([shape.num_elements()]) {
            Self::Float(x) => B::read(x).expect("the device computes the values"),
            Self::Int(x) => Tensor::<B, 1, Int>::from_primitive(x).into_data(),
            Self::Bool(x) => Tensor::<B, 1, Bool>::from_primitive(x).into_data(),
        };
        data.shape = shape;
        data
    }
}
