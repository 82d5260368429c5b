//! The place to which operations on traced tensors go: the recorder of a trace, or a lazy device.

use burn::tensor::{DType, TensorData};
use burn_ir::{OperationIr, TensorId, TensorIr};
use burn_router::RouterTensor;
use grove_backend::ops::Spec;

use super::{TraceClient, lazy::Lazy, recorder::Recorder};
use crate::Primitive;

/// The recorder of a trace, or a lazy device.
pub(super) enum Sink {
    Trace(Recorder),
    Lazy(Box<Lazy>),
}

/// Calls one method of either.
macro_rules! either {
    ($sink:expr, $x:ident => $call:expr) => {
        match $sink {
            Self::Trace($x) => $call,
            Self::Lazy($x) => $call,
        }
    };
}

impl Sink {
    /// The upper half of the ids of its tensors.
    pub fn number(&self) -> u32 {
        either!(self, x => x.number)
    }

    /// Second handles of tensors that a sub-graph uses, until it is recorded.
    pub fn borrowed(&mut self) -> &mut Vec<RouterTensor<TraceClient>> {
        either!(self, x => &mut x.borrowed)
    }

    /// True if there are arrays of a type.
    pub fn supports(&self, dtype: DType) -> bool {
        match self {
            Self::Trace(_) => true,
            Self::Lazy(device) => device.supports(dtype),
        }
    }

    /// True if a program may hold sums over ranks.
    pub fn reduces(&self) -> bool {
        match self {
            Self::Trace(_) => true,
            Self::Lazy(device) => device.reduces(),
        }
    }

    /// The id of a new tensor.
    pub fn fresh(&mut self) -> TensorId {
        either!(self, x => x.fresh())
    }

    pub fn constant(&mut self, data: TensorData) -> TensorId {
        either!(self, x => x.constant(data))
    }

    pub fn operation(&mut self, operation: OperationIr) {
        either!(self, x => x.operation(operation))
    }

    /// Records a primitive with outputs of given shapes and types.
    pub fn primitive(
        &mut self,
        primitive: Primitive,
        inputs: &[Option<TensorIr>],
        outputs: Vec<Option<Spec>>,
    ) -> Vec<Option<(TensorId, Spec)>> {
        either!(self, x => x.primitive(primitive, inputs, outputs))
    }

    /// Begins or ends a time in which nothing is recorded but shapes and types.
    pub fn forget(&mut self, change: i32) {
        either!(self, x => x.forget(change))
    }
}
