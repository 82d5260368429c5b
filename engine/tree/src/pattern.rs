use std::fmt;

use strsim::levenshtein;

/// A dotted pattern of paths: `*` matches one segment or part of one, `**` any number of segments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern(Vec<String>);

/// Number of similar paths in an error message.
const NEAREST: usize = 3;

impl Pattern {
    pub(crate) fn new(pattern: &str) -> Self {
        Self(pattern.split('.').map(str::to_owned).collect())
    }

    /// Returns true if a dotted path matches. The path of a leaf that is itself the tree is empty.
    pub(crate) fn fits(&self, path: &str) -> bool {
        let segments: Vec<&str> = if path.is_empty() { vec![] } else { path.split('.').collect() };
        match_segments(&self.0, &segments)
    }

    /// Returns the paths whose segments are most similar to the pattern's, in ascending edit distance.
    pub(crate) fn nearest(&self, paths: &[String]) -> Vec<String> {
        let literal: Vec<&String> = self.0.iter().filter(|segment| !segment.contains('*')).collect();
        let distance = |path: &String| -> usize {
            let least =
                |segment: &&String| path.split('.').map(|other| levenshtein(segment, other)).min().unwrap_or_default();
            literal.iter().map(least).sum()
        };
        let mut ranked: Vec<(usize, &String)> = paths.iter().map(|path| (distance(path), path)).collect();
        // The sort is stable: ties keep the order of the tree.
        ranked.sort_by_key(|(distance, _)| *distance);
        ranked.into_iter().take(NEAREST).map(|(_, path)| path.clone()).collect()
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("."))
    }
}

fn match_segments(pattern: &[String], segments: &[&str]) -> bool {
    match pattern.split_first() {
        None => segments.is_empty(),
        Some((first, rest)) if first == "**" => (0..=segments.len()).any(|n| match_segments(rest, &segments[n..])),
        Some((first, rest)) => match segments.split_first() {
            Some((segment, others)) => match_segment(first, segment) && match_segments(rest, others),
            None => false,
        },
    }
}

/// Returns true if a segment matches a pattern, in which `*` stands for any text.
fn match_segment(pattern: &str, segment: &str) -> bool {
    let Some((head, tail)) = pattern.split_once('*') else {
        return pattern == segment;
    };
    let Some(rest) = segment.strip_prefix(head) else {
        return false;
    };
    (0..=rest.len()).filter(|&n| rest.is_char_boundary(n)).any(|n| match_segment(tail, &rest[n..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        let check = |pattern, path| Pattern::new(pattern).fits(path);
        assert!(check("blocks.*.attn.**", "blocks.3.attn.qkv.weight"));
        assert!(!check("blocks.*.attn.**", "blocks.3.mlp.weight"));
        assert!(check("**.bias", "blocks.0.bias") && check("**.bias", "bias"));
        assert!(check("ln_*.weight", "ln_f.weight") && !check("ln_*.weight", "xln_f.weight"));
        assert!(!check("*", "a.b"));
        assert!(check("**", "") && !check("a", ""));
    }

    #[test]
    fn misspelt_segments_lead_to_the_paths_they_mean() {
        let paths = ["wte.weight", "blocks.0.attn.qkv.weight", "blocks.0.mlp.fc.weight"].map(str::to_owned);
        assert_eq!(Pattern::new("**.qvk.**").nearest(&paths)[0], "blocks.0.attn.qkv.weight");
        assert_eq!(Pattern::new("block.*.mlp.**").nearest(&paths)[0], "blocks.0.mlp.fc.weight");
        assert_eq!(Pattern::new("nothing").nearest(&[]), [""; 0]);
    }
}
