//! Running graphs on a backend, equation by equation.

mod graph;
mod kinds;
mod modules;

use burn::tensor::{
    DType, Tensor, TensorMetadata,
    backend::BackendTypes,
    ops::{BoolTensor, FloatTensor, IntTensor},
};
use burn_backend::backend::{Device, DeviceId};
use grove_backend::{
    Backend,
    ops::{AnyTensor, Call, Outcome, Values, cast},
};
use grove_tree::Key;
use std::{
    any::{Any, TypeId},
    collections::HashMap,
    rc::Rc,
    sync::{Arc, Mutex, PoisonError},
};

use crate::{
    Equation, Graph, Primitive, control,
    graph::{KeyMap, Var},
    sub_graph::SubGraph,
    target::{Target, keys, missing, with_keys},
    traced::{OnLazyDevices, TraceDevice, call},
};

/// A graph prepared for running: the last use of each variable is known.
#[derive(Debug)]
pub(crate) struct Program {
    graph: Arc<Graph>,
    /// For each equation and input, true if the variable is not used later.
    last: Vec<Vec<bool>>,
    /// For each variable, true if it is used.
    used: Vec<bool>,
    /// A vector of constant tensors for each device on which the program has run.
    constants: Mutex<HashMap<(TypeId, DeviceId), Box<dyn Any + Send>>>,
    /// The graph as programs of lazy devices.
    on_lazy_devices: OnLazyDevices,
}

impl SubGraph {
    /// Returns the program of the graph.
    pub(crate) fn program(&self) -> &Program {
        self.memo(|| Program::new(self.graph().clone()))
    }
}

impl Program {
    pub(crate) fn new(graph: impl Into<Arc<Graph>>) -> Self {
        let graph = graph.into();
        let mut used = vec![false; graph.variables.len()];
        graph.outputs.iter().for_each(|(_, var)| used[var.index()] = true);
        let mut last: Vec<Vec<bool>> = Vec::with_capacity(graph.equations.len());
        for equation in graph.equations.iter().rev() {
            // From right to left: if a variable occurs twice in an equation, the last occurrence takes the value.
            let mut flags: Vec<_> = equation
                .inputs
                .iter()
                .rev()
                .map(|input| input.is_some_and(|var| !std::mem::replace(&mut used[var.index()], true)))
                .collect();
            flags.reverse();
            last.push(flags);
        }
        last.reverse();
        Self { graph, last, used, constants: Mutex::default(), on_lazy_devices: OnLazyDevices::default() }
    }

    /// Returns the constants on a device. They are moved to the device once.
    pub(crate) fn constants<B: Backend>(&self, target: &Target<'_, B>) -> Vec<AnyTensor<B>> {
        let new = || self.graph.constants.iter().map(|(_, data)| target.constant(data)).collect::<Vec<_>>();
        // Constants of a running trace are recorded in the trace and end with it, so they are not cached.
        let trace: Option<&TraceDevice> = (target.device as &dyn Any).downcast_ref();
        if trace.is_some_and(|device| !device.is_lazy()) {
            return new();
        }
        let mut known = self.constants.lock().unwrap_or_else(PoisonError::into_inner);
        let of_device = known.entry((TypeId::of::<B>(), target.device.to_id())).or_insert_with(|| Box::new(new()));
        let Some(tensors) = of_device.downcast_ref::<Vec<AnyTensor<B>>>() else {
            unreachable!("the key has the type of the backend")
        };
        tensors.clone()
    }

    pub(crate) fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Runs the program. Returns the results in the order of the graph's outputs.
    pub(crate) fn run<B: Backend>(
        &self,
        arguments: Vec<AnyTensor<B>>,
        device: &<B as BackendTypes>::Device,
    ) -> Vec<AnyTensor<B>> {
        self.on(&Target::<B>::new(device)).run(arguments)
    }

