use burn::tensor::{DType, FloatDType, Int, Shape, Tensor, TensorData};
use grove_backend::{AnyTensor, Backend};
use std::fmt;

use crate::{Node, Path, Tree, Visitor};

/// A leaf with erased rank and kind. Functions that map over leaves take and return this type.
///
/// A present leaf holds a tensor; an absent leaf holds only its shape and dtype. Cloning copies a handle, not the
/// values.
#[derive(Clone)]
pub struct AnyArray<B: Backend> {
    shape: Vec<usize>,
    dtype: DType,
    value: Option<AnyTensor<B>>,
}

impl<B: Backend> AnyArray<B> {
    /// Creates a leaf without a value.
    pub fn absent(shape: impl Into<Vec<usize>>, dtype: DType) -> Self {
        Self { shape: shape.into(), dtype, value: None }
    }

    /// Creates a leaf with a value.
    pub fn present(tensor: AnyTensor<B>) -> Self {
        Self { shape: tensor.shape().to_vec(), dtype: tensor.dtype(), value: Some(tensor) }
    }

    /// Moves values to a device. The dtype of the data is kept and determines the kind (float, int or bool).
    pub fn from_data(data: TensorData, device: &B::Device) -> Self {
        Self::present(AnyTensor::from_data(data, device))
    }

    /// Reads the values to the host; `None` if the leaf is absent.
    pub fn into_data(self) -> Option<TensorData> {
        self.value.map(AnyTensor::into_data)
    }

    /// Returns the shape.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Returns true if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the dtype of the elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns true if the leaf holds a tensor.
    pub fn is_present(&self) -> bool {
        self.value.is_some()
    }

    /// Returns the tensor; `None` if the leaf is absent.
    pub fn value(&self) -> Option<&AnyTensor<B>> {
        self.value.as_ref()
    }

    /// Consumes the leaf and returns its tensor; `None` if the leaf is absent.
    pub fn into_value(self) -> Option<AnyTensor<B>> {
        self.value
    }

    /// Drops the tensor and keeps shape and dtype.
    pub fn into_absent(self) -> Self {
        Self { value: None, ..self }
    }

    /// Returns the device of the tensor; `None` if the leaf is absent.
    pub fn device(&self) -> Option<B::Device> {
        self.value.as_ref().map(AnyTensor::device)
    }

    /// Moves the tensor to another device of the same backend.
    pub fn to_device(self, device: &B::Device) -> Self {
        self.map_value(|value| value.to_device(device))
    }

    /// Returns the leaf with another shape of the same number of elements.
    pub fn reshape(self, shape: impl Into<Vec<usize>>) -> Self {
        let shape = shape.into();
        let value = self.value.map(|value| value.reshape(Shape::from(shape.clone())));
        Self { shape, dtype: self.dtype, value }
    }

    /// Selects indices of the first axis (`jax.numpy.take`). An absent leaf gets the shape.
    pub fn take(self, indices: &Tensor<B, 1, Int>) -> Self {
        let shape = [&indices.dims()[..], self.shape.get(1..).unwrap_or_default()].concat();
        Self { shape, dtype: self.dtype, value: self.value.map(|value| value.take(indices)) }
    }

    /// Casts a floating-point leaf, present or absent, to another floating-point dtype. Other leaves are unchanged.
    pub fn cast_float(self, dtype: FloatDType) -> Self {
        if !self.dtype.is_float() || self.dtype == DType::from(dtype) {
            return self;
        }
        Self { dtype: dtype.into(), ..self.map_value(|value| value.cast_float(dtype)) }
    }

    /// Casts a floating-point leaf, present or absent, to f32 unless it is f32 or f64. Sums and averages of leaves
    /// accumulate in this dtype. Other leaves are unchanged.
    pub fn widen(self) -> Self {
        match self.dtype {
            DType::F64 => self,
            _ => self.cast_float(FloatDType::F32),
        }
    }

