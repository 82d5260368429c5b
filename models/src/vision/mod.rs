//! What models of pictures share.

mod classes;

pub use classes::imagenet_labels;
pub(crate) use classes::{find_name, fit_labels, head_rows, timm_labels};
