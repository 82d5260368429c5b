//! Types in which a large model's weights are held.

use burn::tensor::DType;
use grove_backend::Backend;
use grove_tree::{AnyArray, Path as TreePath, Tree};
use grove_weights::{NameMap, StoredDtype, TensorFiles};

/// A large model's skeleton with each leaf in the type in which it is held: matrices and tables as `dtype`, or as they are
/// in the file where `None` (what is quantized there, and cannot be here, in f16); vectors, which are few, in the type that
/// the model computes in: f32 where the backend takes weights of other types with that, else the matrices' own.
pub(crate) fn computing_in<B: Backend, M: Tree<B>>(
    skeleton: M,
    checkpoint: &TensorFiles,
    names: &NameMap,
    dtype: Option<DType>,
) -> M {
    let held = |path: &str| {
        let (_, info) = names.published(checkpoint, path)?;
        Some(match info.dtype {
            _ if info.quantized.is_some() => DType::F16,
            StoredDtype::F16 => DType::F16,
            StoredDtype::BF16 => DType::BF16,
            _ => DType::F32,
        })
    };
    let mut computing = if B::MIXED_DTYPE_WEIGHTS { Some(DType::F32) } else { dtype };
    // The first matrix, a table of tokens, decides.
    skeleton.visit(&mut TreePath::root(), &mut |path: &TreePath, leaf: &AnyArray<B>| {
        if leaf.shape().len() == 2 && leaf.dtype().is_float() && computing.is_none() {
            computing = held(path.as_str());
        }
    });
    skeleton.map(&mut TreePath::root(), &mut |path, leaf| {
        if !leaf.dtype().is_float() {
            return leaf;
        }
        let dtype = match leaf.shape().len() {
            2 => dtype.or_else(|| held(path.as_str())),
            _ => computing,
        };
        AnyArray::absent(leaf.shape(), dtype.unwrap_or(DType::F32))
    })
}
