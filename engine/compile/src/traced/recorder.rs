//! Recorders of the traces that are going on.

use burn::tensor::{DType, Tensor, TensorData, TensorMetadata};
use burn_backend::set_default_dtypes;
use burn_ir::{OperationIr, TensorId, TensorIr};
use burn_router::RouterTensor;
use grove_backend::{AnyTensor, ops::Spec};
use grove_tree::{
    Key,
    key::traced::{TracedKeys, put_keys},
};
use std::{
    any::Any,
    cell::RefCell,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    thread::{self, ThreadId},
};

use super::{CURRENT, Caller, NONE, TraceClient, TraceDevice, Traced, Types, import::import, lazy::Lazy, sink::Sink};
use crate::{
    Primitive,
    graph::{Equation, Graph, Keys, Var},
    trace::named,
};

/// Traces by the indices of their devices.
static TRACES: Mutex<Vec<Option<Trace>>> = Mutex::new(Vec::new());

/// A trace that is going on, or a lazy device.
struct Trace {
    sink: Arc<Mutex<Sink>>,
    /// The traces that are going on inside of this one, at most one on a thread, to which all operations of the thread go
    /// meanwhile.
    inner: Vec<(u16, ThreadId)>,
}

/// Number of the next trace. It is part of the ids of tensors, so that those of another trace are told apart.
static NEXT: AtomicU32 = AtomicU32::new(1);

/// The traces that are going on.
fn traces() -> MutexGuard<'static, Vec<Option<Trace>>> {
    TRACES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The innermost of the traces of sub-graphs that are going on inside of a trace, or itself.
fn innermost(traces: &[Option<Trace>], mut index: u16) -> u16 {
    let this = thread::current().id();
    while let Some(Some(Trace { inner, .. })) = traces.get(usize::from(index))
        && let Some((inner, _)) = inner.iter().find(|(_, thread)| *thread == this)
    {
        index = *inner;
    }
    index
}

/// The recorder of a device.
fn sink_of(traces: &[Option<Trace>], index: u16) -> Option<Arc<Mutex<Sink>>> {
    traces.get(usize::from(index)).and_then(Option::as_ref).map(|trace| trace.sink.clone())
}

fn locked(sink: &Mutex<Sink>) -> MutexGuard<'_, Sink> {
    sink.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Tells a lazy device that nothing holds a tensor any more.
pub(super) fn dropped(index: u16, operation: OperationIr) {
    let sink = sink_of(&traces(), index);
    if let Some(sink) = sink
        && let Sink::Lazy(device) = &mut *locked(&sink)
    {
        device.operation(operation);
    }
}

/// Tells a lazy device that a step ends, where no trace is going on inside of it.
pub(super) fn end_step(index: u16, label: u64) {
    let traces = traces();
    let sink = sink_of(&traces, innermost(&traces, index));
    drop(traces);
    if let Some(sink) = sink
        && let Sink::Lazy(device) = &mut *locked(&sink)
    {
        device.end_step(label);
    }
}

/// True for a lazy device, where no trace is going on inside of it.
pub(super) fn is_lazy(index: u16) -> bool {
    let traces = traces();
    let sink = sink_of(&traces, innermost(&traces, index));
    drop(traces);
    sink.is_some_and(|sink| matches!(&*locked(&sink), Sink::Lazy(_)))
}

/// Adds a lazy device, which stays.
pub(super) fn add_lazy(types: Types, device: impl FnOnce(u32) -> Lazy) -> TraceDevice {
    let device = device(NEXT.fetch_add(1, Ordering::Relaxed));
    TraceDevice { index: add(Sink::Lazy(Box::new(device)), None), types }
}

/// Adds a recorder, inside of another one. Returns its index.
fn add(sink: Sink, parent: Option<u16>) -> u16 {
    let trace = Some(Trace { sink: Arc::new(Mutex::new(sink)), inner: Vec::new() });
    let mut traces = traces();
    let index = traces.iter().position(Option::is_none).unwrap_or(traces.len());
    assert!(index < usize::from(NONE.index), "{index} traces are going on at once");
    match traces.get_mut(index) {
        Some(place) => *place = trace,
        None => traces.push(trace),
    }
    if let Some(Some(parent)) = parent.and_then(|parent| traces.get_mut(usize::from(parent))) {
        parent.inner.push((index as u16, thread::current().id()));
    }
    index as u16
}

/// Calls a function with the recorder of a trace, or with that of the sub-graph that is traced inside of it.
pub(super) fn with<T>(index: u16, f: impl FnOnce(&mut Recorder) -> T) -> T {
    with_sink(index, |sink| match sink {
        Sink::Trace(recorder) => f(recorder),
        Sink::Lazy(_) => unreachable!("a lazy device has no recorder"),
    })
}

/// As [`with`], or with a lazy device.
pub(super) fn with_sink<T>(index: u16, f: impl FnOnce(&mut Sink) -> T) -> T {
    let traces = traces();
    let sink = sink_of(&traces, innermost(&traces, index));
    drop(traces);
    let Some(sink) = sink else {
        panic!(
            "a traced tensor is used outside of its trace, which has ended: return it as a result of the traced function \
             instead of keeping it elsewhere{}",
            Caller::here()
        )
    };
    f(&mut locked(&sink))
}

