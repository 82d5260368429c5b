use grove_weights::{FilePatterns, HubOptions, Source, WeightsError, is_gguf, tokenizer_place, transformer_directory};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};
use tokenizers::{
    NormalizerWrapper, Tokenizer as HfTokenizer,
    normalizers::utils::{Lowercase, Sequence as Normalizers},
};

mod added;
mod byte_level;
mod class;
mod gguf_keys;
mod large;
mod learning;
mod long;
mod overrides;
mod saving;
mod text;
mod wordpiece;

pub use class::max_length_key;
pub use large::chat_template;
pub use text::{EncodedText, TextIds, Truncation};

use self::class::Settings;
use crate::{
    catch_panic,
    error::{Result, TextError},
    printable::excerpt,
    tokenizer_json,
};

/// Converts text to tokens and back, from the files published with a model.
///
/// ```
/// use grove_text::Tokenizer;
/// let tokenizer = Tokenizer::train_bpe(&["the cat sat on the mat"], 300)?;
/// let ids = tokenizer.encode("the cat")?;
/// assert_eq!(tokenizer.decode(&ids)?, "the cat");
/// # Ok::<(), grove_text::TextError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Tokenizer {
    inner: HfTokenizer,
    /// File or directory of the tokenizer, for errors.
    place: PathBuf,
    /// Directory of the tokenizer's files; `None` if it does not consist of files.
    source: Option<PathBuf>,
    /// Special tokens by role, under transformers' names such as `eos_token`.
    roles: BTreeMap<String, String>,
    /// Chat template of the GGUF file, if the tokenizer was read from one.
    template: Option<String>,
    /// True if encoded texts have token types.
    token_types: bool,
    /// True if long texts are truncated at their beginning.
    truncates_left: bool,
    /// Maximum length of a text in tokens, from the files.
    max_length: Option<usize>,
}

/// GPT-2's end-of-text token.
const END_OF_TEXT: &str = "<|endoftext|>";

impl Tokenizer {
    /// Opens the tokenizer of a directory. Supported are `tokenizer.json`; `vocab.json` with `merges.txt` (GPT-2,
    /// RoBERTa, Qwen2), or the older `encoder.json` with `vocab.bpe`; BERT's `vocab.txt`; LLaMA's SentencePiece model,
    /// `tokenizer.model`; and GGUF files. The path of a `tokenizer.json`, `*.model` or `*.gguf` file is accepted too.
    /// For an adapter without a tokenizer, opens the base model's. The files' truncation and padding settings are
    /// ignored; the methods have their own arguments.
    ///
    /// `tokenizer_config.json`, `special_tokens_map.json` and `added_tokens.json` are applied as in transformers:
    /// tokenizer class, settings and added tokens. If only transformers 5 would rebuild the tokenizer of a
    /// `tokenizer.json` from its class, the file takes precedence, and a note on standard error says so once.
    ///
    /// # Errors
    /// There is no tokenizer (the error lists the files searched for), a file is invalid, its class is not supported, or
    /// a key of these files changes tokens and is not supported (the error names the file).
    pub fn from_path(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let place = tokenizer_place(path)?;
        if place != path {
            return Self::beside(place);
        }
        let broken = |message| failed(path, &format!("this is not a tokenizer that can be read: {message}"));
        catch_panic(|| Self::read(path)).unwrap_or_else(|message| Err(broken(message)))
    }

    fn read(path: &Path) -> Result<Self> {
        if let Some((inner, found)) = large::from_file(path)? {
            return Self::found(inner, path, found);
        }
        let whole = if path.is_dir() { path.join("tokenizer.json") } else { path.to_owned() };
        if whole.is_file() {
            let inner = tokenizer_json::from_file(&whole).map_err(|error| match error {
                TextError::Config { file, reason } => TextError::Tokenizer { path: file, reason },
                error => error,
            })?;
            return Self::found(inner, &whole, Found::Whole);
        }
        let pairs = byte_level::FILES.map(|(vocab, merges)| (path.join(vocab), path.join(merges)));
        if let Some((vocab, merges)) = pairs.iter().find(|(vocab, merges)| vocab.is_file() && merges.is_file()) {
            let mut settings = Settings::read(path)?;
            let inner = byte_level::from_pair(vocab, merges, &mut settings)?;
            return Self::with_settings(inner, path, &settings);
        }
        let vocab = path.join("vocab.txt");
        if vocab.is_file() {
            let mut settings = Settings::read(path)?;
            let inner = wordpiece::from_vocabulary(&vocab, &mut settings)?;
            return Self::with_settings(inner, path, &settings);
        }
        match large::from_directory(path)? {
            Some((inner, found)) => Self::found(inner, path, found),
            None => {
                let reason = "no tokenizer here: looked for tokenizer.json, vocab.json with merges.txt, \
                              encoder.json with vocab.bpe, vocab.txt, tokenizer.model, and a single *.gguf";
                Err(TextError::NoTokenizer { path: path.into(), reason: reason.into() })
            }
        }
    }

