use burn::tensor::{Int, Tensor};
use grove_backend::Backend;

use crate::loss::IGNORE_INDEX;

/// Computes the accuracy: the fraction of the rows whose largest logit is that of the label, over the rows whose label is
/// not [`IGNORE_INDEX`]. NaN if all are ignored. Of equal logits the first counts.
///
/// # Shapes
/// - logits `[n, classes]`
/// - labels `[n]`
/// - output `[1]`
///
/// ```
/// use burn::tensor::{Int, Tensor};
/// use grove_layers::accuracy;
/// # type B = burn_flex::Flex;
/// let device = Default::default();
/// let logits = Tensor::<B, 2>::from_floats([[2.0, 1.0], [0.0, 3.0], [1.0, 4.0], [5.0, 0.0]], &device);
/// let labels = Tensor::<B, 1, Int>::from_ints([0, 1, 0, -100], &device);
/// assert!((accuracy(logits, labels).into_scalar() - 2.0 / 3.0).abs() < 1e-6);
/// ```
#[track_caller]
pub fn accuracy<B: Backend>(logits: Tensor<B, 2>, labels: Tensor<B, 1, Int>) -> Tensor<B, 1> {
    let ([rows, _], count) = (logits.dims(), labels.dims());
    assert_eq!(count, [rows], "labels {count:?} do not fit logits {:?}", logits.dims());
    let counted = labels.clone().not_equal_elem(IGNORE_INDEX).float().sum();
    logits.argmax(1).squeeze_dim::<1>(1).equal(labels).float().sum() / counted
}

#[cfg(test)]
mod tests {
    use super::*;
    use grove_backend::Flex;

    #[test]
    #[should_panic(expected = "labels [2] do not fit logits [3, 4]")]
    fn rejects_labels_of_other_rows() {
        let device = Default::default();
        accuracy(Tensor::<Flex, 2>::zeros([3, 4], &device), Tensor::zeros([2], &device));
    }
}
