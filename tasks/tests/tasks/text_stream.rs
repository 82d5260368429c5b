//! Streaming of text. Fixtures: tools/fixtures/gpt2.py.

use grove_tasks::generation::TextStream;
use grove_text::Tokenizer;
use serde::Deserialize;
use std::path::PathBuf;

#[derive(Deserialize)]
struct Case {
    text: String,
    ids: Vec<u32>,
}

fn fixtures() -> PathBuf {
    PathBuf::from("../models/tests/fixtures/gpt2")
}

fn tokenizer() -> Tokenizer {
    Tokenizer::from_path(fixtures().join("tokenizer")).unwrap()
}

/// Texts of many scripts with transformers' ids.
fn cases() -> Vec<Case> {
    serde_json::from_slice(&std::fs::read(fixtures().join("tokenizer/cases.json")).unwrap()).unwrap()
}

fn ids_of(text: &str) -> Vec<u32> {
    let case = cases().into_iter().find(|case| case.text == text);
    case.unwrap_or_else(|| panic!("no case {text}")).ids
}

/// Returns the output of a stream for each token, and at its end.
fn stream(ids: &[u32], stops: &[&str]) -> (Vec<String>, String, bool) {
    let (tokenizer, stops) = (tokenizer(), stops.iter().map(|stop| stop.to_string()).collect::<Vec<_>>());
    let mut stream = TextStream::new(&tokenizer, &stops);
    let pieces: Vec<String> = ids.iter().map(|&id| stream.push(id).unwrap()).collect();
    assert_eq!(stream.text(), pieces.concat());
    let rest = stream.finish().unwrap();
    assert_eq!(stream.text(), pieces.concat() + &rest, "all that was given out");
    assert_eq!(stream.finish().unwrap(), "", "nothing comes twice");
    let stopped = stream.stopped();
    (pieces, rest, stopped)
}

/// Returns the text of a stream, and true if a stop string ended it.
fn streamed(ids: &[u32], stops: &[&str]) -> (String, bool) {
    let (pieces, rest, stopped) = stream(ids, stops);
    (pieces.concat() + &rest, stopped)
}

#[test]
fn streams_of_valid_text_are_whole_characters() {
    for Case { text, ids } in cases() {
        let (pieces, rest, stopped) = stream(&ids, &[]);
        assert_eq!(pieces.concat(), text, "nothing is held back in the end");
        assert_eq!((&*rest, stopped), ("", false), "{text}");
        assert!(pieces.iter().all(|piece| !piece.contains('\u{fffd}')), "{text}: {pieces:?}");
    }
}

#[test]
fn streams_of_any_bytes_are_their_decoding() {
    #[derive(Deserialize)]
    struct Generated {
        greedy_ids: Vec<u32>,
        text: String,
    }
    let file = fixtures().join("tiny_text/reference.json");
    let cases: Vec<Generated> = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    assert!(cases.iter().any(|case| case.text.contains('\u{fffd}')));
    for Generated { greedy_ids, text } in cases {
        assert_eq!(streamed(&greedy_ids, &[]), (text, false));
    }
    let tokenizer = tokenizer();
    for seed in 0..200 {
        let ids = grove_tree::Key::new(seed).randint_vec(30, 0, 400);
        let ids: Vec<u32> = ids.into_iter().map(|id| id as u32).collect();
        assert_eq!(streamed(&ids, &[]).0, tokenizer.decode(&ids).unwrap());
        // A stop string that does not occur only affects when text is returned.
        assert_eq!(streamed(&ids, &["\u{1}\u{2}\u{3}", "tree tree tree"]).0, tokenizer.decode(&ids).unwrap());
    }
}

/// A SentencePiece vocabulary. Its decoder turns each byte into a character if a run of byte tokens is not UTF-8.
#[test]
fn invalid_bytes_do_not_change_earlier_text() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy("../inputs/text/tests/fixtures/models/llama.model", folder.path().join("tokenizer.model")).unwrap();
    let tokenizer = Tokenizer::from_path(folder.path()).unwrap();
    let id = |token: &str| tokenizer.token_to_id(token).unwrap_or_else(|| panic!("{token}"));
    let (line_feed, tab, half, other) = (id("<0x0A>"), id("<0x09>"), id("<0xC3>"), id("<0xA9>"));
    let word = id("\u{2581}the");
    let streamed = |prompt: &[u32], ids: &[u32]| {
        let mut stream = TextStream::after(&tokenizer, &[], prompt);
        let mut text = String::new();
        for &id in ids {
            text += &stream.push(id).unwrap();
            assert_eq!(text, stream.text());
        }
        text + &stream.finish().unwrap()
    };
    let prompt = [tokenizer.encode("the").unwrap(), vec![line_feed]].concat();
    assert_eq!(streamed(&prompt, &[tab, half, other, word]), "\t\u{e9} the");
    assert_eq!(streamed(&prompt, &[tab, half]), "\t\u{fffd}");
    assert_eq!(streamed(&prompt, &[tab, half, word, word]), "\t\u{fffd} the the");
    assert_eq!(streamed(&prompt, &[half, word, half, other]), "\u{fffd} the\u{e9}");
    assert_eq!(streamed(&[], &[half, other, word]), "\u{e9} the");
    assert_eq!(streamed(&prompt, &[half; 100]), "\u{fffd}".repeat(100));

    // For random tokens, the text that is not bytes and the bytes that are UTF-8 equal those of the whole text.
    let words = [word, id("\u{2581}"), tab, half, other];
    for seed in 0..200 {
        let ids: Vec<u32> =
            grove_tree::Key::new(seed).randint_vec(20, 0, 5).iter().map(|&i| words[i as usize]).collect();
        let whole = tokenizer.decode(&[&prompt[..1], &ids].concat()).unwrap();
        let whole = whole.strip_prefix(&tokenizer.decode(&prompt[..1]).unwrap()).unwrap();
        let text = streamed(&prompt[..1], &ids);
        let words = |text: &str| text.chars().filter(|c| c.is_ascii_alphabetic() || *c == ' ').collect::<String>();
        assert_eq!(words(&text), words(whole), "{ids:?}");
        if !whole.contains('\u{fffd}') {
            assert_eq!(text, whole, "{ids:?}");
        }
    }
}

