//! End-to-end tests of the examples `train_bert`, `finetune_bert` and `bert`: training a model on text, fine-tuning a
//! classifier on labelled texts, using both, and error messages.

use std::fs;

use crate::common::{Example, Place, json_file};

const BERT: Example = Example("bert");
const TRAIN: Example = Example("train_bert");
const FINETUNE: Example = Example("finetune_bert");

/// Trains a tiny model, also on the words of the labelled texts.
fn pretrained(place: &Place) -> String {
    let (book, run) = (place.book(), place.named("pretrained"));
    let words = "a cat, a dog and a hen like figs, limes and plums very much\n".repeat(20);
    let book = place.write("lines.txt", fs::read_to_string(book).expect("a book").replace(". ", ".\n") + &words);
    let sizes = ["--layers", "2", "--hidden", "16", "--heads", "2", "--context", "24", "--vocab-size", "500"];
    let options = ["--batch-size", "16", "--steps", "20", "--learning-rate", "3e-3", "--json"];
    let made = TRAIN.json(&[&["train_bert", "--data", &book, "--output", &run][1..], &sizes, &options].concat());
    assert_eq!((&made["steps"], &made["ended"]), (&20.into(), &"finished".into()));
    assert!(made["held_out_loss"].as_f64().is_some() && made["accuracy"].as_f64().is_some(), "{made}");
    place.named("pretrained/model")
}

fn csv(label: &str, text: String) -> String {
    format!("\"{text}, indeed\",{label}\n")
}

#[test]
fn a_model_is_trained_and_fills_in_words() {
    let place = Place::new();
    let model = pretrained(&place);
    let config = json_file(place.path("pretrained/model/config.json"));
    assert_eq!((&config["hidden_size"], &config["max_position_embeddings"]), (&16.into(), &24.into()));
    assert_eq!(config["architectures"][0], "BertForMaskedLM");
    let tokenizer = json_file(place.path("pretrained/model/tokenizer_config.json"));
    assert_eq!(
        (&tokenizer["tokenizer_class"], &tokenizer["mask_token"]),
        (&"BertTokenizerFast".into(), &"[MASK]".into())
    );

    let filled = BERT.json(&["--model", &model, "--json", "--top-k", "3", "the [MASK] sings by the [MASK]"]);
    let masks = filled["texts"][0]["masks"].as_array().expect("places");
    assert_eq!(masks.len(), 2);
    let scores: Vec<f64> =
        masks[0]["candidates"].as_array().expect("candidates").iter().filter_map(|c| c["score"].as_f64()).collect();
    assert!(
        scores.len() == 3 && scores.is_sorted_by(|a, b| a >= b) && scores.iter().sum::<f64>() <= 1.0 + 1e-6,
        "{scores:?}"
    );

    // Evaluations use the same masks and give the same loss. Training can continue from the model.
    let lines = place.named("lines.txt");
    let evaluate = ["--evaluate", "--model", &model, "--data", &lines, "--json"];
    let evaluated = TRAIN.json(&evaluate);
    assert_eq!(evaluated["loss"], TRAIN.json(&evaluate)["loss"]);
    assert!(evaluated["tokens"].as_u64() > Some(100), "{evaluated}");
    let further = ["--model", &model, "--data", &lines, "--steps", "15", "--learning-rate", "3e-3", "--json"];
    let further = TRAIN.json(&[&further[..], &["--output", &place.named("further")]].concat());
    assert_eq!(further["steps"], 15);
    let better = place.named("further/model");
    let after = TRAIN.json(&["--evaluate", "--model", &better, "--data", &lines, "--json"]);
    assert!(after["loss"].as_f64() < evaluated["loss"].as_f64(), "{after} {evaluated}");
}

