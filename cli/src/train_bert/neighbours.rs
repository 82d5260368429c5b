//! Initial weights with which a small masked language model learns faster.

use grove::{
    models::bert::BertForMaskedLm,
    prelude::*,
    tensor::TensorData,
    tree::{Array, at},
};
use std::f64::consts::{PI, SQRT_2};

/// Wavelengths of the position embeddings, in tokens. The shortest distinguishes adjacent positions.
const WAVELENGTHS: [f64; 2] = [2.2, 128.0];

/// Scale of the position embeddings relative to the word embeddings.
const POSITIONS_TO_WORDS: f64 = 2.0;

/// Relative positions that the heads attend to, one per head, repeated.
const OFFSETS: [f64; 4] = [-1.0, 1.0, -2.0, 2.0];

/// Replaces two initial weights: the position embeddings become sinusoids (Vaswani et al., 2017, section 3.5, with
/// other wavelengths), and the heads of the first layer attend to neighbouring positions.
///
/// A masked token's own embedding does not identify the original token. Until attention has learned to find the
/// neighbours, a model can only predict token frequencies, and learning this from random weights takes longer than a
/// short run. The new weights are trained like all others.
#[must_use]
pub(super) fn with_neighbour_attention<B: Backend>(model: BertForMaskedLm<B>) -> BertForMaskedLm<B> {
    let config = model.bert.config.clone();
    let (width, heads) = (config.hidden_size, config.num_attention_heads);
    let device = model.head.bias.val().device();
    let pairs = (width / 2).max(2);
    let frequency = |pair: usize| {
        let [shortest, longest] = WAVELENGTHS;
        2.0 * PI / (shortest * (longest / shortest).powf(pair as f64 / (pairs - 1) as f64))
    };
    let matrix = |rows: usize, columns: usize, f: &dyn Fn(usize, usize) -> f64| {
        let values: Vec<f32> = (0..rows * columns).map(|at| f(at / columns, at % columns) as f32).collect();
        Array::new(Tensor::from_data(TensorData::new(values, [rows, columns]), &device))
    };
    let amplitude = POSITIONS_TO_WORDS * config.initializer_range * SQRT_2;
    let positions = matrix(config.max_position_embeddings, width, &|position, i| {
        let angle = position as f64 * frequency(i / 2);
        amplitude * if i.is_multiple_of(2) { angle.sin() } else { angle.cos() }
    });
    // A head compares the first sinusoids of keys with those of queries, rotated by the offset.
    let rotated = |input: usize, output: usize, offset: f64| {
        let (unit, angle) = (output % (width / heads), frequency(output % (width / heads) / 2) * offset);
        match (input / 2 == unit / 2, input % 2, unit % 2) {
            (false, ..) => 0.0,
            (_, 0, 0) | (_, 1, 1) => angle.cos(),
            (_, 1, 0) => angle.sin(),
            _ => -angle.sin(),
        }
    };
    let offset = |output: usize| OFFSETS[output / (width / heads) % OFFSETS.len()];
    let queries = matrix(width, width, &|input, output| rotated(input, output, offset(output)));
    let keys = matrix(width, width, &|input, output| rotated(input, output, 0.0));
    let model = at(model, |model| &mut model.bert.embeddings.position_embeddings.weight, positions);
    let model = at(model, |model| &mut model.bert.encoder.layer[0].attention.query.weight, queries);
    at(model, |model| &mut model.bert.encoder.layer[0].attention.key.weight, keys)
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use super::*;

    #[test]
    fn first_head_prefers_the_token_before() {
        let config = BertConfig {
            vocab_size: 20,
            hidden_size: 64,
            num_hidden_layers: 1,
            num_attention_heads: 4,
            intermediate_size: 8,
            max_position_embeddings: 16,
            ..BertConfig::default()
        };
        let model = BertForMaskedLm::<Flex>::init(&config, Key::new(0), &Default::default()).expect("a valid size");
        let model = with_neighbour_attention(model);
        let x = model.bert.embeddings.position_embeddings.weight.val();
        let project = |weight: &Array<Flex, 2>| x.clone().matmul(weight.val()).narrow(1, 0, 16);
        let attention = &model.bert.encoder.layer[0].attention;
        let scores = project(&attention.query.weight).matmul(project(&attention.key.weight).transpose()); // [t, t]
        let best: Vec<i64> = scores.argmax(1).into_data().iter().collect();
        assert_eq!(best[1..], (0..15).collect::<Vec<i64>>());
    }
}
