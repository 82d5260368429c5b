//! BERT's tokenizer from a `vocab.txt`, which older repositories have alone.

use serde_json::Value;
use std::path::Path;
use tokenizers::{
    AddedToken, Tokenizer as HfTokenizer, decoders::wordpiece::WordPiece as WordPieceDecoder,
    models::wordpiece::WordPiece, normalizers::bert::BertNormalizer, pre_tokenizers::bert::BertPreTokenizer,
    processors::bert::BertProcessing,
};

use crate::{
    error::{ModelError, Result},
    pretrained::read_json,
};

/// The special tokens that must be in the vocabulary.
const SPECIAL: [&str; 5] = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"];

/// Reads `vocab.txt`, and from `tokenizer_config.json` beside it whether capitals and accents count.
pub(super) fn from_vocabulary(vocab: &Path) -> Result<HfTokenizer> {
    let broken = |reason: String| ModelError::Tokenizer { path: vocab.into(), reason };
    let model = WordPiece::from_file(&vocab.to_string_lossy()).unk_token(SPECIAL[0].into()).build();
    let mut tokenizer =
        HfTokenizer::new(model.map_err(|error| broken(format!("this is no list of word pieces: {error}")))?);
    let id = |token: &str| {
        tokenizer.token_to_id(token).ok_or_else(|| broken(format!("{token} is not among the word pieces")))
    };
    let (cls, sep) = (id("[CLS]")?, id("[SEP]")?);
    id("[UNK]")?;
    let config = vocab.with_file_name("tokenizer_config.json");
    let config: Value = if config.is_file() { read_json(&config)? } else { Value::Null };
    let said = |name: &str| config.get(name).and_then(Value::as_bool);
    let lowercase = said("do_lower_case").unwrap_or(true);
    let chinese = said("tokenize_chinese_chars").unwrap_or(true);
    tokenizer.with_normalizer(Some(BertNormalizer::new(true, chinese, said("strip_accents"), lowercase)));
    tokenizer.with_pre_tokenizer(Some(BertPreTokenizer));
    tokenizer.with_decoder(Some(WordPieceDecoder::default()));
    tokenizer.with_post_processor(Some(BertProcessing::new(("[SEP]".into(), sep), ("[CLS]".into(), cls))));
    let special: Vec<AddedToken> = SPECIAL
        .iter()
        .filter(|token| tokenizer.token_to_id(token).is_some())
        .map(|&token| AddedToken::from(token, true))
        .collect();
    tokenizer.add_special_tokens(&special);
    Ok(tokenizer)
}
