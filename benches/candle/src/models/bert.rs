//! BERT, for inference.

use anyhow::Result;
use candle_transformers::models::bert;
use serde::Deserialize;
use std::hint::black_box;

use super::{config, random_ids};
use crate::{Run, ops::weights, work::Text};

/// candle-transformers' BERT and a pooler, which candle-transformers lacks.
pub(super) fn bert(text: &Text) -> Result<Run> {
    #[derive(Deserialize)]
    struct Fields {
        vocab_size: usize,
        hidden_size: usize,
        num_hidden_layers: usize,
        num_attention_heads: usize,
        intermediate_size: usize,
        max_position_embeddings: usize,
        type_vocab_size: usize,
    }
    let fields: Fields = config(&text.config)?;
    let config = bert::Config {
        vocab_size: fields.vocab_size,
        hidden_size: fields.hidden_size,
        num_hidden_layers: fields.num_hidden_layers,
        num_attention_heads: fields.num_attention_heads,
        intermediate_size: fields.intermediate_size,
        max_position_embeddings: fields.max_position_embeddings,
        type_vocab_size: fields.type_vocab_size,
        ..Default::default()
    };
    let model = bert::BertModel::load(weights(), &config)?;
    let pooler = candle_nn::linear(fields.hidden_size, fields.hidden_size, weights())?;
    let ids = random_ids(fields.vocab_size, &[text.batch, text.tokens])?;
    let types = ids.zeros_like()?;
    Ok(Box::new(move || {
        let states = model.forward(&ids, &types, None)?;
        let pooled = states.narrow(1, 0, 1)?.squeeze(1)?.contiguous()?.apply(&pooler)?.tanh()?;
        black_box((states, pooled));
        Ok(())
    }))
}