/// The equations of a trace.
pub(crate) struct Recorder {
    pub(super) number: u32,
    /// Shapes and types of the variables whose equations are recorded.
    variables: Vec<Option<Spec>>,
    pub(super) inputs: Vec<(String, Var)>,
    constants: Vec<(Var, TensorData)>,
    equations: Vec<Equation>,
    /// Number of callers that ask for shapes and types alone.
    forgetting: i32,
    /// Of a sub-graph: the numbers of the traces around it, and what it uses of them, each with its variable.
    pub(super) enclosing: Vec<u32>,
    pub(super) captured: Vec<(TensorIr, Var)>,
    /// Second handles of tensors that sub-graphs use.
    pub(super) borrowed: Vec<RouterTensor<TraceClient>>,
}

impl Recorder {
    /// The id of a new variable.
    pub(super) fn fresh(&mut self) -> TensorId {
        self.variables.push(None);
        self.id(self.variables.len() - 1)
    }

    pub(super) fn id(&self, index: usize) -> TensorId {
        TensorId::new(u64::from(self.number) << 32 | index as u64)
    }

    pub(super) fn add(&mut self, spec: Spec) -> Var {
        self.variables.push(Some(spec));
        Var(self.variables.len() as u32 - 1)
    }

    /// The variable of a tensor of this trace. One of a trace around it becomes an argument.
    pub(super) fn var(&mut self, tensor: &TensorIr) -> Var {
        let value = tensor.id.value();
        if self.enclosing.contains(&((value >> 32) as u32)) {
            return self.capture(tensor);
        }
        assert!(
            value >> 32 == u64::from(self.number),
            "a tensor {:?} of another trace is used in this one: pass it as an argument of the traced function{}",
            &tensor.shape[..],
            Caller::here()
        );
        Var(value as u32)
    }

    pub(super) fn constant(&mut self, data: TensorData) -> TensorId {
        let var = self.add(Spec { shape: data.shape.clone(), dtype: data.dtype });
        if self.forgetting == 0 {
            self.constants.push((var, data));
        }
        self.id(var.index())
    }

    pub(super) fn operation(&mut self, operation: OperationIr) {
        // Constants are recorded where their data are given.
        if matches!(operation, OperationIr::Init(_)) {
            return;
        }
        let inputs = operation.inputs().map(|x| Some(self.var(x))).collect();
        let outputs: Vec<_> = operation.outputs().cloned().collect();
        let primitive = (self.forgetting == 0).then(|| import(operation));
        let outputs = outputs
            .into_iter()
            .map(|output| {
                let var = self.var(&output);
                self.variables[var.index()] = Some(Spec { shape: output.shape, dtype: output.dtype });
                Some(var)
            })
            .collect();
        if let Some(primitive) = primitive {
            self.equations.push(Equation { primitive, inputs, outputs });
        }
    }

    /// Records a primitive with outputs of given shapes and types.
    pub(super) fn primitive(
        &mut self,
        primitive: Primitive,
        inputs: &[Option<TensorIr>],
        outputs: Vec<Option<Spec>>,
    ) -> Vec<Option<(TensorId, Spec)>> {
        let inputs = inputs.iter().map(|x| x.as_ref().map(|x| self.var(x))).collect();
        let results: Vec<_> = outputs.into_iter().map(|spec| spec.map(|spec| (self.add(spec.clone()), spec))).collect();
        let outputs = results.iter().map(|result| result.as_ref().map(|(var, _)| *var)).collect();
        if self.forgetting == 0 {
            self.equations.push(Equation { primitive, inputs, outputs });
        }
        results.into_iter().map(|result| result.map(|(var, spec)| (self.id(var.index()), spec))).collect()
    }

    /// Begins or ends a time in which nothing is recorded but shapes and types.
    pub(super) fn forget(&mut self, change: i32) {
        self.forgetting += change;
    }

    /// A tensor in words: its type, and the operation that it is the result of.
    pub(super) fn describe(&mut self, tensor: &TensorIr) -> String {
        let var = self.var(tensor);
        let shape = &tensor.shape[..];
        let dtype = crate::graph::dtype_name(tensor.dtype);
        let equation = self.equations.iter().find(|equation| equation.outputs.contains(&Some(var)));
        let input = self.inputs.iter().find(|(_, input)| *input == var);
        match (equation, input) {
            (Some(equation), _) => format!("it is {dtype}{shape:?}, the result of `{}`", equation.primitive.name()),
            (None, Some((path, _))) => format!("it is {dtype}{shape:?}, the {}", named("argument", path)),
            (None, None) => format!("it is {dtype}{shape:?}, a constant"),
        }
    }
}

