//! Arrays of trees.

use grove_backend::{AnyTensor, Backend};
use grove_tree::{AnyArray, Path, Tree, device_of};

/// Returns the present arrays of a tree, in order, and the device of the first array.
pub(crate) fn arrays<B: Backend, A: Tree<B>>(tree: &A) -> (Vec<AnyTensor<B>>, B::Device) {
    let mut values = Vec::new();
    tree.visit(&mut Path::root(), &mut |_: &Path, leaf: &AnyArray<B>| values.extend(leaf.value().cloned()));
    (values, device_of(tree).unwrap_or_default())
}
