//! OpenXLA as the engine of lazy arrays.

use burn::tensor::{BoolStore, DType, TensorData};
use grove_compile::{DeviceArray, Engine, Executable as Program, Graph, TraceDevice, lazy_device};
use grove_tree::Key;
use std::{io::IsTerminal, sync::Arc};

use crate::{
    Argument, ArrayType, Buffer, CompileOptions, Device, ElementType, Executable, ExecutableCache, LowerOptions, lower,
    lower::{LowerError, element_type},
};

/// Bytes from which an array is not copied where the device can use the host's memory.
const LARGE: usize = 1 << 16;

impl Device {
    /// Makes a device of grove's arrays of this one: operations on them are recorded, and compiled and run by XLA when a value is read.
    /// Arrays stay on the device. The first one that a process makes is the default device of [`Xla`](crate::Xla).
    pub fn lazy(&self) -> TraceDevice {
        self.lazy_with(ExecutableCache::of_user())
    }

    /// [`lazy`](Self::lazy), with compiled programs kept in a folder.
    pub fn lazy_with(&self, cache: ExecutableCache) -> TraceDevice {
        lazy_device(OneDevice { device: self.clone(), cache })
    }
}

/// An array of the host that a device reads where it is.
struct Host(TensorData);

impl AsRef<[u8]> for Host {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

/// The engine of one device.
struct OneDevice {
    device: Device,
    cache: ExecutableCache,
}

/// A compiled graph.
struct Compiled {
    executable: Executable,
    donated: Vec<bool>,
    device: Device,
}

impl Engine for OneDevice {
    fn supports(&self, dtype: DType) -> bool {
        element_type(dtype).is_ok() && dtype != DType::Flex32
    }

    fn upload(&self, data: TensorData) -> Result<DeviceArray, String> {
        let element = element_type(data.dtype).map_err(text)?;
        let array = ArrayType::new(element, data.shape.to_vec());
        let buffer = match data.as_bytes().len() {
            0..LARGE => Buffer::from_host(&self.device, &array, data.as_bytes()),
            _ => Buffer::from_shared(&self.device, &array, Host(data)),
        };
        Ok(Arc::new(buffer.map_err(text)?))
    }

    fn download(&self, array: &DeviceArray) -> Result<TensorData, String> {
        let buffer = buffer(array)?;
        let array = buffer.array_type();
        let bytes = buffer.to_host().map_err(text)?;
        Ok(TensorData::from_bytes_vec(bytes, array.dims.clone(), dtype(array.element)))
    }

    fn compile(&self, graph: &Graph, donated: &[bool]) -> Result<Arc<dyn Program>, String> {
        let options = LowerOptions { donated: aliases(graph, donated).map_err(text)? };
        let lowered = lower(graph, &options).map_err(text)?;
        let program = crate::Program { text: &lowered.text, parameters: &lowered.parameters };
        let compile = CompileOptions { devices: vec![self.device.id().map_err(text)?], ..CompileOptions::default() };
        let progress = Progress::show(graph.equations().len());
        let executable = self.cache.compile(&self.device.client(), program, &compile).map_err(text)?;
        drop(progress);
        let donated = options.donated.iter().map(Option::is_some).collect();
        Ok(Arc::new(Compiled { executable, donated, device: self.device.clone() }))
    }
}

impl Program for Compiled {
    fn run(&self, inputs: Vec<DeviceArray>, keys: &[Key]) -> Result<Vec<DeviceArray>, String> {
        let key = |key: &Key| {
            let words: Vec<u8> = key.words().into_iter().flat_map(u32::to_ne_bytes).collect();
            Buffer::from_host(&self.device, &ArrayType::new(ElementType::U32, [2]), &words).map_err(text)
        };
        let keys: Vec<Buffer> = keys.iter().map(key).collect::<Result<_, _>>()?;
        // An array that somebody else holds after all is kept.
        let owned = |(array, donated): (DeviceArray, &bool)| -> Result<Given, String> {
            let array = array.downcast::<Buffer>().map_err(|_| FOREIGN)?;
            match donated {
                true => Ok(Arc::try_unwrap(array).map_or_else(Given::Shared, Given::Whole)),
                false => Ok(Given::Shared(array)),
            }
        };
        let given: Vec<Given> = inputs.into_iter().zip(&self.donated).map(owned).collect::<Result<_, _>>()?;
        let (mut whole, mut shared, mut order) = (Vec::new(), Vec::new(), Vec::new());
        for given in given {
            match given {
                Given::Whole(buffer) => {
                    order.push(true);
                    whole.push(buffer);
                }
                Given::Shared(buffer) => {
                    order.push(false);
                    shared.push(buffer);
                }
            }
        }
        let (mut whole, mut kept) = (whole.into_iter(), shared.iter());
        let in_order = order.into_iter().filter_map(|donated| match donated {
            true => whole.next().map(Argument::Donate),
            false => kept.next().map(|buffer| Argument::Keep(buffer)),
        });
        let arguments = in_order.chain(keys.iter().map(Argument::Keep)).collect();
        let results = self.executable.run(arguments).map_err(text)?;
        Ok(results.into_iter().map(|buffer| Arc::new(buffer) as DeviceArray).collect())
    }
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

/// An argument of a program.
enum Given {
    /// That nobody else holds.
    Whole(Buffer),
    Shared(Arc<Buffer>),
}

const FOREIGN: &str = "an array of another engine is given to XLA";

fn buffer(array: &DeviceArray) -> Result<&Buffer, String> {
    array.downcast_ref::<Buffer>().ok_or_else(|| FOREIGN.into())
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// For each input that is given up the output that takes its memory, of the same type; none where there is none left.
fn aliases(graph: &Graph, donated: &[bool]) -> Result<Vec<Option<usize>>, LowerError> {
    let of = |var| Ok((element_type(graph.dtype(var))?, graph.shape(var).to_vec()));
    let mut outputs: Vec<_> = graph.outputs().iter().map(|(_, var)| of(*var).map(Some)).collect::<Result<_, _>>()?;
    let alias = |((_, var), donated): (&(String, grove_compile::Var), &bool)| {
        let array = of(*var)?;
        let fits = |output: &Option<_>| output.as_ref() == Some(&array);
        let found = donated.then(|| outputs.iter().position(fits)).flatten();
        if let Some(found) = found {
            outputs[found] = None;
        }
        Ok(found)
    };
    graph.inputs().iter().zip(donated).map(alias).collect()
}

/// The type of elements on the host.
fn dtype(element: ElementType) -> DType {
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
