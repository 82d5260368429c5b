//! OpenXLA as the engine of lazy arrays, on one device or on a mesh.

use burn::tensor::{DType, TensorData};
use grove_compile::{
    DeviceArray, Engine, Executable as Program, Graph, RunError, TraceDevice, Var, lazy_device, logs_compiles,
};
use grove_tree::Key;
use std::{
    collections::HashMap,
    io::IsTerminal,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Instant,
};

use crate::{
    Argument, ArrayType, Buffer, CompileOptions, Compiled, Device, Executable, ExecutableCache, Flag, LowerOptions,
    Mesh, PartitionSpec, Replicas, Shardings, lower,
    lower::{LowerError, element_type, order_type, register, register_prints},
    sharded::{ShardedArray, text},
};

impl Device {
    /// Creates a device of grove's arrays from this device: operations are recorded, and XLA compiles and runs them when a value
    /// is read. Arrays stay on the device. The first device that a process creates is the default device of [`Xla`](crate::Xla).
    pub fn lazy(&self) -> TraceDevice {
        self.lazy_with(ExecutableCache::of_user())
    }

    /// [`lazy`](Self::lazy), with compiled programs stored in `cache`.
    pub fn lazy_with(&self, cache: ExecutableCache) -> TraceDevice {
        lazy_device(OnMesh::new(Mesh::of_one(self), cache))
    }
}

/// The live programs that an engine compiled, most recent last.
pub(crate) type Programs = Arc<Mutex<Vec<Weak<CompiledGraph>>>>;

/// The specification of the first split array of each type on a mesh.
pub(crate) type Layouts = Arc<Mutex<HashMap<ArrayType, PartitionSpec>>>;

/// The engine of a mesh.
pub(crate) struct OnMesh {
    pub mesh: Mesh,
    pub cache: ExecutableCache,
    pub programs: Programs,
    pub layouts: Layouts,
    pub order: Order,
    /// The ranks' devices, if they belong to one client.
    pub replicas: Option<Replicas>,
}

/// A token that the last program with all-reduces over ranks returned. The next such program waits for it.
pub(crate) type Order = Arc<Mutex<Option<Buffer>>>;

impl OnMesh {
    pub fn new(mesh: Mesh, cache: ExecutableCache) -> Self {
        let replicas = match mesh.devices() {
            [one] => mesh.client().replicas(one),
            _ => None,
        };
        Self { mesh, cache, programs: Arc::default(), layouts: Arc::default(), order: Arc::default(), replicas }
    }

    /// Returns the specification of an array without one: that of the first split array of its type.
    fn layout_of(&self, array: &ArrayType) -> PartitionSpec {
        self.layouts.lock().unwrap_or_else(PoisonError::into_inner).get(array).cloned().unwrap_or_default()
    }
}

/// A compiled graph.
#[derive(Debug)]
pub(crate) struct CompiledGraph {
    executable: Executable,
    donated: Vec<bool>,
    mesh: Mesh,
    /// Types of the whole results, and their specifications on the mesh.
    results: Vec<(ArrayType, PartitionSpec)>,
    /// For a program with all-reduces over ranks.
    order: Option<Order>,
}

impl CompiledGraph {
    pub fn compiled(&self) -> &Compiled {
        self.executable.compiled()
    }
}

impl Engine for OnMesh {
    fn supports(&self, dtype: DType) -> bool {
        element_type(dtype).is_ok() && dtype != DType::Flex32
    }

    fn reduces(&self) -> bool {
        self.replicas.is_some() || self.mesh.devices().len() == 1 && self.mesh.client().platform() == "cpu"
    }

    fn upload(&self, data: TensorData) -> Result<DeviceArray, String> {
        let array = ArrayType::new(element_type(data.dtype).map_err(text)?, data.shape.to_vec());
        Ok(Arc::new(ShardedArray::upload(&self.mesh, data, &self.layout_of(&array))?))
    }

    fn download(&self, array: &DeviceArray) -> Result<TensorData, String> {
        sharded(array)?.download(&self.mesh)
    }

    fn wait(&self, array: &DeviceArray) -> Result<(), String> {
        sharded(array)?.parts.iter().try_for_each(Buffer::wait).map_err(text)
    }

    fn layout(&self, array: &DeviceArray) -> String {
        sharded(array)
            .ok()
            .filter(|array| !array.spec.is_replicated())
            .map_or_else(String::new, |array| array.spec.to_string())
    }

