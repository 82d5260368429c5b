//! End-to-end tests of the examples `llama` and `gpt_neo`: file formats, draft models, conversations and error
//! messages.

use serde_json::{Value, json};
use std::fs;

use crate::common::Example;

const LLAMA: Example = Example("llama");
const GPT_NEO: Example = Example("gpt_neo");

fn llama(path: &str) -> String {
    format!("models/tests/fixtures/llama/{path}")
}

/// Returns the reference for the tokenizer and the conversations of a GGUF file.
fn of_tokenizer(file: &str) -> Value {
    let text = fs::read_to_string(llama("gguf/tokenizers.json")).expect("a fixture");
    serde_json::from_str::<Value>(&text).expect("JSON")[file].clone()
}

#[test]
fn a_gguf_file_is_a_whole_model() {
    for name in ["f32", "f16", "q8_0"] {
        let model = llama(&format!("gguf/{name}.gguf"));
        let of_file = of_tokenizer(name);
        let several = |case: &&Value| case["ids"].as_array().is_some_and(|ids| ids.len() > 3);
        let case =
            of_file["texts"].as_array().and_then(|cases| cases.iter().find(several)).expect("a text of some tokens");
        let prompt = case["text"].as_str().expect("text");
        let made =
            LLAMA.json(&["--model", &model, "--json", "--prompt", prompt, "--max-new-tokens", "5", "--ignore-eos"]);
        assert_eq!(made["generated_ids"].as_array().map(Vec::len), Some(5), "{name}");
        // The expected ids lack the token that begins every text.
        let ids = made["prompt_ids"].as_array().expect("tokens").clone();
        let expected = case["ids"].as_array().expect("tokens").clone();
        assert!(ids.ends_with(&expected), "{name}: {ids:?} {expected:?}");
    }
}

#[test]
fn a_quantized_model_can_be_compiled() {
    let model = llama("gguf/q8_0.gguf");
    let options =
        ["--model", &model, "--json", "--prompt", "The", "--temperature", "0", "--max-new-tokens", "8", "--ignore-eos"];
    let plain = LLAMA.json(&options);
    assert_eq!(plain["generated_ids"].as_array().map(Vec::len), Some(8));
    assert_eq!(plain["generated_ids"], LLAMA.json(&[&options[..], &["--jit"]].concat())["generated_ids"]);
}

#[test]
fn inputs_of_quantized_layers_are_rounded_on_request() {
    let model = llama("gguf/q8_0.gguf");
    let score = ["--model", &model, "--json", "--prompt-ids", "5,17,40,3,9,12,30,8", "--score"];
    let loss = |options: &[&str]| LLAMA.json(&[&score[..], options].concat())["loss"].as_f64().expect("a number");
    let (exact, rounded) = (loss(&[]), loss(&["--quantized-activations"]));
    assert!(exact != rounded && (exact - rounded).abs() < 0.01 * exact, "{exact} {rounded}");
    // The prompt at once, and token by token.
    let options =
        ["--model", &model, "--json", "--prompt-ids", "5,17,40", "--temperature", "0", "--max-new-tokens", "8"];
    let options = [&options[..], &["--ignore-eos", "--quantized-activations"]].concat();
    let plain = LLAMA.json(&options);
    assert_eq!(plain["generated_ids"].as_array().map(Vec::len), Some(8));
    assert_eq!(plain["generated_ids"], LLAMA.json(&[&options[..], &["--jit"]].concat())["generated_ids"]);
    for file in ["gguf/f16.gguf", "gqa"] {
        let wrong = ["--model", &llama(file), "--prompt-ids", "5,17", "--quantized-activations"];
        LLAMA.assert_fails(&wrong, 2, &["--quantized-activations", "quantized weights"]);
    }
    let unpacked = ["--model", &model, "--prompt-ids", "5,17", "--quantized-activations", "--dtype", "f32"];
    LLAMA.assert_fails(&unpacked, 2, &["--quantized-activations", "without --dtype"]);
}

#[test]
fn a_draft_model_does_not_change_the_output() {
    let (model, draft) = (llama("gqa"), llama("gqa"));
    let common = ["--model", &model, "--json", "--prompt-ids", "5,17,40", "--max-new-tokens", "30", "--ignore-eos"];
    for temperature in ["0", "0.9"] {
        let options = [&common[..], &["--temperature", temperature]].concat();
        let alone = LLAMA.json(&options);
        let helped = LLAMA.json(&[&options[..], &["--draft", &draft, "--draft-tokens", "3"]].concat());
        assert_eq!(alone["generated_ids"], helped["generated_ids"]);
        assert!(alone["draft"].is_null());
        let count = |key: &str| helped["draft"][key].as_u64().expect("a number");
        assert!(count("proposed") > 10 && count("accepted") * 10 >= count("proposed") * 9, "{}", helped["draft"]);
    }
    // A draft with one more row of the vocabulary, without tokenizers to compare.
    let alone = LLAMA.json(&[&common[..], &["--temperature", "0"]].concat());
    let helped = LLAMA.json(&[&common[..], &["--temperature", "0", "--draft", &llama("mha")]].concat());
    assert_eq!(alone["generated_ids"], helped["generated_ids"]);
    for count in ["0", "17"] {
        // The error comes before any model is looked up.
        let wrong = ["--model", "nowhere", "--draft", "nowhere", "--draft-tokens", count];
        LLAMA.assert_fails(&wrong, 2, &["--draft-tokens", "between 1 and 16"]);
    }
}

