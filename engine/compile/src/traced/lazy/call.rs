//! Calls of whole graphs on a lazy device, which compiles a graph once and records none of its equations.

use burn::tensor::backend::BackendTypes;
use burn_ir::{TensorId, TensorIr, TensorStatus};
use burn_router::RouterTensor;
use grove_backend::{AnyTensor, Backend};
use grove_tree::Key;
use std::{
    any::Any,
    collections::{HashMap, HashSet},
    fmt,
    sync::{Arc, Mutex},
};

use super::{Lazy, failed};
use crate::{
    graph::{Graph, KeyMap, Keys, Var},
    traced::{
        TraceClient, TraceDevice, Traced,
        engine::{DeviceArray, Engine, Executable},
        lifted::{Lifted, lifted},
        programs::Programs,
        recording::{any, tensor_of},
        sink::Sink,
        traces::{locked, with_sink},
    },
};

/// A graph's forms on lazy devices, by the index of the device.
#[derive(Default)]
pub(crate) struct OnLazyDevices(Mutex<HashMap<u16, Arc<OnDevice>>>);

impl fmt::Debug for OnLazyDevices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnLazyDevices").finish_non_exhaustive()
    }
}

/// A graph on a device.
pub(super) struct OnDevice {
    /// The graph with its constants and scalars as its last inputs, and each result once.
    graph: Graph,
    /// The constants and scalars.
    arrays: Vec<DeviceArray>,
    /// The keys that the operations of the original graph sample with.
    keys: Vec<Key>,
    programs: Mutex<HashMap<InputForms, Arc<dyn Executable>>>,
}

/// The layout of each input of a program, and true for each that is donated.
type InputForms = (Vec<String>, Vec<bool>);

/// Runs a graph as one program if the device is lazy and outside traces. Otherwise returns the arguments as the error.
pub(crate) fn call<B: Backend>(
    graph: &Graph,
    devices: &OnLazyDevices,
    arguments: Vec<AnyTensor<B>>,
    keys: &KeyMap,
    device: &<B as BackendTypes>::Device,
) -> Result<Vec<AnyTensor<B>>, Vec<AnyTensor<B>>> {
    let device: Option<&TraceDevice> = (device as &dyn Any).downcast_ref();
    let device = device.filter(|device| device.types == graph.types && device.is_lazy());
    match device {
        Some(device) if (&arguments as &dyn Any).is::<Vec<AnyTensor<Traced>>>() => {
            Ok(same(call_on(graph, devices, same(arguments), keys, *device)))
        }
        _ => Err(arguments),
    }
}

/// Casts a value between two names of the same type.
fn same<T: Any, U: Any>(value: T) -> U {
    let mut value = Some(value);
    let of_any: Option<&mut Option<U>> = (&mut value as &mut dyn Any).downcast_mut();
    of_any.and_then(Option::take).unwrap_or_else(|| unreachable!("the types are equal"))
}

fn call_on(
    graph: &Graph,
    devices: &OnLazyDevices,
    arguments: Vec<AnyTensor<Traced>>,
    keys: &KeyMap,
    device: TraceDevice,
) -> Vec<AnyTensor<Traced>> {
    let outputs: HashSet<Var> = graph.outputs.iter().map(|(_, var)| *var).collect();
    let inputs = graph.inputs.iter().zip(&arguments).filter(|((_, var), _)| outputs.contains(var));
    // An input that is an output is returned unchanged. This handle keeps it from being donated.
    let mut values: HashMap<Var, AnyTensor<Traced>> = inputs.map(|((_, var), value)| (*var, value.clone())).collect();
    let arguments: Vec<TensorIr> = arguments.into_iter().map(|x| tensor_of(x).into_ir()).collect();
    let results = results(graph);
    let ids = with_sink(device.index, |sink| match sink {
        Sink::Lazy(lazy) => {
            let of_device = |engine: &dyn Engine| devices.of(graph, device.index, engine);
            lazy.call(results.len(), of_device, &arguments, keys)
        }
        Sink::Trace(_) => unreachable!("traces on the device start on this thread"),
    });
    for (var, id) in results.into_iter().zip(ids) {
        let spec = &graph.variables[var.index()];
        let tensor = RouterTensor::new(id, spec.shape.clone(), spec.dtype, TraceClient::of(device));
        values.insert(var, any(tensor));
    }
    graph.outputs.iter().map(|(_, var)| values[var].clone()).collect()
}

/// Returns the outputs that are not inputs, each once.
fn results(graph: &Graph) -> Vec<Var> {
    let mut known: HashSet<Var> = graph.inputs.iter().map(|(_, var)| *var).collect();
    graph.outputs.iter().map(|(_, var)| *var).filter(|var| known.insert(*var)).collect()
}

