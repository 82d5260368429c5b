//! Conditional updates. The device evaluates the condition, so that a step stays one function of arrays.

use burn::tensor::{Bool, DType, Shape, Tensor};
use grove_backend::Backend;
use grove_tree::{AnyArray, AnyTensor, Tree};

use crate::{
    leafwise::{flat, takes_part},
    transformation::together,
};

/// Selects one of two trees of the same structure: `then` if the condition holds, else `otherwise`. Floats, integers
/// and booleans are selected unchanged, including NaN and infinity. Nothing is read from the device. A leaf that is
/// present in only one of the trees comes from that one.
///
/// # Shapes
/// - condition `[1]`
///
/// # Panics
/// If the structures of the trees differ.
pub fn select<B: Backend, T: Tree<B>>(condition: &Tensor<B, 1, Bool>, then: T, otherwise: T) -> T {
    let [selected, _] = together([then, otherwise], |_, [then, otherwise]| {
        let absent = otherwise.clone().into_absent();
        [select_leaf(condition, then, otherwise), absent]
    });
    selected
}

fn select_leaf<B: Backend>(condition: &Tensor<B, 1, Bool>, then: AnyArray<B>, otherwise: AnyArray<B>) -> AnyArray<B> {
    let shape = Shape::from(then.shape().to_vec());
    let mask = || {
        let mask = B::bool_reshape(condition.clone().into_primitive(), vec![1; shape.num_dims()].into());
        B::bool_expand(mask, shape.clone())
    };
    if !then.is_present() {
        return otherwise;
    }
    let absent = AnyArray::absent(then.shape(), then.dtype());
    match (then.into_value(), otherwise.into_value()) {
        (Some(AnyTensor::Float(x)), Some(AnyTensor::Float(y))) => {
            AnyArray::present(AnyTensor::Float(B::float_mask_where(y, mask(), x)))
        }
        (Some(AnyTensor::Int(x)), Some(AnyTensor::Int(y))) => {
            AnyArray::present(AnyTensor::Int(B::int_mask_where(y, mask(), x)))
        }
        (Some(AnyTensor::Bool(x)), Some(AnyTensor::Bool(y))) => {
            let y = B::bool_and(y, B::bool_not(mask()));
            AnyArray::present(AnyTensor::Bool(B::bool_or(B::bool_and(x, mask()), y)))
        }
        (Some(x), _) => AnyArray::present(x),
        (None, _) => absent,
    }
}

/// Returns whether all elements of all floating-point leaves are finite, `[1]`; `None` if no leaf is present.
pub fn all_finite<B: Backend, T: Tree<B>>(tree: &T) -> Option<Tensor<B, 1, Bool>> {
    let leaves = grove_tree::leaves(tree).into_iter().filter(|(_, leaf)| takes_part(leaf));
    // NaN and infinity fail this comparison. A compiler might remove arithmetic such as x * 0.
    let finite = leaves.map(|(_, leaf)| {
        let x = flat(leaf).abs();
        // Burn converts comparison operands through f32, where the largest f64 would be infinite.
        let finite = match x.dtype() {
            DType::F64 => x.lower_elem(f64::INFINITY),
            _ => x.lower_equal_elem(f32::MAX),
        };
        finite.all()
    });
    finite.reduce(Tensor::bool_and)
}