    /// Completes a tokenizer read from a file or directory with its settings.
    fn found(mut inner: HfTokenizer, place: &Path, found: Found) -> Result<Self> {
        let settings = match found {
            Found::Gguf(roles, template) => {
                return Ok(Self { place: place.to_owned(), template, ..Self::with_roles(inner, roles) });
            }
            Found::Files(settings) => *settings,
            Found::Whole => {
                let settings = Settings::read(grove_files::directory_at(place))?;
                settings.apply(&mut inner, place)?;
                settings
            }
        };
        settings.add_tokens(&mut inner)?;
        Self::with_settings(inner, place, &settings)
    }

    /// Creates a tokenizer with the settings of its files.
    fn with_settings(inner: HfTokenizer, place: &Path, settings: &Settings) -> Result<Self> {
        // Files under other names than transformers' are not found beside a model.
        let named = place.is_dir() || OWN_NAMES.iter().any(|name| place.file_name().is_some_and(|file| file == *name));
        Ok(Self {
            place: place.to_owned(),
            source: named.then(|| settings.directory.clone()),
            token_types: settings.types(),
            truncates_left: settings.truncates_left()?,
            max_length: settings.max_length()?,
            ..Self::with_roles(inner, settings.roles())
        })
    }

    /// Creates a tokenizer that has no files.
    fn new(inner: HfTokenizer) -> Self {
        Self::with_roles(inner, BTreeMap::new())
    }

    /// Creates a tokenizer with special tokens by role; if there are none, those of its family.
    fn with_roles(inner: HfTokenizer, roles: BTreeMap<String, String>) -> Self {
        let roles = if roles.is_empty() { saving::usual_roles(&inner) } else { roles };
        let place = "the tokenizer".into();
        Self {
            inner,
            place,
            source: None,
            roles,
            template: None,
            token_types: true,
            truncates_left: false,
            max_length: None,
        }
    }

    /// Opens the tokenizer of a model: in its directory, in its GGUF file, or beside its weights.
    ///
    /// # Errors
    /// As [`from_path`](Self::from_path).
    pub fn beside(model: impl AsRef<Path>) -> Result<Self> {
        let model = model.as_ref();
        let itself = model.is_dir() || is_gguf(model);
        Self::from_path(if itself { model } else { grove_files::directory_of(model) })
    }

    /// Opens the tokenizer of a published model: a directory, a file in it, or a hub id. From the hub only tokenizer
    /// files are downloaded, or the weights if they are a GGUF file with the tokenizer. An older sentence encoder has its
    /// tokenizer in the folder of its transformer.
    ///
    /// # Errors
    /// As [`from_path`](Self::from_path); the files cannot be downloaded.
    pub fn from_pretrained(source: &str) -> Result<Self> {
        let (source, options) = (Source::parse(source)?, HubOptions::from_env());
        let path = match source.resolve(&options, &FilePatterns::tokenizer()) {
            Err(WeightsError::MissingFile { .. } | WeightsError::Offline { .. }) => {
                transformer_directory(source.resolve(&options, &FilePatterns::model())?)?
            }
            found => found?,
        };
        Self::beside(path)
    }

    /// Returns the end-of-sequence token (`eos_token`), such as `<|endoftext|>` or `</s>`.
    pub fn end_of_text(&self) -> Option<u32> {
        self.role("eos_token")
    }

    /// Returns the beginning-of-sequence token (`bos_token`).
    pub fn begin_of_text(&self) -> Option<u32> {
        self.role("bos_token")
    }

    /// Returns the maximum length of a text in tokens that the files name, `model_max_length` or the older `max_len`. It
    /// limits the windows of [`encode_windows`](Self::encode_windows). As in transformers, a text is truncated to it only
    /// on request.
    pub fn model_max_length(&self) -> Option<usize> {
        self.max_length
    }

    /// Returns the token of a role.
    fn role(&self, role: &str) -> Option<u32> {
        self.inner.token_to_id(self.roles.get(role)?)
    }