    /// Returns zeros (false for booleans) with the shape, dtype and device of this leaf; an absent leaf if this leaf is
    /// absent. The values are not read.
    pub fn zeros_like(&self) -> Self {
        Self { shape: self.shape.clone(), dtype: self.dtype, value: self.value.as_ref().map(AnyTensor::zeros_like) }
    }

    /// Adds two floating-point leaves of the same shape; `None` unless both are present and float.
    pub fn try_add(self, other: Self) -> Option<Self> {
        self.binary(other, AnyTensor::try_add)
    }

    /// Subtracts two floating-point leaves of the same shape; `None` unless both are present and float.
    pub fn try_sub(self, other: Self) -> Option<Self> {
        self.binary(other, AnyTensor::try_sub)
    }

    /// Multiplies two floating-point leaves of the same shape element-wise; `None` unless both are present and float.
    pub fn try_mul(self, other: Self) -> Option<Self> {
        self.binary(other, AnyTensor::try_mul)
    }

    /// Divides two floating-point leaves of the same shape element-wise; `None` unless both are present and float.
    pub fn try_div(self, other: Self) -> Option<Self> {
        self.binary(other, AnyTensor::try_div)
    }

    /// Multiplies a floating-point leaf by a scalar; other leaves are unchanged.
    pub fn mul_scalar(self, factor: f64) -> Self {
        self.map_value(|x| x.mul_scalar(factor))
    }

    /// Adds a scalar to a floating-point leaf; other leaves are unchanged.
    pub fn add_scalar(self, term: f64) -> Self {
        self.map_value(|x| x.add_scalar(term))
    }

    /// Computes the square root of each element of a floating-point leaf; other leaves are unchanged.
    pub fn sqrt(self) -> Self {
        self.map_value(AnyTensor::sqrt)
    }

    /// Returns the sign (-1, 0 or 1) of each element of a floating-point leaf; other leaves are unchanged.
    pub fn sign(self) -> Self {
        self.map_value(AnyTensor::sign)
    }

    /// Returns the absolute value of each element of a floating-point leaf; other leaves are unchanged.
    pub fn abs(self) -> Self {
        self.map_value(AnyTensor::abs)
    }

    /// Computes the mean of all elements of a floating-point leaf, shape `[1]`, in the leaf's dtype; `None` unless the
    /// leaf is present and float. Call [`widen`](Self::widen) first if a 16-bit sum would lose precision.
    pub fn mean(self) -> Option<Self> {
        match self.value? {
            x @ AnyTensor::Float(_) => Some(Self::present(x.mean())),
            _ => None,
        }
    }

    fn map_value(self, f: impl FnOnce(AnyTensor<B>) -> AnyTensor<B>) -> Self {
        Self { value: self.value.map(f), ..self }
    }

    fn binary(self, other: Self, f: impl FnOnce(AnyTensor<B>, AnyTensor<B>) -> Option<AnyTensor<B>>) -> Option<Self> {
        f(self.value?, other.value?).map(Self::present)
    }
}

/// A leaf is itself a tree. Its rank is known only at run time.
impl<B: Backend> Tree<B> for AnyArray<B> {
    type On<C: Backend> = AnyArray<C>;

    fn visit(&self, path: &mut Path, visitor: &mut dyn Visitor<B>) {
        visitor.enter(path, Node::Leaf);
        visitor.leaf(path, self);
        visitor.exit(path, Node::Leaf);
    }

    fn map(self, path: &mut Path, f: &mut dyn FnMut(&Path, AnyArray<B>) -> AnyArray<B>) -> Self {
        f(path, self)
    }

    fn lift<C: Backend>(self, path: &mut Path, f: &mut dyn FnMut(&Path, AnyArray<B>) -> AnyArray<C>) -> AnyArray<C> {
        f(path, self)
    }
}

/// Formats as `f32[3,4]`, present or absent.
impl<B: Backend> fmt::Display for AnyArray<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", crate::dtype::type_name(&self.shape, self.dtype))
    }
}

/// Type and shape, such as `f32[3,4]`.
impl<B: Backend> fmt::Debug for AnyArray<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