    /// Prepares the program for several runs on a device.
    pub(crate) fn on<'a, B: Backend>(&'a self, target: &'a Target<'a, B>) -> OnDevice<'a, B> {
        OnDevice { program: self, target, constants: self.constants(target), keys: keys(), values: Vec::new() }
    }

    /// Like [`run`](Self::run), with the random keys of a [call](crate::graph::Keys::with). On a lazy device, the whole graph is
    /// one program.
    pub(crate) fn run_with_keys<B: Backend>(
        &self,
        arguments: Vec<AnyTensor<B>>,
        keys: &Rc<KeyMap>,
        device: &<B as BackendTypes>::Device,
    ) -> Vec<AnyTensor<B>> {
        let arguments = match call(&self.graph, &self.on_lazy_devices, arguments, keys, device) {
            Ok(results) => return results,
            Err(arguments) => arguments,
        };
        if self.graph.keys.inputs.is_empty() {
            return self.run(arguments, device);
        }
        with_keys(keys, || self.run(arguments, device))
    }

    /// Walks over the equations with values of type `V` for the variables. `step` returns the outputs of an equation. The last
    /// equation that uses a value takes ownership of it.
    pub(crate) fn walk<V: Clone>(
        &self,
        arguments: Vec<V>,
        constants: impl IntoIterator<Item = V>,
        step: impl FnMut(&Equation, Vec<Option<V>>) -> Vec<Option<V>>,
    ) -> Vec<V> {
        self.walk_in(&mut Vec::new(), arguments, constants, step)
    }

    /// Like [`walk`](Self::walk), with reused storage for the values.
    fn walk_in<V: Clone>(
        &self,
        values: &mut Vec<Option<V>>,
        arguments: Vec<V>,
        constants: impl IntoIterator<Item = V>,
        mut step: impl FnMut(&Equation, Vec<Option<V>>) -> Vec<Option<V>>,
    ) -> Vec<V> {
        values.clear();
        values.resize(self.graph.variables.len(), None);
        for ((_, var), value) in self.graph.inputs.iter().zip(arguments) {
            // Frees an unused argument immediately.
            values[var.index()] = self.used[var.index()].then_some(value);
        }
        for ((var, _), value) in self.graph.constants.iter().zip(constants) {
            values[var.index()] = Some(value);
        }
        for (equation, last) in self.graph.equations.iter().zip(&self.last) {
            let inputs: Vec<Option<V>> = equation
                .inputs
                .iter()
                .zip(last)
                .map(|(input, last)| {
                    let place = &mut values[(*input)?.index()];
                    if *last { place.take() } else { place.clone() }
                })
                .collect();
            let outputs = step(equation, inputs);
            for (var, value) in equation.outputs.iter().zip(outputs) {
                if let Some(var) = var
                    && self.used[var.index()]
                {
                    values[var.index()] = value;
                }
            }
        }
        let result = |(i, (_, var)): (usize, &(String, Var))| {
            // The last output of a variable takes its value.
            let again = self.graph.outputs[i + 1..].iter().any(|(_, other)| other == var);
            let value = &mut values[var.index()];
            if again { value.clone() } else { value.take() }.unwrap_or_else(|| missing())
        };
        self.graph.outputs.iter().enumerate().map(result).collect()
    }
}

/// A program prepared for runs on a device; see [`Program::on`].
pub(crate) struct OnDevice<'a, B: Backend> {
    program: &'a Program,
    target: &'a Target<'a, B>,
    constants: Vec<AnyTensor<B>>,
    keys: Option<Rc<KeyMap>>,
    values: Vec<Option<AnyTensor<B>>>,
}

impl<B: Backend> OnDevice<'_, B> {
    /// Like [`Program::run`].
    pub(crate) fn run(&mut self, arguments: Vec<AnyTensor<B>>) -> Vec<AnyTensor<B>> {
        let Self { program, target, constants, keys, values } = self;
        program.walk_in(values, arguments, constants.iter().cloned(), |equation, inputs| {
            let dtypes = equation.outputs.iter().map(|var| var.map(|var| program.graph.dtype(var)));
            apply_recorded(&equation.primitive, inputs, dtypes, keys.as_ref(), target)
        })
    }
}