    fn compile(&self, graph: &Graph, inputs: &[DeviceArray], donated: &[bool]) -> Result<Arc<dyn Program>, String> {
        let inputs: Vec<&ShardedArray> = inputs.iter().map(sharded).collect::<Result<_, _>>()?;
        let given: Vec<PartitionSpec> = inputs.iter().map(|array| array.spec.clone()).collect();
        let plan = plan(graph, &given, donated, |array| self.layout_of(array)).map_err(text)?;
        let several = self.mesh.devices().len() > 1;
        let shardings = several.then(|| Shardings { mesh: &self.mesh, inputs: &given, outputs: &plan.outputs });
        let start = Instant::now();
        let replicas = self.replicas.as_ref().map_or(0, |replicas| replicas.devices.len());
        let prints = !several && replicas == 0 && self.mesh.client().platform() == "cpu";
        let options = LowerOptions { donated: plan.aliases.clone(), shardings, replicas, prints };
        let lowered = lower(graph, &options).map_err(text)?;
        if logs_compiles() {
            eprintln!("xla: lowered to {} kB of StableHLO in {:.1?}", lowered.text.len() / 1000, start.elapsed());
        }
        if lowered.reduces && !self.reduces() {
            return Err("all-reduces over the ranks of a job need the first device of each process".into());
        }
        if lowered.reduces && replicas == 0 {
            register(&self.mesh.client().inner.plugin).map_err(text)?;
        }
        if lowered.prints {
            register_prints(&self.mesh.client().inner.plugin).map_err(text)?;
        }
        let mut parameters = lowered.parameters.clone();
        for (array, spec) in parameters.iter_mut().zip(&given) {
            array.dims = self.mesh.part_dims(spec, &array.dims)?;
        }
        let program = crate::Program { text: &lowered.text, parameters: &parameters };
        let devices = self.mesh.devices().iter().map(Device::id).collect::<crate::Result<_>>().map_err(text)?;
        let mut options = CompileOptions { devices, shardy: several, ..CompileOptions::default() };
        if lowered.reduces && replicas > 0 {
            options.replicas = self.replicas.clone();
            // Ranks with parts of different sizes compile different programs, and would wait for each other's autotuning results.
            options.flags.insert("xla_gpu_shard_autotuning".into(), Flag::Bool(false));
        }
        let progress = Progress::show(graph.equations().len());
        let executable = self.cache.compile(&self.mesh.client(), program, &options).map_err(text)?;
        drop(progress);
        let compiled = Arc::new(CompiledGraph {
            executable,
            donated: plan.aliases.iter().map(Option::is_some).collect(),
            mesh: self.mesh.clone(),
            results: lowered.results.into_iter().zip(plan.outputs).collect(),
            order: lowered.reduces.then(|| self.order.clone()),
        });
        let mut programs = self.programs.lock().unwrap_or_else(PoisonError::into_inner);
        programs.retain(|program| program.strong_count() > 0);
        programs.push(Arc::downgrade(&compiled));
        Ok(compiled)
    }
}

impl Program for CompiledGraph {
    fn run(&self, inputs: Vec<DeviceArray>, keys: &[Key]) -> Result<Vec<DeviceArray>, RunError> {
        let key = |key: &Key| {
            let words = TensorData::new(key.words().to_vec(), [2]);
            ShardedArray::upload(&self.mesh, words, &PartitionSpec::replicated())
        };
        let keys: Result<Vec<ShardedArray>, String> = keys.iter().map(key).collect();
        let keys = match (keys, inputs.iter().try_for_each(|input| sharded(input).map(drop))) {
            (Ok(keys), Ok(())) => keys,
            (Err(message), _) | (_, Err(message)) => {
                return Err(RunError { message, inputs: inputs.into_iter().map(Some).collect() });
            }
        };
        let mut given: Vec<Given> = inputs.into_iter().zip(&self.donated).map(Given::new).collect();
        let mut arguments: Vec<Vec<Argument<'_>>> = self.mesh.devices().iter().map(|_| Vec::new()).collect();
        for given in &mut given {
            match given {
                Given::Whole(array) => {
                    let parts = std::mem::take(&mut array.parts).into_iter();
                    arguments.iter_mut().zip(parts).for_each(|(list, part)| list.push(Argument::Donate(part)))
                }
                Given::Shared(array) => keep(&mut arguments, array),
            }
        }
        keys.iter().for_each(|key| keep(&mut arguments, key));
        let results = match &self.order {
            None => self.executable.start(&arguments),
            Some(order) => self.run_in_order(&mut arguments, order),
        };
        let results = match results {
            Ok(results) => results,
            Err(error) => {
                let parts = owned(arguments);
                return Err(RunError { message: text(error), inputs: given_back(given, parts) });
            }
        };
        // Transposes lists per device into lists per result.
        let mut lists: Vec<_> = results.into_iter().map(Vec::into_iter).collect();
        let array = |(array, spec): &(ArrayType, PartitionSpec)| {
            let parts: Vec<Buffer> = lists.iter_mut().filter_map(Iterator::next).collect();
            Arc::new(ShardedArray { array: array.clone(), spec: spec.clone(), parts }) as DeviceArray
        };
        Ok(self.results.iter().map(array).collect())
    }
}

