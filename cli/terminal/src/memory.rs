//! Memory of the machine, and checks of a model's memory needs before its weights are read.

use grove::{
    backend::BackendName,
    prelude::*,
    tree::{count_bytes, format_bytes},
};

use crate::{DeviceArgs, Exit, failure};

/// Copies of the parameters in AdamW training: weights, gradients, and the two moments.
const TRAINING_COPIES: usize = 4;

/// Returns the memory in bytes that can be allocated without swapping: the machine's or the control group's
/// (container's), whichever is less. `None` if the system does not report it.
pub fn available() -> Option<usize> {
    let mut system = sysinfo::System::new();
    system.refresh_memory();
    let of_machine = system.available_memory();
    let of_group = system.cgroup_limits().map_or(u64::MAX, |limits| limits.free_memory);
    usize::try_from(of_machine.min(of_group)).ok().filter(|&bytes| bytes > 0)
}

/// Returns the [`available`] memory in bytes if it is less than `needed`; `None` if there is enough or the amount is
/// unknown.
pub fn shortage(needed: usize) -> Option<usize> {
    available().filter(|&available| needed > available)
}

/// Returns the available memory in bytes if it is less than `needed`. A GPU's free memory is unknown, so `None` is returned.
fn shortage_on(device: &DeviceArgs, needed: usize) -> Option<usize> {
    let on_cpu = matches!(device.backend.parse(), Ok(BackendName::Flex | BackendName::Candle));
    if on_cpu { shortage(needed) } else { None }
}

/// Rejects a model whose weights, with a key-value cache of `cache` bytes, need more memory than is available. `less` is the advice
/// for a smaller cache.
pub fn fits<B: Backend>(device: &DeviceArgs, skeleton: &impl Tree<B>, cache: usize, less: &str) -> Result<(), Exit> {
    let weights = count_bytes(skeleton);
    let Some(available) = shortage_on(device, weights.saturating_add(cache)) else { return Ok(()) };
    let [weights, cache, available] = [weights, cache, available].map(format_bytes);
    Err(failure(format!(
        "the model needs {weights} of memory for its weights and {cache} for its key-value cache, but only \
         {available} is available: try a smaller model, a quantized one (GGUF), --dtype bf16, or {less}"
    )))
}

/// Rejects a new model if weights, gradients and optimizer state need more memory than is available. Activations, which need
/// memory too, are not counted. Without this check, a failed allocation aborts the program without an error message.
pub fn trains<B: Backend>(device: &DeviceArgs, skeleton: &impl Tree<B>) -> Result<(), Exit> {
    let needed = count_bytes(skeleton).saturating_mul(TRAINING_COPIES);
    let Some(available) = shortage_on(device, needed) else { return Ok(()) };
    let ([needed, available], parameters) = ([needed, available].map(format_bytes), tree::count_params(skeleton));
    Err(failure(format!(
        "training a model of these sizes needs at least {needed} of memory for its weights, their gradients and the \
         optimizer's state ({parameters} parameters), but only {available} is available: choose smaller sizes"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortage_is_what_is_available() {
        assert_eq!(shortage(0), None);
        assert_eq!(shortage(usize::MAX).is_some(), available().is_some());
    }
}
