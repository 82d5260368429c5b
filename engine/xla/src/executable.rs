use sha2::{Digest, Sha256};
use std::{ffi::c_void, ptr, sync::Arc};

use crate::{
    buffer::Buffer,
    client::{Client, Inner},
    compiled::{Compiled, raw_program, terminated},
    dtype::ArrayType,
    error::{Result, XlaError},
    options::CompileOptions,
    plugin::{Padded, args, slice},
    signature, sys,
};

/// A program to compile: StableHLO text, and the types of its parameters on each device.
#[derive(Clone, Copy, Debug)]
pub struct Program<'a> {
    /// The module, in MLIR's text form.
    pub text: &'a str,
    /// Types of the arguments of `main`; in a partitioned program, the types of each device's part.
    pub parameters: &'a [ArrayType],
}

/// A compiled program on its devices.
#[derive(Debug)]
pub struct Executable {
    loaded: Loaded,
    compiled: Compiled,
    parameters: Vec<ArrayType>,
    outputs: usize,
    partitions: usize,
}

/// Ownership of a loaded program.
#[derive(Debug)]
struct Loaded {
    client: Arc<Inner>,
    raw: *mut c_void,
}

// SAFETY: a PJRT executable may be used from any thread, and the pointer never changes.
unsafe impl Send for Loaded {}
// SAFETY: as for `Send`.
unsafe impl Sync for Loaded {}

impl Drop for Loaded {
    fn drop(&mut self) {
        // `drop` cannot return an error.
        let _ = self.client.plugin.call(sys::LoadedExecutableDestroy { executable: self.raw, ..args() });
    }
}

/// An argument of a program.
#[derive(Debug)]
pub enum Argument<'a> {
    /// An array that stays valid.
    Keep(&'a Buffer),
    /// An array whose memory a result may reuse, if the program allows it (`tf.aliasing_output`).
    Donate(Buffer),
}

impl Argument<'_> {
    fn buffer(&self) -> &Buffer {
        match self {
            Self::Keep(buffer) => buffer,
            Self::Donate(buffer) => buffer,
        }
    }
}

/// First bytes of stored executables, followed by the hash of the remaining bytes.
const MAGIC: &[u8; 8] = b"grovexla";

impl Client {
    /// Compiles a program.
    ///
    /// # Errors
    /// If the text is not a valid program (with line and column), if its parameters differ, or if a device does not exist or is
    /// named twice.
    pub fn compile(&self, program: Program<'_>, options: &CompileOptions) -> Result<Executable> {
        let text = terminated(program.text);
        let text = raw_program(&text);
        let encoded = options.on(self.platform()).encode()?;
        let compiled = self.inner.plugin.call(sys::ClientCompile {
            client: self.inner.client,
            program: &raw const text.content,
            compile_options: encoded.as_ptr().cast(),
            compile_options_size: encoded.len(),
            ..args()
        })?;
        Executable::new(self.inner.clone(), compiled.executable, program.parameters.to_vec(), options.partitions())
    }

    /// Loads an executable stored by [`Executable::serialize`], compiled by the same plugin for the same number of devices.
    ///
    /// # Errors
    /// If the bytes are damaged or truncated, if the plugin has another version, or if the parameters differ.
    pub fn load(&self, stored: &[u8], parameters: &[ArrayType], partitions: usize) -> Result<Executable> {
        let bytes = stored.strip_prefix(MAGIC).and_then(|rest| rest.split_at_checked(32));
        // A plugin that reads damaged bytes may end the process.
        let (_, bytes) = bytes.filter(|(hash, bytes)| Sha256::digest(bytes)[..] == **hash).ok_or(XlaError::Stored)?;
        let loaded = self.inner.plugin.call(sys::ExecutableDeserializeAndLoad {
            client: self.inner.client,
            serialized_executable: bytes.as_ptr().cast(),
            serialized_executable_size: bytes.len(),
            ..args()
        })?;
        Executable::new(self.inner.clone(), loaded.loaded_executable, parameters.to_vec(), partitions)
    }
}

impl Executable {
    fn new(client: Arc<Inner>, loaded: *mut c_void, parameters: Vec<ArrayType>, partitions: usize) -> Result<Self> {
        let loaded = Loaded { client, raw: loaded };
        let plugin = loaded.client.plugin.clone();
        let call = sys::LoadedExecutableGetExecutable { loaded_executable: loaded.raw, ..args() };
        let compiled = Compiled { raw: plugin.call(call)?.executable, plugin };
        let call = sys::ExecutableNumOutputs { executable: compiled.raw, ..args() };
        let outputs = compiled.plugin.call(call)?.num_outputs;
        signature::check(&parameters, compiled.parameters())?;
        Ok(Self { loaded, compiled, parameters, outputs, partitions })
    }

