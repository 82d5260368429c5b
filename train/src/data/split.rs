//! Train/validation splits of examples.

use grove_tree::Key;

/// Splits examples into training data and held-out data, stratified by class.
///
/// The same fraction of each class is held out at random, by the key. At least one example of each class stays in the
/// training data. Both parts keep the order of the examples.
///
/// ```
/// use grove_train::data::split_by_class;
/// use grove_tree::Key;
///
/// let (training, held_out) = split_by_class((0..30).collect(), |i| i % 3, 0.2, Key::new(0));
/// assert_eq!((training.len(), held_out.len()), (24, 6));
/// assert!((0..3).all(|class| held_out.iter().filter(|i| *i % 3 == class).count() == 2));
/// ```
pub fn split_by_class<T>(items: Vec<T>, class: impl Fn(&T) -> usize, held_out: f64, key: Key) -> (Vec<T>, Vec<T>) {
    let classes: Vec<usize> = items.iter().map(class).collect();
    let mut held = vec![false; items.len()];
    let mut members = vec![vec![]; classes.iter().max().map_or(0, |class| class + 1)];
    for (i, class) in classes.into_iter().enumerate() {
        members[class].push(i);
    }
    for (class, members) in members.iter().enumerate() {
        let count = (members.len() as f64 * held_out).round() as usize;
        let order = key.fold_in(class as u32).permutation(members.len());
        for &i in order.iter().take(count.min(members.len().saturating_sub(1))) {
            held[members[i]] = true;
        }
    }
    divide(items, held)
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
pub fn split_at_random<T>(items: Vec<T>, held_out: f64, key: Key) -> (Vec<T>, Vec<T>) {
    let count = (items.len() as f64 * held_out) as usize;
    let mut held = vec![false; items.len()];
    for &i in key.permutation(items.len()).iter().take(count) {
        held[i] = true;
    }
    divide(items, held)
}

/// Returns the items that are not held out, and those that are.
fn divide<T>(mut items: Vec<T>, held: Vec<bool>) -> (Vec<T>, Vec<T>) {
    let mut held = held.into_iter();
    let out = items.extract_if(.., |_| held.next().unwrap_or(false)).collect();
    (items, out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_an_example_of_each_class_for_training() {
        let (training, held_out) = split_by_class(vec!['a', 'b', 'c'], |c| usize::from(*c != 'a'), 0.9, Key::new(3));
        assert_eq!(training.len(), 2);
        assert!(training.contains(&'a') && held_out.len() == 1);
    }

    #[test]
    fn depends_on_the_key() {
        let examples = || (0..100).collect::<Vec<_>>();
        let held = |seed| split_by_class(examples(), |_| 0, 0.1, Key::new(seed)).1;
        assert_eq!(held(1), held(1));
        assert_ne!(held(1), held(2));
        assert!(split_by_class(examples(), |_| 0, 0.0, Key::new(1)).1.is_empty());
    }
}