    /// Encodes a text. Adds the special tokens of the tokenizer's post-processor.
    ///
    /// Texts of megabytes are encoded in pieces on several threads if the tokens are the same as those of the whole text:
    /// for byte-level tokenizers with the words of GPT-2, LLaMA 3 or Qwen2. For others, the memory that is needed grows
    /// with the text.
    ///
    /// # Errors
    /// [`TextError::Tokenizer`] if the tokenizer cannot encode the text.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        if let Some(ids) = self.encode_long(text)? {
            return Ok(ids);
        }
        let encoding = self.run(|inner| inner.encode_fast(text, true))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// Decodes tokens, including special tokens. Bytes that are not UTF-8 become U+FFFD.
    ///
    /// # Errors
    /// [`TextError::Tokenizer`] if the tokenizer fails.
    pub fn decode(&self, ids: &[u32]) -> Result<String> {
        self.run(|inner| inner.decode(ids, false))
    }

    /// Decodes tokens and skips special tokens.
    ///
    /// # Errors
    /// As [`decode`](Self::decode).
    pub fn decode_text(&self, ids: &[u32]) -> Result<String> {
        self.run(|inner| inner.decode(ids, true))
    }

    /// Encodes a text that contains special tokens, such as a rendered chat template. Adds no special tokens.
    ///
    /// # Errors
    /// As [`encode`](Self::encode).
    pub fn encode_rendered(&self, text: &str) -> Result<Vec<u32>> {
        let encoding = self.run(|inner| inner.encode(text, false))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// Returns the tokenizer with lower-casing before its own normalisation, unless it lower-cases already.
    pub fn with_lowercase(&self) -> Self {
        let mut tokenizer = self.clone();
        let steps = match tokenizer.inner.get_normalizer().cloned() {
            Some(NormalizerWrapper::Sequence(steps)) => steps.into_iter().collect(),
            own => Vec::from_iter(own),
        };
        if !steps.iter().any(|step| matches!(step, NormalizerWrapper::Lowercase(_))) {
            let steps = std::iter::once(Lowercase.into()).chain(steps).collect();
            tokenizer.inner.with_normalizer(Some(Normalizers::new(steps)));
        }
        tokenizer
    }

    /// Returns the mask token, `[MASK]` or `<mask>`, if there is one.
    pub fn mask_token(&self) -> Option<u32> {
        ["[MASK]", "<mask>"].iter().find_map(|token| self.inner.token_to_id(token))
    }

    /// Returns the token at the beginning of an encoder's sequences, `[CLS]` or `<s>`, whose state represents the
    /// sequence.
    pub fn cls_token(&self) -> Option<u32> {
        self.role("cls_token").or_else(|| ["[CLS]", "<s>"].iter().find_map(|token| self.inner.token_to_id(token)))
    }

    /// Returns the id of a token, such as `[MASK]`.
    pub fn token_to_id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// Returns the token with an id.
    pub fn id_to_token(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id)
    }

    /// Returns true if another tokenizer has the same tokens with the same ids.
    pub fn same_tokens(&self, other: &Self) -> bool {
        self.inner.get_vocab(true) == other.inner.get_vocab(true)
    }

    /// Returns the number of tokens, including added tokens.
    pub fn vocab_size(&self) -> usize {
        self.inner.get_vocab_size(true)
    }

    /// Calls the tokenizers library and turns its errors and panics into errors. Regular expressions of a file can make
    /// it panic.
    fn run<T>(&self, work: impl FnOnce(&HfTokenizer) -> tokenizers::Result<T>) -> Result<T> {
        match catch_panic(|| work(&self.inner)) {
            Ok(result) => result.map_err(|error| self.failed(&error)),
            Err(message) => Err(self.failed(&format!("it fails on this text: {message}"))),
        }
    }

    fn failed(&self, error: &dyn std::fmt::Display) -> TextError {
        failed(&self.place, error)
    }
}

/// Source of a tokenizer.
enum Found {
    /// A `tokenizer.json`.
    Whole,
    /// Other files of a directory, with their settings.
    Files(Box<Settings>),
    /// A GGUF file, with its special tokens by role and its chat template.
    Gguf(BTreeMap<String, String>, Option<String>),
}

/// File names that transformers finds beside a model, and that can be opened themselves.
const OWN_NAMES: [&str; 2] = ["tokenizer.json", "tokenizer.model"];

/// Maximum length of a quoted library error, in characters. It can quote a text.
const LONGEST_REASON: usize = 300;

fn failed(place: &Path, error: &dyn std::fmt::Display) -> TextError {
    TextError::tokenizer(place, excerpt(&error.to_string(), LONGEST_REASON))
}
