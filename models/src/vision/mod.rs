//! Shared parts of image models: the classifier trait and class names.

mod classes;
mod classifier;
mod timm;

pub use crate::{
    prediction::{Prediction, predictions, scored},
    problem_type::ProblemType,
};
pub use classes::imagenet_labels;
pub(crate) use classes::{find_name, fit_labels, head_rows, timm_labels};
pub use classifier::{ImageClassifier, TrainableImageClassifier};
pub(crate) use timm::{check_timm, name_unknown_timm_keys, timm_architecture, timm_line};
