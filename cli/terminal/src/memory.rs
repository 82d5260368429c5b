//! Check of a model's memory needs against the machine, before its weights are read.

use grove::{
    backend::{BackendName, Quantization},
    prelude::*,
    tensor::DType,
    tree::{count_bytes, leaves},
};

use crate::{DeviceArgs, Exit};

/// Bytes as people say them.
pub fn gib(bytes: usize) -> String {
    match bytes as f64 / (1 << 30) as f64 {
        small if small < 0.1 => format!("{:.1} MiB", bytes as f64 / (1 << 20) as f64),
        large => format!("{large:.1} GiB"),
    }
}

/// Bytes of the weights by the type of numbers that they may have, blocks of few bits among them; of weights that already
/// lie in such blocks, as they are.
pub fn by_dtype<B: Backend>(skeleton: &impl Tree<B>) -> Vec<(&'static str, usize)> {
    let leaves = leaves(skeleton);
    if leaves.iter().any(|(_, leaf)| !leaf.dtype().is_float()) {
        return vec![("as stored", count_bytes(skeleton))];
    }
    let sum = |bytes: &dyn Fn(&tree::AnyArray<B>) -> usize| {
        leaves.iter().fold(0, |sum: usize, (_, leaf)| sum.saturating_add(bytes(leaf)))
    };
    let plain = |dtype: DType| sum(&|leaf| leaf.len().saturating_mul(dtype.size()));
    // Only matrices lie in blocks, which are parts of rows.
    let in_blocks = |kind: Quantization| {
        let bytes = |leaf: &tree::AnyArray<B>| match leaf.shape()[..] {
            [.., columns] if leaf.shape().len() > 1 && columns % kind.block_len() == 0 => {
                leaf.len() / kind.block_len() * kind.block_bytes()
            }
            _ => leaf.len() * DType::F32.size(),
        };
        sum(&bytes)
    };
    let kinds = [Quantization::Q8_0, Quantization::Q4_0].map(|kind| (kind.name(), in_blocks(kind)));
    [("f32", plain(DType::F32)), ("f16 or bf16", plain(DType::F16))].into_iter().chain(kinds).collect()
}

/// Refuses a model that needs more memory than the machine has to give: its weights, and a cache of `cache` bytes.
pub fn fits<B: Backend>(device: &DeviceArgs, skeleton: &impl Tree<B>, cache: usize) -> Result<(), Exit> {
    let on_cpu = matches!(device.backend.parse(), Ok(BackendName::Flex | BackendName::Candle));
    let weights = count_bytes(skeleton);
    let Some(available) = available().filter(|_| on_cpu) else { return Ok(()) };
    if weights.saturating_add(cache) <= available {
        return Ok(());
    }
    Err(Exit::Failure(format!(
        "the model needs {} of memory for its weights and {} for what it keeps of the text, and this machine has {} to give: \
         try a smaller model, a quantized one (GGUF), --dtype bf16, or fewer --max-new-tokens",
        gib(weights),
        gib(cache),
        gib(available)
    )))
}

/// Numbers that AdamW keeps for each parameter: the weight, its gradient, and the gradient's two moments.
const TRAINING_COPIES: usize = 4;

/// Refuses a new model whose training needs more memory than the machine has to give; what is kept of a batch comes on top.
/// An allocation that fails ends the program without a sentence.
pub fn trains<B: Backend>(device: &DeviceArgs, skeleton: &impl Tree<B>) -> Result<(), Exit> {
    let on_cpu = matches!(device.backend.parse(), Ok(BackendName::Flex | BackendName::Candle));
    let needed = count_bytes(skeleton).saturating_mul(TRAINING_COPIES);
    match available().filter(|_| on_cpu) {
        Some(available) if needed > available => Err(Exit::Failure(format!(
            "training a model of these sizes needs at least {} of memory for its weights, their gradients and the optimizer's state \
             ({} parameters), and this machine has {} to give: choose smaller sizes",
            gib(needed),
            tree::count_params(skeleton),
            gib(available)
        ))),
        _ => Ok(()),
    }
}

/// Memory that programs can have without anything being swapped out; `None` where the system does not tell.
pub fn available() -> Option<usize> {
    let mut system = sysinfo::System::new();
    system.refresh_memory();
    let of_machine = system.available_memory();
    // A container may have less.
    let of_group = system.cgroup_limits().map_or(u64::MAX, |limits| limits.free_memory);
    usize::try_from(of_machine.min(of_group)).ok().filter(|&bytes| bytes > 0)
}
