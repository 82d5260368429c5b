//! LoRA adapters in peft's files against peft: logits with separate and merged adapters, and saved files. Fixtures:
//! tools/fixtures/adapters.py.

use crate::common;
use burn::tensor::{Int, Tensor, TensorData};
use grove_backend::{Backend, Flex};
use grove_layers::lora;
use grove_models::{
    AutoModel, CausalLm, Gpt2, Gpt2Config, ModelError, ModelFiles, ModelKind, Pretrained, Vit,
    bert::{self, BertForSequenceClassification, TextBatch},
    gpt2, peft,
};
use grove_text::TextIds;
use grove_tree::{Key, all_close, leaves};
use grove_weights::TensorFiles;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

fn fixtures(name: &str) -> PathBuf {
    Path::new("tests/fixtures").join(name)
}

fn assert_close(what: &str, a: TensorData, name: &str) {
    let b = TensorFiles::open(fixtures(name).join("reference.safetensors")).unwrap().tensor("logits").unwrap();
    assert_eq!(a.shape, b.shape, "{what}");
    let (a, b): (Vec<f64>, Vec<f64>) = (a.iter().collect(), b.iter().collect());
    let (apart, largest) = common::distance(&a, &b);
    assert!(apart <= 1e-4 * largest, "{what}: apart by {apart}, the largest is {largest}");
}

fn gpt2_model<B: Backend>(device: &B::Device) -> Gpt2<B> {
    Gpt2::from_path(fixtures("gpt2/tiny_a"), device, None).unwrap().0
}

/// Rank-stabilised adapters of `Conv1D` layers, one of another rank and alpha.
fn gpt2_as_peft<B: Backend>(device: B::Device) {
    let reference = TensorFiles::open(fixtures("gpt2/tiny_a/reference.safetensors")).unwrap();
    let ids = Tensor::<B, 2, Int>::from_data(reference.tensor("input_ids").unwrap(), &device);
    let base = gpt2_model::<B>(&device);
    let model =
        peft::load_adapters(base.clone(), &gpt2::published_names(&Default::default()), fixtures("adapters/gpt2"))
            .unwrap();
    assert_eq!(leaves(&model).len(), leaves(&base).len() + 3 * 2 * 2);
    assert_close("gpt2", model.forward(ids.clone(), None).into_data(), "adapters/gpt2");
    assert_close("gpt2 merged", lora::merge(model).forward(ids, None).into_data(), "adapters/gpt2");
}

/// Texts of the reference.
fn bert_texts<B: Backend>(model: &BertForSequenceClassification<B>) -> TextBatch<B> {
    let reference = TensorFiles::open(fixtures("bert/bert_classify/reference.safetensors")).unwrap();
    let rows = |name: &str| -> Vec<Vec<u32>> {
        let data = reference.tensor(name).unwrap();
        let numbers: Vec<u32> = data.iter::<i64>().map(|number| number as u32).collect();
        numbers.chunks(data.shape.as_slice()[1]).map(<[u32]>::to_vec).collect()
    };
    let text = |((mut ids, mut token_types), mask): ((Vec<u32>, Vec<u32>), Vec<u32>)| {
        let length = mask.iter().sum::<u32>() as usize;
        ids.truncate(length);
        token_types.truncate(length);
        TextIds { ids, token_types }
    };
    let texts: Vec<TextIds> = rows("ids").into_iter().zip(rows("types")).zip(rows("mask")).map(text).collect();
    model.bert.batch(&texts).unwrap()
}

fn bert_as_peft<B: Backend>(device: B::Device) {
    let path = fixtures("bert/bert_classify");
    let model = BertForSequenceClassification::<B>::from_path(&path, &device, None).unwrap().0;
    let texts = bert_texts(&model);
    let names = bert::published_names(&model.bert.config, true);
    let bert = peft::load_adapters(model.bert, &names, fixtures("adapters/bert")).unwrap();
    let model = BertForSequenceClassification { bert, head: model.head };
    assert_close("bert", model.forward(&texts, None).into_data(), "adapters/bert");
    assert_close("bert merged", lora::merge(model).forward(&texts, None).into_data(), "adapters/bert");
}

on_each_backend!(gpt2_as_peft, bert_as_peft);

/// Copies an adapter and changes the base model that it names.
fn adapter_of(name: &str, base: Option<&Path>) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let source = fixtures(&format!("adapters/{name}"));
    let (_, mut config) = read(&source);
    config["base_model_name_or_path"] = base.map(|base| base.to_str().unwrap().into()).unwrap_or(Value::Null);
    std::fs::write(directory.path().join("adapter_config.json"), config.to_string()).unwrap();
    let weights = "adapter_model.safetensors";
    std::fs::copy(source.join(weights), directory.path().join(weights)).unwrap();
    directory
}

