//! Suggestions of similar names.

/// Longest name that is compared, in characters; longer ones would take too long.
const LONGEST: usize = 200;

/// At most three of `candidates` that resemble `name`, the most similar first.
pub(crate) fn suggest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Vec<String> {
    // Names of tensors share long prefixes and suffixes, so a quarter of the letters may differ.
    let limit = name.chars().count().div_ceil(4).max(2);
    let mut near: Vec<(usize, &str)> = candidates
        .filter_map(|candidate| edit_distance(name, candidate, limit).map(|distance| (distance, candidate)))
        .collect();
    near.sort_unstable();
    near.into_iter().take(3).map(|(_, candidate)| candidate.to_string()).collect()
}

/// Levenshtein distance of `a` and `b`: the number of insertions, removals and replacements of letters; `None` if it
/// is more than `limit`.
fn edit_distance(a: &str, b: &str, limit: usize) -> Option<usize> {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    if a.len().abs_diff(b.len()) > limit || a.len().max(b.len()) > LONGEST {
        return None;
    }
    // row[j]: distance from the letters of `a` seen so far to the first j letters of `b`.
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, &letter) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for j in 0..b.len() {
            let replaced = diagonal + usize::from(letter != b[j]);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
        if row.iter().min().is_none_or(|&least| least > limit) {
            return None;
        }
    }
    row.last().copied().filter(|&distance| distance <= limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        for (a, b, distance) in [("kitten", "sitting", 3), ("", "abc", 3), ("abc", "abc", 0), ("flaw", "lawn", 2)] {
            assert_eq!(edit_distance(a, b, 10), Some(distance), "{a} {b}");
            assert_eq!(edit_distance(b, a, 10), Some(distance), "{b} {a}");
        }
        assert_eq!(edit_distance("kitten", "sitting", 2), None);
    }

    #[test]
    fn nearest_first() {
        let names = ["h.0.ln_1.weight", "h.0.ln_1.bias", "h.0.ln_2.weight", "wte.weight"];
        assert_eq!(suggest("h.0.ln1.weight", names.into_iter()), ["h.0.ln_1.weight", "h.0.ln_2.weight"]);
        assert!(suggest("classifier.weight", names.into_iter()).is_empty());
    }
}
