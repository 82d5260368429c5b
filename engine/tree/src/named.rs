use grove_backend::Backend;
use std::collections::BTreeMap;

use crate::{AnyArray, Tree, TreeError, leaves, try_map_with_path};

/// Leaves by path: any tree with its type erased. The map is itself a tree.
pub type NamedLeaves<B> = BTreeMap<String, AnyArray<B>>;

/// Returns the present leaves of a tree by path.
pub fn named_leaves<B: Backend, T: Tree<B>>(tree: &T) -> NamedLeaves<B> {
    leaves(tree).into_iter().filter(|(_, leaf)| leaf.is_present()).collect()
}

/// Reverses [`named_leaves`]: replaces each present leaf of the tree by the leaf with its path. Absent leaves stay
/// absent.
///
/// # Errors
/// [`TreeError::Structure`] if a path is missing or matches no present leaf, [`TreeError::Leaf`] if the shape or dtype
/// differs.
pub fn with_named_leaves<B: Backend, T: Tree<B>>(tree: T, mut named: NamedLeaves<B>) -> Result<T, TreeError> {
    let nothing = || "(nothing)".to_owned();
    let name = |path: &str| if path.is_empty() { "(leaf)".to_owned() } else { path.to_owned() };
    let tree = try_map_with_path(tree, |path, leaf| {
        if !leaf.is_present() {
            return Ok(leaf);
        }
        let Some(other) = named.remove(path.as_str()) else {
            return Err(TreeError::Structure { left: name(path.as_str()), right: nothing() });
        };
        if (other.shape(), other.dtype()) != (leaf.shape(), leaf.dtype()) {
            let (path, expected, found) = (path.to_string(), leaf.to_string(), other.to_string());
            return Err(TreeError::Leaf { path, expected, found });
        }
        Ok(other)
    })?;
    match named.into_keys().next() {
        Some(right) => Err(TreeError::Structure { left: nothing(), right: name(&right) }),
        None => Ok(tree),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Array;
    use burn::tensor::{Int, Tensor};
    use burn_flex::Flex;

    type Pair = (Array<Flex, 1>, Option<Array<Flex, 2, Int>>);

    fn pair() -> Pair {
        let device = Default::default();
        (Array::absent([3]), Some(Array::new(Tensor::from_ints([[1, 2]], &device))))
    }

    #[test]
    fn a_leaf_without_a_path_is_named() {
        let one = || Array::<Flex, 1>::new(Tensor::from_floats([1.0, 2.0], &Default::default()));
        let error = |named: NamedLeaves<Flex>| with_named_leaves(one(), named).unwrap_err().to_string();
        let other = Array::<Flex, 1>::new(Tensor::from_floats([1.0], &Default::default()));
        assert_eq!(error(named_leaves::<Flex, _>(&other)), "the leaf is f32[2] and cannot be replaced by f32[1]");
        let missing = "the trees differ in structure: the first has `(leaf)` where the second has `(nothing)`";
        assert_eq!(error(NamedLeaves::new()), missing);
    }

    #[test]
    fn round_trips() {
        let named = named_leaves::<Flex, _>(&pair());
        assert_eq!(named.keys().collect::<Vec<_>>(), ["1"]);
        assert!(crate::eq::<Flex, _>(&with_named_leaves(pair(), named).unwrap(), &pair()));
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let mut named = named_leaves::<Flex, _>(&pair());
        named.insert("2".into(), named["1"].clone());
        assert!(with_named_leaves(pair(), named).unwrap_err().to_string().contains("`2`"));
        assert!(with_named_leaves(pair(), NamedLeaves::new()).unwrap_err().to_string().contains("`1`"));
        let wrong = NamedLeaves::from([("1".into(), AnyArray::absent([5], burn::tensor::DType::I64))]);
        assert!(matches!(with_named_leaves(pair(), wrong), Err(TreeError::Leaf { .. })));
    }
}
