//! Recordings: traces from start to end.

use burn::tensor::{DType, Tensor, TensorMetadata};
use burn_backend::set_default_dtypes;
use burn_ir::TensorId;
use burn_router::RouterTensor;
use grove_backend::{AnyTensor, ops::Spec};
use grove_tree::{
    Key,
    key::traced::{TracedKeys, put_keys},
};
use std::{any::Any, cell::RefCell};

use super::{
    CURRENT, NONE, TraceClient, TraceDevice, Traced,
    recorder::Recorder,
    sink::Sink,
    traces::{add, innermost_of, next_number, remove, with, with_sink},
};
use crate::{
    graph::{Graph, Keys, Var},
    types::Types,
};

/// A trace in progress. The trace ends when the value is dropped, also during a panic.
pub(crate) struct Recording {
    pub(super) device: TraceDevice,
    outer: TraceDevice,
    keys: TracedKeys,
    /// Paths of the arguments that are keys.
    key_paths: RefCell<Vec<String>>,
    /// For a sub-graph: the trace that contains it.
    pub(super) parent: Option<u16>,
}

impl Recording {
    pub(crate) fn start(types: Types) -> Self {
        Self::begin(types, None)
    }

    /// Starts the trace of a sub-graph. Until it ends, operations on tensors of the enclosing trace are recorded here, and
    /// those tensors become arguments.
    pub(crate) fn nested(around: TraceDevice) -> Self {
        Self::begin(around.types, Some(around.index))
    }

    /// Starts the trace of a function that may capture arrays of an enclosing trace or of a lazy device: the device of the
    /// function's arguments, or otherwise the first lazy device. Captured arrays become arguments.
    pub(crate) fn within(types: Types, device: &dyn Any) -> Self {
        let current = CURRENT.get();
        let around = match current.index == NONE.index {
            true => device.downcast_ref().copied().unwrap_or_default(),
            false => current,
        };
        Self::begin(types, (around.index != NONE.index).then_some(around.index))
    }

    /// Returns the device of the trace.
    pub(crate) fn device(&self) -> TraceDevice {
        self.device
    }

    fn begin(types: Types, around: Option<u16>) -> Self {
        let mut enclosing = Vec::new();
        let parent = around.map(innermost_of);
        if let Some(parent) = parent {
            with_sink(parent, |sink| {
                if let Sink::Trace(recorder) = sink {
                    enclosing.clone_from(&recorder.enclosing);
                }
                enclosing.push(sink.number());
            });
        }
        let recorder = Recorder::new(next_number(), enclosing);
        let index = add(Sink::Trace(recorder), parent);
        let device = TraceDevice { index, types };
        // An error means that an earlier trace with this index and these dtypes has set them already.
        drop(set_default_dtypes::<Traced>(&device, types.float, types.int));
        let outer = CURRENT.replace(device);
        Self { device, outer, parent, keys: TracedKeys::start(), key_paths: RefCell::default() }
    }

    /// Adds an argument.
    pub(crate) fn input(&self, path: impl Into<String>, spec: Spec) -> AnyTensor<Traced> {
        let Spec { shape, dtype } = spec.clone();
        let id = with(self.device.index, |recorder| {
            let var = recorder.add(spec);
            recorder.inputs.push((path.into(), var));
            recorder.id(var.index())
        });
        any(RouterTensor::new(id, shape, dtype, TraceClient::of(self.device)))
    }

    /// Calls a function that lifts a tree of arguments, with placeholders in place of its keys, whose paths are given. If
    /// `arrays` is true, the keys are arrays and the first arguments.
    pub(crate) fn with_key_inputs<T>(&self, paths: Vec<String>, arrays: bool, lift: impl FnOnce() -> T) -> T {
        if arrays {
            return put_keys(paths.into_iter().map(|path| self.key_array(path)).collect(), lift);
        }
        let placeholders = paths.iter().map(|_| self.keys.placeholder()).collect();
        self.key_paths.borrow_mut().extend(paths);
        put_keys(placeholders, lift)
    }

    /// Adds an argument that is a key, represented by an array.
    pub(crate) fn key_array(&self, path: String) -> Key {
        let words = self.input(path, Spec { shape: [2].into(), dtype: DType::U32 });
        Key::from_data::<Traced>(Tensor::from_primitive(tensor_of(words)))
    }

