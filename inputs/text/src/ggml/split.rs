//! Pre-tokenizers that GGUF files name. They split texts before BPE.
//!
//! The names are those of llama.cpp (`src/llama-vocab.cpp`). The patterns are those of the models' own
//! `tokenizer.json`, which llama.cpp rewrites for its engine.

use tokenizers::{
    PreTokenizerWrapper,
    pre_tokenizers::{
        byte_level::ByteLevel,
        sequence::Sequence,
        split::{Split, SplitPattern},
    },
    tokenizer::SplitDelimiterBehavior,
};

use crate::patterns::{GPT2, LLAMA3, QWEN2};

/// Pre-tokenizer of a model family.
pub(super) struct Cut {
    /// Patterns, each applied to the parts that the previous ones left. Text between matches is a part too.
    patterns: &'static [&'static str],
    /// If true, a part that is itself a token becomes that token, whatever the merges are.
    pub(super) whole_first: bool,
    /// If true, sequences begin with `bos` unless the file says otherwise.
    pub(super) add_bos: bool,
}

const QWEN35: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}",
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);

const TEKKEN: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);

const GPT4O: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);

const DEEPSEEK3: &str = concat!(
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"##,
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);

/// Letters of scripts with upper and lower case, from DeepSeek's pattern. Escaped if an editor's Unicode normalisation
/// would change them.
const CASED: &str = concat!(
    r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝ",
    r"\x{1F5F}-\x{1F7D}ᾀ-ᾴᾶ-ᾼ\x{1FBE}ῂ-ῄῆ-ῌ\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}ῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\x{2126}ℨ",
    r"\x{212A}-\x{212D}ℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+"
);

/// Patterns by llama.cpp's names. `*`: a part that is a token is not split by merges (`whole_first`). `+`: sequences
/// begin with `bos` (`add_bos`).
const NAMED: [(&str, &[&str]); 13] = [
    (
        "default gpt-2 phi-2 jina-es jina-de jina-v2-es jina-v2-de gigachat a.x-4.0 mellum modern-bert exaone4 mpt \
         olmo jais trillion granite-docling",
        &[GPT2],
    ),
    (
        "llama3*+ llama-v3*+ llama-bpe*+ falcon3*+ falcon-h1*+ pixtral*+ midm-2.0*+ lfm2*+ jina-v5-nano*+ dbrx \
         smaug-bpe glm4 chatglm-bpe",
        &[LLAMA3],
    ),
    ("qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2", &[QWEN2]),
    ("qwen35", &[QWEN35]),
    ("tekken*+", &[TEKKEN]),
    ("gpt-4o llama4 kanana2 talkie minimax-m2", &[GPT4O]),
    ("smollm starcoder refact command-r codeshell exaone minerva-7b mellum2", &[r"\p{N}", GPT2]),
    ("deepseek-llm", &[r"[\r\n]", CASED, r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$", "[一-龥ࠀ-一가-퟿]+", r"\p{N}"]),
    ("deepseek-coder", &[r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+", r"\p{N}"]),
    ("deepseek-v3 hunyuan-dense joyai-llm hy_v4", &[r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", DEEPSEEK3]),
    ("falcon", &[r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]"]),
    ("poro-chat bloom gpt3-finnish", &[r" ?[^(\s|.,!?…。，、।۔،)]+"]),
    ("viking", &[r" ?[^(\s|.,!?…。，、।۔،)]+", r"\p{N}"]),
];

/// Returns the pre-tokenizer with the name `pre`. Files without a name are older than the names and use GPT-2's.
pub(super) fn named(pre: Option<&str>) -> Result<Cut, String> {
    let pre = pre.unwrap_or("default");
    for (names, patterns) in NAMED {
        for name in names.split_whitespace() {
            let bare = name.trim_end_matches(['*', '+']);
            if bare == pre {
                return Ok(Cut { patterns, whole_first: name.contains('*'), add_bos: name.contains('+') });
            }
        }
    }
    let known: Vec<&str> = NAMED.iter().flat_map(|(names, _)| names.split_whitespace()).collect();
    let known = known.join(", ").replace(['*', '+'], "");
    Err(format!(
        "texts are to be cut as {pre:?} does, which is not known, and any other way would give tokens that the model \
         was not trained on; use the model's tokenizer.json, or name one of {known} that cuts the same way"
    ))
}

impl Cut {
    /// Returns the splits, followed by the mapping of bytes to GPT-2's characters.
    pub(super) fn pre_tokenizer(&self) -> Result<Sequence, String> {
        let mut steps: Vec<PreTokenizerWrapper> = Vec::new();
        for pattern in self.patterns {
            let pattern = SplitPattern::Regex((*pattern).into());
            let split = Split::new(pattern, SplitDelimiterBehavior::Isolated, false);
            steps.push(split.map_err(|error| error.to_string())?.into());
        }
        steps.push(ByteLevel::new(false, true, false).into());
        Ok(Sequence::new(steps))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_compiles_and_every_name_is_unique() {
        let names: Vec<&str> = NAMED.iter().flat_map(|(names, _)| names.split_whitespace()).collect();
        for name in &names {
            let bare = name.trim_end_matches(['*', '+']);
            named(Some(bare)).unwrap().pre_tokenizer().unwrap();
            assert_eq!(names.iter().filter(|other| other.trim_end_matches(['*', '+']) == bare).count(), 1, "{bare}");
        }
        assert!(named(Some("llama-bpe")).unwrap().whole_first);
        let error = named(Some("no-such")).map(|_| ()).unwrap_err();
        assert!(error.contains("\"no-such\"") && error.contains("smollm, starcoder"), "{error}");
    }
}
