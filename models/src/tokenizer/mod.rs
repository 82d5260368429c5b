use grove_text::{TextError, catch_panic, printable::excerpt, tokenizer_json};
use grove_weights::{FilePatterns, HubOptions, Source, WeightsError};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};
use tokenizers::{
    AddedToken, NormalizerWrapper, Tokenizer as HfTokenizer,
    models::{
        TrainerWrapper,
        bpe::{BPE, BpeTrainer},
    },
    normalizers::utils::{Lowercase, Sequence as Normalizers},
    pre_tokenizers::byte_level::ByteLevel,
};

mod added;
mod byte_level;
mod class;
mod large;
mod saving;
mod text;
mod wordpiece;

pub use large::chat_template;
pub use saving::copy_generation_config;
pub use text::{EncodedText, Truncation};

use self::class::Settings;
use crate::{
    error::{ModelError, Result},
    model_files::tokenizer_place,
};

/// Text to tokens and back, by the files that are published beside a model.
///
/// ```
/// use grove_models::Tokenizer;
/// let tokenizer = Tokenizer::train_bpe(&["the cat sat on the mat"], 300)?;
/// let ids = tokenizer.encode("the cat")?;
/// assert_eq!(tokenizer.decode(&ids)?, "the cat");
/// # Ok::<(), grove_models::ModelError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Tokenizer {
    inner: HfTokenizer,
    /// The file or directory that it was read from, for errors.
    place: PathBuf,
    /// The directory whose files it consists of, if it does.
    source: Option<PathBuf>,
    /// Special tokens by their purpose, as transformers calls it: `eos_token`.
    roles: BTreeMap<String, String>,
    /// The chat template of the GGUF file that it was read from.
    template: Option<String>,
    /// True if encoded texts have token types.
    token_types: bool,
    /// True if a text that is too long loses its beginning.
    truncates_left: bool,
}

/// Token by which GPT-2 ends a text.
const END_OF_TEXT: &str = "<|endoftext|>";

/// Room for special tokens and letters, each in both of its forms, within a word and at its beginning.
const SMALLEST_WORDPIECE: usize = 500;

/// `<|endoftext|>` and a token for each byte.
const SMALLEST_BPE: usize = 257;