/// Loads the directory of an adapter as a model: the base model that it names, with the head that was trained with it.
#[test]
fn an_adapter_finds_its_model() {
    let device = Default::default();
    let base = std::fs::canonicalize(fixtures("bert/bert_classify")).unwrap();
    let directory = adapter_of("bert_with_head", Some(&base));
    let (model, report) = BertForSequenceClassification::<Flex>::from_path(directory.path(), &device, None).unwrap();
    assert!(report.is_complete());
    assert_close("found", model.forward(&bert_texts(&model), None).into_data(), "adapters/bert_with_head");
    assert!(leaves(&model).iter().all(|(path, _)| !path.contains("low_rank")), "it is merged");
    let skeleton = BertForSequenceClassification::<Flex>::skeleton_at(directory.path(), None).unwrap();
    assert_eq!(leaves(&skeleton).len(), leaves(&model).len());
    assert_eq!(ModelKind::of(directory.path()).unwrap(), ModelKind::Bert);

    // An explicit base model takes precedence over the adapter's. The adapter also applies to fine-tuning.
    let files =
        ModelFiles::at(&base).unwrap().with_adapter(fixtures("adapters/bert_with_head").to_str().unwrap()).unwrap();
    let (same, _) = files.load::<Flex, BertForSequenceClassification<Flex>>(&device, None).unwrap();
    assert!(all_close(&same, &model, 0.0, 0.0));
    let config = model.bert.config.clone();
    let with_head =
        BertForSequenceClassification::<Flex>::with_new_head_of(&files, &config, Key::new(0), &device, None).unwrap().0;
    assert!(all_close(&with_head, &model, 0.0, 0.0));

    // A path relative to the adapter.
    let inside = adapter_of("gpt2", Some(Path::new("model")));
    copy_files(&fixtures("gpt2/tiny_a"), &inside.path().join("model"));
    let auto = AutoModel::<Flex>::from_path(inside.path(), &device, None).unwrap();
    let reference = TensorFiles::open(fixtures("gpt2/tiny_a/reference.safetensors")).unwrap();
    let ids = Tensor::<Flex, 2, Int>::from_data(reference.tensor("input_ids").unwrap(), &device);
    let AutoModel::Gpt2(gpt2) = auto else { panic!("another family") };
    assert_close("gpt2", gpt2.forward(ids, None).into_data(), "adapters/gpt2");
}

/// Writes an adapter of whole tensors, each filled with one value.
fn adapter_of_tensors(tensors: &[(&str, &[usize], f32)]) -> tempfile::TempDir {
    let filled = tensors.iter().map(|&(name, shape, value)| (name, shape, vec![value; shape.iter().product()]));
    adapter_of_values(&filled.collect::<Vec<_>>())
}

fn adapter_of_values(tensors: &[(&str, &[usize], Vec<f32>)]) -> tempfile::TempDir {
    let directory = adapter_of("gpt2", None);
    let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
    for (name, shape, values) in tensors {
        let start = data.len();
        data.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        let entry = json!({"dtype": "F32", "shape": shape, "data_offsets": [start, data.len()]});
        header.insert(format!("base_model.model.{name}"), entry);
    }
    let header = Value::Object(header).to_string();
    let parts = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data].concat();
    std::fs::write(directory.path().join("adapter_model.safetensors"), parts).unwrap();
    directory
}

fn gpt2_with(adapter: &Path) -> grove_models::Result<Gpt2<Flex>> {
    let files = ModelFiles::at(fixtures("gpt2/tiny_a"))?.with_adapter(adapter.to_str().unwrap())?;
    Ok(files.load(&Default::default(), None)?.0)
}

/// peft's names depend on the class that it adapts: a tensor replaces the model's own whatever the prefixes of both.
#[test]
fn whole_tensors_replace_those_of_other_prefixes() {
    for name in ["transformer.ln_f.weight", "ln_f.weight"] {
        let model = gpt2_with(adapter_of_tensors(&[(name, &[24], 0.5)]).path()).unwrap();
        let scale: Vec<f32> = model.ln_f.weight.val().into_data().to_vec().unwrap();
        assert_eq!(scale, [0.5; 24], "{name}");
    }
    let twice = adapter_of_tensors(&[("transformer.ln_f.weight", &[24], 0.5), ("ln_f.weight", &[24], 0.25)]);
    let message = gpt2_with(twice.path()).unwrap_err().to_string();
    assert!(
        message.contains("adapter_model.safetensors") && message.contains("`transformer.ln_f.weight`"),
        "{message}"
    );
}

