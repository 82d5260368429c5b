//! The arguments of the program `grove`.

use clap::{
    Parser,
    error::{ContextKind, ContextValue, ErrorKind},
};

use crate::{commands::Grove, help::arranged};

/// Parses the arguments of the program. `grove chat` gets the option `--chat`.
///
/// # Errors
/// The arguments are not valid, or ask for help.
pub fn parse(words: impl IntoIterator<Item = String>) -> Result<Grove, clap::Error> {
    let mut words: Vec<String> = words.into_iter().collect();
    let is_chat = words.get(1).is_some_and(|word| word == "chat");
    if is_chat {
        words.insert(2, "--chat".into());
    }
    options::<Grove>(words).map_err(|error| if is_chat { chat_error(error) } else { number_error(error) })
}

/// Parses the options of a program with one command. Ends the program if they are not valid or ask for help.
pub fn parse_options<T: Parser>() -> T {
    options(std::env::args().collect()).unwrap_or_else(|error| number_error(error).exit())
}

fn options<T: Parser>(words: Vec<String>) -> Result<T, clap::Error> {
    let is_long = words.iter().any(|word| word == "--help") || words.get(1).is_some_and(|word| word == "help");
    let mut command = arranged(T::command(), !is_long);
    let matches = command.try_get_matches_from_mut(&words);
    let mut matches = matches.map_err(|error| missing_command(error, &command, &words))?;
    T::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
}

/// Names the commands of a command such as `grove classify`, if the arguments after it begin with none of them.
fn missing_command(error: clap::Error, command: &clap::Command, words: &[String]) -> clap::Error {
    let (mut command, mut path) = (command, command.get_name().to_owned());
    for word in words.iter().skip(1) {
        let Some(next) = command.find_subcommand(word) else { break };
        command = next;
        path += &format!(" {}", next.get_name());
    }
    let names = command.get_subcommands().map(clap::Command::get_name).filter(|name| *name != "help");
    let names: Vec<&str> = names.collect();
    match error.kind() {
        ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand if path.contains(' ') && !names.is_empty() => {
            let message = format!(
                "`{path}` needs one of its commands first: {0}, as in `{path} {1}`",
                names.join(", "),
                names[0]
            );
            error_with(error.kind(), message)
        }
        _ => error,
    }
}

/// Names the numbers that an option accepts, in place of the standard library's error.
fn number_error(error: clap::Error) -> clap::Error {
    let source = std::error::Error::source(&error);
    let is_integer = source.is_some_and(|source| source.is::<std::num::ParseIntError>());
    let is_number = is_integer || source.is_some_and(|source| source.is::<std::num::ParseFloatError>());
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        _ => String::new(),
    };
    let (option, value) = (text(ContextKind::InvalidArg), text(ContextKind::InvalidValue));
    match is_number {
        true => {
            let expected = if is_integer { "a whole number, at least 0" } else { "a number" };
            error_with(
                ErrorKind::ValueValidation,
                format!("'{value}' is not a valid value for {option}; give {expected}"),
            )
        }
        false => error,
    }
}

/// Returns an error with a message.
fn error_with(kind: ErrorKind, message: String) -> clap::Error {
    clap::Error::raw(kind, format!("{message}\n\nFor more information, try '--help'.\n"))
}

/// Names the option that `grove chat` does not have, in place of a conflict with `--chat`, which the user has not typed.
fn chat_error(error: clap::Error) -> clap::Error {
    let named = [ContextKind::InvalidArg, ContextKind::PriorArg].into_iter().flat_map(|kind| match error.get(kind) {
        Some(ContextValue::String(name)) => vec![name.clone()],
        Some(ContextValue::Strings(names)) => names.clone(),
        _ => vec![],
    });
    let named: Vec<String> = named.collect();
    let others: Vec<&str> = named.iter().map(String::as_str).filter(|name| *name != "--chat").collect();
    match error.kind() == ErrorKind::ArgumentConflict && others.len() < named.len() {
        true => error_with(ErrorKind::UnknownArgument, format!("grove chat has no {}", others.join(", "))),
        false => number_error(error),
    }
}
