//! Comparison of trees.

use burn::tensor::TensorData;
use grove_backend::Backend;
use grove_tree::{Tree, leaves};

/// Fails unless two trees have the same paths, shapes, dtypes and presence, and their values agree. The tolerance is relative
/// to the largest value of each leaf, or to `least` if that is larger.
pub fn same<B: Backend, T: Tree<B>>(what: &str, found: &T, expected: &T, tolerance: f64, least: f64) {
    let (found, expected) = (leaves(found), leaves(expected));
    assert_eq!(found.len(), expected.len(), "{what}");
    assert!(!found.is_empty(), "{what}");
    for ((name, found), (expected_name, expected)) in found.into_iter().zip(expected) {
        assert_eq!(
            (&name, found.shape(), found.dtype()),
            (&expected_name, expected.shape(), expected.dtype()),
            "{what}"
        );
        let list = |data: Option<TensorData>| data.map(|data| data.iter::<f64>().collect::<Vec<_>>());
        let (found, expected) = (list(found.into_data()), list(expected.into_data()));
        assert_eq!(found.is_some(), expected.is_some(), "{what}, {name}");
        let (Some(found), Some(expected)) = (found, expected) else { continue };
        let largest = expected.iter().fold(least, |max, x| max.max(x.abs()));
        let apart = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(apart <= tolerance * largest, "{what}, {name}: apart by {apart} of {largest}");
        assert!(apart.is_finite() && largest.is_finite(), "{what}, {name}");
    }
}
