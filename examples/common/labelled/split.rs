//! From labelled texts to classes, and to what is held out.

use grove::prelude::*;

use super::Labelled;
use crate::common::{Exit, failure};

/// The labels that occur, in the order of their names, or of their values where all are numbers; at least two.
pub fn labels(texts: &[Labelled]) -> Result<Vec<String>, Exit> {
    let mut labels: Vec<String> = texts.iter().map(|text| text.label.clone()).collect();
    labels.sort();
    labels.dedup();
    if labels.iter().all(|label| label.parse::<i64>().is_ok()) {
        labels.sort_by_key(|label| label.parse::<i64>().unwrap_or(0));
    }
    match (&labels[..], texts) {
        ([label], [first, ..]) => Err(failure(format!(
            "{}: all texts from here on have the label '{label}', and a classifier needs at least two labels",
            first.place
        ))),
        _ => Ok(labels),
    }
}

/// Each text with the number of its class.
pub fn with_classes(texts: Vec<Labelled>, labels: &[String]) -> Result<Vec<(usize, Labelled)>, Exit> {
    let class = |text: Labelled| match labels.iter().position(|label| *label == text.label) {
        Some(class) => Ok((class, text)),
        None => Err(failure(format!(
            "{}: the label '{}' is not one of the model's, which are {}",
            text.place,
            text.label,
            labels.join(", ")
        ))),
    };
    texts.into_iter().map(class).collect()
}

/// Splits each class in two: what is trained on, and the part of it that is held out, drawn by the key. Of a class with
/// one text none is held out.
pub fn split<T>(items: Vec<(usize, T)>, held_out: f64, key: Key) -> (Vec<T>, Vec<T>) {
    let classes = items.iter().map(|(class, _)| class + 1).max().unwrap_or(0);
    let mut held = vec![false; items.len()];
    for class in 0..classes {
        let members: Vec<usize> = (0..items.len()).filter(|&i| items[i].0 == class).collect();
        let count = (members.len() as f64 * held_out).round() as usize;
        let order = key.fold_in(class as u32).permutation(members.len());
        for &i in order.iter().take(count.min(members.len().saturating_sub(1))) {
            held[members[i]] = true;
        }
    }
    let (held, rest): (Vec<_>, Vec<_>) = items.into_iter().zip(held).partition(|(_, held)| *held);
    let item = |((_, item), _): ((usize, T), bool)| item;
    (rest.into_iter().map(item).collect(), held.into_iter().map(item).collect())
}

/// Names that are told of a list.
const TOLD: usize = 10;

/// Says of which classes an evaluation tells nothing, as none of its examples is of them.
pub fn tell_unheld(labels: &[String], held_out: impl IntoIterator<Item = usize>) {
    let mut held = vec![false; labels.len()];
    for class in held_out {
        if let Some(held) = held.get_mut(class) {
            *held = true;
        }
    }
    // An evaluation set of nothing was requested.
    if !held.contains(&true) {
        return;
    }
    let unheld: Vec<&str> =
        labels.iter().zip(held).filter(|(_, held)| !held).map(|(label, _)| label.as_str()).collect();
    let more = match unheld.len().saturating_sub(TOLD) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    if !unheld.is_empty() {
        let named = unheld.iter().take(TOLD).copied().collect::<Vec<_>>().join(", ");
        eprintln!("warning: the evaluation has no example of these classes: {named}{more}");
    }
}
