//! OpenXLA as the engine of lazy arrays, on one device or on a mesh.

use burn::tensor::{BoolStore, DType, TensorData};
use grove_compile::{DeviceArray, Engine, Executable as Program, Graph, TraceDevice, Var, lazy_device};
use grove_tree::Key;
use std::{
    io::IsTerminal,
    sync::{Arc, Mutex, PoisonError},
};

use crate::{
    Argument, ArrayType, Buffer, CompileOptions, Compiled, Device, ElementType, Executable, ExecutableCache,
    LowerOptions, Mesh, PartitionSpec, Shardings, lower,
    lower::{LowerError, element_type},
    sharded::ShardedArray,
};

impl Device {
    /// Makes a device of grove's arrays of this one: operations on them are recorded, and compiled and run by XLA when a value is read.
    /// Arrays stay on the device. The first one that a process makes is the default device of [`Xla`](crate::Xla).
    pub fn lazy(&self) -> TraceDevice {
        self.lazy_with(ExecutableCache::of_user())
    }

    /// [`lazy`](Self::lazy), with compiled programs kept in a folder.
    pub fn lazy_with(&self, cache: ExecutableCache) -> TraceDevice {
        lazy_device(OnMesh { mesh: Mesh::of_one(self), cache, programs: Arc::default() })
    }
}

/// The programs that an engine compiled, the last one last.
pub(crate) type Programs = Arc<Mutex<Vec<Arc<CompiledGraph>>>>;

/// The engine of a mesh.
pub(crate) struct OnMesh {
    pub mesh: Mesh,
    pub cache: ExecutableCache,
    pub programs: Programs,
}

/// A compiled graph.
#[derive(Debug)]
pub(crate) struct CompiledGraph {
    executable: Executable,
    donated: Vec<bool>,
    mesh: Mesh,
    /// Whole types of the results, and how they lie on the mesh.
    results: Vec<(ArrayType, PartitionSpec)>,
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

    fn upload(&self, data: TensorData) -> Result<DeviceArray, String> {
        Ok(Arc::new(ShardedArray::upload(&self.mesh, data, &PartitionSpec::replicated())?))
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
        let plan = plan(graph, &given, donated).map_err(text)?;
        let several = self.mesh.devices().len() > 1;
        let shardings = several.then(|| Shardings { mesh: &self.mesh, inputs: &given, outputs: &plan.outputs });
        let lowered = lower(graph, &LowerOptions { donated: plan.aliases.clone(), shardings }).map_err(text)?;
        let mut parameters = lowered.parameters.clone();
        for (array, spec) in parameters.iter_mut().zip(&given) {
            array.dims = self.mesh.part_dims(spec, &array.dims)?;
        }
        let program = crate::Program { text: &lowered.text, parameters: &parameters };
        let devices = self.mesh.devices().iter().map(Device::id).collect::<crate::Result<_>>().map_err(text)?;
        let options = CompileOptions { devices, shardy: several, ..CompileOptions::default() };
        let progress = Progress::show(graph.equations().len());
        let executable = self.cache.compile(&self.mesh.client(), program, &options).map_err(text)?;
        drop(progress);
        let compiled = Arc::new(CompiledGraph {
            executable,
            donated: plan.aliases.iter().map(Option::is_some).collect(),
            mesh: self.mesh.clone(),
            results: lowered.results.into_iter().zip(plan.outputs).collect(),
        });
        self.programs.lock().unwrap_or_else(PoisonError::into_inner).push(compiled.clone());
        Ok(compiled)
    }
}