impl Tokenizer {
    /// Opens a directory's tokenizer: `tokenizer.json`, or `vocab.json` and `merges.txt` of GPT-2, RoBERTa or Qwen2, or the
    /// older `encoder.json` and `vocab.bpe`, or BERT's `vocab.txt`, or SentencePiece's `tokenizer.model`, or what a GGUF file
    /// holds. A `tokenizer.json`, a `*.model` or a `*.gguf` can also be given itself. Its settings of truncation and
    /// padding are ignored; the methods take their own. Of the directory of an adapter without a tokenizer, it is that of the
    /// model.
    ///
    /// `tokenizer_config.json`, `special_tokens_map.json` and `added_tokens.json` beside it are followed as transformers does:
    /// the class that they name, its settings, and added tokens. Where only transformers 5 makes the tokenizer of a
    /// `tokenizer.json` anew by that class, the file decides, and a note on standard error says so once.
    ///
    /// # Errors
    /// There is none (the error lists the names looked for), or it is broken, or a key of these files changes tokens and is
    /// not supported (the error names the file).
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
                TextError::Config { file, reason } => ModelError::Tokenizer { path: file, reason },
                error => error.into(),
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
                Err(ModelError::NoTokenizer { path: path.into(), reason: reason.into() })
            }
        }
    }

    /// A tokenizer with what belongs to it, read from a file or directory.
    fn found(mut inner: HfTokenizer, place: &Path, found: Found) -> Result<Self> {
        if let Found::Gguf(roles, template) = found {
            let roles = if roles.is_empty() { saving::usual_roles(&inner) } else { roles };
            return Ok(Self { place: place.to_owned(), roles, template, ..Self::new(inner) });
        }
        let settings = Settings::read(grove_files::directory_at(place))?;
        if matches!(found, Found::Whole) {
            settings.apply(&mut inner, place)?;
        }
        settings.add_tokens(&mut inner)?;
        Self::with_settings(inner, place, &settings)
    }

    /// A tokenizer with the settings of its files.
    fn with_settings(inner: HfTokenizer, place: &Path, settings: &Settings) -> Result<Self> {
        // A file with another name than transformers' is not found beside a model.
        let named = place.is_dir() || OWN_NAMES.iter().any(|name| place.file_name().is_some_and(|file| file == *name));
        let roles = settings.roles();
        Ok(Self {
            place: place.to_owned(),
            source: named.then(|| settings.directory.clone()),
            roles: if roles.is_empty() { saving::usual_roles(&inner) } else { roles },
            token_types: settings.types(),
            truncates_left: settings.truncates_left()?,
            ..Self::new(inner)
        })
    }

    /// A tokenizer that was made just now.
    fn new(inner: HfTokenizer) -> Self {
        let roles = saving::usual_roles(&inner);
        let place = "the tokenizer".into();
        Self { inner, place, source: None, roles, template: None, token_types: true, truncates_left: false }
    }

    /// The tokenizer that belongs to a model's files: in its directory, in the GGUF file that it is, or beside its weights.
    ///
    /// # Errors
    /// As [`from_path`](Self::from_path).
    pub fn beside(model: impl AsRef<Path>) -> Result<Self> {
        let model = model.as_ref();
        let itself = model.is_dir() || large::is_gguf(model);
        Self::from_path(if itself { model } else { grove_files::directory_of(model) })
    }

    /// The tokenizer of a published model: a directory, a file in it, or a hub id. Of the hub's files only those of the
    /// tokenizer are downloaded, or the weights where they are a GGUF file, which holds it.
    ///
    /// # Errors
    /// As [`from_path`](Self::from_path), or the files could not be downloaded.
    pub fn from_pretrained(source: &str) -> Result<Self> {
        let (source, options) = (Source::parse(source)?, HubOptions::from_env());
        let path = match source.resolve(&options, &FilePatterns::tokenizer()) {
            Err(WeightsError::MissingFile { .. } | WeightsError::Offline { .. }) => {
                source.resolve(&options, &FilePatterns::model())?
            }
            found => found?,
        };
        Self::beside(path)
    }

    /// Learns a byte-level BPE of GPT-2's kind from texts: `<|endoftext|>` (token 0), the 256 bytes, and merges until
    /// there are `vocab_size` tokens, or no pair occurs twice. Sennrich, Haddow and Birch, "Neural Machine Translation
    /// of Rare Words with Subword Units" (2016).
    ///
    /// # Errors
    /// [`ModelError::Option`] if the size leaves no room for the bytes.
    pub fn train_bpe<S: AsRef<str> + Sync>(texts: &[S], vocab_size: usize) -> Result<Self> {
        if vocab_size < SMALLEST_BPE {
            let value = vocab_size.to_string();
            return Err(ModelError::Option {
                option: "vocabulary size",
                value,
                range: "at least 257, one for each byte and the end",
            });
        }
        let trainer = BpeTrainer::builder()
            .vocab_size(vocab_size)
            .min_frequency(2)
            .special_tokens(vec![AddedToken::from(END_OF_TEXT, true)])
            .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
            .show_progress(false)
            .build();
        let mut inner = byte_level::byte_level(BPE::default(), false);
        let mut trainer = TrainerWrapper::BpeTrainer(trainer);
        inner.train(&mut trainer, texts.iter().map(AsRef::as_ref)).map_err(|error| learning_failed(&error))?;
        Ok(Self::new(inner))
    }

    /// Learns word pieces of BERT's kind, without capitals and accents, from texts: `[PAD]`, `[UNK]`, `[CLS]`, `[SEP]`,
    /// `[MASK]`, the letters that occur, and joined ones until there are `vocab_size` tokens, or no pair occurs twice.
    /// Schuster and Nakajima, "Japanese and Korean Voice Search" (2012); Devlin et al. (2019).
    ///
    /// # Errors
    /// [`ModelError::Option`] if the size leaves no room for letters.
    pub fn train_wordpiece<S: AsRef<str> + Sync>(texts: &[S], vocab_size: usize) -> Result<Self> {
        if vocab_size < SMALLEST_WORDPIECE {
            let value = vocab_size.to_string();
            return Err(ModelError::Option { option: "vocabulary size", value, range: "at least 500" });
        }
        let inner = wordpiece::learned(texts, vocab_size).map_err(|error| learning_failed(&error))?;
        Ok(Self::new(inner))
    }

    /// The token that ends a text, as the tokenizer's files name it (`eos_token`): `<|endoftext|>`, `</s>`, and so on.
    pub fn end_of_text(&self) -> Option<u32> {
        self.role("eos_token")
    }

    /// The token that begins a text, as the tokenizer's files name it (`bos_token`).
    pub fn begin_of_text(&self) -> Option<u32> {
        self.role("bos_token")
    }

    /// The token for a purpose.
    fn role(&self, role: &str) -> Option<u32> {
        self.inner.token_to_id(self.roles.get(role)?)
    }

    /// The tokens of a text. No token is added at either end that the tokenizer does not always add.
    ///
    /// # Errors
    /// [`ModelError::Tokenizer`] if the tokenizer refuses the text.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        let encoding = self.run(|inner| inner.encode(text, true))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// The text of tokens; bytes that are no UTF-8 become U+FFFD. Special tokens are shown.
    ///
    /// # Errors
    /// [`ModelError::Tokenizer`] if the tokenizer fails.
    pub fn decode(&self, ids: &[u32]) -> Result<String> {
        self.run(|inner| inner.decode(ids, false))
    }

    /// The text of tokens without the special ones.
    ///
    /// # Errors
    /// As [`decode`](Self::decode).
    pub fn decode_text(&self, ids: &[u32]) -> Result<String> {
        self.run(|inner| inner.decode(ids, true))
    }

    /// The tokens of a text in which the special ones are written out, as a chat template leaves it: none is added.
    ///
    /// # Errors
    /// As [`encode`](Self::encode).
    pub fn encode_rendered(&self, text: &str) -> Result<Vec<u32>> {
        let encoding = self.run(|inner| inner.encode(text, false))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// The tokenizer that puts texts into lower case before its own normalisation, unless that does it.
    pub(crate) fn with_lowercase(&self) -> Self {
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

    /// The mask token, `[MASK]` or `<mask>`, if this tokenizer has one.
    pub fn mask_token(&self) -> Option<u32> {
        ["[MASK]", "<mask>"].iter().find_map(|token| self.inner.token_to_id(token))
    }

    /// The token that begins an encoder's texts, and whose state stands for the whole: `[CLS]` or `<s>`.
    pub fn cls_token(&self) -> Option<u32> {
        self.role("cls_token").or_else(|| ["[CLS]", "<s>"].iter().find_map(|token| self.inner.token_to_id(token)))
    }

    /// The id of a token, such as `[MASK]`.
    pub fn token_to_id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// The token of an id.
    pub fn id_to_token(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id)
    }

    /// True if another tokenizer has the same tokens, with the same numbers.
    pub fn same_tokens(&self, other: &Self) -> bool {
        self.inner.get_vocab(true) == other.inner.get_vocab(true)
    }

    /// Number of tokens, added ones included.
    pub fn vocab_size(&self) -> usize {
        self.inner.get_vocab_size(true)
    }

    /// Does what the library can refuse, or panic about: regular expressions of a file can be made to.
    fn run<T>(&self, work: impl FnOnce(&HfTokenizer) -> tokenizers::Result<T>) -> Result<T> {
        match catch_panic(|| work(&self.inner)) {
            Ok(result) => result.map_err(|error| self.failed(&error)),
            Err(message) => Err(self.failed(&format!("it breaks down with this text: {message}"))),
        }
    }

    fn failed(&self, error: &dyn std::fmt::Display) -> ModelError {
        failed(&self.place, error)
    }
}

/// The source of a tokenizer.
enum Found {
    /// A `tokenizer.json`.
    Whole,
    /// Other files of a directory.
    Files,
    /// A GGUF file, with its special tokens by their purpose, and its chat template.
    Gguf(BTreeMap<String, String>, Option<String>),
}

/// The names of files that transformers finds beside a model, and that can be given themselves.
const OWN_NAMES: [&str; 4] = ["tokenizer.json", "tokenizer.model", "sentencepiece.bpe.model", "spiece.model"];

/// The longest error of a library that is repeated, in characters. It may quote a text.
const LONGEST_REASON: usize = 300;

fn failed(place: &Path, error: &dyn std::fmt::Display) -> ModelError {
    ModelError::Tokenizer { path: place.into(), reason: excerpt(&error.to_string(), LONGEST_REASON) }
}

fn learning_failed(error: &dyn std::fmt::Display) -> ModelError {
    failed(Path::new("the tokenizer"), error)
}
