use burn::tensor::{DType, FloatDType, Shape, TensorData};
use grove_backend::{AnyTensor, Backend};
use std::fmt;

use crate::{Node, Path, Tree, Visitor};

/// A leaf with erased rank and kind, the argument of functions of leaves.
///
/// If present, it holds a tensor; if absent, only shape and dtype. Cloning copies a handle, not the values.
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

    /// Moves values to a device. The dtype of the data determines the kind (float, int or bool), and is kept.
    pub fn from_data(data: TensorData, device: &B::Device) -> Self {
        Self::present(AnyTensor::from_data(data, device))
    }

    /// Reads the values; `None` if the leaf is absent.
    pub fn into_data(self) -> Option<TensorData> {
        self.value.map(AnyTensor::into_data)
    }

    /// Sizes of the axes.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Returns true if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Type of the elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns true if there is a value.
    pub fn is_present(&self) -> bool {
        self.value.is_some()
    }

    /// The value; `None` if the leaf is absent.
    pub fn value(&self) -> Option<&AnyTensor<B>> {
        self.value.as_ref()
    }

    /// Takes the value out; `None` if the leaf is absent.
    pub fn into_value(self) -> Option<AnyTensor<B>> {
        self.value
    }

    /// The same leaf without its value.
    pub fn into_absent(self) -> Self {
        Self { value: None, ..self }
    }

    /// The device of the value; `None` if the leaf is absent.
    pub fn device(&self) -> Option<B::Device> {
        self.value.as_ref().map(AnyTensor::device)
    }

    /// Moves the value to another device of the same backend.
    pub fn to_device(self, device: &B::Device) -> Self {
        self.map_value(|value| value.to_device(device))
    }

    /// A leaf in another shape of as many elements.
    pub fn reshape(self, shape: impl Into<Vec<usize>>) -> Self {
        let shape = shape.into();
        let value = self.value.map(|value| value.reshape(Shape::from(shape.clone())));
        Self { shape, dtype: self.dtype, value }
    }

    /// Converts a floating-point leaf, present or absent, to another floating-point type. Other leaves are unchanged.
    pub fn cast_float(self, dtype: FloatDType) -> Self {
        if !self.dtype.is_float() || self.dtype == DType::from(dtype) {
            return self;
        }
        Self { dtype: dtype.into(), ..self.map_value(|value| value.cast_float(dtype)) }
    }

    /// Converts a floating-point leaf, present or absent, to at least f32, the type of sums and averages of such
    /// leaves. Leaves of f32 and f64, and leaves of other kinds, are unchanged.
    pub fn widen(self) -> Self {
        match self.dtype {
            DType::F64 => self,
            _ => self.cast_float(FloatDType::F32),
        }
    }

    /// Zeros (false for booleans) of the same shape and dtype, on the same device, whatever the values are; absent if
    /// this leaf is absent.
    pub fn zeros_like(&self) -> Self {
        Self { shape: self.shape.clone(), dtype: self.dtype, value: self.value.as_ref().map(AnyTensor::zeros_like) }
    }

    /// Sum of two floating-point leaves of the same shape; `None` unless both are present and float.
    pub fn try_add(self, other: Self) -> Option<Self> {
        self.binary(other, AnyTensor::try_add)
    }

    /// Difference of two floating-point leaves of the same shape; `None` unless both are present and float.
    pub fn try_sub(self, other: Self) -> Option<Self> {
        self.binary(other, AnyTensor::try_sub)
    }

    /// Element-wise product of two floating-point leaves of the same shape; `None` unless both are present and float.
    pub fn try_mul(self, other: Self) -> Option<Self> {
        self.binary(other, AnyTensor::try_mul)
    }

    /// Element-wise quotient of two floating-point leaves of the same shape; `None` unless both are present and
    /// float.
    pub fn try_div(self, other: Self) -> Option<Self> {
        self.binary(other, AnyTensor::try_div)
    }

    /// A floating-point leaf multiplied by a scalar; other leaves are unchanged.
    pub fn mul_scalar(self, factor: f64) -> Self {
        self.map_value(|x| x.mul_scalar(factor))
    }

    /// A floating-point leaf plus a scalar; other leaves are unchanged.
    pub fn add_scalar(self, term: f64) -> Self {
        self.map_value(|x| x.add_scalar(term))
    }

    /// Square roots of a floating-point leaf; other leaves are unchanged.
    pub fn sqrt(self) -> Self {
        self.map_value(AnyTensor::sqrt)
    }

    /// Signs of a floating-point leaf, -1, 0 or 1; other leaves are unchanged.
    pub fn sign(self) -> Self {
        self.map_value(AnyTensor::sign)
    }

    /// Absolute values of a floating-point leaf; other leaves are unchanged.
    pub fn abs(self) -> Self {
        self.map_value(AnyTensor::abs)
    }

    /// Mean of all elements of a floating-point leaf, `[1]`, in the leaf's dtype; `None` unless it is present and float.
    /// [`widen`](Self::widen) first where 16 bits are too few for the sum.
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

/// A leaf is itself a tree, with a rank that is known only at run time.
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

/// `f32[3,4]`; the same for an absent leaf.
/// Type and shape, such as `f32[3,4]`.
impl<B: Backend> fmt::Debug for AnyArray<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<B: Backend> fmt::Display for AnyArray<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", crate::dtype::type_name(&self.shape, self.dtype))
    }
}
