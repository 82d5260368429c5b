//! Published names of the tensors. [`Family`](super::Family) has those that differ between the families.

use grove_weights::{NameMap, TensorFiles};

use super::BertConfig;
use crate::{
    error::Result,
    names::{linear_names, output_names},
    tied::is_tied,
};

/// Returns the published names of an encoder's tensors, with or without the prefix `bert.` (`roberta.`, `distilbert.`).
/// Heads are ignored.
pub fn published_names(config: &BertConfig, pooler: bool) -> NameMap {
    let heads = [
        "cls.**",
        "lm_head.**",
        "classifier.**",
        "pre_classifier.**",
        "qa_outputs.**",
        "vocab_transform.*",
        "vocab_layer_norm.*",
        "vocab_projector.*",
    ];
    encoder_names(config, pooler, "", "")
        .ignore_each(&heads.map(|head| (head, "heads, which an encoder does not have")))
}

/// Returns the names of an encoder inside a model with a head. They are saved with the encoder's prefix, as in
/// transformers.
pub(super) fn encoder_below_head(config: &BertConfig, pooler: bool) -> NameMap {
    encoder_names(config, pooler, config.model_type.prefix(), "bert.")
}

/// Adds a layer norm. Files converted from TensorFlow call its parameters gamma and beta.
fn norm_names(map: NameMap, name: &str, path: &str) -> NameMap {
    [("weight", "gamma"), ("bias", "beta")].iter().fold(map, |map, (new, old)| {
        let path = format!("{path}.{new}");
        map.rule(&format!("{name}.{new}"), &path).alias(&format!("{name}.{old}"), &path)
    })
}

/// Paths of a layer's parts, in the order of [`Family::layer_names`](super::Family::layer_names): linear layers, then layer
/// norms.
pub(super) const LAYER_PATHS: [&str; 8] = [
    "encoder.layer.{i}.attention.query",
    "encoder.layer.{i}.attention.key",
    "encoder.layer.{i}.attention.value",
    "encoder.layer.{i}.attention.output",
    "encoder.layer.{i}.intermediate",
    "encoder.layer.{i}.output",
    "encoder.layer.{i}.attention.layer_norm",
    "encoder.layer.{i}.layer_norm",
];

fn encoder_names(config: &BertConfig, pooler: bool, name_prefix: &str, path_prefix: &str) -> NameMap {
    let family = config.model_type;
    let name = |name: &str| format!("{name_prefix}{name}");
    let path = |path: &str| format!("{path_prefix}{path}");
    let mut map = NameMap::new().prefix(family.prefix()).prefix("model.");
    for table in ["word_embeddings", "position_embeddings", "token_type_embeddings"] {
        let table = format!("embeddings.{table}.weight");
        map = map.rule(&name(&table), &path(&table));
    }
    map = norm_names(map, &name("embeddings.LayerNorm"), &path("embeddings.layer_norm"));
    for (i, (published, own)) in family.layer_names().iter().zip(LAYER_PATHS).enumerate() {
        let add = if i < 6 { linear_names } else { norm_names };
        map = add(map, &name(published), &path(own));
    }
    map = map.ignore_each(&[
        ("embeddings.position_ids", "positions, which are computed"),
        ("embeddings.token_type_ids", "default token types, which are zeros"),
    ]);
    match pooler {
        true => linear_names(map, &name("pooler.dense"), &path("pooler.dense")),
        false => map.ignore_each(&[("pooler.dense.*", "a pooler, which this head does not use")]),
    }
}

/// Adds the published names of a classifier's layers `dense`, if it has one, and `classifier`.
pub(super) fn classifier_names(map: NameMap, (dense, classifier): (Option<&str>, &str)) -> NameMap {
    let map = linear_names(map, classifier, "head.classifier");
    dense.into_iter().fold(map, |map, dense| linear_names(map, dense, "head.dense"))
}

/// Adds the published names of the masked-language-modelling head.
pub(super) fn masked_lm_names(map: NameMap, config: &BertConfig) -> NameMap {
    let [dense, layer_norm, decoder, bias] = config.model_type.masked_lm_names();
    let map = norm_names(linear_names(map, dense, "head.dense"), layer_norm, "head.layer_norm");
    // Both names are the same bias, except in an untied model that transformers 5 wrote: it uses the decoder's bias.
    let decoder_bias = format!("{decoder}.bias");
    let [first, second] = if config.tie_word_embeddings { [bias, &*decoder_bias] } else { [&*decoder_bias, bias] };
    let map = map.rule(first, "head.bias").alias(second, "head.bias");
    let (weight, table) = (format!("{decoder}.weight"), "bert.embeddings.word_embeddings.weight");
    output_names(map, &weight, "head.decoder", config.tie_word_embeddings, table)
        .ignore_each(&[("cls.seq_relationship.*", "the next-sentence head, which this model does not have")])
}

/// Returns true if a file's masked-language-modelling head is tied to the token embedding; see [`is_tied`].
pub(super) fn masked_lm_is_tied(config: &BertConfig, checkpoint: &TensorFiles) -> Result<bool> {
    let untied = BertConfig { tie_word_embeddings: false, ..config.clone() };
    let names = masked_lm_names(encoder_below_head(&untied, false), &untied);
    let paths = ["bert.embeddings.word_embeddings.weight", "head.decoder"];
    is_tied(config.tie_word_embeddings, checkpoint, &names, paths)
}