#[test]
fn texts_of_unknown_signs_have_nothing_to_mask() {
    let place = Place::new();
    let model = pretrained(&place);
    let mixed = place.write("mixed.txt", "☃☃\nthe cat sings by the river\n☃\n");
    let options = ["--batch-size", "1", "--steps", "4", "--val-fraction", "0", "--json"];
    assert_eq!(TRAIN.json(&[&["--model", &model, "--data", &mixed], &options[..]].concat())["steps"], 4);
    let unknown = place.write("unknown.txt", "☃☃\n");
    TRAIN.assert_refused(&["--model", &model, "--data", &unknown], 1, &["no text", "masked"]);
}

#[test]
fn a_run_is_resumed() {
    let place = Place::new();
    let (book, whole, parts) = (place.book(), place.named("whole"), place.named("parts"));
    let book = place.write("lines.txt", fs::read_to_string(book).expect("a book").replace(". ", ".\n"));
    let train = |run: &str, more: &[&str]| {
        let constant = ["--schedule", "constant", "--warmup", "0", "--batch-size", "8", "--json"];
        let sizes = ["--layers", "1", "--hidden", "8", "--heads", "1", "--context", "16", "--vocab-size", "500"];
        TRAIN.json(&[&["--data", &book, "--output", run], &constant[..], &sizes, more].concat())
    };
    let made = train(&whole, &["--steps", "8"]);
    train(&parts, &["--steps", "3"]);
    assert_eq!(train(&parts, &["--steps", "8", "--resume"])["held_out_loss"], made["held_out_loss"]);
}

