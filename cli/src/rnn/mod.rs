//! Recurrent networks: classifiers of texts.

mod classify;
mod options;
pub(crate) mod sizes;

pub use options::ClassifyOptions;
