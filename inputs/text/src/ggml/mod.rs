//! Tokenizers from the vocabulary in a GGUF file.
//!
//! A GGUF file has no `tokenizer.json`. It has a list of tokens and, depending on the type of tokenizer, scores or
//! merges, under `tokenizer.ggml.*`. The caller fills a [`Vocabulary`] from the file, and [`Vocabulary::tokenizer`]
//! builds the same tokenizer as transformers. Where llama.cpp differs, transformers is followed: a text that begins
//! with a space gets no second one, and `default` splits texts like GPT-2.

use serde::{Deserialize, Serialize};
use tokenizers::{
    AddedToken, Tokenizer,
    models::bpe::{BPE, Merges, Vocab},
    pre_tokenizers::{byte_level::ByteLevel, metaspace::PrependScheme},
};

mod byte_level;
mod split;

use crate::{
    error::{Result, TextError},
    merges::{self, Order},
    pieces::{self, Kind, Piece, Pipeline},
    printable::error_message,
    special,
};

/// The tokenizer data of a GGUF file, under `tokenizer.ggml.*`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Vocabulary {
    /// `model`: `llama` (SentencePiece BPE) or `gpt2` (byte-level BPE).
    pub model: String,
    /// `pre`: name of the pre-tokenization pattern, for `gpt2`: `llama-bpe`, `smollm`, ….
    pub pre: Option<String>,
    /// `tokens`: the index of a token is its id.
    pub tokens: Vec<String>,
    /// `scores`: priorities of merges, for `llama`.
    pub scores: Option<Vec<f32>>,
    /// `token_type`: 1 ordinary, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte.
    pub token_types: Option<Vec<i32>>,
    /// `merges`: pairs separated by a space, highest priority first, for `gpt2`.
    pub merges: Option<Vec<String>>,
    /// `bos_token_id`: the beginning-of-sequence token.
    pub bos: Option<u32>,
    /// `eos_token_id`: the end-of-sequence token.
    pub eos: Option<u32>,
    /// `unknown_token_id`: the token for unknown text.
    pub unknown: Option<u32>,
    /// `padding_token_id`: the padding token.
    pub padding: Option<u32>,
    /// `add_bos_token`: if true, every sequence begins with `bos`. `None` means true for `llama`, and for the
    /// pre-tokenization of LLaMA 3 and Mistral.
    pub add_bos: Option<bool>,
    /// `add_eos_token`: if true, every sequence ends with `eos`. `None` means false.
    pub add_eos: Option<bool>,
    /// `add_space_prefix`: if true, a space is prepended to a text, for `llama`. `None` means true.
    pub add_space_prefix: Option<bool>,
}

impl Vocabulary {
    /// Builds the tokenizer.
    ///
    /// # Errors
    /// [`TextError::Vocabulary`] if lists differ in length, an id is out of range, a token occurs twice, a merge
    /// refers to an unknown token, or the type of tokenizer or its pre-tokenization is unknown.
    pub fn tokenizer(self) -> Result<Tokenizer> {
        self.build().map_err(|reason| TextError::Vocabulary(error_message(&reason)))
    }

    fn build(mut self) -> std::result::Result<Tokenizer, String> {
        self.check()?;
        for (id, token) in self.tokens.iter_mut().enumerate() {
            // As in llama.cpp; some files have empty tokens.
            if token.is_empty() {
                *token = format!("[EMPTY_{id}]");
            }
        }
        let (mut tokenizer, bos_first) = match self.model.as_str() {
            "llama" => (self.sentencepiece()?, true),
            "gpt2" => self.byte_pairs()?,
            other => {
                return Err(format!(
                    "its tokenizer is of the kind {other:?}; known are `llama` and `gpt2`. Use the model's \
                     tokenizer.json"
                ));
            }
        };
        let end = |wanted: bool, id: Option<u32>| {
            let id = id.filter(|_| wanted)?;
            Some((self.tokens.get(id as usize)?.clone(), id))
        };
        let (first, last) = (self.add_bos.unwrap_or(bos_first), self.add_eos.unwrap_or(false));
        special::surround(&mut tokenizer, end(first, self.bos), end(last, self.eos))?;
        Ok(tokenizer)
    }

    /// Checks the lengths of lists and the range of ids.
    fn check(&self) -> std::result::Result<(), String> {
        let count = self.tokens.len();
        let scores = self.scores.as_ref().map(Vec::len);
        let kinds = self.token_types.as_ref().map(Vec::len);
        for (name, len) in [("scores", scores), ("token types", kinds)] {
            if let Some(len) = len.filter(|len| *len != count) {
                return Err(format!("it has {count} tokens, but {len} {name}"));
            }
        }
        let roles = [("bos", self.bos), ("eos", self.eos), ("unknown", self.unknown), ("padding", self.padding)];
        for (role, id) in roles {
            if let Some(id) = id.filter(|id| *id as usize >= count) {
                return Err(format!("its {role} token is {id}, but it has {count} tokens"));
            }
        }
        Ok(())
    }

