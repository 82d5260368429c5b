//! Destinations of operations on traced tensors: the recorder of a trace, or a lazy device.

use burn::tensor::{DType, TensorData};
use burn_ir::{OperationIr, TensorId, TensorIr};
use burn_router::RouterTensor;
use grove_backend::ops::Spec;

use super::{TraceClient, lazy::LazyArrays, recorder::Recorder};
use crate::Primitive;

/// The recorder of a trace, or a lazy device.
pub(super) enum Sink {
    Trace(Recorder),
    Lazy(Box<LazyArrays>),
}

/// Calls the same method on either variant.
macro_rules! either {
    ($sink:expr, $x:ident => $call:expr) => {
        match $sink {
            Self::Trace($x) => $call,
            Self::Lazy($x) => $call,
        }
    };
}

impl Sink {
    /// Returns the upper half of the ids of the sink's tensors.
    pub fn number(&self) -> u32 {
        either!(self, x => x.number)
    }

    /// Returns additional handles of tensors that a sub-graph uses, which are kept until the sub-graph is recorded.
    pub fn borrowed(&mut self) -> &mut Vec<RouterTensor<TraceClient>> {
        either!(self, x => &mut x.borrowed)
    }

    /// Returns true if arrays of a dtype are supported.
    pub fn supports(&self, dtype: DType) -> bool {
        match self {
            Self::Trace(_) => true,
            Self::Lazy(device) => device.supports(dtype),
        }
    }

    /// Returns true if a program may contain all-reduces.
    pub fn reduces(&self) -> bool {
        match self {
            Self::Trace(_) => true,
            Self::Lazy(device) => device.reduces(),
        }
    }

    /// Returns the id of a new tensor.
    pub fn fresh(&mut self) -> TensorId {
        either!(self, x => x.fresh())
    }

    pub fn constant(&mut self, data: TensorData) -> TensorId {
        either!(self, x => x.constant(data))
    }

    pub fn operation(&mut self, operation: OperationIr) {
        either!(self, x => x.operation(operation))
    }

    /// Records a primitive with outputs of the given types.
    pub fn primitive(
        &mut self,
        primitive: Primitive,
        inputs: &[Option<TensorIr>],
        outputs: Vec<Option<Spec>>,
    ) -> Vec<Option<(TensorId, Spec)>> {
        either!(self, x => x.primitive(primitive, inputs, outputs))
    }

    /// Starts or ends a period in which only shapes and dtypes are computed and nothing is recorded.
    pub fn forget(&mut self, change: i32) {
        either!(self, x => x.forget(change))
    }
}
