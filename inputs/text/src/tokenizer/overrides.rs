//! The settings of a tokenizer class that override a `tokenizer.json`.
//!
//! This follows versions 4 and 5 of transformers if they agree. If only version 5 rebuilds a tokenizer from its class and
//! gets other tokens, the `tokenizer.json` takes precedence, and a note says so once.

use grove_files::note_once;
use serde_json::Value;
use std::path::Path;
use tokenizers::{
    NormalizerWrapper, PostProcessorWrapper, PreTokenizerWrapper, Tokenizer as HfTokenizer,
    normalizers::bert::BertNormalizer,
    pre_tokenizers::{byte_level::ByteLevel, sequence::Sequence as PreTokenizers},
};

use super::class::{Class, Settings};
use crate::{error::Result, pieces::prepend_scheme};

impl Settings {
    /// Applies the settings with which the class overrides a `tokenizer.json`. Notes once if transformers 5 would build
    /// another tokenizer.
    pub fn apply(&self, tokenizer: &mut HfTokenizer, file: &Path) -> Result<()> {
        match self.class {
            Class::Bert { .. } => self.apply_bert(tokenizer, file)?,
            Class::Roberta | Class::Gpt2 => {
                self.apply_ends(tokenizer)?;
                self.apply_byte_level(tokenizer, file)?;
            }
            Class::Qwen2 => match tokenizer.get_pre_tokenizer() {
                Some(PreTokenizerWrapper::Sequence(steps)) => {
                    let prefix = self.flag("add_prefix_space")?.unwrap_or(false);
                    let with_prefix = |step: &PreTokenizerWrapper| match step {
                        PreTokenizerWrapper::ByteLevel(step) => {
                            ByteLevel::new(prefix, step.trim_offsets, step.use_regex).into()
                        }
                        other => other.clone(),
                    };
                    let steps: Vec<PreTokenizerWrapper> = steps.as_ref().iter().map(with_prefix).collect();
                    tokenizer.with_pre_tokenizer(Some(PreTokenizers::new(steps)));
                }
                _ => self.say_rebuilt(file, "cuts texts by Qwen2's rules"),
            },
            Class::Llama => self.compare_llama(tokenizer, file)?,
            Class::Whole { .. } | Class::Other(_) => return Ok(()),
        }
        self.compare_added(tokenizer, file)
    }

    /// Sets the space before a text of a byte-level tokenizer.
    fn apply_byte_level(&self, tokenizer: &mut HfTokenizer, file: &Path) -> Result<()> {
        match tokenizer.get_pre_tokenizer() {
            _ if self.class == Class::Roberta && tokenizer.get_post_processor().is_none() => {
                self.say_rebuilt(file, "puts <s> and </s> around texts");
            }
            Some(PreTokenizerWrapper::ByteLevel(step)) => {
                let prefix = self.flag("add_prefix_space")?.unwrap_or(false);
                if prefix != step.add_prefix_space {
                    let step = ByteLevel::new(prefix, step.trim_offsets, step.use_regex);
                    tokenizer.with_pre_tokenizer(Some(step));
                }
            }
            _ => self.say_rebuilt(file, "cuts texts by GPT-2's rules"),
        }
        Ok(())
    }

    /// Sets the trimming of RoBERTa's token offsets.
    fn apply_ends(&self, tokenizer: &mut HfTokenizer) -> Result<()> {
        if let (Class::Roberta, Some(PostProcessorWrapper::Roberta(own))) =
            (&self.class, tokenizer.get_post_processor())
        {
            let trim = self.flag("trim_offsets")?.unwrap_or(true);
            let prefix = self.flag("add_prefix_space")?.unwrap_or(false);
            let ends = own.clone().trim_offsets(trim).add_prefix_space(prefix);
            tokenizer.with_post_processor(Some(ends));
        }
        Ok(())
    }

    pub(super) fn say_rebuilt(&self, file: &Path, how: &str) {
        let class = match self.fields.get("tokenizer_class").and_then(Value::as_str) {
            Some(class) => format!("tokenizer_class {class}"),
            None => "the model's class of tokenizers".into(),
        };
        let file = file.display();
        note_once(&format!(
            "{file}: transformers 5 rebuilds this tokenizer with the class {class}, which {how}; grove follows the file"
        ));
    }

    /// Sets lower-casing, accent stripping and the handling of Chinese characters from `tokenizer_config.json`, which
    /// overrides `tokenizer.json`.
    fn apply_bert(&self, tokenizer: &mut HfTokenizer, file: &Path) -> Result<()> {
        let bert = self.bert_normalizer()?;
        match tokenizer.get_normalizer() {
            Some(NormalizerWrapper::BertNormalizer(own)) => {
                let same = own.lowercase == bert.lowercase
                    && own.strip_accents == bert.strip_accents
                    && own.handle_chinese_chars == bert.handle_chinese_chars;
                if own.lowercase != bert.lowercase && self.flag("do_lower_case")?.is_none() {
                    note_once(&format!(
                        "{}: texts are put into lower case, as tokenizer_class and transformers have it, although {} does \
                         not; set do_lower_case to false if the model keeps capitals",
                        self.file.display(),
                        file.display()
                    ));
                }
                if !same {
                    let clean = own.clean_text;
                    let own = BertNormalizer::new(clean, bert.handle_chinese_chars, bert.strip_accents, bert.lowercase);
                    tokenizer.with_normalizer(Some(own));
                    // Tokens that are matched after normalisation must be normalised again.
                    tokenizer.add_tokens(&[]);
                }
            }
            _ => self.say_rebuilt(file, "normalises texts by BERT's rules"),
        }
        if !matches!(tokenizer.get_pre_tokenizer(), Some(PreTokenizerWrapper::BertPreTokenizer(_))) {
            self.say_rebuilt(file, "cuts texts by BERT's rules");
        }
        Ok(())
    }

    /// Returns BERT's normalizer with the settings of `tokenizer_config.json`.
    pub fn bert_normalizer(&self) -> Result<BertNormalizer> {
        let lowercase = self.flag("do_lower_case")?.unwrap_or(true);
        let chinese = self.flag("tokenize_chinese_chars")?.unwrap_or(true);
        Ok(BertNormalizer::new(true, chinese, self.flag("strip_accents")?, lowercase))
    }

    fn compare_llama(&self, tokenizer: &HfTokenizer, file: &Path) -> Result<()> {
        let prefix = self.flag("add_prefix_space")?.unwrap_or(true);
        let expected = prepend_scheme(prefix, self.flag("legacy")?.unwrap_or(false));
        let same = match (tokenizer.get_normalizer(), tokenizer.get_pre_tokenizer()) {
            (None, Some(PreTokenizerWrapper::Metaspace(step))) => step.get_prepend_scheme() == expected,
            // transformers also uses a byte-level tokenizer of this class unchanged.
            (_, Some(PreTokenizerWrapper::ByteLevel(_) | PreTokenizerWrapper::Sequence(_))) => true,
            _ => false,
        };
        if !same {
            self.say_rebuilt(file, "puts other spaces before texts and after special tokens");
        }
        Ok(())
    }
}