#[test]
fn a_conversation_goes_on() {
    let model = llama("gguf/f16.gguf");
    let options = ["--model", &model, "--chat", "--max-new-tokens", "6", "--temperature", "0"];
    let output = LLAMA.run(&[&options[..], &["--json"]].concat(), "One tree.\nTwo trees.\n\n \nThree trees.\n");
    let talk: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let turns = talk["turns"].as_array().expect("turns");
    let user_turns: Vec<&Value> = turns.iter().map(|turn| &turn["user"]).collect();
    assert_eq!(user_turns, ["One tree.", "Two trees.", "Three trees."], "empty lines are none of them: {talk}");
    assert!(turns.iter().all(|turn| turn["tokens"].as_u64().is_some_and(|count| count <= 6)));
    // After /clear the model answers as at the start.
    let talk = |lines: &str| -> Value {
        let output = LLAMA.run(&[&options[..], &["--json"]].concat(), lines);
        serde_json::from_slice(&output.stdout).expect("JSON")
    };
    let (cleared, only) = (talk("One tree.\n/clear\nThree trees.\n"), talk("Three trees.\n"));
    assert_eq!(cleared["turns"][1]["assistant"], only["turns"][0]["assistant"], "{cleared}");
    assert_eq!(cleared["turns"].as_array().map(Vec::len), Some(2));
    let output = LLAMA.run(&options, "/help\n/quit\n");
    let notes = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && notes.contains("[Each line is a message"), "{notes}");
    assert!(notes.contains("error: /quit is not a command; the commands are /clear and /help"), "{notes}");
    LLAMA.assert_fails(&["--model", &llama("gqa"), "--chat"], 1, &["tokenizer"]);
    LLAMA.assert_fails(&["--model", &llama("gguf/bf16.gguf"), "--chat"], 1, &["tokenizer"]);
}

/// Messages to grove's chat model, and its answers. None of the messages is in its training set.
const CHAT_QUESTIONS: [(&str, &str); 4] = [
    ("Hello again.", "Good day to you."),
    ("Which novel has Marianne Dashwood in it?", "Marianne Dashwood is in Sense and Sensibility."),
    ("What do we call a young cow?", "A young cow is called a calf."),
    ("What is the weather in Paris?", "I do not know that."),
];

/// The model, its template and its settings come with grove.
#[test]
fn a_chat_model_ships() {
    for (message, expected) in CHAT_QUESTIONS {
        let talk = LLAMA.json(&["--chat", "--json", "--prompt", message]);
        assert_eq!(talk["turns"][0]["assistant"], expected, "{talk}");
    }
    let output = LLAMA.run(&["--chat"], "My name is Anne.\nWhat is my name?\n");
    let (talk, notes) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && notes.contains("grove's own small chat model"), "{notes}");
    let lines: Vec<&str> = talk.lines().collect();
    assert_eq!(lines[2..], ["> What is my name?", "Your name is Anne."], "{talk}");
    let short = ["--chat", "--json", "--system", "Answer in one word.", "--prompt", "By whom is Northanger Abbey?"];
    let short = LLAMA.json(&short);
    assert_eq!(short["turns"][0]["assistant"], "Austen.", "{short}");
}

#[test]
fn a_published_size_is_summarised() {
    let table = LLAMA.json(&["--model", "llama-3.1-8b", "--summary", "--json"]);
    assert_eq!(table["parameters"], 8_030_261_248u64);
    assert_eq!(table["memory"]["f32"], 4 * 8_030_261_248u64);
    assert_eq!(table["memory"]["f16 or bf16"], 2 * 8_030_261_248u64);
    // Two norms in each of 32 layers, and a final norm; all other weights take 18 bytes per 32 weights.
    let norms = 4096 * 65u64;
    assert_eq!(table["memory"]["Q4_0"], (8_030_261_248 - norms) / 32 * 18 + 4 * norms);
    // Keys and values of 8 heads of size 128 in each layer.
    assert_eq!(table["memory_of_text"], json!({ "tokens": 131_072, "bytes": 131_072u64 * 32 * 2 * 8 * 128 * 4 }));
    let stored = LLAMA.json(&["--model", &llama("gguf/q8_0.gguf"), "--summary", "--json"]);
    assert_eq!(
        stored["memory"].as_object().map(|memory| memory.keys().collect::<Vec<_>>()),
        Some(vec![&"as stored".to_owned()])
    );
    // Counts the values of quantized blocks from the file's table of tensors, not their bytes.
    for file in ["gguf/q8_0.gguf", "gguf/q4_k_q5_k.gguf", "gguf/f16.gguf"] {
        let checkpoint = grove::weights::TensorFiles::open(llama(file)).expect("a fixture");
        let values = |name: &str| checkpoint.info(name).expect("listed").shape.iter().product::<usize>();
        let names = checkpoint.names().filter(|name| !name.contains("rope_freqs"));
        let table = LLAMA.json(&["--model", &llama(file), "--summary", "--json"]);
        assert_eq!(table["parameters"], names.map(values).sum::<usize>(), "{file}");
    }
    let table = LLAMA.run(&["--model", &llama("gguf/q8_0.gguf"), "--summary"], "");
    let table = String::from_utf8_lossy(&table.stdout).into_owned();
    assert!(table.contains("parameters, counting those in quantized blocks"), "{table}");
    let table = GPT_NEO.json(&["--model", "gpt-neo-1.3B", "--summary", "--json"]);
    assert_eq!(table["parameters"], 1_315_575_808u64);
}

