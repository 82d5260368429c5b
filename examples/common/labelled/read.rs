//! Labelled texts from files.

use csv::{ByteRecord, ReaderBuilder};
use serde_json::Value;
use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::common::{Exit, failure};

/// A text or a pair of texts, its label, and where they stand.
pub struct Labelled {
    pub label: String,
    pub text: String,
    pub pair: Option<String>,
    pub place: Place,
}

/// A line of a file.
#[derive(Clone)]
pub struct Place {
    file: Arc<PathBuf>,
    line: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, line {}", self.file.display(), self.line)
    }
}

/// Columns of a table, or fields of an object, by name, or by number from 1.
pub struct Columns {
    pub text: String,
    pub pair: Option<String>,
    pub label: String,
    /// True if the first line of a table has the names.
    pub header: bool,
    /// Stands between columns; `None`: a tab in .tsv files, else a comma.
    pub delimiter: Option<u8>,
}

/// Characters of a label. A column of texts that is taken for the labels is found out by it.
const LONGEST_LABEL: usize = 1000;

/// For clap: the character between columns.
pub fn delimiter(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        b"tab" | b"\\t" => Ok(b'\t'),
        [byte] if byte.is_ascii() && !b"\"\r\n".contains(byte) => Ok(*byte),
        _ => Err("give one character, such as ';', or tab".into()),
    }
}

/// Reads the files, at least one text of each: .jsonl has an object on each line, .tsv columns with tabs between and no
/// quotes, and everything else is CSV, unless another delimiter is given. Lines with nothing on them are skipped.
pub fn read(files: &[PathBuf], columns: &Columns) -> Result<Vec<Labelled>, Exit> {
    let mut all = Vec::new();
    for file in files {
        let bytes = std::fs::read(file).map_err(|error| failure(format!("cannot read {}: {error}", file.display())))?;
        let (before, named) = (all.len(), Arc::new(file.clone()));
        match extension(file) {
            "jsonl" | "ndjson" => objects(&bytes, &named, columns, &mut all)?,
            extension => {
                let default = if extension == "tsv" { b'\t' } else { b',' };
                table(&bytes, &named, columns.delimiter.unwrap_or(default), columns, &mut all)?;
            }
        }
        if all.len() == before {
            return Err(failure(format!("{} is empty; give a file with a labelled text on each line", file.display())));
        }
    }
    Ok(all)
}

fn extension(file: &Path) -> &str {
    file.extension().and_then(|extension| extension.to_str()).unwrap_or("")
}

fn table(
    bytes: &[u8],
    file: &Arc<PathBuf>,
    delimiter: u8,
    columns: &Columns,
    all: &mut Vec<Labelled>,
) -> Result<(), Exit> {
    let mut reader = ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .delimiter(delimiter)
        .quoting(delimiter != b'\t')
        .from_reader(bytes);
    let at = |record: &ByteRecord| {
        let (byte, line) = record.position().map_or((0, 0), |position| (position.byte() as usize, position.line()));
        // The reader counts from where it began to look, before lines with nothing on them.
        let skipped = bytes[byte.min(bytes.len())..].iter().take_while(|byte| b"\r\n".contains(byte));
        Place { file: file.clone(), line: line + skipped.filter(|byte| **byte == b'\n').count() as u64 }
    };
    let mut record = ByteRecord::new();
    let mut next = |record: &mut ByteRecord| {
        reader.read_byte_record(record).map_err(|error| failure(format!("{}: {error}", file.display())))
    };
    let mut names = vec![];
    if columns.header {
        if !next(&mut record)? {
            return Ok(());
        }
        let cells: Result<Vec<_>, _> = record.iter().map(utf8).collect();
        names = cells.map_err(|reason| failure(format!("{}: {reason}", at(&record))))?;
    }
    let column = |name: &str| {
        let number = || name.parse::<usize>().ok().filter(|number| *number > 0).map(|number| number - 1);
        names.iter().position(|known| known == name).or_else(number).ok_or_else(|| {
            let known = if columns.header { names.join(", ") } else { "no names, for there is no header".into() };
            let other = other_delimiter(&names, delimiter).unwrap_or_default();
            failure(format!("{}: there is no column '{name}'; the file has: {known}{other}", file.display()))
        })
    };
    let wanted = [Some(&columns.label), Some(&columns.text), columns.pair.as_ref()];
    let mut found = [None; 3];
    for (found, name) in found.iter_mut().zip(wanted) {
        *found = name.map(|name| column(name)).transpose()?;
    }
    while next(&mut record)? {
        if record.iter().all(|cell| cell.trim_ascii().is_empty()) {
            continue;
        }
        let place = at(&record);
        let wrong = |reason: String| failure(format!("{place}: {reason}"));
        let cell = |index: usize| {
            let has = record.len();
            let between = match delimiter {
                b'\t' => "tabs".to_owned(),
                b',' => "commas".to_owned(),
                other => format!("'{}'", char::from(other)),
            };
            let missing = || {
                let line = [String::from_utf8_lossy(record.as_slice()).into_owned()];
                let other = if has == 1 { other_delimiter(&line, delimiter) } else { None };
                let other = other.unwrap_or_default();
                format!("there is no column {} here, only {has}, between {between}{other}", index + 1)
            };
            record.get(index).ok_or_else(missing).and_then(utf8)
        };
        let [label, text, pair] = found.map(|index| index.map(cell));
        let (label, text) = (label.expect("always wanted"), text.expect("always wanted"));
        all.push(labelled(label, text, pair.transpose(), place.clone()).map_err(wrong)?);
    }
    Ok(())
}

