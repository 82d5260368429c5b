//! Recurrent networks: classifiers of texts, and a comparison of ways to run them.

pub mod classify;
mod compare;
pub(crate) mod sizes;

pub use compare::CompareArgs;