#[test]
fn a_classifier_is_tuned_in_every_way_and_used() {
    let place = Place::new();
    let model = pretrained(&place);
    let data = place.write(
        "texts.csv",
        "text,label\n".to_owned() + &fs::read_to_string(place.labelled("rows", csv)).expect("rows"),
    );
    let lines = place.labelled("texts.jsonl", |label, text| {
        format!(r#"{{"class": "{label}", "first": "{text}", "second": "indeed"}}"#) + "\n"
    });
    let tune = |data: &str, run: &str, more: &[&str]| {
        let settings = ["--val-fraction", "0.25", "--batch-size", "8", "--epochs", "8", "--json"];
        let made =
            FINETUNE.json(&[&["--model", &model, "--data", data, "--output", run], &settings[..], more].concat());
        assert_eq!(made["ended"], "finished", "{made}");
        made
    };
    let run = place.named("all");
    let made = tune(&data, &run, &["--learning-rate", "3e-3", "--layer-decay", "0.8", "--balance"]);
    assert!(made["accuracy"].as_f64() > Some(0.9), "the words tell the label: {made}");
    assert_eq!(made["evaluation"]["texts"], 30, "a quarter of each class");
    assert!(made["evaluation"]["classes"]["fruit"]["predicted"]["animal"].is_u64(), "{made}");
    let image = fs::read_to_string(place.path("all/confusion.svg")).expect("an image");
    assert!(image.contains("animal") && image.contains("fruit"));
    let config = json_file(place.path("all/model/config.json"));
    assert_eq!((&config["id2label"]["0"], &config["label2id"]["fruit"]), (&"animal".into(), &1.into()));
    assert_eq!(config["architectures"][0], "BertForSequenceClassification");

    let tuned = place.named("all/model");
    let found = BERT.json(&["--task", "classify", "--model", &tuned, "--json", "hen cat", "very very plum fig"]);
    let label = |i: usize| found["texts"][i]["labels"][0]["label"].clone();
    assert_eq!((label(0), label(1)), ("animal".into(), "fruit".into()), "{found}");
    let evaluated = FINETUNE.json(&["--evaluate", "--model", &tuned, "--data", &data, "--json"]);
    assert!(evaluated["accuracy"].as_f64() > Some(0.9) && evaluated["texts"] == 120, "{evaluated}");

    // `--keep` selects the model that is kept.
    let last = tune(&data, &place.named("last"), &["--keep", "last"]);
    assert_eq!((&last["kept"], &last["best_step"]), (&"last".into(), &serde_json::Value::Null), "{last}");
    let best = tune(&data, &place.named("best"), &["--keep", "best:macro_f1", "--learning-rate", "3e-3"]);
    assert_eq!(best["kept"], "best:macro_f1");
    let log = fs::read_to_string(place.path("best/metrics.jsonl")).expect("the log");
    let records: Vec<serde_json::Value> = log.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let scored =
        records.iter().filter_map(|record| Some((record["eval/macro_f1"].as_f64()?, record["step"].as_u64()?)));
    let (greatest, step) = scored.fold((-1.0, 0), |best, found| if found.0 > best.0 { found } else { best });
    assert_eq!((best["best_step"].as_u64(), best["evaluation"]["macro_f1"].as_f64()), (Some(step), Some(greatest)));

    // Pairs, from JSON Lines. Frozen parameters do not change; merged adapters change only the adapted weights.
    let columns =
        ["--text-column", "first", "--pair-column", "second", "--label-column", "class", "--learning-rate", "1e-2"];
    let frozen =
        tune(&lines, &place.named("frozen"), &[&columns[..], &["--freeze", "embeddings.**,encoder.**"]].concat());
    let adapted = tune(&lines, &place.named("adapted"), &[&columns[..], &["--lora-rank", "2"]].concat());
    assert!(frozen["accuracy"].is_f64() && adapted["accuracy"].as_f64() > Some(0.7), "{adapted}");
    let weights = |file: &str| {
        let bytes = fs::read(place.path(file)).expect("weights");
        let file = safetensors(&bytes);
        move |name: &str| file.iter().find(|(known, _)| known == name).map(|(_, data)| data.clone()).expect("a tensor")
    };
    let before = weights("pretrained/model/model.safetensors");
    let (frozen, adapted) = (weights("frozen/model/model.safetensors"), weights("adapted/model/model.safetensors"));
    let [query, key] = ["query", "key"].map(|part| format!("bert.encoder.layer.1.attention.self.{part}.weight"));
    assert!(frozen(&query) == before(&query) && adapted(&key) == before(&key));
    assert!(adapted(&query) != before(&query));
}

#[test]
fn regression_and_several_labels_a_text() {
    let place = Place::new();
    let model = pretrained(&place);
    let rows = fs::read_to_string(place.labelled("rows", |label, text| format!("{label}\t{text}\n"))).expect("rows");
    let rows: Vec<(&str, &str)> = rows.lines().filter_map(|line| line.split_once('\t')).collect();
    let settings =
        ["--epochs", "12", "--batch-size", "8", "--learning-rate", "5e-3", "--val-fraction", "0.25", "--json"];
    let tune = |data: &str, run: &str, more: &[&str]| {
        FINETUNE.json(&[&["--model", &model, "--data", data, "--output", run], &settings[..], more].concat())
    };

    // Regression: one number for each class.
    let value = |label: &str| if label == "fruit" { "2.5" } else { "-1.25" };
    let lines: Vec<String> = rows.iter().map(|(label, text)| format!("{}\t{text}\n", value(label))).collect();
    let data = place.write("numbers.tsv", "label\ttext\n".to_owned() + &lines.concat());
    let regression = ["--problem-type", "regression", "--keep", "best:pearson"];
    let made = tune(&data, &place.named("numbers"), &regression);
    assert!(made["evaluation"]["pearson"].as_f64() > Some(0.9) && made["kept"] == "best:pearson", "{made}");
    assert!(made["evaluation"]["mae"].as_f64() < Some(0.9), "{made}");
    let config = json_file(place.path("numbers/model/config.json"));
    assert_eq!((&config["problem_type"], &config["id2label"]["0"]), (&"regression".into(), &"LABEL_0".into()));
    let evaluated = FINETUNE.json(&["--evaluate", "--model", &place.named("numbers/model"), "--data", &data, "--json"]);
    assert!(evaluated["texts"] == 120 && evaluated["pearson"].as_f64() > Some(0.9), "{evaluated}");
    let several = format!("label\ttext\n0.5\t{}\n1.5\tb\n2\tc\n", rows[0].1);
    let several = place.write("several.tsv", several);
    FINETUNE.assert_refused(&["--model", &model, "--data", &several], 1, &["numbers", "--problem-type regression"]);
    let words = ["numbers.tsv", "line 2", "'animal' is not a number"];
    let named = place.write("numbers.tsv", format!("label\ttext\nanimal\t{}\n", rows[0].1));
    FINETUNE.assert_refused(&["--model", &model, "--data", &named, "--problem-type", "regression"], 1, &words);

    // Texts with no label, one or two.
    let labels = |i: usize, label: &str| match (i % 5 == 4, label) {
        (true, "fruit") => "fruit;long".to_owned(),
        (true, _) => "long".to_owned(),
        (false, "fruit") => "fruit".to_owned(),
        (false, _) => String::new(),
    };
    let lines = rows.iter().enumerate().map(|(i, (label, text))| format!("{}\t{text}\n", labels(i, label)));
    let data = place.write("labels.tsv", "label\ttext\n".to_owned() + &lines.collect::<String>());
    let several = ["--problem-type", "multi_label_classification", "--label-separator", ";"];
    let made = tune(&data, &place.named("labels"), &several);
    assert!(made["evaluation"]["micro_f1"].as_f64() > Some(0.7), "{made}");
    let config = json_file(place.path("labels/model/config.json"));
    assert_eq!(config["problem_type"], "multi_label_classification");
    assert_eq!(config["id2label"], serde_json::json!({ "0": "fruit", "1": "long" }));
    let balanced = [&["--model", &model, "--data", &data, "--balance"], &several[..]].concat();
    FINETUNE.assert_refused(&balanced, 2, &["--balance", "one class each"]);
}

#[test]
fn options_of_other_tasks_are_refused() {
    for (arguments, words) in [
        (&["--query", "a cat", "a [MASK]"][..], &["--query", "--task fill-mask", "similarity"][..]),
        (&["--task", "embed", "--model", "m", "--top-k", "3", "a text"], &["--top-k", "--task embed"]),
        (&["--task", "classify", "--model", "m", "--question", "who", "a text"], &["--question", "answer"]),
        (&["--stride", "3", "a [MASK]"], &["--stride", "tokens, answer"]),
    ] {
        BERT.assert_refused(arguments, 2, words);
    }
}

#[test]
fn frozen_parameters_that_are_new_are_trained() {
    let place = Place::new();
    let model = pretrained(&place);
    let data = place.labelled_table();
    let run = place.named("run");
    let options = ["--model", &model, "--data", &data, "--output", &run, "--freeze", "bert.**,head.**", "--steps", "3"];
    let output = FINETUNE.run(&options, "");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && stderr.contains("trained despite --freeze"), "{stderr}");
    assert!(stderr.contains("head.classifier.weight"), "{stderr}");
}

