//! Comparison of models by their arrays.

use grove_backend::Backend;
use grove_tree::{AnyArray, Tree, leaves};

/// Returns true if two trees have leaves of the same paths, shapes and values. Dtypes and static fields can differ,
/// since some files have additional configuration fields.
pub fn same_arrays<B: Backend, T: Tree<B>>(left: &T, right: &T) -> bool {
    let values = |leaf: AnyArray<B>| leaf.into_data().map(|data| data.iter::<f64>().collect::<Vec<_>>());
    let arrays = |tree: &T| {
        let arrays = leaves(tree).into_iter().map(|(path, leaf)| (path, leaf.shape().to_vec(), values(leaf)));
        arrays.collect::<Vec<_>>()
    };
    arrays(left) == arrays(right)
}
