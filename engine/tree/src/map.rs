use burn::tensor::FloatDType;
use grove_backend::Backend;
use std::collections::VecDeque;

use crate::{AnyArray, Path, Tree, TreeError, structure::check_same};

/// Applies a function to every leaf (`jax.tree.map`). The function must keep the rank and kind of a leaf.
pub fn map<B: Backend, T: Tree<B>>(tree: T, mut f: impl FnMut(AnyArray<B>) -> AnyArray<B>) -> T {
    tree.map(&mut Path::root(), &mut |_, leaf| f(leaf))
}

/// Like [`map`]; the function also receives the leaf's path (`jax.tree_util.tree_map_with_path`).
pub fn map_with_path<B: Backend, T: Tree<B>>(tree: T, mut f: impl FnMut(&Path, AnyArray<B>) -> AnyArray<B>) -> T {
    tree.map(&mut Path::root(), &mut f)
}

/// Like [`map_with_path`], with a function that can fail.
///
/// # Errors
/// Returns the first error of the function, which is not called again after that.
pub fn try_map_with_path<B: Backend, T: Tree<B>, E>(
    tree: T,
    mut f: impl FnMut(&Path, AnyArray<B>) -> Result<AnyArray<B>, E>,
) -> Result<T, E> {
    let mut failure = None;
    let mapped = tree.map(&mut Path::root(), &mut |path, leaf| {
        if failure.is_some() {
            return leaf;
        }
        let spare = AnyArray::absent(leaf.shape(), leaf.dtype());
        f(path, leaf).unwrap_or_else(|error| {
            failure = Some(error);
            spare
        })
    });
    failure.map_or(Ok(mapped), Err)
}

/// Applies a function to pairs of corresponding leaves of two trees with the same structure. The result has the type of
/// the first tree.
///
/// # Errors
/// [`TreeError::Structure`] if the [structures](crate::structure) differ.
pub fn zip_map<B: Backend, T: Tree<B>, U: Tree<B>>(
    left: T,
    right: &U,
    mut f: impl FnMut(&Path, AnyArray<B>, AnyArray<B>) -> AnyArray<B>,
) -> Result<T, TreeError> {
    check_same(&left, right)?;
    let mut others = flatten(right).into_iter();
    Ok(left.map(&mut Path::root(), &mut |path, leaf| match others.next() {
        Some(other) => f(path, leaf, other),
        None => unreachable!("trees of the same structure have the same number of leaves"),
    }))
}

/// Applies a function to the corresponding leaves of several trees with the same type and structure. The function
/// receives one leaf of each tree and returns a replacement for each. The trees are flattened first: unless the caller
/// kept a clone, the function holds the only handle of a leaf, and a backend can reuse its memory.
///
/// # Errors
/// [`TreeError::Structure`] if the [structures](crate::structure) differ.
pub fn map_together<B: Backend, T: Tree<B>, const N: usize>(
    trees: [T; N],
    mut f: impl FnMut(&Path, [AnyArray<B>; N]) -> [AnyArray<B>; N],
) -> Result<[T; N], TreeError> {
    for other in trees.iter().skip(1) {
        check_same(&trees[0], other)?;
    }
    let mut columns: Vec<VecDeque<AnyArray<B>>> = Vec::with_capacity(N);
    let frames = trees.map(|tree| {
        let mut column = VecDeque::new();
        let frame = map(tree, |leaf| {
            let absent = AnyArray::absent(leaf.shape(), leaf.dtype());
            column.push_back(leaf);
            absent
        });
        columns.push(column);
        frame
    });
    let mut results: [VecDeque<AnyArray<B>>; N] = std::array::from_fn(|_| VecDeque::new());
    if let Some(first) = frames.first() {
        first.visit(&mut Path::root(), &mut |path: &Path, _: &AnyArray<B>| {
            let row = columns.iter_mut().filter_map(VecDeque::pop_front).collect::<Vec<_>>();
            let Ok(row) = row.try_into() else {
                unreachable!("trees of the same structure have the same number of leaves")
            };
            for (column, leaf) in results.iter_mut().zip(f(path, row)) {
                column.push_back(leaf);
            }
        });
    }
    let mut results = results.into_iter();
    Ok(frames.map(|frame| {
        let mut column = results.next().unwrap_or_default();
        map(frame, |leaf| column.pop_front().unwrap_or(leaf))
    }))
}

/// Returns every leaf with its path, in order. Copies handles, not values.
pub fn leaves<B: Backend, T: Tree<B>>(tree: &T) -> Vec<(String, AnyArray<B>)> {
    let mut leaves = Vec::new();
    let mut collect = |path: &Path, leaf: &AnyArray<B>| leaves.push((path.to_string(), leaf.clone()));
    tree.visit(&mut Path::root(), &mut collect);
    leaves
}

/// Returns every leaf, in order.
pub(crate) fn flatten<B: Backend, T: Tree<B>>(tree: &T) -> Vec<AnyArray<B>> {
    let mut leaves = Vec::new();
    tree.visit(&mut Path::root(), &mut |_: &Path, leaf: &AnyArray<B>| leaves.push(leaf.clone()));
    leaves
}

/// Returns the path of every leaf, in order.
pub fn paths<B: Backend, T: Tree<B>>(tree: &T) -> Vec<String> {
    leaves(tree).into_iter().map(|(path, _)| path).collect()
}

/// Returns the device of the first present leaf; `None` for a skeleton and for a tree without leaves.
pub fn device_of<B: Backend, T: Tree<B>>(tree: &T) -> Option<B::Device> {
    let mut device = None;
    tree.visit(&mut Path::root(), &mut |_: &Path, leaf: &AnyArray<B>| device = device.take().or_else(|| leaf.device()));
    device
}

/// Replaces one part of a tree, as `equinox.tree_at`: `at(model, |m| &mut m.head, new_head)`.
pub fn at<T, U>(mut tree: T, select: impl FnOnce(&mut T) -> &mut U, replacement: U) -> T {
    *select(&mut tree) = replacement;
    tree
}

/// Returns the tree without values: every leaf is absent and keeps its shape and dtype.
pub fn skeleton<B: Backend, T: Tree<B>>(tree: T) -> T {
    map(tree, AnyArray::into_absent)
}

/// Casts all floating-point leaves; integers and booleans are unchanged. If `dtype` has 16 bits, buffers
/// (`#[tree(buffer)]`) are cast to f32 instead: sums and running statistics lose too much precision in 16 bits.
pub fn cast<B: Backend, T: Tree<B>>(tree: T, dtype: FloatDType) -> T {
    let half = matches!(dtype, FloatDType::F16 | FloatDType::BF16);
    map_with_path(tree, |path, leaf| {
        let dtype = if half && path.is_buffer() { FloatDType::F32 } else { dtype };
        leaf.cast_float(dtype)
    })
}

/// Moves all leaves to another device of the same backend.
pub fn to_device<B: Backend, T: Tree<B>>(tree: T, device: &B::Device) -> T {
    map(tree, |leaf| leaf.to_device(device))
}

/// Moves a tree to another backend. The values of present leaves are copied through host memory.
pub fn to_backend<B: Backend, C: Backend, T: Tree<B>>(tree: T, device: &C::Device) -> T::On<C> {
    tree.lift(&mut Path::root(), &mut |_, leaf| {
        let (shape, dtype) = (leaf.shape().to_vec(), leaf.dtype());
        match leaf.into_data() {
            Some(data) => AnyArray::from_data(data, device),
            None => AnyArray::absent(shape, dtype),
        }
    })
}
