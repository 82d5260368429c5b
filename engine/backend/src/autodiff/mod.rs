//! Reverse-mode differentiation of any backend.

/// Methods delegated to Burn, whose arguments get no gradient.
macro_rules! burn {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        $(fn $name($($argument: $type),*) -> $result {
            Burn::<B, C>::$name($($argument),*)
        })*
    };
}

/// Methods delegated to Burn.
macro_rules! differentiated {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        $(fn $name($($argument: $type),*) -> $result {
            Burn::<B, C>::$name($(captured::used::<B, _>($argument)),*)
        })*
    };
}

/// Methods without gradients.
macro_rules! inner {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        $(fn $name($($argument: $type),*) -> $result {
            B::$name($($argument),*)
        })*
    };
}

pub(crate) mod captured;
mod compositions;
mod modules;
mod pooling;
mod rules;
mod tensors;

use ::burn::tensor::{
    DType, TensorData,
    backend::{AutodiffBackend, Backend as BurnBackend, BackendTypes, ExecutionError},
    ops::{BoolTensor, FloatTensor, IntTensor, QuantizedTensor},
};
use burn_autodiff::{
    Autodiff as Burn,
    checkpoint::strategy::{CheckpointStrategy, NoCheckpointing},
    grads::Gradients,
};
use burn_backend::DTypeUsageSet;
use std::marker::PhantomData;

use crate::Backend;

type Float<B> = FloatTensor<Burn<B>>;
type Int<B> = IntTensor<B>;
type Bool<B> = BoolTensor<B>;
type Quantized<B> = QuantizedTensor<B>;

/// A backend that records the operations of another backend for reverse-mode gradients.
///
/// It is Burn's autodiff backend, except for derivatives that are wrong in Burn 0.21: those of `repeat`, of products and
/// powers with zeros and negative values, of roots of -0, of `gelu`, of repeated maxima (which share their gradient, as in
/// JAX), of divisions by a scalar in f64, of `topk`, of 1-D convolutions in groups, and of max pooling, which propagates
/// NaN. Reverse, forward and jitted mode thus agree.
#[derive(Clone, Copy, Debug, Default)]
pub struct Autodiff<B, C = NoCheckpointing> {
    marker: PhantomData<(B, C)>,
}

impl<B: Backend, C: CheckpointStrategy> BackendTypes for Autodiff<B, C> {
    type Device = B::Device;
    type FloatTensorPrimitive = FloatTensor<Burn<B>>;
    type FloatElem = B::FloatElem;
    type IntTensorPrimitive = B::IntTensorPrimitive;
    type IntElem = B::IntElem;
    type BoolTensorPrimitive = B::BoolTensorPrimitive;
    type BoolElem = B::BoolElem;
    type QuantizedTensorPrimitive = B::QuantizedTensorPrimitive;
}

impl<B: Backend, C: CheckpointStrategy> BurnBackend for Autodiff<B, C> {
    fn ad_enabled(_: &Self::Device) -> bool {
        true
    }

    fn name(device: &Self::Device) -> String {
        Burn::<B, C>::name(device)
    }

    fn seed(device: &Self::Device, seed: u64) {
        B::seed(device, seed);
    }

    fn sync(device: &Self::Device) -> Result<(), ExecutionError> {
        B::sync(device)
    }

    fn memory_persistent_allocations<Output: Send, Input: Send, Func: Fn(Input) -> Output + Send>(
        device: &Self::Device,
        input: Input,
        func: Func,
    ) -> Output {
        B::memory_persistent_allocations(device, input, func)
    }

    fn memory_cleanup(device: &Self::Device) {
        B::memory_cleanup(device);
    }

    fn staging<'a, Iter: Iterator<Item = &'a mut TensorData>>(data: Iter, device: &Self::Device) {
        B::staging(data, device);
    }

    fn supports_dtype(device: &Self::Device, dtype: DType) -> bool {
        B::supports_dtype(device, dtype)
    }

    fn dtype_usage(device: &Self::Device, dtype: DType) -> DTypeUsageSet {
        B::dtype_usage(device, dtype)
    }

    fn device_count(type_id: u16) -> usize {
        B::device_count(type_id)
    }
}

impl<B: Backend, C: CheckpointStrategy> AutodiffBackend for Autodiff<B, C> {
    type InnerBackend = B;
    type Gradients = Gradients;

    fn backward(tensor: FloatTensor<Self>) -> Gradients {
        Burn::<B, C>::backward(tensor)
    }

    fn grad(tensor: &FloatTensor<Self>, grads: &Gradients) -> Option<FloatTensor<B>> {
        Burn::<B, C>::grad(tensor, grads)
    }

    fn grad_remove(tensor: &FloatTensor<Self>, grads: &mut Gradients) -> Option<FloatTensor<B>> {
        Burn::<B, C>::grad_remove(tensor, grads)
    }

    fn grad_replace(tensor: &FloatTensor<Self>, grads: &mut Gradients, grad: FloatTensor<B>) {
        Burn::<B, C>::grad_replace(tensor, grads, grad);
    }

    fn inner(tensor: FloatTensor<Self>) -> FloatTensor<B> {
        tensor.primitive
    }

    fn from_inner(tensor: FloatTensor<B>) -> FloatTensor<Self> {
        Burn::<B, C>::from_inner(tensor)
    }

    fn int_inner(tensor: IntTensor<Self>) -> IntTensor<B> {
        tensor
    }

    fn int_from_inner(tensor: IntTensor<B>) -> IntTensor<Self> {
        tensor
    }

    fn bool_inner(tensor: BoolTensor<Self>) -> BoolTensor<B> {
        tensor
    }

    fn bool_from_inner(tensor: BoolTensor<B>) -> BoolTensor<Self> {
        tensor
    }

    fn q_inner(tensor: QuantizedTensor<Self>) -> QuantizedTensor<B> {
        tensor
    }

    fn q_from_inner(tensor: QuantizedTensor<B>) -> QuantizedTensor<Self> {
        tensor
    }
}