/// Computes an equation with the keys of the call. The outputs have the dtypes that the trace recorded.
pub(crate) fn apply_recorded<B: Backend>(
    primitive: &Primitive,
    inputs: Vec<Option<AnyTensor<B>>>,
    dtypes: impl ExactSizeIterator<Item = Option<DType>>,
    keys: Option<&Rc<KeyMap>>,
    target: &Target<'_, B>,
) -> Vec<Option<AnyTensor<B>>> {
    // A trace records sub-graphs, which run later, so their keys are replaced as well.
    let replaced = keys.and_then(|keys| keys.replaced(primitive, control::is_traced::<B>()));
    let primitive = replaced.as_ref().unwrap_or(primitive);
    let outputs = apply(primitive, inputs, dtypes.len(), target);
    as_recorded(primitive, outputs, dtypes, target)
}

/// Converts outputs to the dtypes of the trace where a backend may use others.
pub(crate) fn as_recorded<B: Backend>(
    primitive: &Primitive,
    outputs: Vec<Option<AnyTensor<B>>>,
    dtypes: impl Iterator<Item = Option<DType>>,
    target: &Target<'_, B>,
) -> Vec<Option<AnyTensor<B>>> {
    let is_derivative = match primitive {
        // For 16-bit inputs, a backend may return derivatives in f32.
        Primitive::Grove(Call::Vjp(..)) | Primitive::WithKey(Call::Vjp(..)) => true,
        // Some backends do not give indices the integer dtype of the trace.
        Primitive::Argmax(_)
        | Primitive::Argmin(_)
        | Primitive::ArgTopK(..)
        | Primitive::MaxWithIndices(_)
        | Primitive::MinWithIndices(_) => false,
        _ => return outputs,
    };
    let converted = |(value, dtype): (Option<AnyTensor<B>>, Option<DType>)| match (value, dtype) {
        (Some(AnyTensor::Float(x)), Some(dtype)) if is_derivative => Some(AnyTensor::Float(cast::<B>(x, dtype))),
        (Some(AnyTensor::Int(x)), Some(dtype)) if !is_derivative && x.dtype() != dtype => {
            Some(AnyTensor::Int(B::int_cast(x, target.int(dtype))))
        }
        (value, _) => value,
    };
    outputs.into_iter().zip(dtypes).map(converted).collect()
}

/// Computes one operation. `outputs` is the number of its outputs.
pub(crate) fn apply<B: Backend>(
    primitive: &Primitive,
    inputs: Vec<Option<AnyTensor<B>>>,
    outputs: usize,
    target: &Target<'_, B>,
) -> Vec<Option<AnyTensor<B>>> {
    match primitive {
        Primitive::Grove(call) => return grove(call, inputs, target.device, outputs),
        Primitive::WithKey(call) => {
            let (call, inputs) = with_key(call, inputs);
            return grove(&call, inputs, target.device, outputs);
        }
        _ => {}
    }
    let mut inputs: Vec<AnyTensor<B>> = inputs.into_iter().map(|x| x.unwrap_or_else(|| missing())).collect();
    let mut last = || inputs.pop().unwrap_or_else(|| missing());
    let index = || target.int(DType::I64);
    match primitive {
        Primitive::MaxWithIndices(axis) => match last() {
            AnyTensor::Float(x) => pair(B::float_max_dim_with_indices(x, *axis, index()), AnyTensor::Float),
            AnyTensor::Int(x) => pair(B::int_max_dim_with_indices(x, *axis), AnyTensor::Int),
            x => kinds::undefined("max_with_indices", &x),
        },
        Primitive::MinWithIndices(axis) => match last() {
            AnyTensor::Float(x) => pair(B::float_min_dim_with_indices(x, *axis, index()), AnyTensor::Float),
            AnyTensor::Int(x) => pair(B::int_min_dim_with_indices(x, *axis), AnyTensor::Int),
            x => kinds::undefined("min_with_indices", &x),
        },
        Primitive::Module(module) => modules::run(module, inputs, outputs),
        Primitive::Fused(fused) => B::run_chain(&fused.chain, inputs, &fused.shapes).into_iter().map(Some).collect(),
        Primitive::HigherOrder(op) => control::apply(op, inputs, target.device).into_iter().map(Some).collect(),
        primitive => vec![Some(kinds::apply(primitive, inputs, target))],
    }
}

