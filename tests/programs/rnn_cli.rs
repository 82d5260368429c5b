//! End-to-end tests of the examples `train_rnn` and `rnn`: the files of a run, using its model, and error messages.

use serde_json::Value;
use std::fs;

use crate::common::{Example, Place, fixture, json_file, text};

const TRAIN: Example = Example("train_rnn");
const RNN: Example = Example("rnn");

/// Options of a tiny model that trains quickly.
const TINY: [&str; 8] = ["--layers", "1", "--hidden", "16", "--batch-size", "4", "--log-every", "1"];

fn arguments<'a>(parts: &[&[&'a str]]) -> Vec<&'a str> {
    [parts, &[&TINY[..]]].concat().concat()
}

#[test]
fn a_language_model_is_trained_and_resumed_and_continues_a_text() {
    let place = Place::new();
    let (book, whole, parts) = (place.book(), place.named("whole"), place.named("parts"));
    let lm = |run: &str, more: &[&str]| {
        // With a constant learning rate, the number of steps does not influence earlier steps.
        let constant = ["--final-learning-rate", "1", "--warmup", "0", "--context", "16", "--json"];
        TRAIN.json(&arguments(&[&["lm", "--data", &book, "--output", run], &constant, more]))
    };
    let made = lm(&whole, &["--steps", "12"]);
    assert_eq!((&made["steps"], &made["ended"]), (&12.into(), &"finished".into()));
    let loss = made["held_out_loss"].as_f64().expect("a number");
    assert!(loss < 257f64.ln(), "better than guessing: {loss}");
    assert!((made["perplexity"].as_f64().expect("a number") / loss.exp() - 1.0).abs() < 1e-9);
    assert_eq!(lm(&parts, &["--steps", "5"])["steps"], 5);
    assert_eq!(lm(&parts, &["--steps", "12", "--resume"])["held_out_loss"], made["held_out_loss"]);
    let weights = |run: &str| {
        fs::read(place.path(run).join("checkpoints/step-0000000012/state.safetensors")).expect("a checkpoint")
    };
    assert!(weights("whole") == weights("parts"), "the same weights, bit for bit");
    for file in ["metrics.jsonl", "loss.svg", "model/model.safetensors", "model/tokenizer.json"] {
        assert!(place.path("whole").join(file).exists(), "no {file}");
    }
    let config = json_file(place.path("whole/model/config.json"));
    let sizes = ["vocab_size", "embedding_size", "hidden_size", "num_layers"].map(|name| config[name].as_u64());
    assert_eq!((sizes, &config["cell"]), ([257, 16, 16, 1].map(Some), &"lstm".into()), "as asked for");

    // Both examples compute the same loss of the saved model, except for the token that ends a text.
    let model = place.named("whole/model");
    let sentence = "The cat sings by the river 3.";
    let tokens = (sentence.len() + 1).to_string();
    let short = place.write("sentence.txt", sentence);
    let evaluate = ["lm", "--evaluate", "--model", &model, "--data", &short, "--context", &tokens, "--json"];
    let evaluated = TRAIN.json(&evaluate);
    assert_eq!(evaluated["tokens"], sentence.len(), "a token is a character");
    let scored = RNN.json(&["--model", &model, "--prompt", sentence, "--score", "--json"]);
    let (evaluated, scored) = (evaluated["loss"].as_f64().expect("a loss"), scored["loss"].as_f64().expect("a loss"));
    let last = sentence.len() as f64 * evaluated - (sentence.len() - 1) as f64 * scored;
    assert!(last > 0.0 && last < 20.0, "what is left is the loss of one token: {last}");

    let write = |seed: &str| {
        let options = ["--max-new-tokens", "20", "--ignore-eos", "--json", "--seed", seed];
        RNN.json(&[&["--model", &model, "--prompt", "The cat"], &options[..]].concat())
    };
    let written = write("1");
    assert_eq!(written["prompt_ids"].as_array().map(Vec::len), Some(7));
    assert_eq!(written["generated_ids"].as_array().map(Vec::len), Some(20));
    assert!(written["text"].is_string() && written["tokens_per_second"].is_f64());
    assert_eq!(written["generated_ids"], write("1")["generated_ids"], "the same seed, the same text");
    assert_ne!(written["generated_ids"], write("2")["generated_ids"]);

    // An embedding, the gates' two matrices and two biases, and the output layer.
    let summary = RNN.json(&["--model", &model, "--summary", "--json"]);
    assert_eq!(summary["parameters"], 257 * 16 + 4 * 16 * (16 + 16) + 2 * 4 * 16 + 257 * 16 + 257);
}