    /// Finishes the graph of outputs that are computed from the arguments.
    pub(crate) fn finish(self, outputs: impl IntoIterator<Item = Output>) -> Graph {
        match self.try_finish(outputs) {
            Ok(graph) => graph,
            Err(path) => unreachable!("`{path}` is computed from the arguments"),
        }
    }

    /// Like [`finish`](Self::finish), for the outputs of a user's function. If an output does not belong to this trace, returns
    /// its path as the error.
    pub(crate) fn try_finish(self, outputs: impl IntoIterator<Item = Output>) -> Result<Graph, String> {
        self.finish_with_keys(outputs.into_iter().map(|(path, x)| (path, id_of(x))).collect(), Vec::new())
    }

    /// Like [`try_finish`](Self::try_finish), with keys among the results.
    pub(super) fn finish_with_keys(
        self,
        outputs: Vec<(String, TensorId)>,
        key_outputs: Vec<(String, Key)>,
    ) -> Result<Graph, String> {
        let (placeholders, derived) = self.keys.take();
        let inputs = self.key_paths.take().into_iter().zip(placeholders).collect();
        let keys = Keys { inputs, derived, outputs: key_outputs };
        with(self.device.index, |recorder| {
            let number = u64::from(recorder.number);
            let outputs = outputs
                .into_iter()
                .map(|(path, id)| match id.value() >> 32 == number {
                    true => Ok((path, Var(id.value() as u32))),
                    false => Err(path),
                })
                .collect::<Result<_, _>>()?;
            let unknown = || Spec { shape: [0].into(), dtype: DType::F32 };
            let graph = Graph {
                variables: std::mem::take(&mut recorder.variables)
                    .into_iter()
                    .map(|spec| spec.unwrap_or_else(unknown))
                    .collect(),
                inputs: std::mem::take(&mut recorder.inputs),
                constants: std::mem::take(&mut recorder.constants),
                equations: std::mem::take(&mut recorder.equations),
                outputs,
                types: self.device.types,
                keys,
            };
            Ok(graph.with_precise_compositions().without_dead_code())
        })
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        CURRENT.set(self.outer);
        remove(self.device.index, self.parent);
    }
}

/// An output of a graph, with its path.
pub(crate) type Output = (String, AnyTensor<Traced>);

/// Gives outputs of a graph the same path.
pub(crate) fn outputs_at(
    path: &str,
    outputs: impl IntoIterator<Item = AnyTensor<Traced>>,
) -> impl Iterator<Item = Output> {
    outputs.into_iter().map(move |x| (path.to_owned(), x))
}

/// Wraps a tensor in the kind of its dtype.
pub(crate) fn any(tensor: RouterTensor<TraceClient>) -> AnyTensor<Traced> {
    match tensor.dtype() {
        dtype if dtype.is_float() => AnyTensor::Float(tensor),
        DType::Bool(_) => AnyTensor::Bool(tensor),
        _ => AnyTensor::Int(tensor),
    }
}

/// Unwraps a tensor of any kind.
pub(crate) fn tensor_of(tensor: AnyTensor<Traced>) -> RouterTensor<TraceClient> {
    let (AnyTensor::Float(tensor) | AnyTensor::Int(tensor) | AnyTensor::Bool(tensor)) = tensor;
    tensor
}

/// Returns the id of a tensor.
pub(crate) fn id_of(tensor: AnyTensor<Traced>) -> TensorId {
    tensor_of(tensor).into_ir().id
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{BoolDType, FloatDType, IntDType};

    #[test]
    fn new_arrays_have_the_default_types() {
        let types = Types { float: FloatDType::F32, int: IntDType::I32, boolean: BoolDType::Native };
        for (float, dtype) in
            [(FloatDType::F64, DType::F64), (FloatDType::BF16, DType::BF16), (FloatDType::F32, DType::F32)]
        {
            let recording = Recording::start(Types { float, ..types });
            assert_eq!(Types::from_number(recording.device().types.to_number()), Types { float, ..types });
            assert_eq!(Tensor::<Traced, 1>::ones([2], &recording.device()).dtype(), dtype);
        }
    }
}
