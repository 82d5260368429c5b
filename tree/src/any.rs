use burn::tensor::{
    Bool, DType, FloatDType, Int, Scalar, Shape, Tensor, TensorData, TensorMetadata, TensorPrimitive,
    ops::{BoolTensor, FloatTensor, IntTensor},
};
use grove_backend::Backend;
use std::fmt;

use crate::{Node, Path, Tree, Visitor};

/// A tensor of any rank and kind.
#[derive(Clone, Debug)]
pub enum AnyTensor<B: Backend> {
    /// Floating-point values.
    Float(FloatTensor<B>),
    /// Integers.
    Int(IntTensor<B>),
    /// Booleans.
    Bool(BoolTensor<B>),
}

/// A leaf with erased rank and kind, the argument of functions of leaves.
///
/// If present, it holds a tensor; if absent, only shape and dtype. Cloning copies a handle, not the values.
#[derive(Clone, Debug)]
pub struct AnyArray<B: Backend> {
    shape: Vec<usize>,
    dtype: DType,
    value: Option<AnyTensor<B>>,
}

/// Applies the one of Burn's three families of functions that fits the kind of a tensor.
macro_rules! by_kind {
    ($tensor:expr, $x:ident => $float:expr, $int:expr, $bool:expr) => {
        match $tensor {
            AnyTensor::Float($x) => AnyTensor::Float($float),
            AnyTensor::Int($x) => AnyTensor::Int($int),
            AnyTensor::Bool($x) => AnyTensor::Bool($bool),
        }
    };
}

impl<B: Backend> AnyArray<B> {
    /// Creates a leaf without a value.
    pub fn absent(shape: impl Into<Vec<usize>>, dtype: DType) -> Self {
        Self { shape: shape.into(), dtype, value: None }
    }

    /// Creates a leaf with a value.
    pub fn present(tensor: AnyTensor<B>) -> Self {
        let (shape, dtype) = match &tensor {
            AnyTensor::Float(x) => (x.shape(), x.dtype()),
            AnyTensor::Int(x) => (x.shape(), x.dtype()),
            AnyTensor::Bool(x) => (x.shape(), x.dtype()),
        };
        Self { shape: shape.to_vec(), dtype, value: Some(tensor) }
    }

    /// Moves values to a device. The dtype of the data determines the kind (float, int or bool), and is kept.
    pub fn from_data(data: TensorData, device: &B::Device) -> Self {
        Self::present(match data.dtype {
            dtype if dtype.is_float() => AnyTensor::Float(B::float_from_data(data, device)),
            DType::Bool(_) => AnyTensor::Bool(bool_from_data::<B>(data, device)),
            _ => AnyTensor::Int(B::int_from_data(data, device)),
        })
    }

    /// Reads the values; `None` if the leaf is absent.
    pub fn into_data(self) -> Option<TensorData> {
        let count: usize = self.shape.iter().product();
        let flat = Shape::from(vec![count]);
        let mut data = match self.value? {
            AnyTensor::Float(x) => {
                Tensor::<B, 1>::from_primitive(TensorPrimitive::Float(B::float_reshape(x, flat))).into_data()
            }
            AnyTensor::Int(x) => Tensor::<B, 1, Int>::from_primitive(B::int_reshape(x, flat)).into_data(),
            AnyTensor::Bool(x) => Tensor::<B, 1, Bool>::from_primitive(B::bool_reshape(x, flat)).into_data(),
        };
        data.shape = Shape::from(self.shape);
        Some(data)
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
        Some(match self.value.as_ref()? {
            AnyTensor::Float(x) => B::float_device(x),
            AnyTensor::Int(x) => B::int_device(x),
            AnyTensor::Bool(x) => B::bool_device(x),
        })
    }

    /// Moves the value to another device of the same backend.
    pub fn to_device(self, device: &B::Device) -> Self {
        self.map_value(|value| {
            by_kind!(value, x => B::float_to_device(x, device), B::int_to_device(x, device), B::bool_to_device(x, device))
        })
    }

