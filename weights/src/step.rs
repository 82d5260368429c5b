//! Rearrangements of a published tensor's elements, and their inverses for saving.

use std::fmt;

use crate::entry::element_count;
use crate::error::{Result, WeightsError};
use crate::view::View;

/// A rearrangement of a tensor's elements. Every step has an inverse, so that a model can be saved in its published
/// layout.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// Swaps the two axes of a matrix: `[out, in]` becomes `[in, out]`.
    Transpose,
    /// Permutes the axes: axis `i` of the result is axis `axes[i]` of the published tensor.
    Permute(Vec<usize>),
    /// Reshape in row-major order. In each shape one size may be −1, which is inferred from the others.
    Reshape {
        /// The published shape; used when saving.
        from: Vec<isize>,
        /// The shape after the step.
        to: Vec<isize>,
    },
}

impl Step {
    /// Returns the inverse step.
    pub fn inverse(&self) -> Self {
        match self {
            Self::Transpose => Self::Transpose,
            Self::Permute(axes) => {
                let mut inverse = vec![0; axes.len()];
                for (to, &from) in axes.iter().enumerate() {
                    if let Some(place) = inverse.get_mut(from) {
                        *place = to;
                    }
                }
                Self::Permute(inverse)
            }
            Self::Reshape { from, to } => Self::Reshape { from: to.clone(), to: from.clone() },
        }
    }

    /// Returns the shape of the result for a tensor of this shape; `None` if the step does not apply.
    pub(crate) fn shape_after(&self, shape: &[usize]) -> Option<Vec<usize>> {
        match self {
            Self::Transpose => match shape {
                [rows, columns] => Some(vec![*columns, *rows]),
                _ => None,
            },
            Self::Permute(axes) => {
                let mut sorted = axes.clone();
                sorted.sort_unstable();
                sorted.into_iter().eq(0..shape.len()).then(|| axes.iter().map(|&axis| shape[axis]).collect())
            }
            Self::Reshape { to, .. } => filled_in(to, element_count(shape)?),
        }
    }

    /// Converts the step to a tensor whose rows are `bytes` indivisible bytes instead of values of this shape; `None`
    /// if the step does not keep rows whole.
    pub(crate) fn on_rows(&self, shape: &[usize], bytes: usize) -> Option<Self> {
        let bytes = isize::try_from(bytes).ok()?;
        let with_bytes = |sizes: &[isize]| {
            let mut sizes = sizes.to_vec();
            if let Some(last) = sizes.last_mut() {
                *last = bytes;
            }
            sizes
        };
        match self {
            Self::Transpose => None,
            Self::Permute(axes) => (axes.last()? + 1 == shape.len()).then(|| self.clone()),
            Self::Reshape { from, to } => (self.shape_after(shape)?.last() == shape.last())
                .then(|| Self::Reshape { from: with_bytes(from), to: with_bytes(to) }),
        }
    }

    /// Rearranges a view without copying, except for a reshape of a view that is not contiguous.
    pub(crate) fn apply<'a>(&self, view: View<'a>) -> Result<View<'a>> {
        let Some(shape) = self.shape_after(view.shape()) else {
            return Err(WeightsError::Transform {
                tensor: view.name().into(),
                step: self.to_string(),
                reason: format!("its shape there is {:?}", view.shape()),
            });
        };
        match self {
            Self::Transpose => Ok(view.permute(&[1, 0])),
            Self::Permute(axes) => Ok(view.permute(axes)),
            Self::Reshape { .. } => view.reshape(&shape),
        }
    }
}

/// Replaces the −1 in the shape of `count` elements by its value.
fn filled_in(shape: &[isize], count: usize) -> Option<Vec<usize>> {
    let known = shape
        .iter()
        .filter(|&&size| size != -1)
        .try_fold(1usize, |product, &size| product.checked_mul(usize::try_from(size).ok()?))?;
    let holes = shape.iter().filter(|&&size| size == -1).count();
    let rest = match holes {
        0 if known == count => 0,
        1 if known > 0 && count.is_multiple_of(known) => count / known,
        _ => return None,
    };
    Some(shape.iter().map(|&size| usize::try_from(size).unwrap_or(rest)).collect())
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Transpose => f.write_str("transpose"),
            Self::Permute(axes) => write!(f, "permutation {axes:?}"),
            Self::Reshape { from, to } => write!(f, "reshape {from:?} to {to:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Step;
    use crate::view::{View, materialise};
    use burn::tensor::{DType, TensorData};

    fn run(steps: &[Step], data: &TensorData) -> TensorData {
        let view = steps.iter().try_fold(View::of_data("t", data), |view, step| step.apply(view)).expect("fits");
        materialise(&[view], 0, DType::F32).expect("read")
    }

    /// Returns the rearrangement between Meta's and transformers' rotary layouts, for one head of four rows.
    fn rope() -> Vec<Step> {
        vec![
            Step::Reshape { from: vec![-1, 2], to: vec![1, 2, 2, 2] },
            Step::Permute(vec![0, 2, 1, 3]),
            Step::Reshape { from: vec![1, 2, 2, 2], to: vec![-1, 2] },
        ]
    }

    #[test]
    fn steps_and_their_inverses() {
        let data = TensorData::new((0..8).map(|v| v as f32).collect::<Vec<_>>(), [4, 2]);
        let turned = run(&[Step::Transpose], &data);
        assert_eq!(turned, TensorData::new(vec![0f32, 2.0, 4.0, 6.0, 1.0, 3.0, 5.0, 7.0], [2, 4]));
        let roped = run(&rope(), &data);
        assert_eq!(roped, TensorData::new(vec![0f32, 1.0, 4.0, 5.0, 2.0, 3.0, 6.0, 7.0], [4, 2]));
        for steps in [vec![Step::Transpose], rope(), vec![Step::Permute(vec![1, 0]), Step::Transpose]] {
            let inverse: Vec<Step> = steps.iter().rev().map(Step::inverse).collect();
            assert_eq!(run(&inverse, &run(&steps, &data)), data, "{steps:?}");
        }
    }

    #[test]
    fn a_step_that_does_not_fit_is_an_error() {
        let data = TensorData::new(vec![0f32; 6], [6]);
        for step in [
            Step::Transpose,
            Step::Permute(vec![0, 1]),
            Step::Permute(vec![1]),
            Step::Reshape { from: vec![6], to: vec![4, -1] },
            Step::Reshape { from: vec![6], to: vec![-1, -1] },
            Step::Reshape { from: vec![6], to: vec![0, -1] },
            Step::Reshape { from: vec![6], to: vec![-2, 3] },
        ] {
            let error = step.apply(View::of_data("x", &data)).expect_err("misfit").to_string();
            assert!(error.contains("`x`") && error.contains("[6]"), "{error}");
        }
    }
}
