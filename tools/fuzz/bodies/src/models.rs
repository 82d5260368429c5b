//! Files that accompany a model's weights.

use std::path::Path;

use grove_images::{Limits, Preprocessor};
use grove_models::{
    BertConfig, Gpt2Config, GptNeoConfig, LlamaConfig, PretrainedConfig, ResNetConfig, RnnClassifierConfig,
    RnnLmConfig, VitConfig,
};
use grove_tasks::{
    GenerateOptions,
    chat::{ChatTemplate, Message},
    generation::Sampling,
};
use grove_text::Tokenizer;

use crate::{Refused, file};

/// Reads a model's `config.json` as the configuration of each architecture.
///
/// # Errors
/// If all of them reject the file.
pub fn config(bytes: &[u8]) -> Result<(), Refused> {
    let (_directory, path) = file("config.json", bytes)?;
    let read = [
        BertConfig::from_file(&path).map(drop),
        Gpt2Config::from_file(&path).map(drop),
        GptNeoConfig::from_file(&path).map(drop),
        LlamaConfig::from_file(&path).map(drop),
        ResNetConfig::from_file(&path).map(drop),
        RnnClassifierConfig::from_file(&path).map(drop),
        RnnLmConfig::from_file(&path).map(drop),
        VitConfig::from_file(&path).map(drop),
    ];
    let mut refused = None;
    for read in read {
        match read {
            Ok(()) => return Ok(()),
            Err(error) => refused = Some(error),
        }
    }
    refused.map_or(Ok(()), |error| Err(error.into()))
}

/// Reads a model's `generation_config.json`.
///
/// # Errors
/// If the file is rejected.
pub fn generation_config(bytes: &[u8]) -> Result<(), Refused> {
    let (directory, _path) = file("generation_config.json", bytes)?;
    GenerateOptions::published(directory.path(), Sampling::default())?;
    Ok(())
}

/// Reads a model's `preprocessor_config.json`, or timm's `config.json`.
///
/// # Errors
/// If the file is rejected.
pub fn preprocessor(bytes: &[u8]) -> Result<(), Refused> {
    let (_directory, path) = file("preprocessor_config.json", bytes)?;
    Preprocessor::from_file(&path)?;
    Ok(())
}

/// Texts that every tokenizer must process: words, other scripts, spaces, apparent special tokens, repetitions.
const TEXTS: [&str; 5] = [
    "The quick brown fox, isn't it? 1,234.5\n\n\tIndented  twice.",
    "Żółw 数学 🦀\u{301}e\u{301} \u{200b}\u{fffd}",
    "<s>[INST]<|endoftext|></s><unk>[CLS] [MASK]▁▁Ġa",
    "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    "",
];

/// Opens a tokenizer, and encodes and decodes with it.
pub(crate) fn tokenizer(path: &Path) -> Result<(), Refused> {
    let tokenizer = Tokenizer::from_path(path)?;
    let mut refused = None;
    for text in TEXTS {
        match tokenizer.encode(text).and_then(|ids| tokenizer.decode(&ids)) {
            Ok(_) => {}
            Err(error) => refused = Some(error),
        }
    }
    refused.map_or(Ok(()), |error| Err(error.into()))
}

/// Reads a `tokenizer.json`.
///
/// # Errors
/// If the file is rejected, or if encoding or decoding a text fails.
pub fn tokenizer_json(bytes: &[u8]) -> Result<(), Refused> {
    let (_directory, path) = file("tokenizer.json", bytes)?;
    tokenizer(&path)
}

/// Reads SentencePiece's `tokenizer.model`.
///
/// # Errors
/// If the file is rejected, or if encoding or decoding a text fails.
pub fn tokenizer_model(bytes: &[u8]) -> Result<(), Refused> {
    let (_directory, path) = file("tokenizer.model", bytes)?;
    tokenizer(&path)
}

/// Parses a chat template and renders a conversation.
///
/// # Errors
/// If the template or the conversation is rejected.
pub fn chat_template(bytes: &[u8]) -> Result<(), Refused> {
    let template = ChatTemplate::new(std::str::from_utf8(bytes)?, [("bos_token", "<s>"), ("eos_token", "</s>")])?;
    let messages = [("system", "Be brief."), ("user", "Hello!"), ("assistant", " Hi. "), ("user", "<s>{{ 1 }}")];
    template.render(&messages.map(|(role, content)| Message::new(role, content)), true)?;
    Ok(())
}

/// Decodes an image file of at most four million pixels.
///
/// # Errors
/// If the file is rejected.
pub fn image(bytes: &[u8]) -> Result<(), Refused> {
    let limits = Limits { max_pixels: 1 << 22, max_side: 1 << 14, max_file_bytes: 1 << 24 };
    let image = grove_images::decode(bytes, Path::new("the image in memory"), &limits)?;
    assert!(u64::from(image.width()) * u64::from(image.height()) <= limits.max_pixels);
    Ok(())
}
