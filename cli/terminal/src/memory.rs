//! Checks a model's memory needs against the machine before its weights are read.

use grove::{
    backend::BackendName,
    models::memory::{format_bytes, shortage, training_bytes},
    prelude::*,
    tree::count_bytes,
};

use crate::{DeviceArgs, Exit, failure};

/// Returns the available memory in bytes if it is less than `needed`. A GPU's free memory is unknown, so `None` is returned.
fn shortage_on(device: &DeviceArgs, needed: usize) -> Option<usize> {
    let on_cpu = matches!(device.backend.parse(), Ok(BackendName::Flex | BackendName::Candle));
    if on_cpu { shortage(needed) } else { None }
}

/// Rejects a model whose weights, with a key-value cache of `cache` bytes, need more memory than is available.
pub fn fits<B: Backend>(device: &DeviceArgs, skeleton: &impl Tree<B>, cache: usize) -> Result<(), Exit> {
    let weights = count_bytes(skeleton);
    let Some(available) = shortage_on(device, weights.saturating_add(cache)) else { return Ok(()) };
    let [weights, cache, available] = [weights, cache, available].map(format_bytes);
    Err(failure(format!(
        "the model needs {weights} of memory for its weights and {cache} for what it keeps of the text, and this machine has \
         {available} to give: try a smaller model, a quantized one (GGUF), --dtype bf16, or fewer --max-new-tokens"
    )))
}

/// Rejects a new model if weights, gradients and optimizer state need more memory than is available. Activations, which need
/// memory too, are not counted. Without this check, a failed allocation aborts the program without an error message.
pub fn trains<B: Backend>(device: &DeviceArgs, skeleton: &impl Tree<B>) -> Result<(), Exit> {
    let needed = training_bytes(skeleton);
    let Some(available) = shortage_on(device, needed) else { return Ok(()) };
    let ([needed, available], parameters) = ([needed, available].map(format_bytes), tree::count_params(skeleton));
    Err(failure(format!(
        "training a model of these sizes needs at least {needed} of memory for its weights, their gradients and the \
         optimizer's state ({parameters} parameters), and this machine has {available} to give: choose smaller sizes"
    )))
}
