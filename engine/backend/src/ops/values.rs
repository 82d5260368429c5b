//! Inputs and outputs of operations, by position.

use burn::tensor::{
    Bool, DType, Int, Shape, Tensor, TensorMetadata,
    backend::{Backend, BackendTypes},
    ops::{BoolTensor, FloatTensor, IntTensor},
};

use super::{
    AnyTensor, Shapes, float,
    precision::{is_half, widened},
};

/// Inputs, outputs, residuals or gradients of an operation, by position. Missing optional values are `None`.
///
/// Values are taken by move: a kernel can write in place if it receives the only handle of a tensor.
#[derive(Clone, Debug)]
pub struct Values<B: Backend> {
    values: Vec<Option<AnyTensor<B>>>,
    device: Option<<B as BackendTypes>::Device>,
}

impl<B: Backend> Default for Values<B> {
    fn default() -> Self {
        Self { values: Vec::new(), device: None }
    }
}

impl<B: Backend> FromIterator<Option<AnyTensor<B>>> for Values<B> {
    fn from_iter<I: IntoIterator<Item = Option<AnyTensor<B>>>>(values: I) -> Self {
        Self { values: values.into_iter().collect(), device: None }
    }
}

impl<B: Backend> Values<B> {
    /// Creates an empty list with a device, for operations without inputs.
    pub fn on(device: &<B as BackendTypes>::Device) -> Self {
        Self { values: Vec::new(), device: Some(device.clone()) }
    }

    /// Creates a list of floating-point tensors.
    pub fn floats(values: impl IntoIterator<Item = FloatTensor<B>>) -> Self {
        values.into_iter().map(|x| Some(AnyTensor::Float(x))).collect()
    }

    /// Creates a list of floating-point tensors, some of which may be missing.
    pub fn optional_floats(values: impl IntoIterator<Item = Option<FloatTensor<B>>>) -> Self {
        values.into_iter().map(|x| x.map(AnyTensor::Float)).collect()
    }

    /// Appends a value.
    pub fn with(self, value: impl Into<AnyTensor<B>>) -> Self {
        self.with_optional(Some(value))
    }

    /// Appends a value or an empty position.
    pub fn with_optional(mut self, value: Option<impl Into<AnyTensor<B>>>) -> Self {
        self.values.push(value.map(Into::into));
        self
    }

    /// Number of positions.
    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    /// Returns the [device](Self::on) of an operation without inputs.
    #[track_caller]
    pub fn device(&self) -> &<B as BackendTypes>::Device {
        self.device.as_ref().expect("an operation without inputs has a device")
    }

    /// Returns the [device](Self::on), if the list was created with one.
    pub(super) fn given_device(&self) -> Option<&<B as BackendTypes>::Device> {
        self.device.as_ref()
    }

    /// Sets the device.
    pub(super) fn on_device(self, device: Option<<B as BackendTypes>::Device>) -> Self {
        Self { device, ..self }
    }

    /// Returns the value at a position.
    pub fn get(&self, position: usize) -> Option<&AnyTensor<B>> {
        self.values.get(position)?.as_ref()
    }

    /// Returns the floating-point tensor at a position.
    #[track_caller]
    pub fn float(&self, position: usize) -> &FloatTensor<B> {
        match self.get(position) {
            Some(AnyTensor::Float(x)) => x,
            other => wrong("a floating-point tensor", position, other),
        }
    }

    #[track_caller]
    fn given(&self, position: usize) -> &AnyTensor<B> {
        self.get(position).unwrap_or_else(|| wrong("a tensor", position, None::<&AnyTensor<B>>))
    }

    /// Returns the shape of the value at a position.
    #[track_caller]
    pub fn shape(&self, position: usize) -> Shape {
        self.given(position).shape()
    }

    /// Returns the dtype of the value at a position.
    #[track_caller]
    pub fn dtype(&self, position: usize) -> DType {
        self.given(position).dtype()
    }

    /// Takes the value at a position.
    pub fn take(&mut self, position: usize) -> Option<AnyTensor<B>> {
        self.values.get_mut(position)?.take()
    }

    /// Takes the floating-point tensor at a position.
    #[track_caller]
    pub fn take_float(&mut self, position: usize) -> FloatTensor<B> {
        match self.take(position) {
            Some(AnyTensor::Float(x)) => x,
            other => wrong("a floating-point tensor", position, other.as_ref()),
        }
    }

    /// Takes the floating-point tensor at a position, if present.
    pub fn take_optional_float(&mut self, position: usize) -> Option<FloatTensor<B>> {
        self.get(position).is_some().then(|| self.take_float(position))
    }

    /// Takes the floating-point tensor at a position, with rank `D`.
    #[track_caller]
    pub fn take_tensor<const D: usize>(&mut self, position: usize) -> Tensor<B, D> {
        float(self.take_float(position))
    }

