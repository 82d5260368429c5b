//! Byte-level BPE tokenizers from a vocabulary and merges: GPT-2's, RoBERTa's and Qwen2's.

use grove_files::read_json;
use std::{collections::HashMap, path::Path};
use tokenizers::{
    SplitDelimiterBehavior, Tokenizer as HfTokenizer,
    models::bpe::BPE,
    normalizers::unicode::NFC,
    pre_tokenizers::{
        byte_level::ByteLevel,
        sequence::Sequence as PreTokenizers,
        split::{Split, SplitPattern},
    },
    processors::{byte_level::ByteLevel as ByteLevelProcessor, roberta::RobertaProcessing},
};

use super::{
    class::{Class, Settings},
    failed,
};
use crate::{
    error::{Result, TextError},
    patterns::QWEN2,
};

/// File names of a byte-level BPE's vocabulary and merges, newest first.
pub(super) const FILES: [(&str, &str); 2] = [("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe")];

/// Wraps a BPE in GPT-2's byte-level pre-tokenizer and decoder, which preserve all bytes and spaces.
pub(super) fn byte_level(bpe: BPE, add_prefix_space: bool) -> HfTokenizer {
    let mut inner = HfTokenizer::new(bpe);
    inner.with_pre_tokenizer(Some(ByteLevel::default().add_prefix_space(add_prefix_space)));
    inner.with_decoder(Some(ByteLevel::default()));
    inner.with_post_processor(Some(ByteLevelProcessor::default().trim_offsets(false)));
    inner
}

/// Reads a tokenizer from a vocabulary and merges, by its class. If the files name no class, it is RoBERTa's if the
/// vocabulary has `<s>` and `<mask>`, else GPT-2's.
pub(super) fn from_pair(vocab: &Path, merges: &Path, settings: &mut Settings) -> Result<HfTokenizer> {
    let text = |file: &Path| file.to_string_lossy().into_owned();
    let bpe = BPE::from_file(&text(vocab), &text(merges)).build().map_err(|error| {
        let at_fault = if read_json::<HashMap<String, u32>>(vocab).is_err() { vocab } else { merges };
        failed(at_fault, &format!("this is not a tokenizer that can be read: {error}"))
    })?;
    let mut inner = byte_level(bpe, settings.flag("add_prefix_space")?.unwrap_or(false));
    match settings.class {
        Class::Roberta | Class::Gpt2 | Class::Qwen2 => {}
        Class::Whole { .. } if ["<s>", "<mask>"].iter().all(|token| inner.token_to_id(token).is_some()) => {
            settings.class = Class::Roberta
        }
        Class::Whole { .. } => settings.class = Class::Gpt2,
        _ => return Err(settings.not_from("a vocabulary and merges", vocab)),
    }
    if settings.class == Class::Qwen2 {
        let bytes = ByteLevel::default().add_prefix_space(settings.flag("add_prefix_space")?.unwrap_or(false));
        let words = Split::new(SplitPattern::Regex(QWEN2.into()), SplitDelimiterBehavior::Isolated, false);
        let words = words.map_err(|error| failed(vocab, &error))?;
        inner.with_normalizer(Some(NFC));
        inner.with_pre_tokenizer(Some(PreTokenizers::new(vec![words.into(), bytes.use_regex(false).into()])));
    }
    settings.add_tokens(&mut inner)?;
    let token = |role: &str| -> Result<(String, u32)> {
        let name = settings.special(role).unwrap_or_default();
        let id = inner.token_to_id(&name);
        id.map(|id| (name.clone(), id))
            .ok_or_else(|| failed(vocab, &format!("its {role} `{name}` is not in the vocabulary")))
    };
    if settings.class == Class::Roberta {
        let trim = settings.flag("trim_offsets")?.unwrap_or(true);
        let prefix = settings.flag("add_prefix_space")?.unwrap_or(false);
        let ends = RobertaProcessing::new(token("sep_token")?, token("cls_token")?);
        inner.with_post_processor(Some(ends.trim_offsets(trim).add_prefix_space(prefix)));
        return Ok(inner);
    }
    // If the special token is absent, none is added, as in transformers.
    let end = |flag: &str, role: &str| match settings.flag(flag)?.unwrap_or(false) && settings.special(role).is_some() {
        true => token(role).map(Some),
        false => Ok::<_, TextError>(None),
    };
    let (first, last) = (end("add_bos_token", "bos_token")?, end("add_eos_token", "eos_token")?);
    crate::surround(&mut inner, first, last).map_err(|reason| failed(vocab, &reason))?;
    Ok(inner)
}