/// Returns values and their indices.
fn pair<B: Backend, T>(
    (values, indices): (T, IntTensor<B>),
    any: impl FnOnce(T) -> AnyTensor<B>,
) -> Vec<Option<AnyTensor<B>>> {
    vec![Some(any(values)), Some(AnyTensor::Int(indices))]
}

/// Computes one operation with one output.
pub(crate) fn apply_one<B: Backend>(
    primitive: &Primitive,
    inputs: impl IntoIterator<Item = AnyTensor<B>>,
    target: &Target<'_, B>,
) -> AnyTensor<B> {
    let mut outputs = apply(primitive, inputs.into_iter().map(Some).collect(), 1, target);
    outputs.pop().flatten().unwrap_or_else(|| missing())
}

/// Splits off the first input, a key, and puts its words into the call. Returns the call and the other inputs.
pub(crate) fn with_key<B: Backend>(
    call: &Call,
    mut inputs: Vec<Option<AnyTensor<B>>>,
) -> (Call, Vec<Option<AnyTensor<B>>>) {
    let mut call = call.clone();
    let data = inputs.remove(0).unwrap_or_else(|| missing());
    if let Some(words) = call.key_mut() {
        *words = Key::from_data::<B>(Tensor::from_primitive(int(data))).words();
    }
    (call, inputs)
}

/// Runs one of grove's operations or its derivative.
fn grove<B: Backend>(
    call: &Call,
    mut inputs: Vec<Option<AnyTensor<B>>>,
    device: &<B as BackendTypes>::Device,
    count: usize,
) -> Vec<Option<AnyTensor<B>>> {
    let mut outputs = match call {
        Call::Run(operation, needs) => {
            let inputs = match inputs.is_empty() {
                true => Values::on(device),
                false => inputs.into_iter().collect(),
            };
            let first = operation.shapes(&inputs.shapes()).len();
            let Outcome { outputs, saved } = B::run(operation, inputs, needs);
            let mut outputs = outputs.into_values();
            outputs.resize_with(first, || None);
            outputs.extend(saved.into_values());
            outputs
        }
        Call::Vjp(operation, residuals, wanted) => {
            let grads = inputs.split_off(*residuals);
            B::run_vjp(operation, inputs.into_iter().collect(), grads.into_iter().collect(), wanted).into_values()
        }
    };
    outputs.resize_with(count, || None);
    outputs
}

/// Returns the floating-point tensor of a value.
fn float<B: Backend>(value: AnyTensor<B>) -> FloatTensor<B> {
    match value {
        AnyTensor::Float(x) => x,
        other => panic!("the graph has {} where a floating-point array is expected", kind(&other)),
    }
}

/// Returns the integer tensor of a value.
fn int<B: Backend>(value: AnyTensor<B>) -> IntTensor<B> {
    match value {
        AnyTensor::Int(x) => x,
        other => panic!("the graph has {} where an integer array is expected", kind(&other)),
    }
}

/// Returns the boolean tensor of a value.
fn boolean<B: Backend>(value: AnyTensor<B>) -> BoolTensor<B> {
    match value {
        AnyTensor::Bool(x) => x,
        other => panic!("the graph has {} where a boolean array is expected", kind(&other)),
    }
}

/// Describes the kind and the shape of a value.
pub(crate) fn kind<B: Backend>(value: &AnyTensor<B>) -> String {
    match value {
        AnyTensor::Float(x) => format!("floating-point values {:?}", &x.shape()[..]),
        AnyTensor::Int(x) => format!("integers {:?}", &x.shape()[..]),
        AnyTensor::Bool(x) => format!("booleans {:?}", &x.shape()[..]),
    }
}