impl Program for CompiledGraph {
    fn run(&self, inputs: Vec<DeviceArray>, keys: &[Key]) -> Result<Vec<DeviceArray>, String> {
        let key = |key: &Key| {
            let words = TensorData::new(key.words().to_vec(), [2]);
            ShardedArray::upload(&self.mesh, words, &PartitionSpec::replicated())
        };
        let keys: Vec<ShardedArray> = keys.iter().map(key).collect::<Result<_, _>>()?;
        // An array that somebody else holds after all is kept.
        let given = |(array, donated): (DeviceArray, &bool)| -> Result<Given, String> {
            let array = array.downcast::<ShardedArray>().map_err(|_| FOREIGN)?;
            match donated {
                true => Ok(Arc::try_unwrap(array).map_or_else(Given::Shared, Given::Whole)),
                false => Ok(Given::Shared(array)),
            }
        };
        let given: Vec<Given> = inputs.into_iter().zip(&self.donated).map(given).collect::<Result<_, _>>()?;
        let (mut whole, mut shared, mut order) = (Vec::new(), Vec::new(), Vec::new());
        for given in given {
            match given {
                Given::Whole(array) => {
                    order.push(true);
                    whole.push(array.parts.into_iter());
                }
                Given::Shared(array) => {
                    order.push(false);
                    shared.push(array);
                }
            }
        }
        let arguments = (0..self.mesh.devices().len()).map(|device| {
            let (mut given_up, mut kept) = (whole.iter_mut(), shared.iter());
            let of_inputs = order.iter().filter_map(|donated| match donated {
                true => given_up.next().and_then(Iterator::next).map(Argument::Donate),
                false => kept.next().map(|array| Argument::Keep(&array.parts[device])),
            });
            of_inputs.chain(keys.iter().map(|key| Argument::Keep(&key.parts[device]))).collect()
        });
        let arguments: Vec<Vec<Argument<'_>>> = arguments.collect();
        let results = self.executable.execute(arguments).map_err(text)?;
        // From lists of each device to lists of each result.
        let mut lists: Vec<_> = results.into_iter().map(Vec::into_iter).collect();
        let array = |(array, spec): &(ArrayType, PartitionSpec)| {
            let parts: Vec<Buffer> = lists.iter_mut().filter_map(Iterator::next).collect();
            Arc::new(ShardedArray { array: array.clone(), spec: spec.clone(), parts }) as DeviceArray
        };
        Ok(self.results.iter().map(array).collect())
    }
}

/// An argument of a program.
enum Given {
    /// That nobody else holds.
    Whole(ShardedArray),
    Shared(Arc<ShardedArray>),
}

const FOREIGN: &str = "an array of another engine is given to XLA";

pub(crate) fn sharded(array: &DeviceArray) -> Result<&ShardedArray, String> {
    array.downcast_ref::<ShardedArray>().ok_or_else(|| FOREIGN.into())
}

pub(crate) fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// What takes which memory, and how results lie on a mesh.
struct Plan {
    /// For each input that is given up the output that takes its memory, of the same type.
    aliases: Vec<Option<usize>>,
    outputs: Vec<PartitionSpec>,
}

/// A result lies as the input whose memory it takes, or else as an input of its type that is split; others are on all devices.
fn plan(graph: &Graph, given: &[PartitionSpec], donated: &[bool]) -> Result<Plan, LowerError> {
    let of = |var: Var| Ok((element_type(graph.dtype(var))?, graph.shape(var).to_vec()));
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
    let split = |array: &(ElementType, Vec<usize>)| {
        let mut like = inputs.iter().zip(given).filter(|(input, spec)| *input == array && !spec.is_replicated());
        like.next().map(|(_, spec)| spec.clone())
    };
    let outputs =
        specs.into_iter().zip(&outputs).map(|(spec, array)| spec.or_else(|| split(array)).unwrap_or_default());
    Ok(Plan { aliases, outputs: outputs.collect() })
}

/// A note on a terminal that a program is being compiled, as long as this is there.
struct Progress(bool);

impl Progress {
    fn show(equations: usize) -> Self {
        let terminal = std::io::stderr().is_terminal();
        if terminal {
            // Behind the cursor, which goes back to where a text is being written.
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

/// The type of elements on the host.
pub(crate) fn dtype(element: ElementType) -> DType {
    match element {
        ElementType::Bool => DType::Bool(BoolStore::Native),
        ElementType::I8 => DType::I8,
        ElementType::I16 => DType::I16,
        ElementType::I32 => DType::I32,
        ElementType::I64 => DType::I64,
        ElementType::U8 => DType::U8,
        ElementType::U16 => DType::U16,
        ElementType::U32 => DType::U32,
        ElementType::U64 => DType::U64,
        ElementType::F16 => DType::F16,
        ElementType::BF16 => DType::BF16,
        ElementType::F32 => DType::F32,
        ElementType::F64 => DType::F64,
    }
}