/// With peft, an embedding that the adapter replaces is no longer the output layer's matrix, unless both are saved. peft
/// also saves embeddings that were not trained (`save_embedding_layers`).
#[test]
fn an_embedding_of_an_adapter_and_a_tied_output_layer() {
    let shape = &[67, 24][..];
    let alone = adapter_of_tensors(&[("transformer.wte.weight", shape, 0.5)]);
    let message = gpt2_with(alone.path()).unwrap_err().to_string();
    assert!(message.contains("adapter_model.safetensors") && message.contains("ensure_weight_tying"), "{message}");
    let old_name = adapter_of_tensors(&[("transformer.wte.modules_to_save.weight", shape, 0.5)]);
    let message = gpt2_with(old_name.path()).unwrap_err().to_string();
    assert!(message.contains("adapter_model.safetensors") && message.contains("ensure_weight_tying"), "{message}");
    let update =
        [("transformer.wte.base_layer.weight", shape, 0.5), ("transformer.wte.lora_embedding_A", &[4, 67][..], 0.5)];
    let message = gpt2_with(adapter_of_tensors(&update).path()).unwrap_err().to_string();
    assert!(
        message.contains("adapter_model.safetensors: the tensor") && message.contains("lora_embedding_A"),
        "{message}"
    );
    let other = adapter_of_tensors(&[("transformer.extra.weight", &[24], 0.5)]);
    let message = gpt2_with(other.path()).unwrap_err().to_string();
    assert!(message.contains("transformer.extra.weight") && !message.contains("ensure_weight_tying"), "{message}");
    let own = TensorFiles::open(fixtures("gpt2/tiny_a")).unwrap().tensor("transformer.wte.weight").unwrap();
    let own: Vec<f32> = own.to_vec().unwrap();
    for name in ["transformer.wte.weight", "wte.weight"] {
        let untrained = adapter_of_values(&[(name, shape, own.clone())]);
        assert!(gpt2_with(untrained.path()).unwrap().lm_head.is_none(), "{name}");
    }
    for (head, tied) in [(0.5, true), (0.25, false)] {
        let both = adapter_of_tensors(&[("transformer.wte.weight", shape, 0.5), ("lm_head.weight", shape, head)]);
        let model = gpt2_with(both.path()).unwrap();
        assert_eq!(model.lm_head.is_none(), tied);
        let table: Vec<f32> = model.wte.weight.val().into_data().to_vec().unwrap();
        assert!(table.iter().all(|value| *value == 0.5));
    }
}

/// transformers 5 has other module names than published files.
#[test]
fn layers_by_the_names_of_transformers_5() {
    let device = Default::default();
    let files = ModelFiles::at(fixtures("vit/transformers")).unwrap();
    let files = files.with_adapter(fixtures("adapters/vit").to_str().unwrap()).unwrap();
    let (model, _) = files.load::<Flex, Vit<Flex>>(&device, None).unwrap();
    let reference = TensorFiles::open(fixtures("vit/transformers/reference.safetensors")).unwrap();
    let pixels = Tensor::<Flex, 4>::from_data(reference.tensor("pixels").unwrap(), &device);
    assert_close("vit", model.forward(pixels, None).into_data(), "adapters/vit");
}

fn copy_files(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for file in std::fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
}

#[test]
fn adapters_without_a_model_are_refused() {
    let message = |directory: &Path| ModelFiles::at(directory).unwrap_err().to_string();
    let nameless = adapter_of("gpt2", None);
    assert!(message(nameless.path()).contains("adapter_config.json: base_model_name_or_path names no model"));
    let missing = adapter_of("gpt2", Some(Path::new("/no/such/model")));
    let missing = message(missing.path());
    assert!(
        missing.contains("base_model_name_or_path is `/no/such/model`") && missing.contains("add the adapter"),
        "{missing}"
    );
    let chain = adapter_of("gpt2", Some(nameless.path()));
    assert!(message(chain.path()).contains("which is an adapter too"));
    let files = || ModelFiles::at(fixtures("gpt2/tiny_a")).unwrap();
    let none = files().with_adapter("tests/fixtures/bert/bert_classify").unwrap_err().to_string();
    assert!(none.contains("it has no adapter_config.json"), "{none}");
    let adapter = fixtures("adapters/gpt2");
    let twice = files().with_adapter(adapter.to_str().unwrap()).unwrap().with_adapter(adapter.to_str().unwrap());
    assert!(twice.unwrap_err().to_string().contains("one adapter is added to a model"));
}

fn read(directory: &Path) -> (TensorFiles, Value) {
    let config = std::fs::read(directory.join("adapter_config.json")).unwrap();
    let weights = TensorFiles::open(directory.join("adapter_model.safetensors")).unwrap();
    (weights, serde_json::from_slice(&config).unwrap())
}

