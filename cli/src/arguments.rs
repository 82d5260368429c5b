//! The arguments of the program `grove`.

use clap::{
    Parser,
    error::{ContextKind, ContextValue, ErrorKind},
};

use crate::{commands::Grove, help::arranged};

/// Parses the arguments of the program.
///
/// # Errors
/// The arguments are not valid, or ask for help.
pub fn parse(given: impl IntoIterator<Item = String>) -> Result<Grove, clap::Error> {
    let given = arguments(given);
    let is_chat = given.get(1).is_some_and(|word| word == "chat");
    options::<Grove>(given).map_err(|error| if is_chat { of_chat(error) } else { of_number(error) })
}

/// Parses the options of a program with one command. Ends the program if they are not valid or ask for help.
pub fn parse_options<T: Parser>() -> T {
    options(std::env::args().collect()).unwrap_or_else(|error| of_number(error).exit())
}

fn options<T: Parser>(given: Vec<String>) -> Result<T, clap::Error> {
    let is_long = given.iter().any(|word| word == "--help") || given.get(1).is_some_and(|word| word == "help");
    let mut command = arranged(T::command(), !is_long);
    let mut matches = command.try_get_matches_from_mut(given)?;
    T::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
}

/// Says which numbers an option takes, in place of the standard library's words.
fn of_number(error: clap::Error) -> clap::Error {
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
            let wanted = if is_integer { "a whole number from 0" } else { "a number" };
            of_words(ErrorKind::ValueValidation, format!("'{value}' is no value of {option}; give {wanted}"))
        }
        false => error,
    }
}

/// Returns an error with a message of its own.
fn of_words(kind: ErrorKind, message: String) -> clap::Error {
    clap::Error::raw(kind, format!("{message}\n\nFor more information, try '--help'.\n"))
}

/// Names the option that `grove chat` does not have, in place of a conflict with `--chat`, which the user has not typed.
fn of_chat(error: clap::Error) -> clap::Error {
    let named = [ContextKind::InvalidArg, ContextKind::PriorArg].into_iter().flat_map(|kind| match error.get(kind) {
        Some(ContextValue::String(name)) => vec![name.clone()],
        Some(ContextValue::Strings(names)) => names.clone(),
        _ => vec![],
    });
    let named: Vec<String> = named.collect();
    let others: Vec<&str> = named.iter().map(String::as_str).filter(|name| *name != "--chat").collect();
    match error.kind() == ErrorKind::ArgumentConflict && others.len() < named.len() {
        true => of_words(ErrorKind::UnknownArgument, format!("grove chat has no {}", others.join(", "))),
        false => of_number(error),
    }
}

/// Returns the arguments of the program. `grove chat` gets the option `--chat`.
fn arguments(given: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut given: Vec<String> = given.into_iter().collect();
    if given.get(1).is_some_and(|word| word == "chat") {
        given.insert(2, "--chat".into());
    }
    given
}
