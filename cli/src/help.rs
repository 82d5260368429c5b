//! The layout of `-h` and `--help`.

use clap::{
    Arg, ArgAction, Command,
    builder::{Resettable, StyledStr},
};
use console::Term;

/// Options that come first, in this order.
const FIRST: [&str; 18] = [
    "task",
    "model",
    "data",
    "output",
    "config",
    "epochs",
    "steps",
    "batch_size",
    "learning_rate",
    "max_new_tokens",
    "temperature",
    "system",
    "top_k",
    "backend",
    "dtype",
    "resume",
    "seed",
    "json",
];

/// Maximum width of the help, in columns.
const WIDTH: usize = 100;

/// Width of an option's line without its name and its text, in columns.
const MARGIN: usize = 8;

/// Position of the options that print help and version, which are last.
const LAST: usize = 999;

/// Arranges the help of a command and of its subcommands. The most used options come first. In the short help, each option has one line.
pub fn arranged(command: Command, is_short: bool) -> Command {
    let columns = || std::env::var("COLUMNS").ok()?.parse().ok();
    let terminal = Term::stdout().size_checked().map(|(_, columns)| usize::from(columns)).or_else(columns);
    let width = terminal.unwrap_or(WIDTH).min(WIDTH);
    arrange(command.term_width(width), is_short, width)
}

fn arrange(command: Command, is_short: bool, width: usize) -> Command {
    let sections: Vec<(Section, usize)> =
        command.get_arguments().filter(|arg| !arg.is_hide_set()).map(|arg| (section(arg), length(arg))).collect();
    let room = |arg: &Arg| {
        let of_section = sections.iter().filter(|(other, _)| *other == section(arg));
        width.saturating_sub(of_section.map(|(_, length)| *length).max().unwrap_or(0) + MARGIN)
    };
    let long = command.get_long_about().map(ToString::to_string).filter(|_| !is_short);
    let details = long.as_ref().and_then(|long| long.split_once("\n\n")).map(|(_, details)| details.to_owned());
    let examples = command.get_after_help().map(ToString::to_string);
    let after: Vec<String> = details.into_iter().chain(examples).collect();
    let after = match after.is_empty() {
        true => Resettable::Reset,
        false => Resettable::Value(StyledStr::from(after.join("\n\n"))),
    };
    let mut order = FIRST.len();
    let help = Arg::new("help").short('h').long("help").action(ArgAction::Help).display_order(LAST);
    command
        .long_about(Resettable::Reset)
        .after_help(after)
        .mut_args(|arg| {
            let text = if is_short { line(&arg, room(&arg)) } else { paragraphs(&arg) };
            let arg = arg.help(text).long_help(Resettable::Reset).hide_default_value(true).hide_possible_values(true);
            order += 1;
            match place(&arg) {
                Some(place) => arg.help_heading(Resettable::Reset).display_order(place),
                None => arg.display_order(order),
            }
        })
        .disable_help_flag(true)
        .arg(help.help("Print help: -h has one line for each option, --help has all"))
        .mut_subcommands(|command| arrange(command, is_short, width))
}

/// Place of an argument in the help: true for a positional one, and the heading.
type Section = (bool, Option<String>);

fn section(arg: &Arg) -> Section {
    let heading = arg.get_help_heading().filter(|_| place(arg).is_none());
    (arg.is_positional(), heading.map(str::to_owned))
}

/// Returns the maximum width of an argument's name and value names, such as `--data <FILE>...`, in columns.
fn length(arg: &Arg) -> usize {
    let name = arg.get_long().map_or(0, |long| "--".len() + long.len());
    let values = arg.get_value_names().filter(|_| arg.get_action().takes_values()).unwrap_or_default();
    let values = values.iter().map(|value| " <>".len() + value.len()).sum::<usize>();
    let is_list = arg.get_num_args().is_some_and(|range| range.max_values() > 1) || arg.is_positional();
    name + values + if is_list { "...".len() } else { 0 }
}

/// Returns the position of an option in [`FIRST`].
fn place(arg: &Arg) -> Option<usize> {
    FIRST.iter().position(|id| !arg.is_positional() && arg.get_id() == *id)
}

/// Returns the values of an option, with their descriptions if `described` is true. The names are in quotes.
pub(crate) fn values(arg: &Arg, quote: &str, described: bool) -> String {
    if !arg.get_action().takes_values() {
        return String::new();
    }
    let values = arg.get_possible_values();
    let named = values.iter().filter(|value| !value.is_hide_set()).map(|value| {
        let name = format!("{quote}{}{quote}", value.get_name());
        value.get_help().filter(|_| described).map_or_else(|| name.clone(), |help| format!("{name} ({help})"))
    });
    let named: Vec<String> = named.collect();
    if named.is_empty() { String::new() } else { format!(": {}", named.join(", ")) }
}

/// Returns the default value of an option, in brackets.
pub(crate) fn default(arg: &Arg) -> String {
    let values: Vec<_> = arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    let is_shown = arg.get_action().takes_values() && !values.is_empty() && !arg.is_hide_default_value_set();
    if is_shown { format!(" [default: {}]", values.join(" ")) } else { String::new() }
}

