//! Partition specifications for the leaves of the zoo's models.

use grove_backend::Backend;
use grove_tree::{Tree, leaves};

use crate::{Mesh, PartitionSpec};

/// The specification of each split leaf, by path.
pub type LeafSpecs = Vec<(String, PartitionSpec)>;

/// Layers whose outputs are split over a mesh axis: each device computes some of the heads or hidden units.
const COLUMNS: [&str; 14] = [
    "c_attn",
    "c_fc",
    "q_proj",
    "k_proj",
    "v_proj",
    "gate_proj",
    "up_proj",
    "query",
    "key",
    "value",
    "qkv",
    "fc1",
    "in_proj",
    "intermediate",
];

/// The following layers, whose inputs are split; their results are summed over the devices.
const ROWS: [&str; 7] = ["c_proj", "out_proj", "o_proj", "down_proj", "fc2", "proj", "output"];

/// Splits every leaf over a mesh axis, along its longest axis that is divisible by the number of devices: fully sharded
/// parameters (FSDP), or, for the state of an optimizer, a sharded optimizer (ZeRO). Leaves without such an axis are not split.
pub fn fully_sharded<B: Backend, T: Tree<B>>(tree: &T, mesh: &Mesh, axis: &str) -> LeafSpecs {
    let parts = mesh.axis_size(axis).unwrap_or(1);
    let spec = |(path, leaf): (String, grove_tree::AnyArray<B>)| {
        let sizes = leaf.shape().iter().enumerate().filter(|(_, dim)| **dim >= parts && dim.is_multiple_of(parts));
        // The first of equally long axes.
        let (longest, _) = sizes.max_by_key(|(i, dim)| (**dim, usize::MAX - i))?;
        Some((path, PartitionSpec::new((0..=longest).map(|i| (i == longest).then_some(axis)))))
    };
    leaves(tree).into_iter().filter_map(spec).collect()
}

/// Splits the matrix products of transformers over a mesh axis (Megatron-LM's tensor parallelism): the weights of queries, keys
/// and values and of the first layer of an MLP by columns, those of the following layers by rows. Supports GPT-2, GPT-Neo, LLaMA,
/// BERT and ViT, and trees with their leaves, such as the state of an optimizer. Leaves that cannot be divided are not split.
pub fn tensor_parallel<B: Backend, T: Tree<B>>(tree: &T, mesh: &Mesh, axis: &str) -> LeafSpecs {
    let parts = mesh.axis_size(axis).unwrap_or(1);
    let spec = |(path, leaf): (String, grove_tree::AnyArray<B>)| {
        let mut segments = path.rsplit('.');
        let (last, mut layer) = (segments.next()?, segments.next()?);
        // BERT's layers are named after the module that contains them.
        if layer == "dense" {
            layer = segments.next()?;
        }
        let split = match (last, leaf.shape()) {
            ("weight", [_, _]) if COLUMNS.contains(&layer) => 1,
            ("bias", [_]) if COLUMNS.contains(&layer) => 0,
            ("weight", [_, _]) if ROWS.contains(&layer) => 0,
            _ => return None,
        };
        let divided = leaf.shape()[split].is_multiple_of(parts);
        divided.then(|| (path, PartitionSpec::new((0..=split).map(|i| (i == split).then_some(axis)))))
    };
    leaves(tree).into_iter().filter_map(spec).collect()
}