    /// Returns the types of the parameters on each device.
    pub fn parameters(&self) -> &[ArrayType] {
        &self.parameters
    }

    /// Returns the number of devices that run the program.
    pub fn partitions(&self) -> usize {
        self.partitions
    }

    /// Starts the program with a list of arguments for each device, and returns the results of each device. Results can be used
    /// immediately, including as arguments; reading a result waits for it.
    ///
    /// # Errors
    /// If number or types of the arguments do not match the program, if an argument is on a device of another client or on
    /// another device than the program's, or if a device is out of memory.
    pub fn execute(&self, arguments: Vec<Vec<Argument<'_>>>) -> Result<Vec<Vec<Buffer>>> {
        self.start(&arguments)
    }

    /// [`execute`](Self::execute), but the caller keeps the arguments if the program does not start. A program that starts
    /// consumes the donated arguments.
    pub(crate) fn start(&self, arguments: &[Vec<Argument<'_>>]) -> Result<Vec<Vec<Buffer>>> {
        let count = |found, expected, what| match found == expected {
            true => Ok(()),
            false => Err(XlaError::ArgumentCount { found, expected, what }),
        };
        count(arguments.len(), self.partitions, "lists of arguments, one for each device")?;
        for list in arguments {
            count(list.len(), self.parameters.len(), "arguments")?;
            for (index, (argument, expected)) in list.iter().zip(&self.parameters).enumerate() {
                if !Arc::ptr_eq(&argument.buffer().client, &self.loaded.client) {
                    return Err(XlaError::OtherClient(format!("argument {index} of the program")));
                }
                let found = argument.buffer().array_type();
                if found != expected {
                    let (found, expected) = (found.to_string(), expected.to_string());
                    return Err(XlaError::Argument { index, found, expected });
                }
            }
        }
        // An argument that one device keeps is donated by no device, because all devices share one list.
        let not_donated = |index: &usize| arguments.iter().any(|list| matches!(list[*index], Argument::Keep(_)));
        let not_donated: Vec<i64> = (0..self.parameters.len()).filter(not_donated).map(|index| index as i64).collect();
        let mut options = Padded::new(sys::ExecuteOptions {
            non_donatable_input_indices: not_donated.as_ptr(),
            num_non_donatable_input_indices: not_donated.len(),
            ..args()
        });
        let raw: Vec<Vec<*mut c_void>> =
            arguments.iter().map(|list| list.iter().map(|argument| argument.buffer().raw).collect()).collect();
        let lists: Vec<*const *mut c_void> = raw.iter().map(Vec::as_ptr).collect();
        let mut results = vec![vec![ptr::null_mut(); self.outputs]; self.partitions];
        let outputs: Vec<*mut *mut c_void> = results.iter_mut().map(|list| list.as_mut_ptr()).collect();
        self.loaded.client.plugin.call(sys::LoadedExecutableExecute {
            executable: self.loaded.raw,
            options: &raw mut options.content,
            argument_lists: lists.as_ptr(),
            num_devices: self.partitions,
            num_args: self.parameters.len(),
            output_lists: outputs.as_ptr(),
            ..args()
        })?;
        // All results are collected first, so that each is freed if one of them fails.
        let output = |raw| Buffer::from_output(self.loaded.client.clone(), raw);
        let results: Vec<Vec<Result<Buffer>>> =
            results.into_iter().map(|list| list.into_iter().map(output).collect()).collect();
        results.into_iter().map(|list| list.into_iter().collect()).collect()
    }

    /// [`execute`](Self::execute) on one device.
    ///
    /// # Errors
    /// Those of [`execute`](Self::execute).
    pub fn run(&self, arguments: Vec<Argument<'_>>) -> Result<Vec<Buffer>> {
        Ok(self.execute(vec![arguments])?.remove(0))
    }

    /// Serialises the program for [`Client::load`].
    ///
    /// # Errors
    /// If the plugin cannot serialise it.
    pub fn serialize(&self) -> Result<Vec<u8>> {
        let found = self.compiled.plugin.call(sys::ExecutableSerialize { executable: self.compiled.raw, ..args() })?;
        // SAFETY: the plugin owns this many bytes until the deleter is called on the object that was returned with them.
        let bytes = unsafe {
            let bytes = slice(found.serialized_bytes.cast::<u8>(), found.serialized_bytes_size).to_vec();
            type Deleter = unsafe extern "C" fn(*mut c_void);
            let deleter = std::mem::transmute::<*mut c_void, Option<Deleter>>(found.serialized_executable_deleter);
            if let Some(deleter) = deleter {
                deleter(found.serialized_executable);
            }
            bytes
        };
        Ok([&MAGIC[..], &Sha256::digest(&bytes), &bytes].concat())
    }

    /// Returns the compiled program, with its memory, cost and optimised form.
    pub fn compiled(&self) -> &Compiled {
        &self.compiled
    }
}
