use grove_backend::Backend;

use crate::{Tree, map::flatten, structure};

/// Returns true if two trees have the same [structure](structure()) and their leaves have the same dtype, shape and
/// bits. Two absent leaves with the same dtype and shape are equal.
pub fn eq<B: Backend, T: Tree<B>>(left: &T, right: &T) -> bool {
    structure(left) == structure(right)
        && flatten(left).into_iter().zip(flatten(right)).all(|(x, y)| {
            let same_type = (x.shape(), x.dtype()) == (y.shape(), y.dtype());
            same_type
                && match (x.into_data(), y.into_data()) {
                    (None, None) => true,
                    (Some(x), Some(y)) => x.as_bytes() == y.as_bytes(),
                    _ => false,
                }
        })
}

/// Returns true if two trees have the same structure and `|x - y| <= atol + rtol * |y|` for all elements. Dtypes may
/// differ. NaN is not close to any value, NaN included.
pub fn all_close<B: Backend, T: Tree<B>>(left: &T, right: &T, rtol: f64, atol: f64) -> bool {
    structure(left) == structure(right)
        && flatten(left).into_iter().zip(flatten(right)).all(|(x, y)| {
            let same_shape = x.shape() == y.shape();
            same_shape
                && match (x.into_data(), y.into_data()) {
                    (None, None) => true,
                    (Some(x), Some(y)) => x
                        .iter::<f64>()
                        .zip(y.iter::<f64>())
                        .all(|(x, y)| x == y || (x - y).abs() <= atol + rtol * y.abs()),
                    _ => false,
                }
        })
}