/// Saved tensors equal peft's bit for bit, and the options give the same scale.
#[test]
fn writes_what_peft_wrote() {
    let (device, names) = (Default::default(), gpt2::published_names(&Default::default()));
    let base = gpt2_model::<Flex>(&device);
    let model = peft::load_adapters(base.clone(), &names, fixtures("adapters/gpt2")).unwrap();
    let directory = tempfile::tempdir().unwrap();
    peft::save_adapters(&model, &names, "transformer.", Some("openai-community/gpt2"), directory.path()).unwrap();
    let ((found, config), (expected, _)) = (read(directory.path()), read(&fixtures("adapters/gpt2")));
    assert_eq!(found.names().collect::<Vec<_>>(), expected.names().collect::<Vec<_>>());
    for name in expected.names() {
        assert_eq!(found.tensor(name).unwrap(), expected.tensor(name).unwrap(), "{name}");
    }
    let close = |value: &Value, expected: f64| {
        let value = value.as_f64().unwrap();
        assert!((value - expected).abs() < 1e-9, "{value}, not {expected}");
    };
    // The scale is alpha / sqrt(rank) in peft's file and alpha / rank in this one.
    close(&config["lora_alpha"], 6.0 * 2.0);
    let special = "^transformer\\.h\\.1\\.attn\\.c_attn";
    close(&config["alpha_pattern"][special], 5.0 * 2f64.sqrt());
    assert_eq!((&config["r"], &config["rank_pattern"][special]), (&4.into(), &2.into()));
    assert_eq!(config["rank_pattern"].as_object().unwrap().len(), 1);
    assert_eq!(config["fan_in_fan_out"], true);
    assert_eq!(config["target_modules"].as_array().unwrap().len(), 6);
    // Loading the saved adapters gives the same model.
    let again = peft::load_adapters(base, &names, directory.path()).unwrap();
    assert!(all_close(&again, &model, 0.0, 0.0));
    assert!((again.h[1].attn.c_attn.low_rank.as_ref().unwrap().scale - 5.0 / 2f64.sqrt()).abs() < 1e-9);
    // Input of tools/fixtures/adapters.py --check.
    if let Ok(copy) = std::env::var("GROVE_SAVED_ADAPTERS") {
        peft::save_adapters(&model, &names, "transformer.", None, copy).unwrap();
    }
}

#[test]
fn names_what_it_cannot_read() {
    let device = Default::default();
    let (gpt2, names) = (gpt2_model::<Flex>(&device), gpt2::published_names(&Default::default()));
    let message = |directory: &Path| peft::load_adapters(gpt2.clone(), &names, directory).unwrap_err().to_string();
    let head = message(&fixtures("adapters/bert_with_head"));
    assert!(
        head.contains("adapter_model.safetensors") && head.contains("the tensor base_model.model.classifier"),
        "{head}"
    );
    let other = message(&fixtures("adapters/bert"));
    assert!(other.contains("bert.encoder.layer.0.attention.self.query") && other.contains("no such linear"), "{other}");

    let source = fixtures("adapters/gpt2");
    let changed = |field: &str, value: Value| {
        let directory = tempfile::tempdir().unwrap();
        std::fs::copy(source.join("adapter_model.safetensors"), directory.path().join("adapter_model.safetensors"))
            .unwrap();
        let mut config = read(&source).1;
        config[field] = value;
        std::fs::write(directory.path().join("adapter_config.json"), config.to_string()).unwrap();
        message(directory.path())
    };
    for (field, value) in [("use_dora", true.into()), ("bias", "all".into()), ("peft_type", "IA3".into())] {
        let message = changed(field, value);
        assert!(message.contains(field) && message.contains("adapter_config.json"), "{message}");
    }
    assert!(
        changed("target_parameters", serde_json::json!(["a.b"]))
            .contains("target_parameters is [\"a.b\"], which is not")
    );
    assert!(changed("init_lora_weights", "pissa".into()).contains("init_lora_weights is pissa"));
    assert!(changed("alpha_pattern", serde_json::json!({"h.[01].c_attn": 3})).contains("regular expression"));

    let adapted = lora::add(gpt2.clone(), &["h.0.attn.c_attn"], 2, 1.0, Key::new(0)).unwrap();
    let twice = peft::load_adapters(adapted, &names, &source).unwrap_err();
    assert!(matches!(twice, ModelError::Lora(lora::LoraError::Adapted { .. })), "{twice}");
    let wider = Gpt2Config { n_embd: 48, ..gpt2.config.clone() };
    let wider = Gpt2::<Flex>::init(&wider, Key::new(0), &device).unwrap();
    let shape = peft::load_adapters(wider, &names, &source).unwrap_err().to_string();
    assert!(
        shape.contains("lora_A and lora_B of transformer.h.0.attn.c_attn") && shape.contains("[rank, 48]"),
        "{shape}"
    );
    let empty = peft::save_adapters(&gpt2, &names, "", None, tempfile::tempdir().unwrap().path()).unwrap_err();
    assert!(empty.to_string().contains("no adapters to save"), "{empty}");
}