    fn kind(&self, id: usize) -> Kind {
        let number = self.token_types.as_ref().and_then(|kinds| kinds.get(id));
        let unknown = self.unknown == u32::try_from(id).ok() && self.unknown.is_some();
        if unknown { Kind::Unknown } else { number.map_or(Kind::Normal, |number| Kind::of(*number)) }
    }

    /// The tokens with a role, which are special regardless of their type.
    fn roles(&self) -> Vec<AddedToken> {
        let ids = [self.bos, self.eos, self.unknown, self.padding];
        let texts = ids.into_iter().flatten().filter_map(|id| self.tokens.get(id as usize));
        texts.map(|text| special::added(text, true)).collect()
    }

    /// Parses `merges`; `None` if there are none.
    fn pairs(&mut self) -> std::result::Result<Option<Merges>, String> {
        let Some(merges) = self.merges.take() else { return Ok(None) };
        let pairs = merges.into_iter().enumerate().map(|(place, merge)| {
            // As in llama.cpp, the first half may begin with a space.
            let after_first = merge.chars().next().map_or(0, char::len_utf8);
            let Some(space) = merge.get(after_first..).and_then(|rest| rest.find(' ')) else {
                return Err(format!("merge {place}, {merge:?}, is not two tokens with a space between them"));
            };
            let (first, second) = merge.split_at(after_first + space);
            Ok((first.to_owned(), second[1..].to_owned()))
        });
        pairs.collect::<std::result::Result<_, _>>().map(Some)
    }

    fn sentencepiece(&mut self) -> std::result::Result<Tokenizer, String> {
        let listed = self.pairs()?;
        if listed.is_none() && self.scores.is_none() {
            return Err("it has neither scores nor merges; a SentencePiece vocabulary needs one of them".into());
        }
        let scores = self.scores.take().unwrap_or_else(|| vec![0.0; self.tokens.len()]);
        let pieces: Vec<Piece> = self
            .tokens
            .iter()
            .zip(scores)
            .enumerate()
            .map(|(id, (text, score))| Piece { text: text.clone(), score, kind: self.kind(id) })
            .collect();
        let merges = match listed {
            Some(merges) => merges,
            None => merges::recover(&pieces, Order::Score)?,
        };
        let prefix = if self.add_space_prefix.unwrap_or(true) { PrependScheme::First } else { PrependScheme::Never };
        let pipeline = Pipeline { charsmap: None, collapse: false, prefix, escape: true };
        pieces::tokenizer(pieces::bpe(&pieces, merges)?, &pieces, pipeline, &self.roles())
    }

    /// Returns the tokenizer, and true if its sequences begin with `bos` by default.
    fn byte_pairs(&mut self) -> std::result::Result<(Tokenizer, bool), String> {
        let cut = split::named(self.pre.as_deref())?;
        let Some(merges) = self.pairs()? else { return Err("it has no merges, which byte pairs need".into()) };
        let ids = pieces::numbered(self.tokens.iter().map(String::as_str))?;
        let mut vocabulary = Vocab::with_capacity(ids.len());
        let mut whole: Vec<AddedToken> = Vec::new();
        for (&text, &id) in &ids {
            let kind = self.kind(id as usize);
            let spelled = match kind {
                // Matched verbatim in the text.
                Kind::Control | Kind::Unknown | Kind::UserDefined => text.to_owned(),
                // Some converters leave tokens that were added later as plain text. They are mapped to GPT-2's
                // characters like the others, unless the mapped token exists.
                _ if byte_level::is_spelled(text) => text.to_owned(),
                _ => Some(byte_level::spell(text))
                    .filter(|text| !ids.contains_key(text.as_str()))
                    .unwrap_or(text.to_owned()),
            };
            match kind {
                Kind::Control | Kind::Unknown => whole.push(special::added(text, true)),
                Kind::UserDefined => whole.push(special::added(text, false)),
                _ => {}
            }
            if vocabulary.insert(spelled, id).is_some() {
                return Err(format!("token {id}, {text:?}, is the same as another in GPT-2's letters for bytes"));
            }
        }
        whole.extend(self.roles());
        let mut builder = BPE::builder().vocab_and_merges(vocabulary, merges).ignore_merges(cut.whole_first);
        if let Some(unknown) = self.unknown.and_then(|id| self.tokens.get(id as usize)) {
            builder = builder.unk_token(unknown.clone());
        }
        let model = builder.build().map_err(|error| format!("its merges do not fit its tokens: {error}"))?;
        let mut tokenizer = Tokenizer::new(model);
        tokenizer.with_pre_tokenizer(Some(cut.pre_tokenizer()?));
        tokenizer.with_decoder(Some(ByteLevel::default()));
        special::add(&mut tokenizer, &whole)?;
        Ok((tokenizer, cut.add_bos))
    }
}
