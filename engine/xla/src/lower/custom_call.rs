//! Calls of Rust functions that do more than compute their results.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use super::{
    builder::Builder,
    value::{Value, joined, types},
};
use crate::{ArrayType, FfiBuffer, FfiBufferMut, Platform, Plugin};

impl Builder {
    /// Calls a registered function.
    pub(super) fn custom_call(
        &mut self,
        name: &str,
        operands: &[Value],
        arrays: impl IntoIterator<Item = ArrayType>,
    ) -> Vec<Value> {
        let (names, results) = self.results(arrays);
        self.line(format_args!(
            "{names} = stablehlo.custom_call @{name}({}) {{api_version = 4 : i32, has_side_effect = true}} : ({}) -> ({})",
            joined(operands),
            types(operands),
            types(&results)
        ));
        results
    }
}

/// Registers a function with a CPU plugin, unless it is registered already.
pub(super) fn register_once(
    plugin: &Plugin,
    name: &'static str,
    function: fn(&[FfiBuffer<'_>], &mut [FfiBufferMut<'_>]) -> Result<(), String>,
) -> crate::Result<()> {
    static REGISTERED: Mutex<BTreeSet<(usize, &str)>> = Mutex::new(BTreeSet::new());
    let mut registered = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
    if !registered.contains(&(plugin.address(), name)) {
        plugin.register_ffi(name, Platform::Cpu, function)?;
        registered.insert((plugin.address(), name));
    }
    Ok(())
}
