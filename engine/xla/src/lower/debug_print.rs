//! Debug printing of values: calls of a Rust function.

use burn::tensor::TensorData;
use grove_compile::debug_text;
use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use super::{Builder, Value, joined, types};
use crate::{ArrayType, ElementType, FfiBuffer, FfiBufferMut, Platform, Plugin};

/// Name of the function in programs.
const NAME: &str = "grove_debug_print";

impl Builder {
    /// Returns the array after the call that prints it.
    pub(super) fn printed(&mut self, name: &str, x: Value) -> Value {
        let text = self.bytes(ArrayType::new(ElementType::U8, [name.len()]), name.as_bytes());
        let (result, results) = self.results(std::slice::from_ref(&x.array));
        let given = [text, x];
        self.line(format_args!(
            "{result}:1 = stablehlo.custom_call @{NAME}({}) {{api_version = 4 : i32, has_side_effect = true}} : ({}) -> ({})",
            joined(&given),
            types(&given),
            types(&results)
        ));
        let [_, x] = given;
        results.into_iter().next().unwrap_or(x)
    }
}

/// Registers the function for programs of a CPU plugin.
pub(crate) fn register(plugin: &Plugin) -> crate::Result<()> {
    static REGISTERED: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());
    let mut registered = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
    if !registered.contains(&plugin.address()) {
        plugin.register_ffi(NAME, Platform::Cpu, call)?;
        registered.insert(plugin.address());
    }
    Ok(())
}

fn call(arguments: &[FfiBuffer<'_>], results: &mut [FfiBufferMut<'_>]) -> Result<(), String> {
    let ([name, x], [result]) = (arguments, results) else { return Err("a print without its name or array".into()) };
    let array = x.array_type();
    let data = TensorData::from_bytes_vec(x.bytes().to_vec(), array.dims.clone(), array.element.dtype());
    eprintln!("{}", debug_text(&String::from_utf8_lossy(name.bytes()), &data));
    result.bytes_mut().copy_from_slice(x.bytes());
    Ok(())
}
