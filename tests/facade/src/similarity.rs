//! Embeddings of sentences, and their similarity.

use grove::{prelude::*, tasks::text};
use std::error::Error;

/// Returns the cosine of the embeddings of two sentences.
pub fn similarity(source: &str, sentences: [&str; 2]) -> Result<f32, Box<dyn Error>> {
    let encoder = SentenceEncoder::<Flex>::from_pretrained(source, &Default::default())?;
    let tokenizer = Tokenizer::from_pretrained(source)?;
    let options = text::BatchOptions::new(&tokenizer, encoder.max_len);
    let vectors = text::embed(&encoder, options, &sentences)?;
    Ok(text::cosine_similarity(&vectors[0], &vectors[1]))
}
