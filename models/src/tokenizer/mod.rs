use grove_weights::{HubOptions, Source, Wanted};
use std::{collections::HashMap, path::Path};
use tokenizers::{
    AddedToken, Tokenizer as HfTokenizer,
    models::{
        TrainerWrapper,
        bpe::{BPE, BpeTrainer},
    },
    pre_tokenizers::byte_level::ByteLevel,
    processors::byte_level::ByteLevel as ByteLevelProcessor,
};

mod large;
mod text;
mod wordpiece;

pub use large::chat_template;
pub use text::{EncodedText, Truncation};

use crate::{
    error::{ModelError, Result},
    pretrained::{read_json, write_json, write_text},
};

/// Text to tokens and back, by the files that are published beside a model.
#[derive(Clone, Debug)]
pub struct Tokenizer {
    inner: HfTokenizer,
}

/// The pairs of files that a byte-level BPE may consist of, newest names first.
const BPE_FILES: [(&str, &str); 2] = [("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe")];

/// Token by which GPT-2 ends a text.
const END_OF_TEXT: &str = "<|endoftext|>";

/// The tokens of GPT-2's tokenizers by what they are for, as transformers calls it.
const GPT2_ROLES: [(&str, &str); 3] =
    [("bos_token", END_OF_TEXT), ("eos_token", END_OF_TEXT), ("unk_token", END_OF_TEXT)];

/// Those of BERT's.
const BERT_ROLES: [(&str, &str); 5] = [
    ("unk_token", "[UNK]"),
    ("cls_token", "[CLS]"),
    ("sep_token", "[SEP]"),
    ("pad_token", "[PAD]"),
    ("mask_token", "[MASK]"),
];

/// Room for special tokens and letters, each in both of its forms, within a word and at its beginning.
const SMALLEST_WORDPIECE: usize = 500;

/// `<|endoftext|>` and a token for each byte.
const SMALLEST_BPE: usize = 257;

/// GPT-2's way around a BPE: bytes in, bytes out, spaces stay where they are.
fn byte_level(bpe: BPE) -> HfTokenizer {
    let mut inner = HfTokenizer::new(bpe);
    inner.with_pre_tokenizer(Some(ByteLevel::default().add_prefix_space(false)));
    inner.with_decoder(Some(ByteLevel::default()));
    inner.with_post_processor(Some(ByteLevelProcessor::default().trim_offsets(false)));
    inner
}

impl Tokenizer {
    /// Opens a directory's tokenizer: `tokenizer.json`, or GPT-2's `vocab.json` and `merges.txt`, or the older
    /// `encoder.json` and `vocab.bpe`, or BERT's `vocab.txt`, or SentencePiece's `tokenizer.model`, or what a GGUF file holds.
    /// A `tokenizer.json`, a `*.model` or a `*.gguf` can also be given itself. What it says of cutting and padding is left to
    /// the methods.
    ///
    /// # Errors
    /// There is none, which is said with the names looked for, or it is broken, which is said with its file.
    pub fn from_path(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let broken = |path: &Path, error: &dyn std::fmt::Display| ModelError::Tokenizer {
            path: path.into(),
            reason: format!("this is not a tokenizer that can be read: {error}"),
        };
        if let Some(inner) = large::from_file(path)? {
            return Ok(Self { inner });
        }
        let whole = if path.is_dir() { path.join("tokenizer.json") } else { path.to_owned() };
        if whole.is_file() {
            let mut inner = HfTokenizer::from_file(&whole).map_err(|error| broken(&whole, &error))?;
            inner.with_padding(None).with_truncation(None).map_err(|error| broken(&whole, &error))?;
            return Ok(Self { inner });
        }
        let pairs = BPE_FILES.map(|(vocab, merges)| (path.join(vocab), path.join(merges)));
        let Some((vocab, merges)) = pairs.iter().find(|(vocab, merges)| vocab.is_file() && merges.is_file()) else {
            let pieces = path.join("vocab.txt");
            if pieces.is_file() {
                return Ok(Self { inner: wordpiece::from_vocabulary(&pieces)? });
            }
            if let Some(inner) = large::from_directory(path)? {
                return Ok(Self { inner });
            }
            let reason = "no tokenizer here: looked for tokenizer.json, vocab.json with merges.txt, encoder.json with \
                          vocab.bpe, vocab.txt, tokenizer.model, and a single *.gguf";
            return Err(ModelError::Tokenizer { path: path.into(), reason: reason.into() });
        };
        let text = |file: &Path| file.to_string_lossy().into_owned();
        let bpe = BPE::from_file(&text(vocab), &text(merges)).build().map_err(|error| {
            let at_fault = if read_json::<HashMap<String, u32>>(vocab).is_err() { vocab } else { merges };
            broken(at_fault, &error)
        })?;
        let mut inner = byte_level(bpe);
        if inner.token_to_id(END_OF_TEXT).is_some() {
            inner.add_special_tokens(&[AddedToken::from(END_OF_TEXT, true)]);
        }
        Ok(Self { inner })
    }

    /// The tokenizer that belongs to a model's files: in its directory, in the GGUF file that it is, or beside its weights.
    ///
    /// # Errors
    /// As [`from_path`](Self::from_path).
    pub fn beside(model: impl AsRef<Path>) -> Result<Self> {
        let model = model.as_ref();
        let itself = model.is_dir() || large::is_gguf(model);
        Self::from_path(if itself { model } else { model.parent().unwrap_or(model) })
    }

