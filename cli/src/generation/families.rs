//! Families of decoders.

use grove::models::RnnLm;

use super::decoder::Family;
use crate::prelude::*;

/// GPT-2.
pub struct Gpt2s;

impl Family for Gpt2s {
    type Model<B: Backend> = Gpt2<B>;
    const SHIPS: &'static str = "gpt2-austen";
    const PUBLISHED: &'static str = "openai-community/gpt2";
}

/// GPT-Neo.
pub struct GptNeos;

impl Family for GptNeos {
    type Model<B: Backend> = GptNeo<B>;
    const SHIPS: &'static str = "gpt-neo-austen";
    const PUBLISHED: &'static str = "EleutherAI/gpt-neo-125m";
}

/// LLaMA, and models of its architecture.
pub struct Llamas;

impl Family for Llamas {
    type Model<B: Backend> = Llama<B>;
    const SHIPS: &'static str = "llama-austen";
    const PUBLISHED: &'static str = "HuggingFaceTB/SmolLM2-135M-Instruct --chat";
}

/// Recurrent language models, such as the example `train_rnn` makes.
pub struct Rnns;

impl Family for Rnns {
    type Model<B: Backend> = RnnLm<B>;
    const SHIPS: &'static str = "rnn-austen";
    const PUBLISHED: &'static str = "DIR, of one that `train_rnn` made";
}
