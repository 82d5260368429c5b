//! Saving of a tokenizer beside a model.

use grove_files::{copy_files, write_json, write_text};
use grove_weights::tokenizer_files;
use std::{collections::BTreeMap, path::Path};
use tokenizers::{ModelWrapper, PreTokenizerWrapper, Tokenizer as HfTokenizer};

use super::{END_OF_TEXT, Tokenizer};
use crate::{
    chat::{ADDITIONAL_TEMPLATES, additional_templates},
    error::Result,
};

/// Special tokens by role for families whose files do not name them: BERT, LLaMA and RoBERTa, and GPT-2. A family is
/// recognised by its first token.
const FAMILIES: [&[(&str, &str)]; 3] = [
    &[
        ("cls_token", "[CLS]"),
        ("sep_token", "[SEP]"),
        ("unk_token", "[UNK]"),
        ("pad_token", "[PAD]"),
        ("mask_token", "[MASK]"),
    ],
    &[
        ("eos_token", "</s>"),
        ("bos_token", "<s>"),
        ("unk_token", "<unk>"),
        ("pad_token", "<pad>"),
        ("mask_token", "<mask>"),
    ],
    &[("eos_token", END_OF_TEXT), ("bos_token", END_OF_TEXT), ("unk_token", END_OF_TEXT)],
];

/// Returns a tokenizer's special tokens by role, if no file names them.
pub(super) fn usual_roles(tokenizer: &HfTokenizer) -> BTreeMap<String, String> {
    let has = |token: &str| tokenizer.token_to_id(token).is_some();
    let family = FAMILIES.into_iter().find(|family| family.first().is_some_and(|(_, token)| has(token)));
    let tokens = family.into_iter().flatten().filter(|(_, token)| has(token));
    tokens.map(|&(role, token)| (role.to_owned(), token.to_owned())).collect()
}

impl Tokenizer {
    /// Returns the special tokens of the BERT and RoBERTa families in the vocabulary: padding, unknown, beginning, end
    /// and mask. Masked language modelling never selects them.
    pub fn special_tokens(&self) -> Vec<u32> {
        FAMILIES[..2].iter().copied().flatten().filter_map(|(_, token)| self.token_to_id(token)).collect()
    }

    /// Saves the tokenizer to a directory for transformers and grove.
    ///
    /// A tokenizer from a directory keeps its files unchanged, including special tokens, class and chat templates:
    /// `tokenizer.json` or `tokenizer.model`, `tokenizer_config.json`, `special_tokens_map.json`, `chat_template.jinja`,
    /// `additional_chat_templates` and so on. For other tokenizers, trained or from GGUF, `tokenizer.json` and
    /// `tokenizer_config.json` are written.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub fn save(&self, directory: impl AsRef<Path>) -> Result<()> {
        let directory = directory.as_ref();
        match &self.source {
            Some(source) => {
                copy_files(source, directory, &tokenizer_files().collect::<Vec<_>>())?;
                let templates = additional_templates(source)?;
                if templates.is_empty() {
                    return Ok(());
                }
                let templates: Vec<&str> = templates.iter().map(String::as_str).collect();
                copy_files(&source.join(ADDITIONAL_TEMPLATES), &directory.join(ADDITIONAL_TEMPLATES), &templates)?;
                Ok(())
            }
            None => self.write(directory),
        }
    }

    fn write(&self, directory: &Path) -> Result<()> {
        let text = self.inner.to_string(false).map_err(|error| self.failed(&error))?;
        write_text(&directory.join("tokenizer.json"), &text)?;
        let mut config = serde_json::Map::new();
        config.insert("tokenizer_class".into(), self.class().into());
        for (role, token) in &self.roles {
            config.insert(role.clone(), token.clone().into());
        }
        write_json(&directory.join("tokenizer_config.json"), &config)?;
        if let Some(source) = &self.template {
            write_text(&directory.join("chat_template.jinja"), source)?;
        }
        Ok(())
    }

    /// Returns the class by which transformers reads the `tokenizer.json`. Model-specific classes rebuild parts of the
    /// tokenizer, so they are named only if these parts are the same.
    fn class(&self) -> &'static str {
        let is = |role: &str, token: &str| self.roles.get(role).is_some_and(|text| text == token);
        let byte_level = matches!(
            self.inner.get_pre_tokenizer(),
            Some(PreTokenizerWrapper::ByteLevel(step)) if !step.add_prefix_space && step.use_regex
        );
        match self.inner.get_model() {
            ModelWrapper::WordPiece(_) if is("cls_token", "[CLS]") => "BertTokenizerFast",
            ModelWrapper::BPE(_) if byte_level && is("eos_token", END_OF_TEXT) => "GPT2TokenizerFast",
            _ => "PreTrainedTokenizerFast",
        }
    }
}