impl Lazy {
    /// Runs a whole graph as one program. Returns the ids of its results. If the program fails, reading one gives the error.
    fn call(
        &mut self,
        results: usize,
        graph: impl FnOnce(&dyn Engine) -> Result<Arc<OnDevice>, String>,
        inputs: &[TensorIr],
        keys: &KeyMap,
    ) -> Vec<TensorId> {
        let ids: Vec<TensorId> = (0..results).map(|_| self.fresh()).collect();
        if self.forgets() {
            return ids;
        }
        let (last, others): (Vec<_>, Vec<_>) = inputs.iter().partition(|x| x.status == TensorStatus::ReadWrite);
        let [last, others] = [last, others].map(|list| list.iter().map(|x| self.index(x)).collect::<HashSet<u32>>());
        let indices = inputs.iter().map(|x| x.id.value() as u32);
        let is_donated = |index: &u32| last.contains(index) && !others.contains(index);
        match graph(&*self.engine).and_then(|graph| self.run_graph(&graph, indices.collect(), is_donated, keys)) {
            Ok(arrays) => self.computed.extend(ids.iter().map(|id| id.value() as u32).zip(arrays)),
            Err(error) => self.lost.extend(ids.iter().map(|id| (id.value() as u32, error.clone()))),
        }
        last.into_iter().for_each(|index| self.release(index));
        ids
    }

    /// Runs a graph with these arrays. The program may reuse the memory of those for which `is_donated` is true.
    fn run_graph(
        &mut self,
        graph: &OnDevice,
        inputs: Vec<u32>,
        is_donated: impl Fn(&u32) -> bool,
        keys: &KeyMap,
    ) -> Result<Vec<DeviceArray>, String> {
        if graph.meets_ranks() {
            self.run()?;
        }
        let arrays = inputs.iter().map(|x| self.compute(*x)).collect::<Result<_, _>>()?;
        if graph.is_empty() {
            return Ok(Vec::new());
        }
        let arrays = graph.with_arrays(arrays);
        let donated: Vec<bool> = inputs.iter().map(|x| is_donated(x) && !self.segment.contains(*x)).collect();
        let program = graph.program(&*self.engine, &mut self.programs, &arrays, donated.clone()).map_err(failed)?;
        let given_up = inputs.iter().zip(donated).filter(|(_, donated)| *donated);
        given_up.for_each(|(x, _)| drop(self.computed.remove(x)));
        program.run(arrays, &graph.keys(keys)).map_err(|error| failed(error.message))
    }
}

impl OnLazyDevices {
    /// Returns the form of a graph on a device. It is prepared once.
    fn of(&self, graph: &Graph, index: u16, engine: &dyn Engine) -> Result<Arc<OnDevice>, String> {
        let mut known = locked(&self.0);
        if let Some(known) = known.get(&index) {
            return Ok(known.clone());
        }
        let new = Arc::new(OnDevice::new(graph, engine)?);
        known.insert(index, new.clone());
        Ok(new)
    }
}

impl OnDevice {
    fn new(graph: &Graph, engine: &dyn Engine) -> Result<Self, String> {
        let outputs = results(graph).into_iter().map(|var| (String::new(), var)).collect();
        let mut graph = Graph { outputs, keys: Keys::default(), ..graph.clone() };
        let (vars, constants): (Vec<Var>, Vec<_>) = std::mem::take(&mut graph.constants).into_iter().unzip();
        graph.inputs.extend(vars.into_iter().map(|var| (String::new(), var)));
        let Lifted { graph, numbers, keys } = lifted(graph);
        let arrays = constants.into_iter().chain(numbers).map(|data| engine.upload(data)).collect::<Result<_, _>>()?;
        Ok(Self { graph, arrays, keys, programs: Mutex::default() })
    }

    /// Returns true for a graph that computes nothing.
    pub fn is_empty(&self) -> bool {
        self.graph.equations.is_empty() && self.graph.outputs.is_empty()
    }

    pub fn meets_ranks(&self) -> bool {
        self.graph.meets_ranks()
    }

    /// Returns the keys of a call.
    pub fn keys(&self, call: &KeyMap) -> Vec<Key> {
        self.keys.iter().map(|key| call.get(*key)).collect()
    }

    /// Appends the constants and the scalars to the inputs.
    pub fn with_arrays(&self, mut inputs: Vec<DeviceArray>) -> Vec<DeviceArray> {
        inputs.extend(self.arrays.iter().cloned());
        inputs
    }

    /// Returns the program for inputs with these layouts.
    pub fn program(
        &self,
        engine: &dyn Engine,
        programs: &mut Programs,
        inputs: &[DeviceArray],
        mut donated: Vec<bool>,
    ) -> Result<Arc<dyn Executable>, String> {
        donated.resize(inputs.len(), false);
        let key = (inputs.iter().map(|array| engine.layout(array)).collect(), donated);
        if let Some(program) = locked(&self.programs).get(&key) {
            return Ok(program.clone());
        }
        let program = programs.get(engine, self.graph.clone(), inputs, key.1.clone())?;
        locked(&self.programs).insert(key, program.clone());
        Ok(program)
    }
}