    /// Converts a floating-point leaf, present or absent, to another floating-point type. Other leaves are unchanged.
    pub fn cast_float(self, dtype: FloatDType) -> Self {
        if !self.dtype.is_float() || self.dtype == DType::from(dtype) {
            return self;
        }
        Self {
            shape: self.shape,
            dtype: dtype.into(),
            value: self.value.map(|value| by_kind!(value, x => B::float_cast(x, dtype), x, x)),
        }
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
        let Some(device) = self.device() else { return self.clone() };
        let (shape, dtype) = (Shape::from(self.shape.clone()), self.dtype);
        self.clone().map_value(|value| match value {
            AnyTensor::Float(_) => AnyTensor::Float(B::float_zeros(shape, &device, dtype.into())),
            AnyTensor::Int(_) => AnyTensor::Int(B::int_zeros(shape, &device, dtype.into())),
            AnyTensor::Bool(_) => AnyTensor::Bool(B::bool_zeros(shape, &device, dtype.into())),
        })
    }

    /// Sum of two floating-point leaves of the same shape; `None` unless both are present and float.
    pub fn try_add(self, other: Self) -> Option<Self> {
        self.binary(other, B::float_add)
    }

    /// Difference of two floating-point leaves of the same shape; `None` unless both are present and float.
    pub fn try_sub(self, other: Self) -> Option<Self> {
        self.binary(other, B::float_sub)
    }

    /// Element-wise product of two floating-point leaves of the same shape; `None` unless both are present and float.
    pub fn try_mul(self, other: Self) -> Option<Self> {
        self.binary(other, B::float_mul)
    }

    /// Element-wise quotient of two floating-point leaves of the same shape; `None` unless both are present and
    /// float.
    pub fn try_div(self, other: Self) -> Option<Self> {
        self.binary(other, B::float_div)
    }

    /// A floating-point leaf multiplied by a scalar; other leaves are unchanged.
    pub fn mul_scalar(self, factor: f64) -> Self {
        self.map_float(|x| B::float_mul_scalar(x, Scalar::from(factor)))
    }

    /// A floating-point leaf plus a scalar; other leaves are unchanged.
    pub fn add_scalar(self, term: f64) -> Self {
        self.map_float(|x| B::float_add_scalar(x, Scalar::from(term)))
    }

    /// Square roots of a floating-point leaf; other leaves are unchanged.
    pub fn sqrt(self) -> Self {
        self.map_float(B::float_sqrt)
    }

    /// Signs of a floating-point leaf, -1, 0 or 1; other leaves are unchanged.
    pub fn sign(self) -> Self {
        self.map_float(B::float_sign)
    }

    /// Absolute values of a floating-point leaf; other leaves are unchanged.
    pub fn abs(self) -> Self {
        self.map_float(B::float_abs)
    }

    /// Mean of all elements of a floating-point leaf, `[1]`, in the leaf's dtype; `None` unless it is present and float.
    /// [`widen`](Self::widen) first where 16 bits are too few for the sum.
    pub fn mean(self) -> Option<Self> {
        match self.value? {
            AnyTensor::Float(x) => Some(Self::present(AnyTensor::Float(B::float_mean(x)))),
            _ => None,
        }
    }

    /// Applies a function, which must keep shape and dtype, to a floating-point value; other leaves are unchanged.
    pub fn map_float(self, f: impl FnOnce(FloatTensor<B>) -> FloatTensor<B>) -> Self {
        self.map_value(|value| match value {
            AnyTensor::Float(x) => AnyTensor::Float(f(x)),
            other => other,
        })
    }

    fn map_value(self, f: impl FnOnce(AnyTensor<B>) -> AnyTensor<B>) -> Self {
        Self { value: self.value.map(f), ..self }
    }

    fn binary(self, other: Self, f: impl FnOnce(FloatTensor<B>, FloatTensor<B>) -> FloatTensor<B>) -> Option<Self> {
        match (self.value?, other.value?) {
            (AnyTensor::Float(x), AnyTensor::Float(y)) => Some(Self::present(AnyTensor::Float(f(x, y)))),
            _ => None,
        }
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

/// Converts host booleans via integers, since not every backend takes booleans directly.
fn bool_from_data<B: Backend>(data: TensorData, device: &B::Device) -> BoolTensor<B> {
    let (shape, count) = (data.shape.clone(), data.num_elements());
    let numbers = TensorData::new(data.iter::<bool>().map(i64::from).collect(), [count]);
    let flat = Tensor::<B, 1, Int>::from_data(numbers, device).not_equal_elem(0);
    B::bool_reshape(flat.into_primitive(), shape)
}

/// `f32[3,4]`; the same for an absent leaf.
impl<B: Backend> fmt::Display for AnyArray<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", crate::print::type_name(&self.shape, self.dtype))
    }
}
