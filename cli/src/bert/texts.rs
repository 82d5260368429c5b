//! Input texts.

use std::io::Read;

use crate::{
    Exit,
    bert::{Options, Task},
    failure, input,
};

/// Texts, and the place where each stands, for errors.
#[derive(Default)]
pub struct Texts {
    pub texts: Vec<String>,
    pub places: Vec<String>,
}

impl Texts {
    /// Of the command line: their places are their numbers.
    fn numbered(texts: Vec<String>) -> Self {
        let places = (1..=texts.len()).map(|number| format!("text {number}")).collect();
        Self { texts, places }
    }
}

/// The texts of the command line, of the file, or of standard input; where there are none, some that show what is done.
pub fn texts(options: &Options) -> Result<Texts, Exit> {
    if !options.texts.is_empty() {
        return match options.texts.iter().position(|text| text.trim().is_empty()) {
            Some(i) => Err(Exit::Usage(format!("text {} is empty", i + 1))),
            None => Ok(Texts::numbered(options.texts.clone())),
        };
    }
    let (name, bytes) = match &options.file {
        Some(file) => {
            let bytes = std::fs::read(file);
            (
                file.display().to_string(),
                bytes.map_err(|error| failure(format!("cannot read {}: {error}", file.display())))?,
            )
        }
        None if !input::is_given() => return Ok(Texts::numbered(samples(options.task))),
        None => {
            let mut bytes = Vec::new();
            std::io::stdin().read_to_end(&mut bytes).map_err(|error| failure(format!("standard input: {error}")))?;
            ("standard input".to_owned(), bytes)
        }
    };
    let mut found = Texts::default();
    for (i, line) in bytes.split(|&byte| byte == b'\n').enumerate() {
        let line = std::str::from_utf8(line).map_err(|error| {
            failure(format!(
                "{name}, line {}: byte {} is not UTF-8; convert the text from the encoding it has, such as `iconv -f \
                 ISO-8859-1 -t UTF-8`",
                i + 1,
                error.valid_up_to() + 1
            ))
        })?;
        if !line.trim().is_empty() {
            found.texts.push(line.trim_end_matches('\r').to_owned());
            found.places.push(format!("{name}, line {}", i + 1));
        }
    }
    if found.texts.is_empty() {
        return Err(failure(format!("{name} has no text; give one on each line")));
    }
    Ok(found)
}

fn samples(task: Task) -> Vec<String> {
    let texts: &[&str] = match task {
        Task::FillMask => &["She was [MASK] happy to see her sister.", "He walked to the [MASK] and opened the door."],
        Task::Embed | Task::Similarity => {
            &["A man is playing a guitar.", "Someone makes music.", "The stock market fell on Monday."]
        }
        Task::Classify => &["What a lovely day!", "The soup was cold and the waiter rude."],
        Task::Tokens => &["Jane Austen lived in Chawton, a village in Hampshire."],
        Task::Answer => {
            &["Emma was written by Jane Austen in the years 1814 and 1815, and printed by John Murray in London."]
        }
    };
    texts.iter().map(|text| (*text).to_owned()).collect()
}
