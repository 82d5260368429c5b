//! Keys of a `config.json` that are not fields of a configuration. Each is followed elsewhere, has no effect, or is
//! refused. All other keys are named when the file is read.

use grove_files::{KnownKeys, RefusedKey};
use serde_json::{Map, Value};

use crate::{
    error::{Result, invalid},
    generation_keys::GENERATION_KEYS,
    sequence_classification::check_fields,
};

/// Workaround for keys without which a model can be used.
pub(crate) const REMOVE: &str = "it would change the result. Remove the key to go without it";

/// Reason of keys of transformers' Python objects.
const PYTHON: &str = "how transformers runs the model";

/// Reason of keys of classifiers. Their loaders read these keys.
const CLASSIFIERS: &str = "of classifiers";

/// Reason of the keys that select the features that a backbone returns to a detector.
pub(crate) const BACKBONES: &str = "of backbones";

/// Reason of the options of a head that summarises a sequence.
const SUMMARY: &str = "of a head that grove does not have";

/// Keys of transformers' configurations, of version 5 and of older ones, that mean the same in every family.
pub(crate) const COMMON: KnownKeys = KnownKeys {
    followed: &["architectures", "model_type", "tokenizer_class"],
    without_effect: &[
        ("_name_or_path", "where the file came from"),
        ("_commit_hash", "where the file came from"),
        ("transformers_version", "who wrote it"),
        ("dtype", "the type of the weights, which have their own"),
        ("torch_dtype", "the same, in transformers 4"),
        ("use_cache", "speed"),
        ("chunk_size_feed_forward", "memory"),
        ("gradient_checkpointing", "memory"),
        ("return_dict", "the form of the result"),
        ("output_attentions", "the form of the result"),
        ("output_hidden_states", "the form of the result"),
        ("output_past", "the form of the result"),
        ("pad_token_id", "padding is masked"),
        ("sep_token_id", "of the tokenizer"),
        ("id2label", CLASSIFIERS),
        ("label2id", CLASSIFIERS),
        ("num_labels", CLASSIFIERS),
        ("_num_labels", CLASSIFIERS),
        ("problem_type", CLASSIFIERS),
        ("classifier_dropout", CLASSIFIERS),
        ("summary_activation", SUMMARY),
        ("summary_first_dropout", SUMMARY),
        ("summary_proj_to_labels", SUMMARY),
        ("summary_type", SUMMARY),
        ("summary_use_proj", SUMMARY),
        ("finetuning_task", "a note"),
        ("task_specific_params", "options of transformers' pipelines, which its models do not read"),
        ("cross_attention_hidden_size", "of cross-attention, which has its own key"),
        ("tie_encoder_decoder", "of models with an encoder and a decoder"),
        ("auto_map", "no remote code is run"),
        ("_attn_implementation", PYTHON),
        ("_attn_implementation_autoset", PYTHON),
        ("_attn_implementation_internal", PYTHON),
        ("attn_implementation", PYTHON),
        ("tf_legacy_loss", PYTHON),
        ("torchscript", PYTHON),
        ("use_bfloat16", PYTHON),
        ("xla_device", PYTHON),
        ("transformers.js_config", "how transformers.js runs the model"),
    ],
    refused: &[
        RefusedKey { key: "is_encoder_decoder", neutral: &["false"], instead: REMOVE },
        RefusedKey { key: "add_cross_attention", neutral: &["false"], instead: REMOVE },
        RefusedKey { key: "quantization_config", neutral: &[], instead: REMOVE },
        RefusedKey { key: "pruned_heads", neutral: &["{}", "[]"], instead: "use a model with all heads" },
    ],
};

/// Keys of a family that has no other keys than its fields and the common ones.
pub(crate) const NONE: KnownKeys = KnownKeys { followed: &[], without_effect: &[], refused: &[] };

/// Returns true if a field has the default value of its type. Such fields are not saved.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Returns true if a field is 1. Such fields are not saved.
pub(crate) fn is_one(value: &usize) -> bool {
    *value == 1
}