/// Returns the names and bytes of the tensors of a file.
fn safetensors(bytes: &[u8]) -> Vec<(String, Vec<u8>)> {
    let length = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes")) as usize;
    let header: serde_json::Map<String, serde_json::Value> =
        serde_json::from_slice(&bytes[8..8 + length]).expect("a header");
    let tensors = header.iter().filter_map(|(name, tensor)| {
        let [from, to] = [0, 1].map(|i| tensor["data_offsets"][i].as_u64().map(|at| 8 + length + at as usize));
        Some((name.clone(), bytes[from?..to?].to_vec()))
    });
    tensors.collect()
}

#[test]
fn labelled_texts_that_cannot_be_used() {
    let place = Place::new();
    let model = pretrained(&place);
    let refused = |name: &str, content: &[u8], more: &[&str], words: &[&str]| {
        let file = place.write(name, content);
        FINETUNE.assert_refused(&[&["--model", &model, "--data", &file], more].concat(), 1, words);
    };
    refused("a.csv", b"review,label\nfine,good\n", &[], &["a.csv", "no column `text`", "review, label"]);
    refused("b.csv", b"text,label\nfine,good\nbad\n", &[], &["b.csv, line 3", "no column 2", "commas"]);
    refused("c.csv", b"text,label\nfine,good\nlovely,good\n", &[], &["c.csv, line 2", "'good'", "at least two labels"]);
    refused("d.csv", b"text,label\nGr\xfc\xdfe,good\nbad,bad\n", &[], &["d.csv, line 2", "not UTF-8", "iconv"]);
    refused("e.csv", b"text,label\n ,good\n", &[], &["e.csv, line 2", "the text is empty"]);
    refused("f.csv", b"", &[], &["f.csv is empty"]);
    refused(
        "g.csv",
        b"text,label\nfine,good\nbad,bad\n",
        &["--labels", "good,awful"],
        &["g.csv, line 3", "'bad'", "good, awful"],
    );
    refused(
        "h.jsonl",
        b"{\"text\": \"fine\", \"stars\": 5}\n",
        &[],
        &["h.jsonl, line 1", "no field `label`", "text, stars"],
    );
    let long = format!("text,label\nfine,{}\n", "x".repeat(70_000));
    refused("i.csv", long.as_bytes(), &[], &["i.csv, line 2", "the label has 70000 characters"]);
    refused("j.csv", b"text;label\nfine;good\n", &[], &["no column `label`", "--delimiter ';'"]);
    refused(
        "k.csv",
        b"fine;good\n",
        &["--no-header", "--text-column", "1", "--label-column", "2"],
        &["--delimiter ';'"],
    );
    refused("l.csv", b"text;label\nfine\n", &["--delimiter", ";"], &["l.csv, line 2", "between ';'"]);
    let seen = place.write("seen.csv", "text,label\nfine,good\nnice,good\nbad,bad\n");
    let unseen = place.write("unseen.csv", "text,label\nso so,middling\n");
    let words = ["unseen.csv, line 2", "'middling'", "bad, good"];
    FINETUNE.assert_refused(&["--model", &model, "--data", &seen, "--held-out", &unseen], 1, &words);
    let usage = |more: &[&str], words: &[&str]| {
        FINETUNE.assert_fails(
            &[&["--model", &model, "--data", &seen, "--val-fraction", "0.4"], more].concat(),
            2,
            words,
        );
    };
    usage(
        &["--freeze", "encoder.layers.0.**"],
        &["--freeze: no path of the model matches `encoder.layers.0.**`", "embeddings."],
    );
    usage(
        &["--lora-rank", "2", "--lora-targets", "encoder.layer.*.query"],
        &["--lora-targets", "encoder.layer.*.query"],
    );
    usage(&["--max-length", "500"], &["--max-length is 500", "24 positions"]);
    usage(&["--layer-decay", "1.5"], &["--layer-decay is 1.5"]);
    usage(&["--delimiter", "ab"], &["--delimiter", "one character"]);
    usage(&["--lora-rank", "1000000000"], &["--lora-rank is 1000000000", "at most rank 16"]);
    // Other delimiters. Commas, and with tabs also quotes, are then part of the text.
    for (name, delimiter, content) in [
        ("semicolons.csv", ";", "text;label\n\"so; so, so\";good\nbad, bad;bad\nfine;good\nawful;bad\n"),
        ("tabs.txt", "tab", "text\tlabel\n\"so\tgood\nbad, bad\tbad\nfine\tgood\nawful\tbad\n"),
    ] {
        let data = place.write(name, content);
        let options = ["--delimiter", delimiter, "--val-fraction", "0.5", "--steps", "1", "--json"];
        let made = FINETUNE.json(&[&["--model", &model, "--data", &data], &options[..]].concat());
        assert_eq!((&made["evaluation"]["texts"], &made["steps"]), (&2.into(), &1.into()), "{name}: {made}");
    }
    // A class with a single text has no held-out example; a message says so, and metrics ignore the class.
    let rare = place.write("rare.csv", "text,label\nfine,good\nnice,good\nbad,bad\nawful,bad\nso so,middling\n");
    let options = ["--val-fraction", "0.5", "--steps", "1", "--json"];
    let output = FINETUNE.run(&[&["--model", &model, "--data", &rare], &options[..]].concat(), "");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && stderr.contains("no example of these classes: middling"), "{stderr}");
    // A text of 100,000 words is truncated, with a message.
    let long = format!("text,label\n{},good\nbad,bad\nfine,good\nawful,bad\n", "cat ".repeat(100_000));
    let long = place.write("long.csv", long);
    let options = ["--val-fraction", "0", "--steps", "1", "--json"];
    let output = FINETUNE.run(&[&["--model", &model, "--data", &long], &options[..]].concat(), "");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && stderr.contains("1 text is truncated"), "{stderr}");
}

