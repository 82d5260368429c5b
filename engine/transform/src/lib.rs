//! Transformations of functions of trees: reverse-mode differentiation, loops, stacking, and shape evaluation.
//!
//! ```
//! use burn::tensor::Tensor;
//! use grove_transform::value_and_grad;
//! use grove_tree::Array;
//! # type B = burn_flex::Flex;
//! let x = Array::<B, 1>::new(Tensor::from_floats([1.0, 2.0, 3.0], &Default::default()));
//! let (loss, grad) = value_and_grad(&x, |x| x.val().powf_scalar(2.0).sum());
//! assert_eq!(loss.into_scalar(), 14.0);
//! assert_eq!(grad.val().to_data().to_vec::<f32>().unwrap(), [2.0, 4.0, 6.0]);
//! ```
#![warn(missing_docs)]

mod backward;
mod eval_shape;
mod grad;
mod recompute;
mod scan;
mod stack;
mod tape;
mod vjp;

pub use eval_shape::eval_shape;
pub use grad::{GradOptions, grad, value_and_grad, value_and_grad_aux, value_and_grad_with};
pub use recompute::{Balanced, NoRecompute, Recompute};
pub use scan::{RematScan, Scan, scan};
pub use stack::{Stack, Stacked, Unstack, stack, stacked_len, unstack};
pub use tape::{clear_tape, from_inner};
pub use vjp::vjp;
