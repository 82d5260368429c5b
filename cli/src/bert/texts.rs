//! Input texts.

use grove::train::data::lines_with_places;
use std::io::Read;

use crate::{
    bert::{Task, TextArgs},
    input,
    prelude::*,
};

/// Texts, each with its location, for errors.
pub struct Texts {
    pub texts: Vec<(String, String)>,
    /// Note on the blank lines that are skipped, to print after the results.
    pub skipped: Option<String>,
}

/// Returns the texts of the command line, of `--file` or of standard input, or sample texts if there are none.
pub fn texts(options: &TextArgs, task: &Task) -> Result<Texts, Exit> {
    let numbered = |texts: &[String]| Texts {
        texts: texts.iter().cloned().zip((1..).map(|number| format!("text {number}"))).collect(),
        skipped: None,
    };
    if !options.texts.is_empty() {
        return match options.texts.iter().position(|text| text.trim().is_empty()) {
            Some(i) => Err(usage(format!("text {} is empty", i + 1))),
            None => Ok(numbered(&options.texts)),
        };
    }
    match &options.file {
        Some(file) => lines_of_file(file),
        None if !input::is_given() => Ok(numbered(&samples(task))),
        None => {
            let mut bytes = Vec::new();
            std::io::stdin().read_to_end(&mut bytes).map_err(|error| failure(format!("standard input: {error}")))?;
            lines(&bytes, "standard input")
        }
    }
}

/// Returns the lines of a file that are not blank.
pub fn lines_of_file(file: &Path) -> Result<Texts, Exit> {
    let name = file.display().to_string();
    let bytes = std::fs::read(file).map_err(|error| failure(format!("cannot read {name}: {error}")))?;
    lines(&bytes, &name)
}

fn lines(bytes: &[u8], name: &str) -> Result<Texts, Exit> {
    let texts = lines_with_places(bytes, name)?;
    let blank = bytes.trim_ascii_end().split(|&byte| byte == b'\n').count() - texts.len();
    let are = if blank == 1 { "is" } else { "are" };
    let skipped = (blank > 0).then(|| format!("[{name}: {} {are} skipped]", counted(blank, "blank line")));
    Ok(Texts { texts, skipped })
}

/// Converts an error. An error in one of the texts gets the location of the text.
pub fn located(error: &ModelError, places: &[String]) -> Exit {
    match error {
        ModelError::InText { number, error: inner } => match places.get(number.saturating_sub(1)) {
            Some(place) => failure(format!("{place}: {inner}")),
            None => failure(error),
        },
        _ => failure(error),
    }
}

fn samples(task: &Task) -> Vec<String> {
    let texts: &[&str] = match task {
        Task::FillMask { .. } => {
            &["She was [MASK] happy to see her sister.", "He walked to the [MASK] and opened the door."]
        }
        Task::Embed { .. } | Task::Similarity { .. } => {
            &["A man is playing a guitar.", "Someone makes music.", "The stock market fell on Monday."]
        }
        Task::Classify { .. } => &["What a lovely day!", "The soup was cold and the waiter rude."],
        Task::Tokens { .. } => &["Jane Austen lived in Chawton, a village in Hampshire."],
        Task::Answer { .. } => {
            &["Emma was written by Jane Austen in the years 1814 and 1815, and printed by John Murray in London."]
        }
    };
    texts.iter().map(|text| (*text).to_owned()).collect()
}
