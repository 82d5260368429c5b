//! Debug printing of values: calls of a Rust function.

use burn::tensor::TensorData;
use grove_compile::debug_text;

use super::{Builder, Value, custom_call::register_once};
use crate::{ArrayType, ElementType, FfiBuffer, FfiBufferMut, Plugin};

/// Name of the function in programs.
const NAME: &str = "grove_debug_print";

impl Builder {
    /// Returns the array after the call that prints it.
    pub(super) fn printed(&mut self, name: &str, x: Value) -> Value {
        let text = self.bytes(ArrayType::new(ElementType::U8, [name.len()]), name.as_bytes());
        let array = x.array.clone();
        self.custom_call(NAME, &[text, x], [array]).remove(0)
    }
}

/// Registers the function for programs of a CPU plugin.
pub(crate) fn register(plugin: &Plugin) -> crate::Result<()> {
    register_once(plugin, NAME, call)
}

fn call(arguments: &[FfiBuffer<'_>], results: &mut [FfiBufferMut<'_>]) -> Result<(), String> {
    let ([name, x], [result]) = (arguments, results) else { return Err("a print without its name or array".into()) };
    let array = x.array_type();
    let data = TensorData::from_bytes_vec(x.bytes().to_vec(), array.dims.clone(), array.element.dtype());
    eprintln!("{}", debug_text(&String::from_utf8_lossy(name.bytes()), &data));
    result.bytes_mut().copy_from_slice(x.bytes());
    Ok(())
}
