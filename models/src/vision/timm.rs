//! timm's `config.json`: the architecture and the arguments with which the model was built.

use grove_files::{KnownKeys, name_unknown_keys};
use serde_json::{Map, Value};
use std::path::Path;

use crate::{
    config_keys::unknown,
    error::{Result, invalid},
};

/// Keys of timm's `config.json` and of transformers' wrapper of it. Those of `pretrained_cfg` are read with the
/// preprocessing.
const KEYS: KnownKeys = KnownKeys {
    followed: &[
        "architecture",
        "model_args",
        "pretrained_cfg",
        "global_pool",
        "label_names",
        "fixed_input_size",
        "img_size",
        "num_heads",
        "num_attention_heads",
    ],
    without_effect: &[
        ("num_classes", "the weights have it"),
        ("num_features", "the weights have it"),
        ("label_descriptions", "a note"),
        ("do_pooling", "the form of the result"),
        ("initializer_range", "initial weights"),
    ],
    refused: &[],
};

/// Arguments of timm's models that the weights' shapes determine, that matter only in training, or that change no
/// value.
const HARMLESS: [&str; 14] = [
    "num_classes",
    "in_chans",
    "drop_rate",
    "drop_path_rate",
    "pretrained",
    "pretrained_cfg",
    "pretrained_cfg_overlay",
    "checkpoint_path",
    "scriptable",
    "exportable",
    "features_only",
    "zero_init_last",
    "weight_init",
    "fix_init",
];

/// Returns the architecture in a timm configuration, without the tag of its weights: `resnet50` for `resnet50.a1_in1k`.
pub(crate) fn timm_architecture(fields: &Map<String, Value>) -> Option<&str> {
    let cfg = fields.get("pretrained_cfg").and_then(Value::as_object);
    let name = fields.get("architecture").or_else(|| cfg?.get("architecture"))?.as_str()?;
    Some(name.split('.').next().unwrap_or(name))
}

/// Refuses a timm configuration that differs from grove's `family`: its architecture is not in the table (a name at the
/// start of each line), or it was built with other `model_args` than the given ones.
///
/// Blur pooling, another activation or an average in a shortcut do not show in the weights, so only the name identifies
/// them.
pub(crate) fn check_timm(fields: &Map<String, Value>, family: &str, table: &str, arguments: &[&str]) -> Result<()> {
    // A transformers wrapper has timm's fields.
    if let Some(kind) = fields.get("model_type").and_then(Value::as_str).filter(|kind| *kind != "timm_wrapper") {
        return invalid(format!("model_type is '{kind}', but this is the loader of {family}"));
    }
    let Some(architecture) = timm_architecture(fields) else { return Ok(()) };
    if timm_line(table, architecture).is_none() {
        return invalid(format!(
            "timm's architecture '{architecture}' is not one of the {family}s that grove has: its blocks, stem, \
             normalisation or pooling differ, or it is unknown"
        ));
    }
    let args = fields.get("model_args").and_then(Value::as_object);
    let unknown = args.into_iter().flatten().find(|(name, value)| {
        let given = !matches!(value, Value::Null | Value::Bool(false));
        given && !HARMLESS.contains(&name.as_str()) && !arguments.contains(&name.as_str())
    });
    match unknown {
        Some((name, value)) => invalid(format!(
            "timm's '{architecture}' was built with {name} = {value}, which grove's {family} does not have"
        )),
        None => Ok(()),
    }
}

/// Names the keys of timm's `config.json` that change nothing, since they are not known, once on standard error.
pub(crate) fn name_unknown_timm_keys(fields: &Map<String, Value>, file: &Path) {
    name_unknown_keys(file, &unknown_timm_keys(fields));
}

fn unknown_timm_keys(fields: &Map<String, Value>) -> Vec<&str> {
    // Older files have the entries of `pretrained_cfg` beside the architecture; the preprocessing names them.
    if fields.contains_key("input_size") { Vec::new() } else { unknown(&KEYS, fields) }
}

/// Returns the line of a table that begins with an architecture's name.
pub(crate) fn timm_line<'a>(table: &'a str, architecture: &str) -> Option<&'a str> {
    table.lines().find(|line| line.split(' ').next() == Some(architecture))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_keys_are_named() {
        let mut fields = serde_json::json!({"architecture": "resnet18", "num_classes": 4, "global_pool": "avg",
            "model_args": {"no_such": 1}, "pretrained_cfg": {"tag": "a1"}, "dtype": "float32"});
        let fields = fields.as_object_mut().unwrap();
        assert_eq!(unknown_timm_keys(fields), [""; 0]);
        fields.insert("head_scale".into(), 2.into());
        assert_eq!(unknown_timm_keys(fields), ["head_scale"]);
    }
}
