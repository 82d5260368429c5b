use std::{ffi::c_void, sync::Arc};

use crate::{
    compiled::{Compiled, raw_program, terminated},
    error::Result,
    executable::Program,
    options::CompileOptions,
    plugin::{NamedValue, Plugin, args},
    settings, signature, sys,
};

/// Devices that need not be there: programs are compiled for them, and cannot be run.
#[derive(Debug)]
pub struct Topology {
    plugin: Arc<Plugin>,
    raw: *mut c_void,
}

// SAFETY: a topology of PJRT may be used from any thread, and the pointer never changes.
unsafe impl Send for Topology {}
// SAFETY: as above.
unsafe impl Sync for Topology {}

impl Drop for Topology {
    fn drop(&mut self) {
        // Nobody is left to hear of an error.
        let _ = self.plugin.call(sys::TopologyDescriptionDestroy { topology: self.raw, ..args() });
    }
}

impl Topology {
    /// Devices by the plugin's options, such as `target_config` and `topology` (`1x1x4`) of the CUDA plugin.
    ///
    /// # Errors
    /// An option is of another type than the plugin reads it as, or the plugin refuses it.
    pub fn new(plugin: &Arc<Plugin>, name: &str, options: &[(String, NamedValue)]) -> Result<Self> {
        let options = settings::checked(options)?;
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
    /// The text is no program or takes other parameters, a device is named twice, or the plugin's compiler lacks a tool.
    pub fn compile(&self, program: Program<'_>, options: &CompileOptions) -> Result<Compiled> {
        let text = terminated(program.text);
        let text = raw_program(&text);
        let encoded = options.encode()?;
        let compiled = self.plugin.call(sys::Compile {
            topology: self.raw.cast_const(),
            program: &raw const text.content,
            compile_options: encoded.as_ptr().cast(),
            compile_options_size: encoded.len(),
            ..args()
        })?;
        let compiled = Compiled { plugin: self.plugin.clone(), raw: compiled.executable };
        signature::check(program.parameters, compiled.parameters())?;
        Ok(compiled)
    }
}
