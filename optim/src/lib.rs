//! Gradient transformations.
#![warn(missing_docs)]