    /// Sets the floating-point tensor at a position.
    pub(super) fn put_float(&mut self, position: usize, x: FloatTensor<B>) {
        self.values[position] = Some(AnyTensor::Float(x));
    }

    /// Takes the integer tensor at a position.
    #[track_caller]
    pub fn take_int(&mut self, position: usize) -> IntTensor<B> {
        match self.take(position) {
            Some(AnyTensor::Int(x)) => x,
            other => wrong("an integer tensor", position, other.as_ref()),
        }
    }

    /// Takes the boolean tensor at a position.
    #[track_caller]
    pub fn take_bool(&mut self, position: usize) -> BoolTensor<B> {
        match self.take(position) {
            Some(AnyTensor::Bool(x)) => x,
            other => wrong("a boolean tensor", position, other.as_ref()),
        }
    }

    /// Takes the integer tensor at a position, if present.
    pub fn take_optional_int<const D: usize>(&mut self, position: usize) -> Option<Tensor<B, D, Int>> {
        self.get(position).is_some().then(|| Tensor::from_primitive(self.take_int(position)))
    }

    /// Takes the boolean tensor at a position, if present.
    pub fn take_optional_bool<const D: usize>(&mut self, position: usize) -> Option<Tensor<B, D, Bool>> {
        self.get(position).is_some().then(|| Tensor::from_primitive(self.take_bool(position)))
    }

    /// Takes the first `N` values, which must be floating-point tensors.
    #[track_caller]
    pub fn take_floats<const N: usize>(mut self) -> [FloatTensor<B>; N] {
        std::array::from_fn(|position| self.take_float(position))
    }

    /// Takes all values, which must be floating-point tensors.
    #[track_caller]
    pub fn into_floats(mut self) -> Vec<FloatTensor<B>> {
        (0..self.len()).map(|position| self.take_float(position)).collect()
    }

    /// Takes all values.
    pub fn into_values(self) -> Vec<Option<AnyTensor<B>>> {
        self.values
    }

    /// Returns true if all floating-point tensors are f32.
    pub fn all_f32(&self) -> bool {
        !self.any_float(|dtype| dtype != DType::F32)
    }

    /// Returns true if the dtype of a floating-point tensor satisfies a predicate.
    pub(super) fn any_float(&self, predicate: impl Fn(DType) -> bool) -> bool {
        self.values.iter().flatten().any(|value| matches!(value, AnyTensor::Float(x) if predicate(x.dtype())))
    }

    /// Returns true if the first value has 16 bits.
    pub fn is_half(&self) -> bool {
        self.get(0).is_some_and(|x| is_half(x.dtype()))
    }

    /// Casts 16-bit floating-point tensors to f32.
    pub(super) fn widened(self) -> Self
    where
        B: super::Backend,
    {
        let wide = |value| match value {
            AnyTensor::Float(x) => AnyTensor::Float(widened::<B>(x)),
            value => value,
        };
        Self { values: self.values.into_iter().map(|value| value.map(wide)).collect(), ..self }
    }

    /// Returns true if the present values have these shapes.
    pub(super) fn have(&self, shapes: &[Shape]) -> bool {
        self.values.iter().flatten().map(AnyTensor::shape).eq(shapes.iter().cloned())
    }

    /// Returns the shapes.
    pub fn shapes(&self) -> Shapes {
        self.values.iter().map(|value| value.as_ref().map(AnyTensor::shape)).collect()
    }
}

#[track_caller]
fn wrong<B: Backend>(wanted: &str, position: usize, found: Option<&AnyTensor<B>>) -> ! {
    let found = match found {
        None => "nothing",
        Some(AnyTensor::Float(_)) => "a floating-point tensor",
        Some(AnyTensor::Int(_)) => "an integer tensor",
        Some(AnyTensor::Bool(_)) => "a boolean tensor",
    };
    panic!("input {position} of the operation is {found}, but must be {wanted}")
}

/// Result of an operation.
#[derive(Clone, Debug)]
pub struct Outcome<B: Backend> {
    /// Outputs.
    pub outputs: Values<B>,
    /// Values saved for the derivative, in addition to inputs and outputs; see [`Residuals`](super::Residuals).
    pub saved: Values<B>,
}

impl<B: Backend> Outcome<B> {
    /// Creates a result of floating-point outputs.
    pub fn new(outputs: impl IntoIterator<Item = FloatTensor<B>>) -> Self {
        Self { outputs: Values::floats(outputs), saved: Values::default() }
    }

    /// Adds values saved for the derivative.
    pub fn saving(self, saved: impl IntoIterator<Item = FloatTensor<B>>) -> Self {
        Self { saved: Values::floats(saved), ..self }
    }
}

impl<B: Backend> From<Values<B>> for Outcome<B> {
    fn from(outputs: Values<B>) -> Self {
        Self { outputs, saved: Values::default() }
    }
}
