use std::{ffi::c_void, sync::Arc};

use crate::{
    compiled::{Compiled, raw_program, terminated},
    error::Result,
    executable::Program,
    options::CompileOptions,
    plugin::{NamedValue, Plugin, args},
    settings, signature, sys,
};

/// Devices that may not exist: programs can be compiled for them, but not run.
#[derive(Debug)]
pub struct Topology {
    plugin: Arc<Plugin>,
    raw: *mut c_void,
}

// SAFETY: a PJRT topology may be used from any thread, and the pointer never changes.
unsafe impl Send for Topology {}
// SAFETY: as for `Send`.
unsafe impl Sync for Topology {}

impl Drop for Topology {
    fn drop(&mut self) {
        // `drop` cannot return an error.
        let _ = self.plugin.call(sys::TopologyDescriptionDestroy { topology: self.raw, ..args() });
    }
}

impl Topology {
    /// Creates devices from the plugin's options, such as `target_config` and `topology` (`1x1x4`) of the CUDA plugin.
    ///
    /// # Errors
    /// If an option has another type than the plugin expects, or if the plugin rejects it.
    pub fn new(plugin: &Arc<Plugin>, name: &str, options: &[(String, NamedValue)]) -> Result<Self> {
        let options = settings::checked(options)?;
        let created = plugin.call(sys::TopologyDescriptionCreate {
            topology_name: name.as_ptr().cast(),
            topology_name_size: name.len(),
            create_options: options.as_ptr().cast_mut().cast(),
            num_options: options.len(),
            ..args()
        })?;
        Ok(Self { plugin: plugin.clone(), raw: created.topology })
    }

    /// Compiles a program.
    ///
    /// # Errors
    /// If the text is not a valid program or its parameters differ, if a device is named twice, or if the plugin's compiler lacks
    /// a tool.
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