/// Refuses additional fields of a configuration that would change a result, and impossible fields of a classifier.
pub(crate) fn check_others(own: &KnownKeys, others: &Map<String, Value>) -> Result<()> {
    for known in [&COMMON, own] {
        known.refuse(others).or_else(invalid)?;
    }
    check_fields(others)
}

/// Returns the additional fields of a configuration that are neither common keys, nor the family's own, nor options of
/// generation, which `GenerateOptions::published` reads.
pub(crate) fn unknown<'a>(own: &KnownKeys, others: &'a Map<String, Value>) -> Vec<&'a str> {
    let sets = [&COMMON, own, &GENERATION_KEYS];
    let present = others.iter().filter(|(_, value)| !value.is_null()).map(|(key, _)| key.as_str());
    let mut unknown: Vec<&str> = present.filter(|key| !sets.iter().any(|keys| keys.knows(key))).collect();
    unknown.sort_unstable();
    unknown
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BertConfig, Gpt2Config, GptNeoConfig, LlamaConfig, PretrainedConfig, ResNetConfig, VitConfig};
    use serde_json::json;

    fn unknown_in<C: PretrainedConfig>(fields: Value) -> Vec<String> {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("config.json");
        std::fs::write(&file, fields.to_string()).unwrap();
        C::from_file(&file).unwrap().unknown_keys().into_iter().map(str::to_owned).collect()
    }

    #[test]
    fn unknown_keys_are_named_in_every_family() {
        fn check<C: PretrainedConfig>(mut fields: Value) {
            let known = json!({"architectures": null, "torch_dtype": "float16", "num_beams": 1, "pruned_heads": {},
                "transformers_version": "4.1.0", "attn_sinks": null});
            fields.as_object_mut().unwrap().extend(known.as_object().unwrap().clone());
            assert_eq!(unknown_in::<C>(fields.clone()), [""; 0], "{fields}");
            fields["attn_logit_cap"] = 30.into();
            fields["notes"] = "ours".into();
            assert_eq!(unknown_in::<C>(fields.clone()), ["attn_logit_cap", "notes"], "{fields}");
        }
        check::<Gpt2Config>(json!({"model_type": "gpt2", "n_ctx": 1024, "summary_type": "cls_index"}));
        check::<GptNeoConfig>(json!({"model_type": "gpt_neo", "attention_layers": ["global"], "num_layers": 1}));
        check::<LlamaConfig>(json!({"model_type": "llama", "pretraining_tp": 1, "rope_theta": 10000.0}));
        check::<BertConfig>(json!({"model_type": "bert", "directionality": "bidi", "is_decoder": false}));
        check::<BertConfig>(json!({"model_type": "distilbert", "qa_dropout": 0.1, "tie_weights_": true}));
        check::<VitConfig>(json!({"model_type": "vit", "encoder_stride": 16}));
        check::<VitConfig>(json!({"model_type": "dinov2", "mlp_ratio": 4, "out_features": null}));
        check::<ResNetConfig>(json!({"model_type": "resnet", "out_indices": [4]}));
        check::<crate::RnnLmConfig>(json!({"model_type": "grove_rnn_lm"}));
        check::<crate::RnnClassifierConfig>(json!({"model_type": "grove_rnn_classifier"}));
    }

    #[test]
    fn refused_keys_are_named() {
        let refused = |fields: Value| {
            let error = check_others(&NONE, fields.as_object().unwrap()).unwrap_err();
            error.to_string()
        };
        assert!(refused(json!({"pruned_heads": {"0": [1]}})).contains(r#"pruned_heads is {"0":[1]}"#));
        assert!(refused(json!({"is_encoder_decoder": true})).contains("Remove the key"));
    }

    #[test]
    fn every_reason_is_given_and_no_key_is_in_two_sets() {
        for keys in [&COMMON, &GENERATION_KEYS] {
            assert!(keys.without_effect.iter().all(|(_, reason)| !reason.is_empty()));
            let mut all: Vec<&str> = keys.all().collect();
            let count = all.len();
            all.sort_unstable();
            all.dedup();
            assert_eq!(all.len(), count);
        }
    }
}
