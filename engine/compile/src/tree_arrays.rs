//! Arrays of trees.

use grove_backend::{AnyTensor, Backend};
use grove_tree::{AnyArray, Path, Tree};

/// Returns the present arrays of a tree, in order, and the device of the first array.
pub(crate) fn arrays<B: Backend, A: Tree<B>>(tree: &A) -> (Vec<AnyTensor<B>>, Option<B::Device>) {
    let (mut values, mut device) = (Vec::new(), None);
    tree.visit(&mut Path::root(), &mut |_: &Path, leaf: &AnyArray<B>| {
        device = device.take().or_else(|| leaf.device());
        values.extend(leaf.value().cloned());
    });
    (values, device)
}
