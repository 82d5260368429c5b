use std::{ffi::c_void, ptr, sync::Arc};

use crate::{
    error::Result,
    plugin::{NamedValue, Padded, Plugin, args, named_values, text},
    signature::{self, Parameter},
    sys,
};

/// A compiled program, which may have no device.
#[derive(Debug)]
pub struct Compiled {
    pub(crate) plugin: Arc<Plugin>,
    pub(crate) raw: *mut c_void,
}

// SAFETY: a PJRT executable may be used from any thread, and the pointer never changes.
unsafe impl Send for Compiled {}
// SAFETY: as for `Send`.
unsafe impl Sync for Compiled {}

impl Drop for Compiled {
    fn drop(&mut self) {
        // `drop` cannot return an error.
        let _ = self.plugin.call(sys::ExecutableDestroy { executable: self.raw, ..args() });
    }
}

/// Memory that a program needs on each device, in bytes. On some platforms, the sum excludes temporaries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompiledMemory {
    /// Bytes of the arguments.
    pub arguments: u64,
    /// Bytes of the results.
    pub outputs: u64,
    /// Bytes of the results that reuse the memory of arguments.
    pub aliased: u64,
    /// Bytes of intermediate values.
    pub temporaries: u64,
    /// Bytes of the code.
    pub code: u64,
}

impl Compiled {
    /// Returns the memory that the program needs on each device.
    ///
    /// # Errors
    /// If the platform does not provide the statistics.
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

    /// Returns XLA's cost estimates by name, such as `flops` and `bytes accessed`.
    ///
    /// # Errors
    /// If the platform does not provide estimates.
    pub fn cost(&self) -> Result<Vec<(String, NamedValue)>> {
        let found = self.plugin.call(sys::ExecutableGetCostAnalysis { executable: self.raw, ..args() })?;
        // SAFETY: the executable owns this many properties.
        Ok(unsafe { named_values(found.properties, found.num_properties) })
    }

    /// Returns the optimised program as a serialised HLO module (a protobuf message).
    ///
    /// # Errors
    /// If the platform does not provide the program.
    pub fn optimized_program(&self) -> Result<Vec<u8>> {
        Ok(self.program()?.1)
    }

    /// Returns the types of the parameters on each device; `None` if the platform does not provide the program.
    pub(crate) fn parameters(&self) -> Option<Vec<Parameter>> {
        let (format, program) = self.program().ok()?;
        signature::parameters(&format, &program)
    }

    /// Returns the optimised program, and the name of its format.
    fn program(&self) -> Result<(String, Vec<u8>)> {
        let mut program = Padded::new(args::<sys::Program>());
        let mut code = vec![];
        // The first call returns the size.
        for _ in 0..2 {
            code.resize(program.content.code_size, 0_u8);
            program.content.code = if code.is_empty() { ptr::null_mut() } else { code.as_mut_ptr().cast() };
            let program = &raw mut program.content;
            self.plugin.call(sys::ExecutableOptimizedProgram { executable: self.raw, program, ..args() })?;
        }
        // SAFETY: the executable owns the text, which is copied.
        let format = unsafe { text(program.content.format, program.content.format_size) };
        Ok((format, code))
    }
}

/// Appends a zero byte to a program: MLIR's lexer reads up to a zero, whatever the given size.
pub(crate) fn terminated(text: &str) -> Vec<u8> {
    [text.as_bytes(), &[0]].concat()
}

/// Wraps a [terminated] program for the API. The struct points into the text.
pub(crate) fn raw_program(text: &[u8]) -> Padded<sys::Program> {
    const FORMAT: &str = "mlir";
    Padded::new(sys::Program {
        // The plugin does not write to the text.
        code: text.as_ptr().cast_mut().cast(),
        code_size: text.len() - 1,
        format: FORMAT.as_ptr().cast(),
        format_size: FORMAT.len(),
        ..args()
    })
}
