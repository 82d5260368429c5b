//! Transformations of transformations.

mod masked;

pub use masked::{Masked, masked, matrices};
