//! Tokenized texts with their targets.

use grove_backend::Backend;
use grove_models::TextClassifier;
use grove_text::TextIds;

use crate::{
    DataIdentity,
    data::{DataError, LabelledText, labels_in, unknown_label, with_classes},
};

/// A tokenized text and its target.
#[derive(Clone, Debug, PartialEq)]
pub struct TextExample {
    /// Token ids.
    pub text: TextIds,
    /// Target.
    pub target: TextTarget,
}

/// Target of a text.
#[derive(Clone, Debug, PartialEq)]
pub enum TextTarget {
    /// Index of the label, for single-label classification.
    Class(usize),
    /// One value per label: 1 or 0 for multi-label classification, any number for regression.
    Values(Vec<f32>),
}

impl TextExample {
    /// Index of the label.
    ///
    /// # Panics
    /// If the target is not a class.
    pub fn class(&self) -> usize {
        match &self.target {
            TextTarget::Class(class) => *class,
            TextTarget::Values(_) => panic!("the target of a text is a list of values, not a class"),
        }
    }
}

/// Tokenizes labelled texts and replaces each label by its index. `encode` returns the tokens of a text, or an error.
///
/// # Errors
/// The first error of `encode`, with the place of the text; a label that is not in the list.
pub fn encode_examples<E: std::fmt::Display>(
    texts: Vec<LabelledText>,
    labels: &[String],
    mut encode: impl FnMut(&LabelledText) -> Result<TextIds, E>,
) -> Result<Vec<TextExample>, DataError> {
    let texts = with_classes(texts, labels)?.into_iter();
    texts.map(|(class, text)| example(&text, TextTarget::Class(class), &mut encode)).collect()
}

/// Tokenizes texts whose labels are numbers, for regression.
///
/// # Errors
/// The first error of `encode`, with the place of the text; a label that is not a finite number.
pub fn encode_regression<E: std::fmt::Display>(
    texts: Vec<LabelledText>,
    encode: impl FnMut(&LabelledText) -> Result<TextIds, E>,
) -> Result<Vec<TextExample>, DataError> {
    encode_values(texts, encode, |text| match text.label.parse::<f32>() {
        Ok(value) if value.is_finite() => Ok(vec![value]),
        _ => Err(format!("the label '{}' is not a number", text.label)),
    })
}

/// Tokenizes texts that have any number of labels each, for multi-label classification.
///
/// - `separator`: character between the labels of a text
///
/// # Errors
/// The first error of `encode`, with the place of the text; a label that is not in the list.
pub fn encode_multi_label<E: std::fmt::Display>(
    texts: Vec<LabelledText>,
    labels: &[String],
    separator: char,
    encode: impl FnMut(&LabelledText) -> Result<TextIds, E>,
) -> Result<Vec<TextExample>, DataError> {
    encode_values(texts, encode, |text| {
        let mut values = vec![0.0; labels.len()];
        for label in labels_in(&text.label, separator) {
            let known = labels.iter().position(|known| known == label);
            values[known.ok_or_else(|| unknown_label(label, labels))?] = 1.0;
        }
        Ok(values)
    })
}

fn encode_values<E: std::fmt::Display>(
    texts: Vec<LabelledText>,
    mut encode: impl FnMut(&LabelledText) -> Result<TextIds, E>,
    values: impl Fn(&LabelledText) -> Result<Vec<f32>, String>,
) -> Result<Vec<TextExample>, DataError> {
    let with_values = |text: LabelledText| {
        let values = values(&text).map_err(|reason| text.place.error(reason))?;
        example(&text, TextTarget::Values(values), &mut encode)
    };
    texts.into_iter().map(with_values).collect()
}

/// Tokenizes a text.
fn example<E: std::fmt::Display>(
    text: &LabelledText,
    target: TextTarget,
    encode: impl FnOnce(&LabelledText) -> Result<TextIds, E>,
) -> Result<TextExample, DataError> {
    Ok(TextExample { text: encode(text).map_err(|reason| text.place.error(reason))?, target })
}

/// Returns the number of examples and a digest of the tokens and targets that the model reads, for the settings of a
/// run.
pub fn texts_identity<B: Backend, M: TextClassifier<B>>(examples: &[TextExample]) -> String {
    let mut identity = DataIdentity::new();
    for TextExample { text, target } in examples {
        identity.add_tokens(&text.ids);
        if M::TOKEN_TYPES {
            identity.add_tokens(&text.token_types);
        }
        match target {
            TextTarget::Class(class) => identity.add_tokens(&[*class as u32]),
            TextTarget::Values(values) => {
                identity.add_tokens(&values.iter().map(|value| value.to_bits()).collect::<Vec<_>>())
            }
        }
    }
    identity.describe(examples.len(), "texts")
}

/// Returns the loss weight of each class, inversely proportional to its number of examples, with a mean of 1 per
/// example: scikit-learn's `class_weight="balanced"`.
///
/// ```
/// # use grove_train::classify::class_weights;
/// assert_eq!(class_weights([0, 0, 0, 1], 2), [4.0 / 6.0, 2.0]);
/// ```
pub fn class_weights(examples: impl IntoIterator<Item = usize>, classes: usize) -> Vec<f32> {
    let mut counts = vec![0_usize; classes];
    examples.into_iter().for_each(|class| counts[class] += 1);
    let all: usize = counts.iter().sum();
    counts.into_iter().map(|count| all as f32 / (classes * count.max(1)) as f32).collect()
}
