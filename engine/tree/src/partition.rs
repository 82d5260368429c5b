use grove_backend::Backend;

use crate::{Filter, Tree, TreeError, map_with_path, zip_map};

/// Splits a tree into the leaves that pass a filter and the other leaves (`equinox.partition`). Both parts have the
/// full structure; each leaf is present in one part and absent in the other.
pub fn partition<B: Backend, T: Tree<B>>(tree: T, keep: &Filter<B>) -> (T, T) {
    let selected = filter(tree.clone(), keep);
    let rest = filter(tree, &!keep.clone());
    (selected, rest)
}

/// Keeps the leaves that pass a filter and makes the others absent (`equinox.filter`).
pub fn filter<B: Backend, T: Tree<B>>(tree: T, keep: &Filter<B>) -> T {
    map_with_path(tree, |path, leaf| if keep.passes(path, &leaf) { leaf } else { leaf.into_absent() })
}

/// Reverses [`partition`]: takes each leaf from the part in which it is present (`equinox.combine`).
///
/// # Errors
/// [`TreeError::Structure`] if the structures differ, [`TreeError::Overlap`] if a leaf is present in both parts.
pub fn combine<B: Backend, T: Tree<B>>(left: T, right: T) -> Result<T, TreeError> {
    let mut overlap = None;
    let combined = zip_map(left, &right, |path, left, right| {
        if left.is_present() && right.is_present() && overlap.is_none() {
            overlap = Some(TreeError::Overlap { path: path.to_string() });
        }
        if right.is_present() { right } else { left }
    })?;
    overlap.map_or(Ok(combined), Err)
}
