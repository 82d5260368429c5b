//! Chat templates against transformers' prompts (`tools/fixtures/chat.py`), and the search for template files.

use std::{
    fs,
    time::{Duration, SystemTime},
};

use crate::common::json;
use grove_text::{
    TextError,
    chat::{ChatTemplate, Message, additional_templates},
};
use serde_json::Value;

/// Time of the fixtures, 2024-07-26 13:05:09.
fn then() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_721_999_109)
}

fn template(source: &str, variables: &Value) -> ChatTemplate {
    let template = ChatTemplate::new(source, variables.as_object().unwrap().clone());
    template.unwrap_or_else(|error| panic!("{error}: {source}")).at(then())
}

#[test]
fn prompts_match_transformers() {
    let file = json("chat.json");
    let mut refused = 0;
    let cases = file["cases"].as_array().unwrap();
    for case in cases {
        let (name, title) = (case[0].as_str().unwrap(), case[1].as_str().unwrap());
        let about = &file["templates"][name];
        let messages: Vec<Message> = serde_json::from_value(file["conversations"][title].clone()).unwrap();
        let template = template(about["source"].as_str().unwrap(), &about["variables"]);
        match (template.render(&messages, case[2].as_bool().unwrap()), &case[3]) {
            (Ok(prompt), Value::String(expected)) => assert_eq!(&prompt, expected, "{name} of {title}"),
            (Err(TextError::Refused { message }), Value::Object(expected)) => {
                assert_eq!(message, expected["raises"], "{name} of {title}");
                refused += 1;
            }
            (result, expected) => panic!("{name} of {title}: {result:?}, not {expected}"),
        }
    }
    assert!(cases.len() > 150 && refused > 20, "{} and {refused}", cases.len());
}

#[test]
fn turns_may_be_more_than_texts() {
    let file = json("chat.json");
    let about = &file["templates"]["llama31"];
    let tokens = serde_json::json!({"bos_token": "<s>", "eos_token": "</s>"});
    let template = template(about["source"].as_str().unwrap(), &tokens);
    let turns = file["rich"][0].as_array().unwrap();
    assert_eq!(template.render(turns, true).unwrap(), file["rich"][1].as_str().unwrap());
}

