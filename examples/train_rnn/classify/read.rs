//! Labelled texts from files.

use serde_json::Value;
use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::common::{Exit, failure};

/// A text, its label, and where they stand.
pub struct Labelled {
    pub label: String,
    pub text: String,
    pub place: Place,
}

/// A line of a file.
#[derive(Clone)]
pub struct Place {
    file: Arc<PathBuf>,
    line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, line {}", self.file.display(), self.line)
    }
}

/// Reads the files, at least one text of each. Lines with nothing on them are skipped.
pub fn read(files: &[PathBuf]) -> Result<Vec<Labelled>, Exit> {
    let mut all = Vec::new();
    for file in files {
        let bytes = std::fs::read(file).map_err(|error| failure(format!("cannot read {}: {error}", file.display())))?;
        let (before, named) = (all.len(), Arc::new(file.clone()));
        for (i, line) in bytes.split(|&byte| byte == b'\n').enumerate() {
            if line.trim_ascii().is_empty() {
                continue;
            }
            let place = Place { file: named.clone(), line: i + 1 };
            let (label, text) = labelled(file, line).map_err(|reason| failure(format!("{place}: {reason}")))?;
            all.push(Labelled { label, text, place });
        }
        if all.len() == before {
            return Err(failure(format!("{} is empty; give a file with a labelled text on each line", file.display())));
        }
    }
    Ok(all)
}

/// Label and text of a line.
fn labelled(file: &Path, line: &[u8]) -> Result<(String, String), String> {
    let line = std::str::from_utf8(line).map_err(|error| {
        let at = error.valid_up_to();
        format!(
            "byte {} of the line (0x{:02x}) is not UTF-8; convert the file from the encoding it has, such as \
             `iconv -f ISO-8859-1 -t UTF-8`",
            at + 1,
            line[at]
        )
    })?;
    let (label, text) = match file.extension().is_some_and(|extension| extension == "jsonl") {
        true => from_json(line)?,
        false => {
            let (label, text) =
                line.split_once('\t').ok_or("there is no tab; a line is the label, a tab, and the text")?;
            (label.to_owned(), text.to_owned())
        }
    };
    match (label.trim(), text.trim()) {
        ("", _) => Err("the label is empty".into()),
        (_, "") => Err("the text is empty".into()),
        (label, text) => Ok((label.to_owned(), text.to_owned())),
    }
}

fn from_json(line: &str) -> Result<(String, String), String> {
    let object: Value = serde_json::from_str(line).map_err(|error| format!("this is not JSON: {error}"))?;
    let field = |name: &str| match object.get(name) {
        Some(Value::String(text)) => Ok(text.clone()),
        // A class may have a number for a name.
        Some(number @ (Value::Number(_) | Value::Bool(_))) if name == "label" => Ok(number.to_string()),
        Some(_) => Err(format!("\"{name}\" is not a string")),
        None => Err(format!("there is no \"{name}\"; a line is {{\"label\": \"…\", \"text\": \"…\"}}")),
    };
    Ok((field("label")?, field("text")?))
}
