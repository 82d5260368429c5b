//! OpenXLA through the PJRT C API: plugins, devices, buffers, compiled programs.
//!
//! A plugin is a library with a compiler and a runtime for one kind of device: `pip install xla-cpu-pjrt` installs the plugin for
//! CPUs, the packages of JAX and libtpu those for GPUs and TPUs. [`find`] searches for a plugin without running Python.
//!
//! ```no_run
//! use grove_xla::{Argument, ArrayType, Buffer, CompileOptions, ElementType, Program, find};
//! let (_, _, client) = find(None, &[])?;
//! let text = "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
//!     %y = stablehlo.add %x, %x : tensor<2xf32>
//!     return %y : tensor<2xf32>
//! }";
//! let array = ArrayType::new(ElementType::F32, [2]);
//! let program = client.compile(Program { text, parameters: &[array.clone()] }, &CompileOptions::default())?;
//! let x = Buffer::from_host(&client.device(0)?, &array, &[0; 8])?;
//! assert_eq!(program.run(vec![Argument::Keep(&x)])?[0].to_host()?, [0; 8]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![warn(missing_docs)]

mod buffer;
mod cache;
mod client;
mod compiled;
mod discovery;
mod dtype;
mod engine;
mod error;
mod executable;
mod ffi;
#[allow(missing_docs)]
mod ffi_sys;
mod key_value;
mod lower;
mod mesh;
mod options;
mod platform;
mod plugin;
mod presets;
mod run;
mod settings;
mod sharded;
mod sharding;
mod shared;
mod signature;
#[allow(missing_docs, dead_code)]
mod sys;
mod topology;

pub use buffer::Buffer;
pub use cache::ExecutableCache;
pub use client::{Client, Device, GlobalDevice, MemoryStats};
pub use compiled::{Compiled, CompiledMemory};
pub use discovery::{Candidate, NotFound, candidates, find, find_of_ranks};
pub use dtype::{ArrayType, Element, ElementType};
pub use error::{Result, XlaError};
pub use executable::{Argument, Executable, Program};
pub use ffi::{FfiBuffer, FfiBufferMut};
pub use lower::{LowerError, LowerOptions, Lowered, Shardings, ToStableHlo, lower};
pub use mesh::{Mesh, PartitionSpec, with_sharding_constraint};
pub use options::{CompileOptions, Flag, Replicas};
pub use platform::Platform;
pub use plugin::{NamedValue, Plugin};
pub use presets::{LeafSpecs, fully_sharded, tensor_parallel};
pub use run::{device, device_of_ranks, platform, run, use_ranks};
pub use sharding::{MeshDevice, ProgramSummary, visualize};
pub use topology::Topology;

/// The backend of lazy arrays: operations are recorded, and XLA compiles and runs them when a value is read. [`Device::lazy`]
/// creates its devices.
pub type Xla = grove_compile::Traced;
