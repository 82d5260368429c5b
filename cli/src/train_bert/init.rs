//! Initial weights with which a small model begins to learn sooner.
//!
//! A masked position shows nothing but that it is masked: until attention has found out where its neighbours are, a model
//! can only guess by what words a text has. From random weights that takes longer than short runs last, so position
//! embeddings begin as waves, and the first layer's heads look at the neighbours. All of it is trained like the rest.

use grove::{models::bert::BertForMaskedLm, prelude::*, tensor::TensorData};
use std::f64::consts::{PI, SQRT_2};

/// Wavelengths of the waves, in tokens: the shortest tell neighbours apart.
const WAVELENGTHS: [f64; 2] = [2.2, 128.0];

/// Scale of the position embeddings relative to the word embeddings.
const POSITIONS_TO_WORDS: f64 = 2.0;

/// Offsets of the neighbours that the heads attend to, one head after the other.
const NEIGHBOURS: [f64; 4] = [-1.0, 1.0, -2.0, 2.0];

/// The model with waves for position embeddings (Vaswani et al., 2017, section 3.5, but for their lengths), and heads in the
/// first layer that look at neighbours.
pub fn aware_of_neighbours<B: Backend>(model: BertForMaskedLm<B>) -> BertForMaskedLm<B> {
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
    // A head compares the first waves, those of keys with those of queries moved by the way to the neighbour.
    let turned = |input: usize, output: usize, way: f64| {
        let (unit, angle) = (output % (width / heads), frequency(output % (width / heads) / 2) * way);
        match (input / 2 == unit / 2, input % 2, unit % 2) {
            (false, ..) => 0.0,
            (_, 0, 0) | (_, 1, 1) => angle.cos(),
            (_, 1, 0) => angle.sin(),
            _ => -angle.sin(),
        }
    };
    let way = |output: usize| NEIGHBOURS[output / (width / heads) % NEIGHBOURS.len()];
    let queries = matrix(width, width, &|input, output| turned(input, output, way(output)));
    let keys = matrix(width, width, &|input, output| turned(input, output, 0.0));
    let model = tree::at(model, |model| &mut model.bert.embeddings.position_embeddings.weight, positions);
    let model = tree::at(model, |model| &mut model.bert.encoder.layer[0].attention.query.weight, queries);
    tree::at(model, |model| &mut model.bert.encoder.layer[0].attention.key.weight, keys)
}
