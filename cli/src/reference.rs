//! The reference of the command line, generated from the options: `docs/cli.md`.

use clap::{Arg, Command, CommandFactory};
use std::fmt::Display;

use crate::{
    commands::Grove,
    help::{default, values},
};

const INTRODUCTION: &str = "# Command-line reference

The commands and options of the program `grove`. A test writes this page from the options, so edit the options instead.
[On the command line](command_line.md) is the guide, and `grove COMMAND --help` shows the same in a terminal.
";

/// Fewest rows that are worth a section of their own.
const FEWEST_SHARED: usize = 4;

/// Options under one heading of the help: a row of the table for each.
struct Options {
    heading: String,
    rows: Vec<String>,
}

impl Options {
    fn has(&self, row: &String) -> bool {
        self.rows.contains(row)
    }

    fn has_all(&self, other: &Self) -> bool {
        self.heading == other.heading && other.rows.iter().all(|row| self.has(row))
    }

    fn table(&self) -> String {
        format!("| {} | |\n|---|---|\n{}\n", self.heading, self.rows.join("\n"))
    }
}

/// Returns the page in Markdown: a section for each command. Options that most commands with a heading have are in a section of
/// their own.
pub fn reference() -> String {
    let mut grove = Grove::command();
    grove.build();
    let commands = leaves(&grove);
    let options: Vec<Vec<Options>> = commands.iter().map(|command| options(command)).collect();
    let shared = shared(&options);

    let mut page = format!("{INTRODUCTION}\n| command | job |\n|---|---|\n");
    for command in &commands {
        let name = name(command);
        page += &format!("| [`{name}`](#{}) | {} |\n", anchor(&name), prose(&command.get_about()));
    }
    for (command, options) in commands.iter().zip(&options) {
        page += &section(command, options, &shared);
    }
    for options in &shared {
        page += &format!("\n## {}\n\n{}", title(options), options.table());
    }
    page
}

/// Returns the commands without subcommands.
fn leaves(command: &Command) -> Vec<&Command> {
    let shown = |command: &&Command| !command.is_hide_set() && command.get_name() != "help";
    match command.has_subcommands() {
        true => command.get_subcommands().filter(shown).flat_map(leaves).collect(),
        false => vec![command],
    }
}

/// Returns the visible options of a command by their headings, in the order of the help.
fn options(command: &Command) -> Vec<Options> {
    let of_clap = |arg: &&Arg| ["help", "version"].contains(&arg.get_id().as_str());
    let mut arguments: Vec<&Arg> = command.get_arguments().filter(|arg| !arg.is_hide_set() && !of_clap(arg)).collect();
    arguments.sort_by_key(|arg| (arg.get_index().unwrap_or(usize::MAX), arg.get_display_order()));
    let mut all: Vec<Options> = vec![];
    for arg in arguments {
        let heading = arg.get_help_heading().unwrap_or("Options");
        match all.iter_mut().find(|options| options.heading == heading) {
            Some(options) => options.rows.push(row(arg)),
            None => all.push(Options { heading: heading.into(), rows: vec![row(arg)] }),
        }
    }
    all
}

/// Returns the row of an option: its form, what it does, its values and its default.
fn row(arg: &Arg) -> String {
    // The first line of a help text has no full stop.
    let help = arg.get_long_help().or(arg.get_help()).map(|help| help.to_string().replacen("\n\n", ". ", 1));
    let mut text = prose(&help);
    text += &(values(arg, "`", true) + &default(arg));
    format!("| `{}` | {text} |", arg.to_string().replace('|', "\\|"))
}

/// Returns the options that at least half of the commands with a heading have.
fn shared(commands: &[Vec<Options>]) -> Vec<Options> {
    let all: Vec<&Options> = commands.iter().flatten().collect();
    let mut shared: Vec<Options> = vec![];
    for options in &all {
        if options.heading == "Options" || shared.iter().any(|found| found.heading == options.heading) {
            continue;
        }
        let alike: Vec<&&Options> = all.iter().filter(|other| other.heading == options.heading).collect();
        let is_common = |row: &&String| 2 * alike.iter().filter(|other| other.has(row)).count() >= alike.len();
        let rows: Vec<String> = options.rows.iter().filter(is_common).cloned().collect();
        let found = Options { heading: options.heading.clone(), rows };
        if found.rows.len() >= FEWEST_SHARED && alike.iter().filter(|other| other.has_all(&found)).count() > 1 {
            shared.push(found);
        }
    }
    shared
}

fn section(command: &Command, options: &[Options], shared: &[Options]) -> String {
    let usage = command.clone().render_usage().to_string();
    let about = command.get_long_about().or(command.get_about());
    let mut text = format!("\n## `{}`\n\n{}\n\n```text\n{usage}\n```\n", name(command), paragraphs(&about));
    let mut elsewhere = vec![];
    for options in options {
        let common = shared.iter().find(|common| options.has_all(common));
        let own = options.rows.iter().filter(|row| !common.is_some_and(|common| common.has(row)));
        let own = Options { heading: options.heading.clone(), rows: own.cloned().collect() };
        if !own.rows.is_empty() {
            text += &format!("\n{}", own.table());
        }
        elsewhere.extend(common.map(|common| format!("[{}](#{})", title(common), anchor(&title(common)))));
    }
    if !elsewhere.is_empty() {
        text += &format!("\nFurther options: {}.\n", elsewhere.join(", "));
    }
    let after = command.get_after_help().map(|help| help.to_string()).unwrap_or_default();
    if let Some(examples) = after.strip_prefix("Examples:\n") {
        let lines: Vec<&str> = examples.lines().map(|line| line.strip_prefix("  ").unwrap_or(line)).collect();
        text += &format!("\n```sh\n{}\n```\n", lines.join("\n"));
    }
    text
}

/// Returns the name of a command as people type it.
fn name(command: &Command) -> String {
    command.get_bin_name().unwrap_or(command.get_name()).to_owned()
}

fn title(options: &Options) -> String {
    format!("{} options", options.heading)
}

/// Returns the anchor of a heading.
fn anchor(heading: &str) -> String {
    heading.to_lowercase().replace(' ', "-")
}

/// Returns a text as one line of Markdown, for a cell of a table.
fn prose(text: &Option<impl Display>) -> String {
    let text = text.as_ref().map(ToString::to_string).unwrap_or_default();
    let mut line = String::new();
    for letter in text.split_whitespace().collect::<Vec<_>>().join(" ").chars() {
        if "|<*_".contains(letter) {
            line.push('\\');
        }
        line.push(letter);
    }
    line
}

/// Returns a text as paragraphs of Markdown.
fn paragraphs(text: &Option<impl Display>) -> String {
    let text = text.as_ref().map(ToString::to_string).unwrap_or_default();
    let paragraphs: Vec<String> = text.split("\n\n").map(|paragraph| prose(&Some(paragraph))).collect();
    paragraphs.join("\n\n")
}