#[test]
fn incomplete_characters_are_held_back() {
    let trees = ids_of("🌳🌲🍎");
    let (pieces, _, _) = stream(&trees, &[]);
    assert_eq!(pieces.iter().filter(|piece| !piece.is_empty()).count(), 3, "{pieces:?}");

    // Token 259 begins an emoji. The incomplete character becomes U+FFFD at the end and before other text.
    let (pieces, rest, _) = stream(&trees[..1], &[]);
    assert_eq!((pieces.concat(), &*rest), (String::new(), "\u{fffd}"));
    let broken = [&trees[..1], &ids_of("a"), &trees[..1]].concat();
    let (pieces, rest, _) = stream(&broken, &[]);
    assert_eq!((pieces, &*rest), (vec![String::new(), "\u{fffd}a".into(), String::new()], "\u{fffd}"));
}

#[test]
fn stop_strings_end_a_text_before_them() {
    let text = "The old apple tree";
    let ids = ids_of(text);
    assert!(ids.len() > 4);
    let stopped = |text: &str| (text.to_owned(), true);
    // Across tokens, within a token, at the beginning, at the end, and the whole text.
    assert_eq!(streamed(&ids, &["e old a"]), stopped("Th"));
    assert_eq!(streamed(&ids, &["l"]), stopped("The o"));
    assert_eq!(streamed(&ids, &["The"]), stopped(""));
    assert_eq!(streamed(&ids, &["T"]), stopped(""));
    assert_eq!(streamed(&ids, &["tree"]), stopped("The old apple "));
    assert_eq!(streamed(&ids, &[text]), stopped(""));
    // Stop strings that do not occur, or only begin: the text that was held back is returned at the end.
    for stop in ["oak", "tree!", "The old apple trees", "trek"] {
        assert_eq!(streamed(&ids, &[stop]), (text.to_owned(), false), "{stop}");
    }
    // The first of several stop strings; an empty one never matches.
    assert_eq!(streamed(&ids, &["tree", "apple", "oak"]), stopped("The old "));
    // Of overlapping stop strings, the one that is complete first, even if one token completes both.
    assert_eq!(streamed(&ids, &["old apple", "ld a"]), stopped("The o"));
    assert_eq!(tokenizer().decode(&ids[..1]).unwrap(), "The");
    assert_eq!(streamed(&ids, &["The", "h"]), stopped("T"));
    assert_eq!(streamed(&ids, &["e", "he"]), stopped("T"));
    assert_eq!(streamed(&ids, &[""]), (text.to_owned(), false));
    assert_eq!(streamed(&ids, &["", "old"]), stopped("The "));
    // A false start that overlaps the stop string: "pp" begins twice in "apple".
    assert_eq!(streamed(&ids, &["pple t"]), stopped("The old a"));
    assert_eq!(streamed(&ids_of("\n\n\nthree newlines"), &["\n\nt"]), stopped("\n"));
    assert_eq!(streamed(&ids_of("\n\n\nthree newlines"), &["\n\n"]), stopped(""));
}

#[test]
fn stop_strings_of_broken_characters_and_special_tokens() {
    let stopped = |text: &str| (text.to_owned(), true);
    assert_eq!(streamed(&ids_of("🌳🌲🍎"), &["🌲"]), stopped("🌳"));
    assert_eq!(streamed(&ids_of("木が三本あれば森になる。"), &["三本", "森"]), stopped("木が"));
    assert_eq!(streamed(&ids_of("木が三本あれば森になる。"), &["。"]), stopped("木が三本あれば森になる"));
    assert_eq!(streamed(&ids_of("one text<|endoftext|>another text"), &["<|endoftext|>"]), stopped("one text"));
}

/// No part of a stop string is returned, and no text after it.
#[test]
fn no_part_of_a_stop_string_is_emitted() {
    for Case { text, ids } in cases() {
        let boundaries: Vec<usize> = text.char_indices().map(|(i, _)| i).chain([text.len()]).collect();
        for (from, to) in boundaries.iter().zip(boundaries.iter().skip(3)) {
            let stop = &text[*from..*to];
            let end = text.find(stop).unwrap();
            assert_eq!(streamed(&ids, &[stop]), (text[..end].to_owned(), true), "{text:?} until {stop:?}");
        }
    }
}

#[test]
fn a_stopped_stream_takes_no_more() {
    let (tokenizer, stops) = (tokenizer(), ["old".to_owned()]);
    let mut stream = TextStream::new(&tokenizer, &stops);
    let mut stopped_at = None;
    for (i, id) in ids_of("The old apple tree").into_iter().enumerate() {
        let piece = stream.push(id).unwrap();
        assert!(stopped_at.is_none() || piece.is_empty());
        stopped_at = stopped_at.or(stream.stopped().then_some(i));
    }
    assert!(stopped_at.is_some_and(|i| i < 4), "the stream knows at once");
    assert_eq!((stream.finish().unwrap(), stream.text()), (String::new(), "The "));
}
