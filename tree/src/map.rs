use burn::tensor::FloatDType;
use grove_backend::Backend;

use crate::{AnyArray, Path, Tree, TreeError};

/// Applies a function to every leaf. Rank and kind must stay.
pub fn map<B: Backend, T: Tree<B>>(tree: T, mut f: impl FnMut(AnyArray<B>) -> AnyArray<B>) -> T {
    tree.map(&mut Path::root(), &mut |_, leaf| f(leaf))
}

/// As [`map`]; the function also gets the leaf's path.
pub fn map_with_path<B: Backend, T: Tree<B>>(tree: T, mut f: impl FnMut(&Path, AnyArray<B>) -> AnyArray<B>) -> T {
    tree.map(&mut Path::root(), &mut f)
}

/// As [`map_with_path`] with a function that can fail.
///
/// # Errors
/// The first error of the function; it is not called again after that.
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

/// Applies a function to the leaves of two trees of the same structure, pair by pair. The result has the type of
/// the first.
///
/// # Errors
/// [`TreeError::Structure`] where the paths of the two trees differ.
pub fn zip_map<B: Backend, T: Tree<B>, U: Tree<B>>(
    left: T,
    right: &U,
    mut f: impl FnMut(&Path, AnyArray<B>, AnyArray<B>) -> AnyArray<B>,
) -> Result<T, TreeError> {
    let mut others = leaves(right).into_iter();
    let nothing = || "(nothing)".to_owned();
    let mapped = try_map_with_path(left, |path, leaf| match others.next() {
        Some((name, other)) if name == path.as_str() => Ok(f(path, leaf, other)),
        other => {
            Err(TreeError::Structure { left: path.to_string(), right: other.map_or_else(nothing, |(name, _)| name) })
        }
    })?;
    match others.next() {
        Some((right, _)) => Err(TreeError::Structure { left: nothing(), right }),
        None => Ok(mapped),
    }
}

/// Applies a function to the leaves of several trees of one type and structure, which it gets together and may replace
/// each. The trees are taken apart first, so that the function holds the only handle of a leaf that nobody else keeps,
/// and a backend can reuse its memory.
///
/// # Errors
/// [`TreeError::Structure`] where the paths of the trees differ.
pub fn map_together<B: Backend, T: Tree<B>, const N: usize>(
    trees: [T; N],
    mut f: impl FnMut(&Path, [AnyArray<B>; N]) -> [AnyArray<B>; N],
) -> Result<[T; N], TreeError> {
    let mut columns: Vec<Vec<(Path, AnyArray<B>)>> = Vec::with_capacity(N);
    let frames = trees.map(|tree| {
        let mut column = Vec::new();
        let frame = map_with_path(tree, |path, leaf| {
            let absent = AnyArray::absent(leaf.shape(), leaf.dtype());
            column.push((path.clone(), leaf));
            absent
        });
        columns.push(column);
        frame
    });
    let count = columns.iter().map(Vec::len).max().unwrap_or_default();
    let mut columns: Vec<_> = columns.into_iter().map(Vec::into_iter).collect();
    let mut results: [std::collections::VecDeque<AnyArray<B>>; N] = std::array::from_fn(|_| Default::default());
    for _ in 0..count {
        let row: Vec<Option<(Path, AnyArray<B>)>> = columns.iter_mut().map(Iterator::next).collect();
        let name = |item: &Option<(Path, AnyArray<B>)>| {
            item.as_ref().map_or_else(|| "(nothing)".to_owned(), |(path, _)| path.to_string())
        };
        let names: Vec<String> = row.iter().map(name).collect();
        if let Some(other) = names.iter().find(|other| **other != names[0]) {
            return Err(TreeError::Structure { left: names[0].clone(), right: other.clone() });
        }
        let (mut paths, leaves): (Vec<Path>, Vec<AnyArray<B>>) = row.into_iter().flatten().unzip();
        let (Some(path), Ok(leaves)) = (paths.pop(), leaves.try_into()) else { break };
        for (column, leaf) in results.iter_mut().zip(f(&path, leaves)) {
            column.push_back(leaf);
        }
    }
    let mut results = results.into_iter();
    Ok(frames.map(|frame| {
        let mut column = results.next().unwrap_or_default();
        map(frame, |leaf| column.pop_front().unwrap_or(leaf))
    }))
}

/// Every leaf with its path, in order. Handles are copied, not numbers.
pub fn leaves<B: Backend, T: Tree<B>>(tree: &T) -> Vec<(String, AnyArray<B>)> {
    let mut leaves = Vec::new();
    let mut collect = |path: &Path, leaf: &AnyArray<B>| leaves.push((path.to_string(), leaf.clone()));
    tree.visit(&mut Path::root(), &mut collect);
    leaves
}

/// The path of every leaf, in order.
pub fn paths<B: Backend, T: Tree<B>>(tree: &T) -> Vec<String> {
    leaves(tree).into_iter().map(|(path, _)| path).collect()
}

/// Replaces one part of a tree: `at(model, |m| &mut m.head, new_head)`.
pub fn at<T, U>(mut tree: T, select: impl FnOnce(&mut T) -> &mut U, replacement: U) -> T {
    *select(&mut tree) = replacement;
    tree
}

/// The tree without its values: every leaf absent, with shape and dtype.
pub fn skeleton<B: Backend, T: Tree<B>>(tree: T) -> T {
    map(tree, AnyArray::into_absent)
}

/// Converts all floating-point leaves; integers and truth values stay. Buffers (`#[tree(buffer)]`) are not made smaller than
/// f32: they are sums and running statistics, which 16 bits do not hold.
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

/// Moves a tree to another backend, through the host's memory where a leaf is present.
pub fn to_backend<B: Backend, C: Backend, T: Tree<B>>(tree: T, device: &C::Device) -> T::On<C> {
    tree.lift(&mut Path::root(), &mut |_, leaf| {
        let (shape, dtype) = (leaf.shape().to_vec(), leaf.dtype());
        match leaf.into_data() {
            Some(data) => AnyArray::from_data(data, device),
            None => AnyArray::absent(shape, dtype),
        }
    })
}
