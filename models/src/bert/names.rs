use grove_weights::{NameMap, Step};

use super::{BertConfig, Family};

/// Returns the published names of an encoder's tensors, with or without the prefix `bert.` (`roberta.`, `distilbert.`).
/// Heads are ignored.
pub fn published_names(config: &BertConfig, pooler: bool) -> NameMap {
    let heads = ["cls", "lm_head", "classifier", "pre_classifier", "qa_outputs"];
    let map = heads.iter().fold(encoder_names(config, pooler, "", ""), |map, head| map.ignore(&format!("{head}.**")));
    ["vocab_transform.*", "vocab_layer_norm.*", "vocab_projector.*"].iter().fold(map, |map, head| map.ignore(head))
}

/// Returns the names of an encoder inside a model with a head. They are saved with the encoder's prefix, as in
/// transformers.
pub(super) fn encoder_below_head(config: &BertConfig, pooler: bool) -> NameMap {
    encoder_names(config, pooler, config.model_type.prefix(), "bert.")
}

/// Adds a linear layer, which PyTorch stores as `[out, in]`.
pub(super) fn linear(map: NameMap, name: &str, path: &str) -> NameMap {
    map.rule(&format!("{name}.weight"), &format!("{path}.weight"))
        .then(Step::Transpose)
        .rule(&format!("{name}.bias"), &format!("{path}.bias"))
}

/// Adds a layer norm. Files converted from TensorFlow call its parameters gamma and beta.
pub(super) fn norm(map: NameMap, name: &str, path: &str) -> NameMap {
    [("weight", "gamma"), ("bias", "beta")].iter().fold(map, |map, (new, old)| {
        let path = format!("{path}.{new}");
        map.rule(&format!("{name}.{new}"), &path).alias(&format!("{name}.{old}"), &path)
    })
}

/// Returns a layer's published names, in the order of [`LAYER_PATHS`].
fn layer_names(family: Family) -> [&'static str; 8] {
    match family {
        Family::Bert | Family::Roberta | Family::XlmRoberta | Family::Camembert => [
            "encoder.layer.{i}.attention.self.query",
            "encoder.layer.{i}.attention.self.key",
            "encoder.layer.{i}.attention.self.value",
            "encoder.layer.{i}.attention.output.dense",
            "encoder.layer.{i}.intermediate.dense",
            "encoder.layer.{i}.output.dense",
            "encoder.layer.{i}.attention.output.LayerNorm",
            "encoder.layer.{i}.output.LayerNorm",
        ],
        Family::DistilBert => [
            "transformer.layer.{i}.attention.q_lin",
            "transformer.layer.{i}.attention.k_lin",
            "transformer.layer.{i}.attention.v_lin",
            "transformer.layer.{i}.attention.out_lin",
            "transformer.layer.{i}.ffn.lin1",
            "transformer.layer.{i}.ffn.lin2",
            "transformer.layer.{i}.sa_layer_norm",
            "transformer.layer.{i}.output_layer_norm",
        ],
    }
}

const LAYER_PATHS: [&str; 8] = [
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
    map = norm(map, &name("embeddings.LayerNorm"), &path("embeddings.layer_norm"));
    for (i, (published, own)) in layer_names(family).iter().zip(LAYER_PATHS).enumerate() {
        let part = if i < 6 { linear } else { norm };
        map = part(map, &name(published), &path(own));
    }
    // Older files store the position ids as a buffer.
    map = map.ignore("embeddings.position_ids").ignore("embeddings.token_type_ids");
    if pooler { linear(map, &name("pooler.dense"), &path("pooler.dense")) } else { map.ignore("pooler.dense.*") }
}