/// A trace from its beginning to its end. It ends when this is dropped, also by a panic.
pub(crate) struct Recording {
    pub(super) device: TraceDevice,
    outer: TraceDevice,
    keys: TracedKeys,
    /// Paths of the arguments that are keys.
    key_paths: RefCell<Vec<String>>,
    /// Of a sub-graph: the trace that it is part of.
    pub(super) parent: Option<u16>,
}

impl Recording {
    pub(crate) fn start(types: Types) -> Self {
        Self::begin(types, None)
    }

    /// Starts the trace of a sub-graph. Until it ends, what is done with tensors of the trace around it is recorded here, and those
    /// that are used become arguments.
    pub(crate) fn nested(around: TraceDevice) -> Self {
        Self::begin(around.types, Some(around.index))
    }

    /// Starts the trace of a function that may use arrays of the trace around it, or of a lazy device: that of the function's
    /// arguments, or the first. They become arguments.
    pub(crate) fn within(types: Types, device: &dyn Any) -> Self {
        let current = CURRENT.get();
        let around = match current.index == NONE.index {
            true => device.downcast_ref().copied().unwrap_or_default(),
            false => current,
        };
        Self::begin(types, (around.index != NONE.index).then_some(around.index))
    }

    /// The device of the trace.
    pub(crate) fn device(&self) -> TraceDevice {
        self.device
    }

    fn begin(types: Types, around: Option<u16>) -> Self {
        let mut enclosing = Vec::new();
        let parent = around.map(|around| innermost(&traces(), around));
        if let Some(parent) = parent {
            with_sink(parent, |sink| {
                if let Sink::Trace(recorder) = sink {
                    enclosing.clone_from(&recorder.enclosing);
                }
                enclosing.push(sink.number());
            });
        }
        let recorder = Recorder {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            variables: Vec::new(),
            inputs: Vec::new(),
            constants: Vec::new(),
            equations: Vec::new(),
            forgetting: 0,
            enclosing,
            captured: Vec::new(),
            borrowed: Vec::new(),
        };
        let index = add(Sink::Trace(recorder), parent);
        let device = TraceDevice { index, types };
        // An error says that an earlier trace with this index and these types has done so.
        drop(set_default_dtypes::<Traced>(&device, types.float, types.int));
        let outer = CURRENT.replace(device);
        Self { device, outer, parent, keys: TracedKeys::start(), key_paths: RefCell::default() }
    }

    /// A new argument.
    pub(crate) fn input(&self, path: String, spec: Spec) -> RouterTensor<TraceClient> {
        let Spec { shape, dtype } = spec.clone();
        let id = with(self.device.index, |recorder| {
            let var = recorder.add(spec);
            recorder.inputs.push((path, var));
            recorder.id(var.index())
        });
        RouterTensor::new(id, shape, dtype, TraceClient::of(self.device))
    }

    /// Calls a function that lifts a tree of arguments, whose keys have these paths, with placeholders in place of the keys.
    /// Where `arrays` is true, the keys are arrays, and the first arguments.
    pub(crate) fn with_key_inputs<T>(&self, paths: Vec<String>, arrays: bool, lift: impl FnOnce() -> T) -> T {
        if arrays {
            return put_keys(paths.into_iter().map(|path| self.key_array(path)).collect(), lift);
        }
        let placeholders = paths.iter().map(|_| self.keys.placeholder()).collect();
        self.key_paths.borrow_mut().extend(paths);
        put_keys(placeholders, lift)
    }

    /// A key that is an array, a new argument.
    pub(crate) fn key_array(&self, path: String) -> Key {
        let words = self.input(path, Spec { shape: [2].into(), dtype: DType::U32 });
        Key::from_data::<Traced>(Tensor::from_primitive(words))
    }

    /// The graph of what was recorded. Fails where an output is not of this trace, with its position.
    pub(crate) fn finish(self, outputs: Vec<(String, TensorId)>) -> Result<Graph, String> {
        self.finish_with_keys(outputs, Vec::new())
    }

    /// [`finish`](Self::finish) with results that are keys.
    pub(crate) fn finish_with_keys(
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
        let mut traces = traces();
        if let Some(place) = traces.get_mut(usize::from(self.device.index)) {
            *place = None;
        }
        if let Some(Some(parent)) = self.parent.and_then(|parent| traces.get_mut(usize::from(parent))) {
            parent.inner.retain(|(inner, _)| *inner != self.device.index);
        }
    }
}

/// A tensor with the kind of its type.
pub(crate) fn any(tensor: RouterTensor<TraceClient>) -> AnyTensor<Traced> {
    match tensor.dtype() {
        dtype if dtype.is_float() => AnyTensor::Float(tensor),
        DType::Bool(_) => AnyTensor::Bool(tensor),
        _ => AnyTensor::Int(tensor),
    }
}

/// A tensor without its kind.
pub(crate) fn tensor_of(tensor: AnyTensor<Traced>) -> RouterTensor<TraceClient> {
    let (AnyTensor::Float(tensor) | AnyTensor::Int(tensor) | AnyTensor::Bool(tensor)) = tensor;
    tensor
}

/// The id of a tensor.
pub(crate) fn var_of(tensor: AnyTensor<Traced>) -> TensorId {
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