impl CompiledGraph {
    /// Runs a program with all-reduces over ranks, which waits for the previous such program.
    fn run_in_order(&self, arguments: &mut [Vec<Argument<'_>>], order: &Order) -> crate::Result<Vec<Vec<Buffer>>> {
        let mut order = order.lock().unwrap_or_else(PoisonError::into_inner);
        let before = match order.take() {
            Some(before) => before,
            None => Buffer::from_host(&self.mesh.devices()[0], &order_type(), &[0; 4])?,
        };
        // The mesh has one device. Only this function holds the token, so its memory may be donated.
        arguments[0].push(Argument::Donate(before));
        let mut results = self.executable.start(arguments)?;
        *order = results[0].pop();
        Ok(results)
    }
}

/// An argument of a program.
enum Given {
    /// An array with no other owner; its parts are donated.
    Whole(ShardedArray),
    Shared(Arc<ShardedArray>),
}

impl Given {
    /// Wraps an array and its donation flag. An array with another owner is kept.
    fn new((array, donated): (DeviceArray, &bool)) -> Self {
        let array = array.downcast::<ShardedArray>().unwrap_or_else(|_| unreachable!("{FOREIGN}"));
        match donated {
            true => Arc::try_unwrap(array).map_or_else(Self::Shared, Self::Whole),
            false => Self::Shared(array),
        }
    }
}

/// Returns the donated arguments of each device by position.
fn owned(arguments: Vec<Vec<Argument<'_>>>) -> Vec<Vec<Option<Buffer>>> {
    let buffer = |argument| match argument {
        Argument::Donate(buffer) => Some(buffer),
        Argument::Keep(_) => None,
    };
    arguments.into_iter().map(|list| list.into_iter().map(buffer).collect()).collect()
}

/// Returns the arrays that were passed to a program, from the donated arguments of each device.
fn given_back(given: Vec<Given>, mut parts: Vec<Vec<Option<Buffer>>>) -> Vec<Option<DeviceArray>> {
    let array = |(i, given): (usize, Given)| match given {
        Given::Shared(array) => Some(array as DeviceArray),
        Given::Whole(array) => {
            let parts = parts.iter_mut().map(|list| list.get_mut(i)?.take()).collect::<Option<_>>()?;
            Some(Arc::new(ShardedArray { parts, ..array }) as DeviceArray)
        }
    };
    given.into_iter().enumerate().map(array).collect()
}

/// Adds a kept array to the arguments of each device.
fn keep<'a>(arguments: &mut [Vec<Argument<'a>>], array: &'a ShardedArray) {
    arguments.iter_mut().zip(&array.parts).for_each(|(list, part)| list.push(Argument::Keep(part)));
}

const FOREIGN: &str = "an array of another engine is given to XLA";

pub(crate) fn sharded(array: &DeviceArray) -> Result<&ShardedArray, String> {
    array.downcast_ref::<ShardedArray>().ok_or_else(|| FOREIGN.into())
}

/// Memory reuse of the results, and their specifications on a mesh.
struct Plan {
    /// For each donated input, the output of the same type that reuses its memory.
    aliases: Vec<Option<usize>>,
    outputs: Vec<PartitionSpec>,
}

/// Plans the results. A result has the specification of the input whose memory it reuses, otherwise that of a split input of the
/// same type, otherwise the default specification of its type.
fn plan(
    graph: &Graph,
    given: &[PartitionSpec],
    donated: &[bool],
    layout_of: impl Fn(&ArrayType) -> PartitionSpec,
) -> Result<Plan, LowerError> {
    let of = |var: Var| Ok(ArrayType::new(element_type(graph.dtype(var))?, graph.shape(var).to_vec()));
    let inputs: Vec<_> = graph.inputs().iter().map(|(_, var)| of(*var)).collect::<Result<_, LowerError>>()?;
    let outputs: Vec<_> = graph.outputs().iter().map(|(_, var)| of(*var)).collect::<Result<_, LowerError>>()?;
    let mut specs: Vec<Option<PartitionSpec>> = vec![None; outputs.len()];
    let mut aliases = vec![None; inputs.len()];
    for (i, array) in inputs.iter().enumerate().filter(|(i, _)| donated.get(*i) == Some(&true)) {
        let free = (0..outputs.len()).find(|output| specs[*output].is_none() && outputs[*output] == *array);
        if let Some(output) = free {
            specs[output] = Some(given[i].clone());
            aliases[i] = Some(output);
        }
    }
    let split = |array: &ArrayType| {
        let mut like = inputs.iter().zip(given).filter(|(input, spec)| *input == array && !spec.is_replicated());
        like.next().map(|(_, spec)| spec.clone())
    };
    let outputs = specs
        .into_iter()
        .zip(&outputs)
        .map(|(spec, array)| spec.or_else(|| split(array)).unwrap_or_else(|| layout_of(array)));
    Ok(Plan { aliases, outputs: outputs.collect() })
}

/// A note on the terminal, shown while a program is compiled.
struct Progress(bool);

impl Progress {
    fn show(equations: usize) -> Self {
        let terminal = std::io::stderr().is_terminal();
        if terminal {
            // Written after the cursor, which then returns to its position in the text.
            eprint!("\x1b7 [XLA compiles a program of {equations} operations]\x1b8");
        }
        Self(terminal)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.0 {
            eprint!("\x1b[K");
        }
    }
}
