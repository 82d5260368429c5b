//! Conditional updates. The device evaluates the condition, so that a step stays one function of arrays.

use burn::tensor::{Bool, DType, Tensor};
use grove_backend::Backend;
use grove_tree::{AnyArray, Tree};

use crate::leafwise::{flat, takes_part, together};

/// Returns `then` if the condition holds, else `otherwise`. Selected values are unchanged, including NaN, infinity,
/// integers and booleans. The host reads nothing from the device. A leaf that is present in only one of the trees comes
/// from that tree.
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
    if !then.is_present() || !otherwise.is_present() {
        return if then.is_present() { then } else { otherwise };
    }
    let selected = then.into_value().zip(otherwise.into_value()).map(|(x, y)| x.select(condition, y));
    AnyArray::present(selected.expect("both are present"))
}

/// Returns `[1]`, true if all elements of all floating-point leaves are finite; `None` if no floating-point leaf is
/// present.
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