#[test]
fn other_cells_and_word_pieces() {
    let place = Place::new();
    let (book, run) = (place.book(), place.named("run"));
    let lm = ["lm", "--data", &book, "--output", &run, "--context", "16", "--cell", "gru"];
    TRAIN.json(&arguments(&[&lm, &["--tie", "--vocab-size", "300", "--steps", "2", "--json"]]));
    let config = json_file(place.path("run/model/config.json"));
    assert_eq!((&config["cell"], &config["tie_word_embeddings"]), (&"gru".into(), &true.into()));
    assert_eq!(config["vocab_size"], 300);
    let model = place.named("run/model");
    let output = RNN.run(&["--model", &model, "--max-new-tokens", "4", "--ignore-eos", "--samples", "2"], "The cat");
    let written = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && written.contains("--- sample 2 ---"), "{written}");

    // The model can be fine-tuned.
    let tuned = place.named("tuned");
    let tune = ["lm", "--model", &model, "--data", &book, "--output", &tuned, "--context", "16", "--dropout", "0"];
    let made = TRAIN.json(&[&tune[..], &["--steps", "2", "--batch-size", "4", "--json"]].concat());
    assert_eq!(made["steps"], 2);
    assert_eq!(json_file(place.path("tuned/model/config.json"))["dropout"], 0.0);
}

#[test]
fn language_models_that_cannot_be_trained() {
    let place = Place::new();
    let (book, run) = (place.book(), place.named("run"));
    let lm = |more: &[&'static str]| {
        arguments(&[&["lm", "--data", &book, "--output", &run, "--context", "16", "--steps", "2"], more])
            .into_iter()
            .map(String::from)
            .collect::<Vec<_>>()
    };
    let refused = |more: &[&'static str], status, words: &[&str]| {
        let arguments = lm(more);
        TRAIN.assert_refused(&arguments.iter().map(|word| &**word).collect::<Vec<_>>(), status, words);
    };
    refused(&["--cell", "transformer"], 2, &["transformer", "lstm, gru, rnn_tanh or rnn_relu"]);
    refused(&["--vocab-size", "100"], 2, &["--vocab-size is 100", "at least 257"]);
    refused(&["--tie", "--embedding", "8"], 2, &["tie_word_embeddings", "embedding_size, 8", "hidden_size, 16"]);
    refused(&["--dropout", "1"], 2, &["--dropout is 1"]);
    refused(&["--learning-rate", "-1"], 2, &["--learning-rate is -1"]);
    refused(&["--backend", "cude"], 2, &["unknown backend 'cude'"]);
    assert!(!place.path("run").exists(), "refused before anything was written");
    TRAIN.assert_refused(&["lm", "--data", "./nowhere.txt"], 1, &["./nowhere.txt"]);
    TRAIN.assert_refused(&["lm", "--data", &place.write("empty.txt", "")], 1, &["empty.txt", "is empty"]);
    TRAIN.assert_refused(&["lm", "--evaluate"], 2, &["--model"]);
    TRAIN.assert_refused(&["--json", "lm"], 2, &["--json", "lm"]);
    TRAIN.assert_refused(&["translate"], 2, &["translate"]);

    let first = lm(&["--json"]);
    TRAIN.json(&first.iter().map(|word| &**word).collect::<Vec<_>>());
    refused(&[], 1, &["already has a run at step 2"]);
    let resumed = |more: &[&str], words: &[&str]| {
        let resume = ["lm", "--data", &book, "--output", &run, "--resume", "--batch-size", "4"];
        TRAIN.assert_refused(&[&resume, more].concat(), 2, words);
    };
    resumed(&["--hidden", "17"], &["--hidden is 17", "has 16"]);
    resumed(&["--cell", "gru"], &["--cell is gru", "has lstm"]);
    resumed(&["--tie"], &["--tie", "separate output layer"]);
}

