use std::{ffi::c_void, ptr, sync::Arc};

use crate::{
    error::Result,
    plugin::{NamedValue, Padded, Plugin, args, named_values, text},
    signature::{self, Parameter},
    sys,
};

/// A compiled program, which need not be on a device.
#[derive(Debug)]
pub struct Compiled {
    pub(crate) plugin: Arc<Plugin>,
    pub(crate) raw: *mut c_void,
}

// SAFETY: an executable of PJRT may be used from any thread, and the pointer never changes.
unsafe impl Send for Compiled {}
// SAFETY: as above.
unsafe impl Sync for Compiled {}

impl Drop for Compiled {
    fn drop(&mut self) {
        // Nobody is left to hear of an error.
        let _ = self.plugin.call(sys::ExecutableDestroy { executable: self.raw, ..args() });
    }
}

/// Memory that a program needs on each device, in bytes. The peak leaves out temporaries on some platforms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompiledMemory {
    /// Of the arguments.
    pub arguments: u64,
    /// Of the results.
    pub outputs: u64,
    /// Of results that lie in the memory of arguments.
    pub aliased: u64,
    /// Of intermediate values.
    pub temporaries: u64,
    /// Of the code.
    pub code: u64,
}

impl Compiled {
    /// Memory that it needs on each device.
    ///
    /// # Errors
    /// The platform does not know.
    pub fn memory(&self) -> Result<CompiledMemory> {
        let call = sys::ExecutableGetCompiledMemoryStats { executable: self.raw, ..args() };
        let found = self.plugin.call(call)?;
        let bytes = |size: i64| u64::try_from(size).unwrap_or(0);
        Ok(CompiledMemory {
            arguments: bytes(found.argument_size_in_bytes),
            outputs: bytes(found.output_size_in_bytes),
            aliased: bytes(found.alias_size_in_bytes),
            temporaries: bytes(found.temp_size_in_bytes),
            code: bytes(found.generated_code_size_in_bytes),
        })
    }

    /// XLA's estimates by name, such as `flops` and `bytes accessed`.
    ///
    /// # Errors
    /// The platform does not know.
    pub fn cost(&self) -> Result<Vec<(String, NamedValue)>> {
        let found = self.plugin.call(sys::ExecutableGetCostAnalysis { executable: self.raw, ..args() })?;
        // SAFETY: the executable owns as many.
        Ok(unsafe { named_values(found.properties, found.num_properties) })
    }

    /// The optimised program, as a serialised HLO module (a protobuf message).
    ///
    /// # Errors
    /// The platform does not show it.
    pub fn optimized_program(&self) -> Result<Vec<u8>> {
        Ok(self.program()?.1)
    }

    /// Types of the parameters on each device; `None` where the platform does not show them.
    pub(crate) fn parameters(&self) -> Option<Vec<Parameter>> {
        let (format, program) = self.program().ok()?;
        signature::parameters(&format, &program)
    }

    /// The optimised program, and the name of its format.
    fn program(&self) -> Result<(String, Vec<u8>)> {
        let mut program = Padded::new(args::<sys::Program>());
        let mut code = vec![];
        // The first call tells the size.
        for _ in 0..2 {
            code.resize(program.content.code_size, 0_u8);
            program.content.code = if code.is_empty() { ptr::null_mut() } else { code.as_mut_ptr().cast() };
            let program = &raw mut program.content;
            self.plugin.call(sys::ExecutableOptimizedProgram { executable: self.raw, program, ..args() })?;
        }
        // SAFETY: the text is the executable's, and is copied.
        let format = unsafe { text(program.content.format, program.content.format_size) };
        Ok((format, code))
    }
}

/// A program with a zero behind it, up to which MLIR's lexer reads, whatever size it is told.
pub(crate) fn terminated(text: &str) -> Vec<u8> {
    [text.as_bytes(), &[0]].concat()
}

/// A [terminated] program as the API takes it. It points into the text.
pub(crate) fn raw_program(text: &[u8]) -> Padded<sys::Program> {
    const FORMAT: &str = "mlir";
    Padded::new(sys::Program {
        // The plugin only reads it.
        code: text.as_ptr().cast_mut().cast(),
        code_size: text.len() - 1,
        format: FORMAT.as_ptr().cast(),
        format_size: FORMAT.len(),
        ..args()
    })
}
