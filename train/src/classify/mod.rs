//! Training and evaluation of text classifiers and, with the feature `images`, image classifiers: the model-independent
//! parts of a training script (batches, weighted losses, scores).

#[cfg(feature = "images")]
mod image;
#[cfg(feature = "images")]
mod image_batches;
#[cfg(feature = "images")]
mod image_records;
mod text;
mod text_examples;

#[cfg(feature = "images")]
pub use image::{ImageTask, fit_images, image_loss, score_images, score_images_on};
#[cfg(feature = "images")]
pub use image_batches::{ImageBatch, ImageBatches, ImageTargets};
#[cfg(feature = "images")]
pub use image_records::read_labelled_images;
pub use text::{
    TextTargets, TextTask, TrainableTextClassifier, fit_texts, score_texts, score_texts_on, score_values_on,
    text_batch, text_loss,
};
pub use text_examples::{
    TextExample, TextTarget, class_weights, encode_examples, encode_multi_label, encode_regression, texts_identity,
};

use std::collections::HashSet;

/// Returns the labels without examples. An evaluation says nothing about these classes.
///
/// ```
/// let labels = ["cat", "dog", "owl"].map(String::from);
/// assert_eq!(grove_train::classify::labels_without_examples(&labels, [0, 2, 0]), ["dog"]);
/// ```
pub fn labels_without_examples(labels: &[String], classes: impl IntoIterator<Item = usize>) -> Vec<&str> {
    let seen: HashSet<usize> = classes.into_iter().collect();
    labels.iter().enumerate().filter(|(class, _)| !seen.contains(class)).map(|(_, label)| label.as_str()).collect()
}
