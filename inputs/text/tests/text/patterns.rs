//! Splitting by regular expressions against Python's tokenizers package (`tools/fixtures/patterns.py`). Both use
//! Oniguruma; any other engine of the `tokenizers` crate must pass these tests before it replaces Oniguruma.

use crate::common::{json, texts};
use tokenizers::{
    OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer,
    pre_tokenizers::split::{Split, SplitPattern},
    tokenizer::SplitDelimiterBehavior,
};

/// Returns the number of characters in each part of a string.
fn lengths(pattern: &str, string: &str) -> Vec<usize> {
    let split = Split::new(SplitPattern::Regex(pattern.into()), SplitDelimiterBehavior::Isolated, false).unwrap();
    let mut parts = PreTokenizedString::from(string);
    split.pre_tokenize(&mut parts).unwrap();
    let parts = parts.get_splits(OffsetReferential::Original, OffsetType::Char);
    parts.into_iter().map(|(_, (start, end), _)| end - start).collect()
}

#[test]
fn patterns_cut_as_in_python() {
    let file = json("patterns.json");
    let (patterns, strings) = (texts(&file["patterns"]), texts(&file["strings"]));
    let mut wrong = Vec::new();
    for (pattern, cases) in patterns.iter().zip(file["lengths"].as_array().unwrap()) {
        for (string, expected) in strings.iter().zip(cases.as_array().unwrap()) {
            let expected: Vec<usize> = serde_json::from_value(expected.clone()).unwrap();
            let found = lengths(pattern, string);
            if found != expected {
                wrong.push(format!("{pattern} on {string:?}\n  {found:?}\n  {expected:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} differ\n{}", wrong.len(), wrong.join("\n"));
    assert_eq!((patterns.len(), strings.len()), (11, 16));
}

/// fancy-regex stops at a run of a million characters, and the tokenizers crate then leaves the rest of the string
/// unsplit, without an error.
#[test]
fn text_after_a_very_long_run_is_split_too() {
    let file = json("patterns.json");
    let gpt2 = file["patterns"][0].as_str().unwrap();
    for run in [" ", "\n", "x", "川", "."] {
        let string = format!("the {}\n7 river's", run.repeat(1_000_100));
        let parts = lengths(gpt2, &string);
        assert!(parts.ends_with(&[1, 1, 6, 2]) && parts[1] >= 1_000_000, "{run:?}: {} parts", parts.len());
    }
}
