//! Tasks: what people do with a model of `grove-models`. From prompts, texts and images to results.
//!
//! # Map of the crate
//!
//! | to | see |
//! |---|---|
//! | continue prompts | [`Generate::generate`], [`generate()`], [`GenerateOptions`] |
//! | choose how tokens are sampled | [`generation::Sampling`], [`generation::TokenRules`] |
//! | compile the decoding step | [`JitGenerate::jitted`] |
//! | generate with a model chosen by its files | [`AutoGenerate::generate`] |
//! | continue many prompts, each as soon as there is room | [`GenerateOptions::batch_size`], [`generation::generate_many`] |
//! | generate with a smaller draft model | [`generation::generate_with_draft`] |
//! | continue a sequence whose prefix is cached | [`generation::DecodeSession`], [`generation::generate_with_cache`] |
//! | decode text from a stream of tokens | [`generation::TextStream`] |
//! | compute likelihoods and perplexity | [`Generate::score`], [`generation::score_text`] |
//! | hold a conversation | [`chat`] |
//! | fill masks, embed, classify, tag, answer questions | [`text`] |
//! | classify images | [`images`] |
#![warn(missing_docs)]

pub mod chat;
pub mod generation;
pub mod images;
pub mod text;

pub use generation::{AutoGenerate, Generate, GenerateOptions, Generated, JitGenerate, generate};
