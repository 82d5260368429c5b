//! Train/validation splits of examples.

use grove_tree::Key;

/// Splits examples with their classes into training data and held-out data, stratified by class.
///
/// The same fraction of each class is held out at random, by the key. At least one example of each class stays in the
/// training data. Both parts keep the order of the examples.
///
/// ```
/// use grove_train::data::split_by_class;
/// use grove_tree::Key;
///
/// let examples: Vec<(usize, usize)> = (0..30).map(|i| (i % 3, i)).collect();
/// let (training, held_out) = split_by_class(examples, 0.2, Key::new(0));
/// assert_eq!((training.len(), held_out.len()), (24, 6));
/// assert!((0..3).all(|class| held_out.iter().filter(|i| *i % 3 == class).count() == 2));
/// ```
pub fn split_by_class<T>(items: Vec<(usize, T)>, held_out: f64, key: Key) -> (Vec<T>, Vec<T>) {
    let classes = items.iter().map(|(class, _)| class + 1).max().unwrap_or(0);
    let mut held = vec![false; items.len()];
    let mut classes = vec![vec![]; classes];
    for (i, (class, _)) in items.iter().enumerate() {
        classes[*class].push(i);
    }
    for (class, members) in classes.iter().enumerate() {
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

/// Splits examples at random, by the key, into training data and held-out data. `held_out` is the fraction held out,
/// rounded down to whole examples. Both parts keep the order of the examples.
///
/// ```
/// use grove_train::data::split_at_random;
/// use grove_tree::Key;
///
/// let (training, held_out) = split_at_random((0..30).collect(), 0.2, Key::new(0));
/// assert_eq!((training.len(), held_out.len()), (24, 6));
/// ```
pub fn split_at_random<T>(mut items: Vec<T>, held_out: f64, key: Key) -> (Vec<T>, Vec<T>) {
    let count = (items.len() as f64 * held_out) as usize;
    let mut held = vec![false; items.len()];
    for &i in key.permutation(items.len()).iter().take(count) {
        held[i] = true;
    }
    let mut held = held.into_iter();
    let out = items.extract_if(.., |_| held.next().unwrap_or(false)).collect();
    (items, out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_an_example_of_each_class_for_training() {
        let (training, held_out) = split_by_class(vec![(0, 'a'), (1, 'b'), (1, 'c')], 0.9, Key::new(3));
        assert_eq!(training.len(), 2);
        assert!(training.contains(&'a') && held_out.len() == 1);
    }

    #[test]
    fn is_drawn_by_the_key() {
        let examples = || (0..100).map(|i| (0, i)).collect::<Vec<_>>();
        let held = |seed| split_by_class(examples(), 0.1, Key::new(seed)).1;
        assert_eq!(held(1), held(1));
        assert_ne!(held(1), held(2));
        assert!(split_by_class(examples(), 0.0, Key::new(1)).1.is_empty());
    }
}
