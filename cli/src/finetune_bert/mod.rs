//! Fine-tuning of BERT for classification.

mod data;
mod model;
mod optimizer;
mod options;
mod report;
mod train;

pub use options::Options;
pub use train::run;