/// Splits a text from the default value that it states; otherwise returns the default value of the option.
fn split<'a>(text: &'a str, arg: &Arg) -> (&'a str, String) {
    match text.find(" [default") {
        Some(place) => (&text[..place], text[place..].to_owned()),
        None => (text, default(arg)),
    }
}

/// Returns the full text of an option: description, values and default.
fn paragraphs(arg: &Arg) -> String {
    let text = arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let (first, rest) = text.split_once("\n\n").unwrap_or((&text, ""));
    let (body, default) = split(first, arg);
    let first = format!("{body}{}{default}", values(arg, "", true));
    if rest.is_empty() { first } else { format!("{first}. {rest}") }
}

/// Returns the text of an option in `room` columns. If it does not fit, details are dropped; if that is not enough, it ends
/// with an ellipsis.
fn line(arg: &Arg, room: usize) -> String {
    let text = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let (body, default) = split(&text, arg);
    let fits = |text: &str| text.chars().count() <= room;
    let ends = [". ", "; ", ", such as ", ": "];
    let shorter = ends.iter().scan(body, |body, end| {
        *body = body.split_once(end).map_or(*body, |(before, _)| before);
        Some(*body)
    });
    let bodies: Vec<&str> = std::iter::once(body).chain(shorter).collect();
    for suffix in [values(arg, "", false) + &default, default, String::new()] {
        if let Some(found) = bodies.iter().map(|body| format!("{body}{suffix}")).find(|text| fits(text)) {
            return found;
        }
    }
    let last = bodies.last().copied().unwrap_or_default();
    let cut: String = last.chars().take(room.saturating_sub(1)).collect();
    format!("{}…", cut.rsplit_once(' ').map_or(&*cut, |(words, _)| words).trim_end_matches(','))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::Grove;
    use clap::CommandFactory;

    /// Returns the help of each command without subcommands.
    fn helps(is_short: bool) -> Vec<(String, String)> {
        fn leaves(command: &mut Command, found: &mut Vec<(String, String)>) {
            if !command.has_subcommands() {
                found.push((command.get_bin_name().unwrap_or_default().into(), command.render_help().to_string()));
            }
            command.get_subcommands_mut().for_each(|command| leaves(command, found));
        }
        let mut found = vec![];
        let mut command = arrange(Grove::command().term_width(WIDTH), is_short, WIDTH);
        command.build();
        leaves(&mut command, &mut found);
        found.retain(|(name, _)| !name.contains(" help"));
        found
    }

    #[test]
    fn the_short_help_has_a_line_for_each_option() {
        let all = helps(true);
        assert!(all.len() > 20, "{all:?}");
        for (name, help) in all {
            let options = help.split("Examples:").next().expect("a part");
            for line in options.lines().filter(|line| line.starts_with("     ")) {
                assert!(line.trim_start().starts_with("--"), "{name}: {line}");
                assert!(line.chars().count() <= WIDTH, "{name}: {line}");
            }
        }
    }

    #[test]
    fn the_most_used_options_come_first() {
        let (_, help) = helps(false).into_iter().find(|(name, _)| name == "grove finetune texts").expect("a command");
        let at = |option: &str| help.find(&format!("  {option} ")).unwrap_or_else(|| panic!("no {option}: {help}"));
        let options = ["--model", "--data", "--output", "--epochs", "--batch-size", "--learning-rate", "--held-out"];
        assert!(options.map(at).is_sorted(), "{help}");
        assert!(help.lines().count() < 160, "{help}");
        assert!(help.contains("cosine (Half a") && help.contains("[default: 32]"), "{help}");
    }

    /// A wrapped line could not be copied into a shell.
    #[test]
    fn examples_are_whole_lines() {
        for (name, help) in helps(false) {
            let (_, examples) = help.split_once("Examples:\n").unwrap_or_default();
            let mut continues = false;
            for line in examples.lines() {
                assert!(line.chars().count() <= 79, "{name}: {line}");
                assert!(continues || line.starts_with("  grove "), "{name}: {line}");
                continues = line.ends_with(" \\");
            }
            assert!(!continues, "{name}: {examples}");
        }
    }

    #[test]
    fn a_short_line_drops_details() {
        let arg = Arg::new("size").long("size").help("Size of it, in tokens; 0 disables it").default_value("3");
        assert_eq!(line(&arg, 60), "Size of it, in tokens; 0 disables it [default: 3]");
        assert_eq!(line(&arg, 36), "Size of it, in tokens [default: 3]");
        assert_eq!(line(&arg, 22), "Size of it, in tokens");
        assert_eq!(line(&arg, 15), "Size of it…");
        let stated = Arg::new("size").long("size").help("Size of it; not more [default: the model's]");
        assert_eq!(line(&stated, 35), "Size of it [default: the model's]");
        assert_eq!(paragraphs(&stated), "Size of it; not more [default: the model's]");
    }
}
