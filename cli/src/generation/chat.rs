//! Conversation in the terminal.

use grove::tasks::{
    chat::{ChatSession, Reply, chat_template},
    generation::Finish,
};
use std::{
    io::{BufRead, IsTerminal},
    time::Instant,
};

use super::{GenerationArgs, decoder::PUBLISHED_CHAT};
use crate::{input, prelude::*, show};

/// Options of a conversation.
#[derive(Args, Debug)]
pub struct ChatArgs {
    /// Chat with a model that has a chat template, by default a small one that ships with grove: --prompt, or each line of
    /// standard input, is a message. The line /clear clears the conversation, and /help lists the commands. In a terminal, an
    /// empty line ends the conversation; in a file or pipe, empty lines are skipped
    #[arg(long, conflicts_with_all = ["prompt_ids", "score", "samples", "draft", "jit", "repeat", "summary"], help_heading = "Conversation")]
    pub chat: bool,

    /// System message at the start of the conversation
    #[arg(long, value_name = "TEXT", requires = "chat", help_heading = "Conversation")]
    pub system: Option<String>,
}

/// Runs the conversation until the input ends.
pub fn chat<B: Backend, M: CausalLm<B>>(
    options: &GenerationArgs,
    chat: &ChatArgs,
    files: &ModelFiles,
    load: impl FnOnce(&ModelFiles, usize) -> Result<M, Exit>,
) -> Result<(), Exit> {
    let tokenizer = Tokenizer::beside(files.tokenizer())?;
    let template = chat_template(files.tokenizer())?.ok_or_else(|| {
        failure(format!(
            "{}: the model has no chat template: name a chat model with --model, such as {PUBLISHED_CHAT}, or leave out --model \
             to use the small one that ships with grove",
            files.path().display()
        ))
    })?;
    let typed = std::io::stdin().is_terminal();
    check_input(options, typed)?;
    let model = load(files, 0)?;
    let settings = options.settings(files)?;
    let live = !options.json;
    let ask = live && typed;
    let input = options.prompt().is_none().then(|| std::iter::from_fn(move || next_line(ask)));
    let mut lines = options.prompt().map(str::to_owned).map(Ok).into_iter().chain(input.into_iter().flatten());
    let begin = || ChatSession::new(&model, &tokenizer, &template, chat.system.as_deref());
    let mut session = begin();
    let mut turns = vec![];
    // Reserves at most a quarter of the context for the reply.
    let room = settings.max_new_tokens.min(model.context().unwrap_or(usize::MAX) / 4);
    let mut dropped_messages = 0;
    if ask {
        eprintln!("{HELP}");
    }
    while let Some(line) = lines.next().transpose()? {
        if line.trim().is_empty() {
            if typed { break } else { continue }
        }
        if let Some(command) = command(&line).filter(|_| options.prompt().is_none()) {
            match command {
                "/clear" => {
                    session = begin();
                    eprintln!("[the conversation is cleared]");
                }
                "/help" => eprintln!("{HELP}"),
                other if typed => eprintln!("[{}]", unknown_command(other)),
                other => return Err(failure(unknown_command(other))),
            }
            continue;
        }
        let dropped = match session.say_within(&line, room) {
            // The user can type another message.
            Err(error) if ask => {
                eprintln!("{error}");
                continue;
            }
            dropped => dropped?,
        };
        if dropped > 0 {
            let were = if dropped == 1 { "message was".into() } else { format!("{dropped} messages were") };
            eprintln!("[the model's context is full: the oldest {were} dropped]");
            dropped_messages += dropped;
        }
        if live && !typed {
            write_line(&format!("> {line}"))?;
        }
        let (Reply { text, generated }, seconds) = reply(&mut session, &settings, live)?;
        turns.push(json!({ "user": line, "assistant": text, "tokens": generated.ids.len(), "seconds": seconds }));
    }
    if turns.is_empty() && !typed {
        return Err(failure(NO_MESSAGE));
    }
    if options.json {
        write_json(&json!({ "turns": turns, "dropped_messages": dropped_messages }))?;
    }
    Ok(())
}

/// Generates the reply to the last message, and prints it if `live` is true. Also returns the time in seconds.
fn reply<B: Backend, M: CausalLm<B>>(
    session: &mut ChatSession<'_, B, M>,
    settings: &GenerateOptions,
    live: bool,
) -> Result<(Reply, f64), Exit> {
    let (begun, mut shown, mut begins) = (Instant::now(), Ok(()), true);
    let reply = session.reply(settings, &settings.stop_strings, |piece| {
        // Some templates leave the space before the reply to the model.
        let piece = if begins { piece.trim_start() } else { piece };
        begins &= piece.is_empty();
        if live && shown.is_ok() {
            shown = show(piece);
        }
        shown.is_ok()
    })?;
    shown?;
    let (tokens, seconds) = (reply.generated.ids.len(), begun.elapsed().as_secs_f64());
    if live {
        write_line("")?;
        let cut = match reply.generated.finish {
            Finish::Length => ", stopped at --max-new-tokens",
            Finish::Context => ", stopped because the model's context is full",
            Finish::Stop | Finish::Callback => "",
        };
        eprintln!("[{tokens} tokens in {seconds:.1} s{cut}]");
    }
    Ok((reply, seconds))
}

/// The commands of a conversation.
const HELP: &str =
    "[Each line is a message. An empty line ends the conversation, /clear clears it, /help prints this.]";

/// Returns the command of a line, such as `/clear`. A line with other text, such as a path, is a message.
fn command(line: &str) -> Option<&str> {
    let line = line.trim_end();
    let name = line.strip_prefix('/')?;
    (!name.is_empty() && name.chars().all(|letter| letter.is_ascii_alphabetic())).then_some(line)
}

fn unknown_command(command: &str) -> String {
    format!(
        "{command} is not a command; the commands are /clear and /help. To send it as a message, type a space first"
    )
}

const NO_MESSAGE: &str = "there is no message: give one with --prompt, or one per line on standard input";

/// Fails if the input has no message, before the model is loaded.
fn check_input(options: &GenerationArgs, typed: bool) -> Result<(), Exit> {
    match options.prompt().is_some() || typed {
        true => Ok(()),
        false if !input::is_given() => Err(failure(NO_MESSAGE)),
        false => match std::io::stdin().lock().fill_buf() {
            Ok([]) => Err(input::is_empty()),
            Ok(_) => Ok(()),
            Err(error) => Err(failure(format!("standard input: {error}"))),
        },
    }
}

/// Reads the next line of standard input, after printing a prompt if `ask` is true.
fn next_line(ask: bool) -> Option<std::io::Result<String>> {
    if ask {
        eprint!("> ");
    }
    std::io::stdin().lock().lines().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_single_words() {
        assert_eq!(["/clear", "/help ", "/quit"].map(command), [Some("/clear"), Some("/help"), Some("/quit")]);
        assert_eq!(["clear", " /clear", "/etc/hosts", "/", "/ 2", "/clear it"].map(command), [None; 6]);
    }
}
