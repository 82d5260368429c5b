//! Tokens that stand for themselves, and those that every text gets.

use serde_json::{Value, json};
use tokenizers::{AddedToken, Tokenizer, processors::template::TemplateProcessing};

/// How many tokens may be matched whole within a text. The most that published models have are some 6,000; the
/// automaton that finds them takes memory for each letter.
const MOST: usize = 1 << 16;

/// How many bytes those tokens may have together.
const LONGEST: usize = 4 << 20;

/// A token that is found in a text before the text is cut: a special one, which decoding can leave out, or one that a
/// user defined.
pub(crate) fn added(text: &str, special: bool) -> AddedToken {
    AddedToken::from(text, special).normalized(false)
}

/// Lets tokens be found whole within texts. Each of them is in the vocabulary already.
pub(crate) fn add(tokenizer: &mut Tokenizer, tokens: &[AddedToken]) -> Result<(), String> {
    if tokens.len() > MOST {
        return Err(format!("{} of its tokens are to be found whole within a text; {MOST} are the most", tokens.len()));
    }
    if tokens.iter().map(|token| token.content.len()).sum::<usize>() > LONGEST {
        return Err("its special tokens have more than 4 MiB of text".into());
    }
    tokenizer.add_tokens(tokens);
    Ok(())
}

/// Puts a token before each text, and one behind it.
pub(crate) fn surround(
    tokenizer: &mut Tokenizer,
    first: Option<(String, u32)>,
    last: Option<(String, u32)>,
) -> Result<(), String> {
    if first.is_none() && last.is_none() {
        return Ok(());
    }
    // In the library's own notation, "<s> $A", a token could not have a space or a colon.
    let special = |token: &(String, u32), part: u32| json!({"SpecialToken": {"id": token.0, "type_id": part}});
    let around = |name: &str, part: u32| -> Vec<Value> {
        let text = json!({"Sequence": {"id": name, "type_id": part}});
        let first = first.iter().map(|token| special(token, part));
        first.chain([text]).chain(last.iter().map(|token| special(token, part))).collect()
    };
    let tokens: serde_json::Map<String, Value> = first
        .iter()
        .chain(&last)
        .map(|(text, id)| (text.clone(), json!({"id": text, "ids": [id], "tokens": [text]})))
        .collect();
    let pair: Vec<Value> = around("A", 0).into_iter().chain(around("B", 1)).collect();
    let template = json!({
        "type": "TemplateProcessing",
        "single": around("A", 0),
        "pair": pair,
        "special_tokens": tokens,
    });
    let template: TemplateProcessing = serde_json::from_value(template).map_err(|error| error.to_string())?;
    tokenizer.with_post_processor(Some(template));
    Ok(())
}