#[test]
fn texts_and_models_that_do_not_fit() {
    let place = Place::new();
    let model = pretrained(&place);
    let with = |more: &[&str], status: i32, words: &[&str]| {
        BERT.assert_refused(&[&["--model", &model], more].concat(), status, words);
    };
    with(&["the cat sings"], 1, &["[MASK]"]);
    with(&[" "], 2, &["text 1 is empty"]);
    with(&["--file", &place.write("latin.txt", b"a [MASK] na\xefve")], 1, &["latin.txt, line 1", "not UTF-8", "iconv"]);
    with(&["--file", &place.write("empty.txt", "\n\n")], 1, &["empty.txt", "no text"]);
    let lines = place.write("lines.txt", "a [MASK]\n\nthe cat sings\n[MASK]\n");
    with(&["--file", &lines], 1, &["lines.txt, line 3: the text has no [MASK]"]);
    with(&["a [MASK]", "the cat sings"], 1, &["text 2: the text has no [MASK]"]);
    with(&["--task", "classify", "fine"], 1, &["fills masks: use `grove fill`", "grove fill"]);
    // Fine-tuning says that it replaces the head of another task.
    let data = place.write("texts.csv", "text,label\nthe cat sings,a\nthe dog,b\n");
    let tune = ["--model", &model, "--data", &data, "--val-fraction", "0", "--steps", "1", "--json"];
    let output = FINETUNE.run(&tune, "");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("fills masks: its head is replaced by a new one"), "{said}");
    with(&["--top-k", "0", "a [MASK]"], 2, &["--top-k is 0"]);
    BERT.assert_refused(&["--task", "classify", "fine"], 2, &["--model", "fill-mask"]);
    BERT.assert_refused(&["--model", "./nowhere", "a [MASK]"], 1, &["./nowhere"]);
    BERT.assert_refused(&["--task", "answer", "--model", &model, "a text"], 2, &["--question"]);
    // 100,000 words are truncated, so fill-mask finds no mask.
    with(&["--file", &place.write("long.txt", "cat ".repeat(100_000) + "[MASK]")], 1, &["[MASK]"]);

    // A configuration with a smaller vocabulary than the weights.
    let config = place.path("pretrained/model/config.json");
    let text = fs::read_to_string(&config).expect("a config");
    let smaller = text.replace("\"vocab_size\": 108", "\"vocab_size\": 3");
    assert_ne!(smaller, text);
    fs::write(&config, smaller).expect("written");
    with(&["a [MASK]"], 1, &["does not fit", "of another shape"]);
    FINETUNE.assert_fails(&["--model", &model], 1, &["does not fit", "of another shape"]);
    fs::write(&config, "{\"model_type\": \"t5\"}").expect("written");
    with(&["a [MASK]"], 1, &["config.json", "t5"]);
}