#[test]
fn expressions_match_jinja() {
    let file = json("chat.json");
    let tokens = serde_json::json!({"bos_token": "<s>", "eos_token": "</s>"});
    let messages = file["conversations"]["long"].as_array().unwrap();
    let mut wrong = Vec::new();
    for case in file["expressions"].as_array().unwrap() {
        let source = case[0].as_str().unwrap();
        let result = ChatTemplate::new(source, tokens.as_object().unwrap().clone())
            .and_then(|template| template.at(then()).render(messages, false));
        match (result, &case[1]) {
            (Ok(text), Value::String(expected)) if text == *expected => {}
            (Err(_), Value::Object(_)) => {}
            (result, expected) => wrong.push(format!("{source}\n  {result:?}\n  {expected:?}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn long_conversations_are_rendered() {
    let file = json("chat.json");
    let turns = (0..2000).map(|turn| {
        let role = if turn % 2 == 0 { "user" } else { "assistant" };
        Message::new(role, format!("Turn {turn}: {}", "all that is said. ".repeat(40)))
    });
    let turns: Vec<Message> = turns.collect();
    for (name, about) in file["templates"].as_object().unwrap() {
        let template = template(about["source"].as_str().unwrap(), &about["variables"]);
        let prompt = template.render(&turns, true).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(prompt.len() > 1_400_000, "{name}");
    }
}

#[test]
fn a_directory_has_its_template_in_one_of_three_files() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    let render = || {
        let template = ChatTemplate::from_directory(folder.path())?;
        template.map(|template| template.render(&[Message::new("user", "x")], false)).transpose()
    };
    assert_eq!(render().unwrap(), None);
    write("special_tokens_map.json", r#"{"bos_token": "<old>", "pad_token": "<pad>"}"#);
    write("chat_template.json", r#"{"chat_template": "json {{ bos_token }} {{ pad_token }}"}"#);
    assert_eq!(render().unwrap().unwrap(), "json <old> <pad>");
    let tokens = r#""bos_token": {"content": "<s>", "lstrip": false}, "eos_token": "</s>", "add_bos_token": true"#;
    let list = r#"[{"name": "tool_use", "template": "no"}, {"name": "default", "template": "list {{ bos_token }}"}]"#;
    write("tokenizer_config.json", &format!(r#"{{"chat_template": {list}, {tokens}}}"#));
    // As in transformers, the older file's tokens take precedence unless the newer one lists the added tokens.
    assert_eq!(render().unwrap().unwrap(), "list <old>");
    let listed = r#""added_tokens_decoder": {}"#;
    write("tokenizer_config.json", &format!(r#"{{"chat_template": {list}, {tokens}, {listed}}}"#));
    assert_eq!(render().unwrap().unwrap(), "list <s>");
    write(
        "tokenizer_config.json",
        &format!(r#"{{"chat_template": "{{{{ eos_token }}}}{{{{ add_bos_token }}}}", {tokens}}}"#),
    );
    assert_eq!(render().unwrap().unwrap(), "</s>");
    // Errors name the file, both when it is read and when it is used.
    for (source, reason) in
        [("{{ 1 | nothing }}", "nothing"), ("{% for %}", "line 1"), ("{{ raise_exception('no') }}", "no")]
    {
        write("chat_template.jinja", source);
        let error = render().unwrap_err().to_string();
        let named = error.contains("chat_template.jinja") || source.contains("raise");
        assert!(named && error.contains(reason), "{error}");
    }
    fs::remove_file(folder.path().join("chat_template.jinja")).unwrap();
    write("chat_template.jinja", "file {{ messages[0].content }}\n");
    assert_eq!(render().unwrap().unwrap(), "file x");
    fs::remove_file(folder.path().join("chat_template.jinja")).unwrap();
    for (config, reason) in [
        (r#"{"chat_template": 3}"#, "neither a text nor a list"),
        (r#"{"chat_template": [{"name": "rag", "template": ""}]}"#, "\"rag\""),
        (r#"{"chat_template": "#, "not JSON"),
    ] {
        write("tokenizer_config.json", config);
        let error = render().unwrap_err().to_string();
        assert!(error.contains(reason) && error.contains("tokenizer_config.json"), "{error}");
    }
}

/// Expected: transformers' AutoTokenizer; tools/fixtures/tokenizer_forms.py has such folders too.
#[test]
fn of_additional_templates_the_default_is_used() {
    let folder = tempfile::tempdir().unwrap();
    let more = folder.path().join("additional_chat_templates");
    fs::create_dir(&more).unwrap();
    let render = || ChatTemplate::from_directory(folder.path())?.unwrap().render(&[Message::new("user", "x")], false);
    fs::write(folder.path().join("tokenizer_config.json"), r#"{"chat_template": "of the configuration"}"#).unwrap();
    fs::write(more.join("notes.txt"), "no template").unwrap();
    assert_eq!(render().unwrap(), "of the configuration");
    fs::write(more.join("rag.jinja"), "for documents").unwrap();
    assert_eq!(additional_templates(folder.path()).unwrap(), ["rag.jinja"]);
    let error = render().unwrap_err().to_string();
    for part in ["additional_chat_templates", "rag.jinja", "none is `default.jinja`", "chat_template.jinja"] {
        assert!(error.contains(part), "{error}");
    }
    fs::write(folder.path().join("chat_template.jinja"), "of the file").unwrap();
    assert_eq!(render().unwrap(), "of the file");
    fs::write(more.join("default.jinja"), "the default").unwrap();
    assert_eq!(render().unwrap(), "the default");
}