    /// The tokenizer of a published model: a directory, a file in it, or a hub id.
    ///
    /// # Errors
    /// As [`from_path`](Self::from_path), or the files could not be downloaded.
    pub fn from_pretrained(source: &str) -> Result<Self> {
        let path = Source::parse(source)?.resolve(&HubOptions::from_env(), &Wanted::model())?;
        Self::beside(path)
    }

    /// Learns a byte-level BPE of GPT-2's kind from texts: `<|endoftext|>` (token 0), the 256 bytes, and merges until
    /// there are `vocab_size` tokens, or no pair occurs twice. Sennrich, Haddow and Birch, "Neural Machine Translation
    /// of Rare Words with Subword Units" (2016).
    ///
    /// # Errors
    /// [`ModelError::Option`] where the size leaves no room for the bytes.
    pub fn train_bpe<S: AsRef<str> + Sync>(texts: &[S], vocab_size: usize) -> Result<Self> {
        if vocab_size < SMALLEST_BPE {
            let value = vocab_size.to_string();
            return Err(ModelError::Option { option: "vocabulary size", value, range: "at least 257" });
        }
        let trainer = BpeTrainer::builder()
            .vocab_size(vocab_size)
            .min_frequency(2)
            .special_tokens(vec![AddedToken::from(END_OF_TEXT, true)])
            .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
            .show_progress(false)
            .build();
        let mut inner = byte_level(BPE::default());
        let mut trainer = TrainerWrapper::BpeTrainer(trainer);
        inner.train(&mut trainer, texts.iter().map(AsRef::as_ref)).map_err(|error| Self::failed(&error))?;
        Ok(Self { inner })
    }

    /// Learns word pieces of BERT's kind, without capitals and accents, from texts: `[PAD]`, `[UNK]`, `[CLS]`, `[SEP]`,
    /// `[MASK]`, the letters that occur, and joined ones until there are `vocab_size` tokens, or no pair occurs twice.
    /// Schuster and Nakajima, "Japanese and Korean Voice Search" (2012); Devlin et al. (2019).
    ///
    /// # Errors
    /// [`ModelError::Option`] where the size leaves no room for letters.
    pub fn train_wordpiece<S: AsRef<str> + Sync>(texts: &[S], vocab_size: usize) -> Result<Self> {
        if vocab_size < SMALLEST_WORDPIECE {
            let value = vocab_size.to_string();
            return Err(ModelError::Option { option: "vocabulary size", value, range: "at least 500" });
        }
        let inner = wordpiece::learned(texts, vocab_size).map_err(|error| Self::failed(&error))?;
        Ok(Self { inner })
    }

    /// Writes `tokenizer.json`, and the `tokenizer_config.json` by which transformers knows its kind, to a directory.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn save(&self, directory: impl AsRef<Path>) -> Result<()> {
        let directory = directory.as_ref();
        let text = self.inner.to_string(false).map_err(|error| Self::failed(&error))?;
        write_text(&directory.join("tokenizer.json"), &text)?;
        let mut config = serde_json::Map::new();
        let bert = self.token_to_id("[CLS]").is_some();
        let roles: &[(&str, &str)] = if bert { &BERT_ROLES } else { &GPT2_ROLES };
        let class = if bert { "BertTokenizerFast" } else { "GPT2TokenizerFast" };
        config.insert("tokenizer_class".into(), class.into());
        for (role, token) in roles.iter().filter(|(_, token)| self.token_to_id(token).is_some()) {
            config.insert((*role).into(), (*token).into());
        }
        write_json(&directory.join("tokenizer_config.json"), &config)
    }

    /// The token by which GPT-2's tokenizers end a text, if this one has it.
    pub fn end_of_text(&self) -> Option<u32> {
        self.inner.token_to_id(END_OF_TEXT)
    }

    /// The tokens of a text. No token is added at either end that the tokenizer does not always add.
    ///
    /// # Errors
    /// [`ModelError::Tokenizer`] where the tokenizer refuses the text.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        let encoding = self.inner.encode(text, true).map_err(|error| Self::failed(&error))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// The text of tokens; bytes that are no UTF-8 become U+FFFD. Special tokens are shown.
    ///
    /// # Errors
    /// [`ModelError::Tokenizer`] where the tokenizer fails.
    pub fn decode(&self, ids: &[u32]) -> Result<String> {
        self.inner.decode(ids, false).map_err(|error| Self::failed(&error))
    }

    /// The text of tokens without the special ones.
    ///
    /// # Errors
    /// As [`decode`](Self::decode).
    pub fn decode_text(&self, ids: &[u32]) -> Result<String> {
        self.inner.decode(ids, true).map_err(|error| Self::failed(&error))
    }

    /// The tokens of a text in which the special ones are written out, as a chat template leaves it: none is added.
    ///
    /// # Errors
    /// As [`encode`](Self::encode).
    pub fn encode_rendered(&self, text: &str) -> Result<Vec<u32>> {
        let encoding = self.inner.encode(text, false).map_err(|error| Self::failed(&error))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// The token that stands for a masked one, `[MASK]` or `<mask>`, if this tokenizer has one.
    pub fn mask_token(&self) -> Option<u32> {
        ["[MASK]", "<mask>"].iter().find_map(|token| self.inner.token_to_id(token))
    }

    /// The number of a token, `[MASK]` for instance.
    pub fn token_to_id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// The token of a number.
    pub fn id_to_token(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id)
    }

    /// Number of tokens, added ones included.
    pub fn vocab_size(&self) -> usize {
        self.inner.get_vocab_size(true)
    }

    fn failed(error: &dyn std::fmt::Display) -> ModelError {
        ModelError::Tokenizer { path: "the tokenizer".into(), reason: error.to_string() }
    }
}
