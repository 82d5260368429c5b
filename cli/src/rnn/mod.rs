//! Recurrent networks: classifiers of texts, and a comparison of ways to run them.

mod classify;
mod compare;
mod options;
pub(crate) mod sizes;

pub use compare::CompareArgs;
pub use options::ClassifyOptions;
