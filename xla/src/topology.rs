use std::{ffi::c_void, sync::Arc};

use crate::{
    error::Result,
    executable::{CompiledMemory, Program, optimized_program, raw_program, terminated},
    options::CompileOptions,
    plugin::{NamedValue, Plugin, args, raw_values},
    sys,
};

/// Devices that need not be there: programs are compiled for them, and cannot be run.
#[derive(Debug)]
pub struct Topology {
    plugin: Arc<Plugin>,
    raw: *mut c_void,
}

impl Drop for Topology {
    fn drop(&mut self) {
        // Nobody is left to hear of an error.
        let _ = self.plugin.call(sys::TopologyDescriptionDestroy { topology: self.raw, ..args() });
    }
}

/// A program that was compiled for a [`Topology`].
#[derive(Debug)]
pub struct Compiled {
    plugin: Arc<Plugin>,
    raw: *mut c_void,
}

impl Drop for Compiled {
    fn drop(&mut self) {
        // Nobody is left to hear of an error.
        let _ = self.plugin.call(sys::ExecutableDestroy { executable: self.raw, ..args() });
    }
}

impl Topology {
    /// Devices by the plugin's options, such as `target_config` and `topology` (`1x1x4`) of the CUDA plugin.
    ///
    /// # Errors
    /// The plugin refuses an option.
    pub fn new(plugin: &Arc<Plugin>, name: &str, options: &[(String, NamedValue)]) -> Result<Self> {
        let options = raw_values(options);
        let made = plugin.call(sys::TopologyDescriptionCreate {
            topology_name: name.as_ptr().cast(),
            topology_name_size: name.len(),
            create_options: options.as_ptr().cast_mut().cast(),
            num_options: options.len(),
            ..args()
        })?;
        Ok(Self { plugin: plugin.clone(), raw: made.topology })
    }

    /// Compiles a program.
    ///
    /// # Errors
    /// The text is no program, or the plugin's compiler lacks a tool.
    pub fn compile(&self, program: Program<'_>, options: &CompileOptions) -> Result<Compiled> {
        let text = terminated(program.text);
        let text = raw_program(&text);
        let encoded = options.encode();
        let compiled = self.plugin.call(sys::Compile {
            topology: self.raw.cast_const(),
            program: &raw const text.content,
            compile_options: encoded.as_ptr().cast(),
            compile_options_size: encoded.len(),
            ..args()
        })?;
        Ok(Compiled { plugin: self.plugin.clone(), raw: compiled.executable })
    }
}

impl Compiled {
    /// Memory that it needs on each device.
    ///
    /// # Errors
    /// The platform does not know.
    pub fn memory(&self) -> Result<CompiledMemory> {
        CompiledMemory::of(&self.plugin, self.raw)
    }

    /// The optimised program, as a serialised HLO module (a protobuf message).
    ///
    /// # Errors
    /// The platform does not show it.
    pub fn optimized_program(&self) -> Result<Vec<u8>> {
        optimized_program(&self.plugin, self.raw)
    }
}
