//! Dtypes in which the weights of a large model are stored.

use burn::tensor::DType;
use grove_backend::Backend;
use grove_tree::{AnyArray, Path as TreePath, Tree};
use grove_weights::{NameMap, StoredDtype, TensorFiles};

/// Returns a large model's skeleton with the dtype in which each leaf is stored.
///
/// - Matrices and embeddings have `dtype`. If it is `None`, they have the dtype of the file; tensors that are quantized
///   there but not in the skeleton become f16.
/// - Other leaves have the compute dtype: f32 if the backend supports weights of another dtype than the activations,
///   else the dtype of the matrices.
pub(crate) fn computing_in<B: Backend, M: Tree<B>>(
    skeleton: M,
    checkpoint: &TensorFiles,
    names: &NameMap,
    dtype: Option<DType>,
) -> M {
    let stored = |path: &str| {
        let (_, info) = names.published(checkpoint, path)?;
        Some(match info.dtype {
            _ if info.quantized.is_some() => DType::F16,
            StoredDtype::F16 => DType::F16,
            StoredDtype::BF16 => DType::BF16,
            _ => DType::F32,
        })
    };
    let mut computing = if B::MIXED_DTYPE_WEIGHTS { Some(DType::F32) } else { dtype };
    // The first matrix, the token embedding, determines the compute dtype.
    skeleton.visit(&mut TreePath::root(), &mut |path: &TreePath, leaf: &AnyArray<B>| {
        if leaf.shape().len() == 2 && leaf.dtype().is_float() && computing.is_none() {
            computing = stored(path.as_str());
        }
    });
    skeleton.map(&mut TreePath::root(), &mut |path, leaf| {
        if !leaf.dtype().is_float() {
            return leaf;
        }
        let dtype = match leaf.shape().len() {
            2 => dtype.or_else(|| stored(path.as_str())),
            _ => computing,
        };
        AnyArray::absent(leaf.shape(), dtype.unwrap_or(DType::F32))
    })
}