/// Hint for a table that has a single column because it uses another delimiter.
fn other_delimiter(columns: &[String], delimiter: u8) -> Option<String> {
    let [only] = columns else { return None };
    let other =
        [b'\t', b';', b',', b'|'].into_iter().find(|byte| *byte != delimiter && only.contains(char::from(*byte)))?;
    let name = if other == b'\t' { "tab".to_owned() } else { format!("'{}'", char::from(other)) };
    Some(format!("; if columns are divided otherwise, give --delimiter {name}"))
}

fn objects(bytes: &[u8], file: &Arc<PathBuf>, columns: &Columns, all: &mut Vec<Labelled>) -> Result<(), Exit> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    for (i, line) in bytes.split(|&byte| byte == b'\n').enumerate() {
        if line.trim_ascii().is_empty() {
            continue;
        }
        let place = Place { file: file.clone(), line: i as u64 + 1 };
        let object: Result<Value, String> = utf8(line)
            .and_then(|line| serde_json::from_str(&line).map_err(|error| format!("this is not JSON: {error}")));
        let one = object.and_then(|object| {
            let pair = columns.pair.as_ref().map(|name| field(&object, name, false)).transpose();
            labelled(field(&object, &columns.label, true), field(&object, &columns.text, false), pair, place.clone())
        });
        all.push(one.map_err(|reason| failure(format!("{place}: {reason}")))?);
    }
    Ok(())
}

fn field(object: &Value, name: &str, label: bool) -> Result<String, String> {
    match object.get(name) {
        Some(Value::String(text)) => Ok(text.clone()),
        // A class may have a number for a name.
        Some(number @ (Value::Number(_) | Value::Bool(_))) if label => Ok(number.to_string()),
        Some(_) => Err(format!("\"{name}\" is not a string")),
        None => {
            let known: Vec<&str> = object.as_object().into_iter().flatten().map(|(name, _)| &**name).collect();
            Err(format!("there is no \"{name}\" here, only: {}", known.join(", ")))
        }
    }
}

fn labelled(
    label: Result<String, String>,
    text: Result<String, String>,
    pair: Result<Option<String>, String>,
    place: Place,
) -> Result<Labelled, String> {
    let (label, text, pair) =
        (label?.trim().to_owned(), text?.trim().to_owned(), pair?.map(|pair| pair.trim().to_owned()));
    let length = label.chars().count();
    match (&*label, &*text, pair.as_deref()) {
        ("", ..) => Err("the label is empty".into()),
        _ if length > LONGEST_LABEL => Err(format!(
            "the label has {length} characters, more than {LONGEST_LABEL}; is it a column of texts? It begins: {}…",
            label.chars().take(40).collect::<String>()
        )),
        (_, "", _) | (.., Some("")) => Err("the text is empty".into()),
        _ => Ok(Labelled { label, text, pair, place }),
    }
}

fn utf8(bytes: &[u8]) -> Result<String, String> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let at = error.valid_up_to();
        format!(
            "0x{:02x} after \"{}\" is not UTF-8; convert the file from the encoding it has, such as `iconv -f ISO-8859-1 \
             -t UTF-8`",
            bytes[at],
            String::from_utf8_lossy(&bytes[at.saturating_sub(20)..at])
        )
    })?;
    Ok(text.to_owned())
}
