//! Conversations with small random models.

use grove_backend::Flex;
use grove_models::{Llama, LlamaConfig, Pretrained};
use grove_tasks::{
    chat::{ChatSession, ChatTemplate},
    generate,
};
use grove_text::Tokenizer;
use grove_tree::Key;
use serde_json::Value;

use crate::long_texts::{config, greedy, models_of_lengths};

/// Each turn uses the angles of its length, as if the whole conversation were one prompt.
#[test]
fn turns_of_a_conversation_have_the_angles_of_their_length() {
    let tokenizer = Tokenizer::from_path("../models/tests/fixtures/gpt2/tokenizer").unwrap();
    let template = "{% for message in messages %}{{ message.content }}.{% endfor %}";
    let template = ChatTemplate::new(template, [("bos_token", "")]).unwrap();
    for model in models_of_lengths() {
        let mut chat = ChatSession::new(&model, &tokenizer, &template, None);
        for message in ["A grove", " of trees", " and so on"] {
            chat.say(message).unwrap();
            let prompt = tokenizer.encode(&template.render(chat.messages(), true).unwrap()).unwrap();
            let expected = generate(&model, &[prompt], &greedy(6), |_, _| true).unwrap();
            let reply = chat.reply(&greedy(6), &[], |_| true).unwrap();
            assert_eq!(reply.generated.ids, expected[0].ids);
        }
    }
}

#[test]
fn a_full_context_drops_the_oldest_turns() {
    let tokenizer = Tokenizer::from_path("../models/tests/fixtures/gpt2/tokenizer").unwrap();
    let template = "{% for message in messages %}{{ message.content }}.{% endfor %}";
    let template = ChatTemplate::new(template, [("bos_token", "")]).unwrap();
    let config = LlamaConfig { max_position_embeddings: 24, vocab_size: 512, ..config(Value::Null) };
    let model = Llama::<Flex>::init(&config, Key::new(3), &Default::default()).unwrap();
    let mut chat = ChatSession::new(&model, &tokenizer, &template, Some("Be brief"));
    let mut dropped = vec![];
    for message in ["A grove", " of trees", " and so on", " for ever"] {
        dropped.push(chat.say_within(message, 6).unwrap());
        let prompt = tokenizer.encode(&template.render(chat.messages(), true).unwrap()).unwrap();
        assert!(prompt.len() + 6 <= 24, "room for the reply");
        let expected = generate(&model, &[prompt], &greedy(6), |_, _| true).unwrap();
        assert_eq!(chat.reply(&greedy(6), &[], |_| true).unwrap().generated.ids, expected[0].ids);
        assert_eq!(chat.messages()[0].content, "Be brief");
    }
    assert!(dropped[0] == 0 && dropped.iter().sum::<usize>() > 0 && dropped.iter().all(|count| count % 2 == 0));
    let error = chat.say_within(&" of trees".repeat(40), 6);
    assert!(error.is_ok(), "rotary positions have no hard limit");
    assert_eq!(chat.messages().len(), 2, "the system message and the new one");
}
