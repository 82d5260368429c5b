//! Labels of texts, and their indices.

use std::collections::{BTreeSet, HashMap};

use super::{DataError, LabelledText};

/// Returns the distinct labels, sorted by name, or by value if all are integers.
///
/// # Errors
/// If all texts have the same label.
pub fn labels(texts: &[LabelledText]) -> Result<Vec<String>, DataError> {
    let labels = sorted_labels(texts.iter().map(|text| &*text.label));
    match (&labels[..], texts) {
        ([label], [first, ..]) => Err(first.place.error(format!(
            "all texts from this one on have the label '{label}', but a classifier needs at least two labels"
        ))),
        _ => Ok(labels),
    }
}

/// Returns distinct labels, sorted by name, or by value if all are integers.
pub(crate) fn sorted_labels<'a>(all: impl Iterator<Item = &'a str>) -> Vec<String> {
    let distinct: BTreeSet<&str> = all.collect();
    let mut labels: Vec<String> = distinct.into_iter().map(str::to_owned).collect();
    if labels.iter().all(|label| label.parse::<i64>().is_ok()) {
        labels.sort_by_key(|label| label.parse::<i64>().unwrap_or(0));
    }
    labels
}

/// Returns the sorted labels that occur in texts with any number of labels each.
///
/// # Errors
/// If no text has a label.
pub fn multi_labels(texts: &[LabelledText], separator: char) -> Result<Vec<String>, DataError> {
    let all: BTreeSet<&str> = texts.iter().flat_map(|text| labels_in(&text.label, separator)).collect();
    match (all.is_empty(), texts.first()) {
        (true, Some(first)) => Err(first.place.error("neither this text nor any after it has a label")),
        _ => Ok(all.into_iter().map(str::to_owned).collect()),
    }
}

/// Returns the labels of a text that has any number of them.
pub fn labels_in(list: &str, separator: char) -> impl Iterator<Item = &str> {
    list.split(separator).map(str::trim).filter(|label| !label.is_empty())
}

/// Maps each label to its index. The numbers of transformers' default names, `LABEL_0`, `LABEL_1`, map to the same
/// indices.
fn indices(labels: &[String]) -> HashMap<&str, usize> {
    let numbers = labels.iter().enumerate().filter_map(|(i, label)| {
        let number = label.strip_prefix("LABEL_")?;
        (number == i.to_string()).then_some((number, i))
    });
    numbers.chain(labels.iter().enumerate().map(|(i, label)| (&**label, i))).collect()
}

/// Returns the index of a text's label. A numbered class with a name also matches `LABEL_` and its number.
fn class_of(text: &LabelledText, indices: &HashMap<&str, usize>) -> Option<usize> {
    let by_number = || indices.get(&*format!("LABEL_{}", text.class_number?));
    indices.get(&*text.label).or_else(by_number).copied()
}

/// True if the labels of all texts are in the list. The names of numbered classes do not match `LABEL_0`, `LABEL_1`, the names
/// of an untrained model: such a model gets the names of the file.
pub fn have_labels(texts: &[LabelledText], labels: &[String]) -> bool {
    let indices = indices(labels);
    texts.iter().all(|text| indices.contains_key(&*text.label))
}

/// Returns each text with the index of its label. The labels 0, 1 and so on match transformers' default names
/// `LABEL_0`, `LABEL_1`, as do the names of numbered classes.
///
/// # Errors
/// If the label of a text is not in the list.
pub fn with_classes(texts: Vec<LabelledText>, labels: &[String]) -> Result<Vec<(usize, LabelledText)>, DataError> {
    let indices = indices(labels);
    let class = |text: LabelledText| match class_of(&text, &indices) {
        Some(class) => Ok((class, text)),
        None => Err(text.place.error(unknown_label(&text.label, labels))),
    };
    texts.into_iter().map(class).collect()
}

/// Describes a label that is not in the list.
pub(crate) fn unknown_label(label: &str, labels: &[String]) -> String {
    format!("the label '{label}' is not one of the model's labels: {}", labels.join(", "))
}

#[cfg(test)]
mod tests {
    use std::{path::PathBuf, sync::Arc};

    use super::{super::Place, *};

    fn texts(labels: &[&str]) -> Vec<LabelledText> {
        let place = Place::line(&Arc::new(PathBuf::from("a.csv")), 2);
        let text = |label: &&str| LabelledText {
            label: (*label).into(),
            class_number: None,
            text: "a".into(),
            pair: None,
            place: place.clone(),
        };
        labels.iter().map(text).collect()
    }

    #[test]
    fn sorts_integer_labels_by_value() {
        let texts = texts(&["10", "9", "10"]);
        assert_eq!(labels(&texts).expect("two labels"), ["9", "10"]);
        let classes = with_classes(texts, &["9".into(), "10".into()]).expect("known labels");
        assert_eq!(classes.iter().map(|(class, _)| *class).collect::<Vec<_>>(), [1, 0, 1]);
    }

    #[test]
    fn matches_labels_by_name() {
        let texts = texts(&["1", "0"]);
        let named = ["LABEL_0", "LABEL_1"].map(String::from);
        let classes = with_classes(texts.clone(), &named).expect("transformers' names");
        assert_eq!(classes.iter().map(|(class, _)| *class).collect::<Vec<_>>(), [1, 0]);
        let own = ["1", "0", "2"].map(String::from);
        let classes = with_classes(texts.clone(), &own).expect("names");
        assert_eq!(classes.iter().map(|(class, _)| *class).collect::<Vec<_>>(), [0, 1]);
        assert!(have_labels(&texts, &named) && have_labels(&texts, &own));
        assert!(!have_labels(&texts, &["LABEL_1", "LABEL_0"].map(String::from)), "numbers of other classes");
        assert!(!have_labels(&texts, &own[..1]));
    }

    #[test]
    fn named_classes_match_default_names_by_their_number() {
        let mut texts = texts(&["pos", "neg"]);
        for (text, number) in texts.iter_mut().zip([1, 0]) {
            text.class_number = Some(number);
        }
        let default = ["LABEL_0", "LABEL_1"].map(String::from);
        assert!(!have_labels(&texts, &default), "a new head gets the names");
        let classes = with_classes(texts.clone(), &default).expect("known");
        assert_eq!(classes.iter().map(|(class, _)| *class).collect::<Vec<_>>(), [1, 0]);
        let own = ["pos", "neg"].map(String::from);
        let classes = with_classes(texts, &own).expect("known");
        assert_eq!(classes.iter().map(|(class, _)| *class).collect::<Vec<_>>(), [0, 1], "names come first");
    }
}