#[test]
fn llama_ships_and_reads_better_than_gpt2() {
    let made = LLAMA.json(&["--json", "--max-new-tokens", "8", "--prompt", "It is a truth"]);
    assert_eq!(made["generated_ids"].as_array().map(Vec::len), Some(8));
    // Both were trained on the same text with the same tokens.
    let held_out = fs::read_to_string("models/assets/gpt2-austen/held_out.txt").expect("it ships");
    let text: String = held_out.chars().take(800).collect();
    let [ours, other] = [LLAMA, Example("gpt2")].map(|example| example.json(&["--json", "--score", "--prompt", &text]));
    assert_eq!(ours["prompt_ids"], other["prompt_ids"]);
    let loss = |of: &Value| of["loss"].as_f64().expect("a number");
    assert!(loss(&ours) < loss(&other) && loss(&ours) > 2.0, "{} {}", loss(&ours), loss(&other));
}

#[test]
fn gpt_neo_ships_and_writes() {
    let made = GPT_NEO.json(&["--json", "--max-new-tokens", "8", "--prompt", "It is a truth"]);
    assert_eq!(made["generated_ids"].as_array().map(Vec::len), Some(8));
    let scored = GPT_NEO.json(&["--json", "--score", "--prompt", "It is a truth universally acknowledged"]);
    let same = Example("gpt2").json(&["--json", "--score", "--prompt", "It is a truth universally acknowledged"]);
    let loss = |of: &Value| of["loss"].as_f64().expect("a number");
    assert!((loss(&scored) - loss(&same)).abs() < 5e-3, "the same model: {scored} {same}");
}

#[test]
fn bad_input_is_one_sentence() {
    let without_template = ["--model", "models/assets/llama-austen", "--chat", "--prompt", "Hello."];
    LLAMA.assert_fails(&without_template, 1, &["llama-austen", "no chat template", "leave out --model"]);
    let directory = tempfile::tempdir().expect("a directory");
    let broken = directory.path().join("broken.gguf");
    let whole = fs::read(llama("gguf/q8_0.gguf")).expect("a fixture");
    for (content, word) in
        [(&whole[..whole.len() / 2], "broken.gguf"), (&whole[..40], "broken.gguf"), (b"GGUF", "broken.gguf")]
    {
        fs::write(&broken, content).expect("written");
        let message = LLAMA.assert_fails(&["--model", broken.to_str().expect("a path"), "--prompt", "a"], 1, &[word]);
        assert!(!message.contains("--prompt-ids"), "no prompt would help: {message}");
    }
    LLAMA.assert_fails(&["--model", &llama("gqa"), "--prompt-ids", "5,9999"], 1, &["9999"]);
}

/// One of several GGUF files of a repository in the cache of the hub.
#[test]
fn a_gguf_file_of_a_repository_is_summarised() {
    let home = tempfile::tempdir().expect("a directory");
    let repository = home.path().join("hub/models--owner--model");
    let commit = "0123456789abcdef0123456789abcdef01234567";
    let snapshot = repository.join("snapshots").join(commit);
    fs::create_dir_all(&snapshot).expect("made");
    fs::create_dir_all(repository.join("refs")).expect("made");
    fs::write(repository.join("refs/main"), commit).expect("written");
    for (file, name) in [("gguf/q8_0.gguf", "model-Q8_0.gguf"), ("gguf/f16.gguf", "model-F16.gguf")] {
        fs::copy(llama(file), snapshot.join(name)).expect("copied");
    }
    for (name, file) in [("owner/model:Q8_0", "gguf/q8_0.gguf"), ("owner/model/model-F16.gguf", "gguf/f16.gguf")] {
        let output = std::process::Command::new(LLAMA.program())
            .args(["--model", name, "--summary", "--json"])
            .env("HF_HOME", home.path())
            .env("HF_HUB_OFFLINE", "1")
            .env_remove("HF_HUB_CACHE")
            .output()
            .expect("the example runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let summary: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(summary, LLAMA.json(&["--model", &llama(file), "--summary", "--json"]), "{name}");
    }
}
