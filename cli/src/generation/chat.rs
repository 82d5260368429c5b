//! A conversation in the terminal.

use clap::Args;
use grove::{
    models::{
        GenerateOptions, Tokenizer,
        chat::{Message, chat_template},
        generation::{DecodeSession, Finish, TextStream, check_prompt, generate_with_cache},
    },
    prelude::*,
};
use serde_json::json;
use std::{
    io::{BufRead, IsTerminal},
    path::Path,
    time::Instant,
};

use super::GenerationArgs;
use crate::{Exit, failure, input, show, write_json, write_line};

/// Options of a conversation.
#[derive(Args, Debug)]
pub struct ChatArgs {
    /// Talk with a model that was made for conversations: each line that is typed (or that --prompt, or standard input,
    /// gives) is a message, and the model answers. What is typed ends with an empty line; in a file or pipe those are skipped
    #[arg(long, conflicts_with_all = ["prompt_ids", "score", "samples", "draft"], help_heading = "Conversation")]
    pub chat: bool,

    /// System message at the start of the conversation
    #[arg(long, value_name = "TEXT", requires = "chat", help_heading = "Conversation")]
    pub system: Option<String>,
}

/// Talks until there is nothing left to say.
pub fn chat<B: Backend, M: CausalLm<B>>(
    options: &GenerationArgs,
    chat: &ChatArgs,
    path: &Path,
    load: impl FnOnce(&Path) -> Result<M, Exit>,
) -> Result<(), Exit> {
    let tokenizer = Tokenizer::beside(path).map_err(failure)?;
    let template = chat_template(path).map_err(failure)?.ok_or_else(|| {
        failure(format!(
            "{}: the model has no chat template, so it was not made for conversations: leave out --chat, or name one that was",
            path.display()
        ))
    })?;
    let typed = std::io::stdin().is_terminal();
    check_input(options, typed)?;
    let model = load(path)?;
    let settings = options.settings(path)?;
    let live = !options.json;
    let mut lines = options.prompt.clone().map(Ok).into_iter().chain(from_input(options, live && typed));
    let mut messages: Vec<Message> = chat.system.iter().map(|system| Message::new("system", system)).collect();
    let mut session = DecodeSession::new(&model, 0);
    let mut turns = vec![];
    while let Some(line) = lines.next().transpose().map_err(failure)? {
        match line.trim().is_empty() {
            true if typed => break,
            true => continue,
            false => {}
        }
        messages.push(Message::new("user", &line));
        let text = template.render(&messages, true).map_err(failure)?;
        let ids = tokenizer.encode_rendered(&text).map_err(failure)?;
        check_prompt(&model, &ids).map_err(failure)?;
        if live && !typed {
            write_line(&format!("> {line}"))?;
        }
        let mut stream = TextStream::after(&tokenizer, &options.stop, &ids);
        let mut broken = None;
        let begun = Instant::now();
        let on_token = |token| match stream.push(token).map_err(failure).and_then(|piece| show_if(live, &piece)) {
            Ok(()) => !stream.stopped(),
            Err(error) => {
                broken = Some(error);
                false
            }
        };
        let turn_key = settings.key.fold_in(turns.len() as u32);
        let (generated, read) = generate_with_cache(
            &model,
            session,
            &ids,
            &GenerateOptions { key: turn_key, ..settings.clone() },
            on_token,
        )
        .map_err(failure)?;
        session = read;
        if let Some(error) = broken {
            return Err(error);
        }
        let rest = stream.finish().map_err(failure)?;
        show_if(live, &rest)?;
        let answer = stream.text().trim().to_owned();
        let seconds = begun.elapsed().as_secs_f64();
        if live {
            write_line("")?;
            let cut = match generated.finish {
                Finish::Length => ", cut at --max-new-tokens",
                Finish::Context => ", cut where the model's context is full",
                Finish::Stop | Finish::Callback => "",
            };
            eprintln!("[{} tokens in {seconds:.1} s{cut}]", generated.ids.len());
        }
        turns.push(json!({ "user": line, "assistant": answer, "tokens": generated.ids.len(), "seconds": seconds }));
        messages.push(Message::new("assistant", &answer));
    }
    if turns.is_empty() && !typed {
        return Err(failure(NO_MESSAGE));
    }
    if options.json { write_json(&json!({ "turns": turns })) } else { Ok(()) }
}

const NO_MESSAGE: &str = "there is no message: give one with --prompt, or a line for each on standard input";

/// Fails where no message will come, before the model is read.
fn check_input(options: &GenerationArgs, typed: bool) -> Result<(), Exit> {
    match options.prompt.is_some() || typed {
        true => Ok(()),
        false if !input::is_given() => Err(failure(NO_MESSAGE)),
        false => match std::io::stdin().lock().fill_buf() {
            Ok([]) => Err(input::is_empty()),
            Ok(_) => Ok(()),
            Err(error) => Err(failure(format!("standard input: {error}"))),
        },
    }
}

fn show_if(live: bool, piece: &str) -> Result<(), Exit> {
    if live { show(piece) } else { Ok(()) }
}

/// Lines of standard input; none where the one message was given as an option.
fn from_input(options: &GenerationArgs, ask: bool) -> impl Iterator<Item = std::io::Result<String>> {
    let none = options.prompt.is_some();
    std::iter::from_fn(move || {
        if none {
            return None;
        }
        if ask {
            eprint!("> ");
        }
        std::io::stdin().lock().lines().next()
    })
}
