//! Training of BERT by masked words.

mod data;
mod init;
mod options;
mod train;

pub use options::Options;
pub use train::run;
