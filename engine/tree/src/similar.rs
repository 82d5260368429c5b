//! Suggestions for misspelt names.

use strsim::levenshtein;

/// Largest number of suggestions.
const SUGGESTED: usize = 3;

/// Maximum length of a name that is compared, in bytes.
const LONGEST: usize = 200;

/// Maximum number of pairs of letters compared for one name, about a tenth of a second. Candidates beyond this budget
/// are skipped.
const MAX_PAIRS: usize = 1 << 26;

/// Returns at most three `candidates` that resemble a name, the most similar first, for error messages that ask "did
/// you mean …?". The maximum edit distance is a quarter of the name's letters, but at least two.
///
/// ```
/// let options = ["weight_decay", "learning_rate"];
/// assert_eq!(grove_tree::similar("weightdecay", options), ["weight_decay"]);
/// assert!(grove_tree::similar("momentum", options).is_empty());
/// ```
pub fn similar<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    // Paths share long prefixes and suffixes, so the limit grows with the name.
    let letters = name.chars().count();
    let limit = letters.div_ceil(4).max(2);
    let mut pairs = 0;
    let mut near: Vec<(usize, &str)> = candidates
        .into_iter()
        .filter(|other| name.len().max(other.len()) <= LONGEST && letters.abs_diff(other.chars().count()) <= limit)
        .filter_map(|other| {
            let (a, b) = without_common_ends(name, other);
            pairs += a.len() * b.len();
            if pairs > MAX_PAIRS {
                return None;
            }
            Some((levenshtein(a, b), other)).filter(|(distance, _)| *distance <= limit)
        })
        .collect();
    near.sort_unstable();
    near.into_iter().take(SUGGESTED).map(|(_, other)| other).collect()
}

/// Removes a common prefix and suffix, which do not change the edit distance but would take most of the time.
fn without_common_ends<'n>(a: &'n str, b: &'n str) -> (&'n str, &'n str) {
    let equal = |(x, y): &(char, char)| x == y;
    let start: usize = a.chars().zip(b.chars()).take_while(equal).map(|(letter, _)| letter.len_utf8()).sum();
    let (a, b) = (&a[start..], &b[start..]);
    let reversed = a.chars().rev().zip(b.chars().rev());
    let end: usize = reversed.take_while(equal).map(|(letter, _)| letter.len_utf8()).sum();
    (&a[..a.len() - end], &b[..b.len() - end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_first() {
        let names = ["h.0.ln_1.weight", "h.0.ln_1.bias", "h.0.ln_2.weight", "wte.weight"];
        assert_eq!(similar("h.0.ln1.weight", names), ["h.0.ln_1.weight", "h.0.ln_2.weight"]);
        assert!(similar("classifier.weight", names).is_empty());
        assert_eq!(similar("adamm", ["adamw", "sgd", "adam"]), ["adam", "adamw"]);
        assert_eq!(similar("größe", ["größen", "grösse", "große"]), ["große", "größen", "grösse"]);
    }

    #[test]
    fn common_ends_do_not_count() {
        for (a, b) in
            [("kitten", "sitting"), ("", "abc"), ("aaa", "aa"), ("a.b.c", "a.c"), ("éa", "éé"), ("日本", "本")]
        {
            let (left, right) = without_common_ends(a, b);
            assert_eq!(levenshtein(left, right), levenshtein(a, b), "{a} {b}");
            assert!(left.is_empty() || right.is_empty() || left.chars().next() != right.chars().next(), "{a} {b}");
        }
    }

    #[test]
    fn time_is_limited_for_many_long_names() {
        let name = "a".repeat(LONGEST);
        let other = "b".repeat(LONGEST);
        let last = format!("{}b", "a".repeat(LONGEST - 1));
        let skipped = std::iter::repeat_n(other.as_str(), 1 << 20).chain([last.as_str()]);
        assert!(similar(&name, skipped).is_empty());
        assert_eq!(similar(&name, [other.as_str(), &last]), [&last]);
        assert!(similar(&format!("{name}a"), [name.as_str()]).is_empty());
    }
}