#[test]
fn a_classifier_is_trained_and_evaluated_and_predicts() {
    let place = Place::new();
    let data = place.labelled_table();
    let lines =
        place.labelled("texts.jsonl", |label, text| format!(r#"{{"label": "{label}", "text": "{text}"}}"#) + "\n");
    let run = place.named("run");
    let settings = ["--val-fraction", "0.25", "--epochs", "8", "--learning-rate", "0.01", "--dropout", "0", "--json"];
    let made = TRAIN.json(&arguments(&[&["classify", "--data", &data, "--output", &run], &settings]));
    assert_eq!((&made["ended"], &made["steps"]), (&"finished".into(), &(8 * 23).into()), "90 texts in 23 batches");
    let accuracy = made["accuracy"].as_f64().expect("a number");
    assert!(accuracy > 0.9, "the words tell the label: {made}");
    assert!(made["held_out_loss"].as_f64() < Some(2f64.ln()), "better than guessing: {made}");
    let log = fs::read_to_string(place.path("run/metrics.jsonl")).expect("the log");
    assert!(log.contains("eval/accuracy") && log.contains("eval/loss"), "{log}");

    // The same texts in JSON Lines are the same data.
    let again = TRAIN.json(&arguments(&[&["classify", "--data", &lines], &settings]));
    assert_eq!((&again["held_out_loss"], &again["accuracy"]), (&made["held_out_loss"], &made["accuracy"]));

    let model = place.named("run/model");
    let config = json_file(place.path("run/model/config.json"));
    assert_eq!(config["id2label"], serde_json::json!({ "0": "animal", "1": "fruit" }));
    let evaluated = TRAIN.json(&["classify", "--model", &model, "--evaluate", "--data", &data, "--json"]);
    assert!(evaluated["texts"] == 120 && evaluated["accuracy"].as_f64() > Some(0.9), "{evaluated}");
    assert!(evaluated["classes"]["fruit"]["recall"].is_f64() && evaluated["macro_f1"].is_f64());
    let predict = ["--predict", "a dog, a cat", "--predict", "very very plum", "--json"];
    let predicted = TRAIN.json(&[&["classify", "--model", &model], &predict[..]].concat());
    let labels = [0, 1].map(|i| predicted["texts"][i]["labels"][0]["label"].clone());
    assert_eq!(labels, ["animal", "fruit"], "{predicted}");
    assert!(predicted["texts"][0]["labels"][0]["score"].as_f64() > Some(0.5));

    // Text output.
    let output = TRAIN.run(&["classify", "--model", &model, "--evaluate", "--data", &data], "");
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(stdout.starts_with("120 texts, ") && stdout.contains("precision") && stdout.contains("fruit"), "{stdout}");
}

/// Texts of short length are read byte by byte, longer ones in pieces of words.
#[test]
fn the_tokenizer_of_a_classifier_suits_its_texts() {
    let place = Place::new();
    let vocab_size = |name: &str, data: String, more: &[&str]| {
        let run = place.named(name);
        TRAIN.json(&arguments(&[&["classify", "--data", &data, "--output", &run, "--steps", "1", "--json"], more]));
        json_file(place.path(name).join("model/config.json"))["vocab_size"].as_u64().expect("a number")
    };
    let sentences = || {
        place.labelled("sentences.jsonl", |label, text| {
            format!("{{\"label\": \"{label}\", \"text\": \"In the garden we have seen {text}.\"}}\n")
        })
    };
    assert_eq!(vocab_size("short", place.labelled_table(), &[]), 257);
    assert!((258..2048).contains(&vocab_size("long", sentences(), &[])));
    assert_eq!(vocab_size("asked", sentences(), &["--vocab-size", "260"]), 260);
}

#[test]
fn a_classifier_is_resumed() {
    let place = Place::new();
    let data = place.labelled_table();
    let classify = |run: &str, more: &[&str]| {
        let run = place.named(run);
        let constant = ["--final-learning-rate", "1", "--warmup", "0", "--json"];
        TRAIN.json(&arguments(&[&["classify", "--data", &data, "--output", &run], &constant, more]))
    };
    let whole = classify("whole", &["--steps", "9"]);
    classify("parts", &["--steps", "4"]);
    let parts = classify("parts", &["--steps", "9", "--resume"]);
    let numbers = |made: &Value| ["steps", "held_out_loss", "accuracy"].map(|name| made[name].clone());
    assert_eq!(numbers(&whole), numbers(&parts));
    let weights = |run: &str| fs::read(place.path(run).join("model/model.safetensors")).expect("a model");
    assert!(weights("whole") == weights("parts"), "the same weights, bit for bit");

    let run = place.named("parts");
    let resume = ["classify", "--output", &run, "--resume", "--data"];
    TRAIN.assert_refused(&[&resume[..], &[&data, "--hidden", "17"]].concat(), 2, &["--hidden is 17", "has 16"]);
    let other = place.write("other.tsv", "label\ttext\nanimal\ta cat\n\nstone\tgranite\n");
    let words = ["other.tsv, line 4", "'stone'", "animal, fruit"];
    TRAIN.assert_refused(&[&resume[..], &[&other]].concat(), 1, &words);
    let model = place.named("parts/model");
    TRAIN.assert_refused(&["classify", "--model", &model, "--evaluate", "--data", &other], 1, &words);
}

#[test]
fn labelled_texts_that_cannot_be_read() {
    let place = Place::new();
    let refused = |name: &str, content: &[u8], words: &[&str]| {
        let run = place.named("run");
        let data = place.write(name, content);
        TRAIN.assert_refused(&["classify", "--data", &data, "--output", &run], 1, &[words, &[name]].concat());
        assert!(!place.path("run").exists(), "refused before anything was written");
    };
    refused("a.tsv", b"label\ttext\ngood\tfine\nbad\n", &["a.tsv, line 3", "no column 2", "tabs"]);
    refused("b.tsv", b"label\ttext\ngood\tfine\n\tawful\n", &["b.tsv, line 3", "the label is empty"]);
    refused("c.tsv", b"label\ttext\r\ngood\t \r\nbad\tawful\r\n", &["c.tsv, line 2", "the text is empty"]);
    let latin = b"label\ttext\ngood\tfine\nbad\tGr\xfc\xdfe\n";
    refused("d.tsv", latin, &["d.tsv, line 3", "0xfc after \"Gr\"", "not UTF-8", "iconv"]);
    refused("e.tsv", b"", &["e.tsv is empty"]);
    refused("f.tsv", b"label\ttext\n\n \n", &["f.tsv is empty"]);
    let same = b"label\ttext\ngood\tfine\ngood\tlovely\n";
    refused("g.tsv", same, &["g.tsv, line 2", "label 'good'", "at least two labels"]);
    refused("h.jsonl", b"{\"label\": 1, \"text\": \"a\"}\n{\"label\": 2}\n", &["h.jsonl, line 2", "no field `text`"]);
    refused("i.jsonl", b"{\"label\": \"x\", \"text\": 3}\n", &["i.jsonl, line 1", "\"text\" is not a string"]);
    refused("j.jsonl", b"label\ttext\n", &["j.jsonl, line 1", "not JSON"]);
    refused("k.tsv", b"label\ttext\ngood\tfine\nbad\tawful\n", &["2 texts of 2 classes are too few", "--val-fraction"]);
    let each = b"label\ttext\nid 1\tfine\nid 2\tawful\nid 3\tlovely\n";
    refused("n.tsv", each, &["3 texts of 3 classes", "--val-fraction"]);
    refused("l.tsv", b"good\tfine\nbad\tawful\n", &["l.tsv", "no column `label`", "good, fine"]);
    let utf16 = b"\xff\xfel\0a\0b\0e\0l\0\n\0";
    refused("m.tsv", utf16, &["m.tsv, line 1", "the file is UTF-16", "iconv -f UTF-16"]);
    TRAIN.assert_refused(&["classify", "--data", "./nowhere.tsv"], 1, &["./nowhere.tsv"]);
    TRAIN.assert_refused(&["classify", "--data", text(place.directory.path())], 1, &["cannot read"]);
}

#[test]
fn wrong_usage_has_status_two() {
    let place = Place::new();
    let data = place.labelled_table();
    let refused = |more: &[&str], words: &[&str]| {
        TRAIN.assert_refused(&[&["classify", "--data", &data], more].concat(), 2, words);
    };
    refused(&["--val-fraction", "1"], &["--val-fraction is 1"]);
    refused(&["--keep", "best:top5"], &["--keep is best:top5", "best:macro_f1"]);
    refused(&["--keep", "best:accuracy", "--val-fraction", "0"], &["--keep best:accuracy needs an evaluation"]);
    refused(&["--pair-column", "second"], &["--pair-column", "single texts"]);
    refused(&["--max-length", "0"], &["--max-length is 0"]);
    refused(&["--vocab-size", "10"], &["--vocab-size", "at least 257"]);
    refused(&["--layers", "0"], &["num_layers is 0"]);
    refused(&["--patience", "3", "--val-fraction", "0"], &["--patience", "--val-fraction"]);
    refused(&["--evaluate"], &["--model"]);
    refused(&["--model", "x"], &["--evaluate", "--predict"]);
    refused(&["--model", "x", "--predict", "fine"], &["--data", "--predict"]);
    TRAIN.assert_refused(&["classify"], 2, &["--data"]);
    TRAIN.assert_refused(&["classify", "--model", "x", "--predict", " "], 2, &["empty text"]);
    TRAIN.assert_refused(&["classify", "--model", "./nowhere", "--predict", "fine"], 1, &["./nowhere"]);
    // A model of another kind.
    let gpt2 = fixture("tiny_text");
    TRAIN.assert_refused(&["classify", "--model", &gpt2, "--predict", "fine"], 1, &["config.json", "gpt2"]);
    RNN.assert_refused(&["--model", &gpt2, "--prompt", "fine"], 1, &["is a GPT-2", "example gpt2"]);
    RNN.assert_refused(&["--samples", "0"], 2, &["--samples is 0"]);
    RNN.assert_refused(&["--prompt", ""], 2, &["prompt is empty"]);
    RNN.assert_refused(&["--compare", "--hidden", "0"], 2, &["--hidden is 0"]);
    RNN.assert_refused(&["--compare", "--budget", "NaN"], 2, &["--budget is NaN"]);
    RNN.assert_refused(&["--compare", "--prompt", "x"], 2, &["--compare", "--prompt"]);
    RNN.assert_refused(&["--hidden", "64"], 2, &["--compare"]);
}

#[test]
fn packed_padded_and_scanned_sequences_are_compared() {
    for cell in ["lstm", "gru"] {
        let sizes = ["--hidden", "8", "--batch", "5", "--steps", "9", "--layers", "2", "--budget", "0.02"];
        let made = RNN.json(&[&["--compare", "--json", "--cell", cell], &sizes[..]].concat());
        let forms = made["forms"].as_array().expect("a list");
        assert_eq!(forms.iter().map(|form| &form["form"]).collect::<Vec<_>>(), ["packed", "padded", "scan"]);
        for form in forms {
            let times = ["forward_ms", "forward_backward_ms"].map(|name| form[name].as_f64().expect("a number"));
            assert!(times.iter().all(|time| *time > 0.0), "{cell}: {form}");
        }
        assert_eq!(forms[1]["steps_computed"], 2 * 5 * 9);
        assert!(forms[0]["steps_computed"].as_u64() < Some(2 * 5 * 9), "packed: no padded step");
        assert_eq!((&forms[0]["forward_ratio"], &forms[2]["steps_computed"]), (&1.0.into(), &90.into()));
        for name in ["output_difference", "gradient_difference"] {
            assert!(made[name].as_f64() < Some(1e-4), "{cell}: {made}");
        }
    }
    let output = RNN.run(&["--compare", "--hidden", "4", "--batch", "2", "--steps", "3", "--budget", "0"], "");
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(stdout.starts_with("lstm: 1 x 4, 2 sequences of 1 to 3 steps") && stdout.contains("differ by"), "{stdout}");
}
