//! Decoders with an output layer of their own or with a list of layer types, against transformers, also after saving.
//! Fixtures: tools/fixtures/decoder_files.py.

use grove_backend::Flex;
use grove_models::{CausalLm, Gpt2, Gpt2Config, GptNeo, Llama, Pretrained, PretrainedConfig};
use grove_tree::eq;
use grove_weights::TensorFiles;
use serde_json::{Map, Value, json};

use crate::decoder::{check_cache, check_logits};
use crate::reference::Reference;

/// Checks a model, and the same model after saving and loading. Returns it with the fields of the saved `config.json`,
/// and true if the saved weights have an output layer.
fn check<M: Pretrained<Flex> + CausalLm<Flex>>(name: &str) -> (M, Map<String, Value>, bool) {
    let (reference, device) = (Reference::of("decoder_files", name), Default::default());
    let (model, report) = M::from_path(&reference.directory, &device, None).unwrap();
    assert!(report.is_complete(), "{name}: {report}");
    check_logits::<Flex, M>(&reference, &model, &device, 1e-4);
    check_cache::<Flex, M>(&model, reference.tensor_of_ids("input_ids", &device), &[5, 1, 2]);

    let directory = tempfile::tempdir().unwrap();
    model.save_pretrained(directory.path()).unwrap();
    let (again, report) = M::from_path(directory.path(), &device, None).unwrap();
    assert!(report.is_complete() && eq::<Flex, M>(&again, &model), "{name}: {report}");
    check_logits::<Flex, M>(&reference, &again, &device, 1e-4);
    let config = serde_json::from_slice(&std::fs::read(directory.path().join("config.json")).unwrap()).unwrap();
    let has_head = TensorFiles::open(directory.path()).unwrap().contains("lm_head.weight");
    (model, config, has_head)
}

/// As in transformers 5, whatever `tie_word_embeddings` says.
#[test]
fn keeps_an_output_layer_that_differs_from_the_embedding() {
    let (model, config, has_head) = check::<Llama<Flex>>("llama_head");
    assert!(model.lm_head.is_some() && has_head && config["tie_word_embeddings"] == json!(false));
    let (model, config, has_head) = check::<Gpt2<Flex>>("gpt2_head");
    assert!(model.lm_head.is_some() && has_head && config["tie_word_embeddings"] == json!(false));
    let (model, config, has_head) = check::<GptNeo<Flex>>("gpt_neo_head");
    assert!(model.lm_head.is_some() && has_head && config["tie_word_embeddings"] == json!(false));
}

#[test]
fn follows_untied_embeddings() {
    let (model, config, has_head) = check::<Gpt2<Flex>>("gpt2_untied");
    assert!(model.lm_head.is_some() && has_head && config["tie_word_embeddings"] == json!(false));
    let (model, config, has_head) = check::<GptNeo<Flex>>("gpt_neo_untied");
    assert!(model.lm_head.is_some() && has_head && config["tie_word_embeddings"] == json!(false));
}

#[test]
fn follows_attention_layers_of_gpt_neo() {
    for (name, windows, types) in [
        ("gpt_neo_layers", [Some(4), Some(4)], json!([[["local", "local"], 1]])),
        ("gpt_neo_layers_only", [Some(4), None], json!([[["local", "global"], 1]])),
    ] {
        let (model, config, has_head) = check::<GptNeo<Flex>>(name);
        assert_eq!(model.h.iter().map(|block| block.attn.window).collect::<Vec<_>>(), windows, "{name}");
        assert!(!has_head && config["attention_types"] == types && !config.contains_key("attention_layers"), "{name}");
    }
}

/// `AutoModelForCausalLM` loads a Mistral with `layer_types` as a Ministral.
#[test]
fn follows_layer_types_of_mistral() {
    let (model, config, _) = check::<Llama<Flex>>("mistral_layer_types");
    assert_eq!((0..2).map(|layer| model.config.window(layer)).collect::<Vec<_>>(), [None, Some(4)]);
    assert_eq!(config["layer_types"], json!(["full_attention", "sliding_attention"]));
}

/// The process that reads the file is this test's program, since notes go to standard error, once per process.
#[test]
fn names_unknown_keys_of_config_once() {
    const CHILD: &str = "GROVE_TEST_CONFIG_NOTES";
    if std::env::var_os(CHILD).is_some() {
        let own = std::fs::read("tests/fixtures/gpt2/tiny_a/config.json").unwrap();
        let mut fields: Map<String, Value> = serde_json::from_slice(&own).unwrap();
        fields.insert("attn_logit_cap".into(), 30.into());
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("config.json"), json!(fields).to_string()).unwrap();
        for _ in 0..2 {
            Gpt2Config::from_file(directory.path()).unwrap();
        }
        return;
    }
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "decoder_files::names_unknown_keys_of_config_once", "--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let notes = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{notes}");
    assert_eq!(notes.matches("note: ").count(), 1, "{notes}");
    assert!(notes.contains("config.json: keys that are not known and change nothing here: attn_logit_cap"), "{notes}");
}
