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

use super::{LazyArrays, failed};
use crate::{
    graph::{Graph, KeyMap, Keys, Var},
    same_type::same_type,
    traced::{
        TraceClient, TraceDevice, Traced,
        engine::{DeviceArray, Engine},
        lifted::{Lifted, lifted},
        programs::Source,
        recording::{any, tensor_of},
        sink::Sink,
        traces::{locked, with_sink},
    },
};

/// A graph's forms on lazy devices, by the index of the device.
#[derive(Default)]
pub(crate) struct OnLazyDevices(Mutex<HashMap<u16, Arc<LoadedGraph>>>);

impl fmt::Debug for OnLazyDevices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnLazyDevices").finish_non_exhaustive()
    }
}

/// A graph on a device.
pub(super) struct LoadedGraph {
    /// The graph with its constants and scalars as its last inputs, and each result once.
    source: Arc<Source>,
    /// The constants and scalars.
    arrays: Vec<DeviceArray>,
    /// The keys that the operations of the original graph sample with.
    keys: Vec<Key>,
}

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
    let Some(device) = device else { return Err(arguments) };
    let results = call_on(graph, devices, same_type(arguments)?, keys, *device);
    Ok(same_type(results).unwrap_or_else(|_| unreachable!("the arguments are of the same type")))
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

impl LazyArrays {
    /// Runs a whole graph as one program. Returns the ids of its results. If the program fails, reading one gives the error.
    fn call(
        &mut self,
        results: usize,
        graph: impl FnOnce(&dyn Engine) -> Result<Arc<LoadedGraph>, String>,
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
        graph: &LoadedGraph,
        inputs: Vec<u32>,
        is_donated: impl Fn(&u32) -> bool,
        keys: &KeyMap,
    ) -> Result<Vec<DeviceArray>, String> {
        let LoadedGraph { source, arrays: constants, keys: of_graph } = graph;
        if source.graph.meets_ranks() {
            self.run()?;
        }
        let mut arrays = inputs.iter().map(|x| self.compute(*x)).collect::<Result<Vec<_>, _>>()?;
        // A graph that computes nothing.
        if source.graph.equations.is_empty() && source.graph.outputs.is_empty() {
            return Ok(Vec::new());
        }
        arrays.extend(constants.iter().cloned());
        let donated: Vec<bool> = inputs.iter().map(|x| is_donated(x) && !self.segment.contains(*x)).collect();
        let program = self.programs.get(&*self.engine, source, &arrays, donated.clone()).map_err(failed)?;
        let given_up = inputs.iter().zip(donated).filter(|(_, donated)| *donated);
        given_up.for_each(|(x, _)| drop(self.computed.remove(x)));
        let keys: Vec<Key> = of_graph.iter().map(|key| keys.get(*key)).collect();
        program.run(arrays, &keys).map_err(|error| failed(error.message))
    }
}

impl OnLazyDevices {
    /// Returns the form of a graph on a device. It is prepared once.
    fn of(&self, graph: &Graph, index: u16, engine: &dyn Engine) -> Result<Arc<LoadedGraph>, String> {
        let mut known = locked(&self.0);
        if let Some(known) = known.get(&index) {
            return Ok(known.clone());
        }
        let new = Arc::new(LoadedGraph::new(graph, engine)?);
        known.insert(index, new.clone());
        Ok(new)
    }
}

impl LoadedGraph {
    fn new(graph: &Graph, engine: &dyn Engine) -> Result<Self, String> {
        let outputs = results(graph).into_iter().map(|var| (String::new(), var)).collect();
        let mut graph = Graph { outputs, keys: Keys::default(), ..graph.clone() };
        let (vars, constants): (Vec<Var>, Vec<_>) = std::mem::take(&mut graph.constants).into_iter().unzip();
        graph.inputs.extend(vars.into_iter().map(|var| (String::new(), var)));
        let Lifted { graph, numbers, keys } = lifted(graph);
        let arrays = constants.into_iter().chain(numbers).map(|data| engine.upload(data)).collect::<Result<_, _>>()?;
        Ok(Self { source: Source::new(graph), arrays, keys })
    }
}
