//! Labelled texts from CSV, TSV and JSON Lines files.

use csv::{ByteRecord, ReaderBuilder};
use serde_json::Value;
use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::DataError;

/// A text or a pair of texts, its label, and its place in a file.
#[derive(Clone, Debug)]
pub struct LabelledText {
    /// The label.
    pub label: String,
    /// The text, or the first of a pair.
    pub text: String,
    /// The second text of a pair.
    pub pair: Option<String>,
    /// File and line, for error messages.
    pub place: Place,
}

/// File and line of an example.
#[derive(Clone, Debug)]
pub struct Place {
    file: Arc<PathBuf>,
    line: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, line {}", self.file.display(), self.line)
    }
}

/// Columns of a table or fields of a JSON object: names, or column numbers from 1.
#[derive(Clone, Debug)]
pub struct Columns {
    /// Column of the texts.
    pub text: String,
    /// Column of the second texts, for pairs.
    pub pair: Option<String>,
    /// Column of the labels.
    pub label: String,
    /// True if the first line of a table has the column names.
    pub header: bool,
    /// Delimiter of the columns. `None`: a tab in `.tsv` files, a comma in others.
    pub delimiter: Option<u8>,
}

/// Maximum length of a label, in characters. It catches a column of texts given as the labels.
const LONGEST_LABEL: usize = 1000;

/// Reads labelled texts from files.
///
/// A `.jsonl` or `.ndjson` file has an object on each line. A `.tsv` file has columns separated by tabs, without
/// quotes. A `.csv` or `.txt` file, or one without an extension, is CSV. [`Columns::delimiter`] overrides the
/// delimiter. Empty lines are skipped.
///
/// # Errors
/// A file that cannot be read, is empty or has another extension; a missing column; an empty text or label; an encoding
/// other than UTF-8. The message names the file and the line.
pub fn read_labelled(files: &[PathBuf], columns: &Columns) -> Result<Vec<LabelledText>, DataError> {
    read_all(files, &Wanted { columns, label: Some(&columns.label), empty_label: false })
}

/// Reads texts with any number of labels each, in the formats of [`read_labelled`]. A JSON field may be a list of
/// labels, which is joined with commas.
///
/// # Errors
/// As [`read_labelled`], except that labels may be empty.
pub fn read_multi_labelled(files: &[PathBuf], columns: &Columns) -> Result<Vec<LabelledText>, DataError> {
    read_all(files, &Wanted { columns, label: Some(&columns.label), empty_label: true })
}

fn read_all(files: &[PathBuf], wanted: &Wanted<'_>) -> Result<Vec<LabelledText>, DataError> {
    let mut all = Vec::new();
    for file in files {
        all.extend(rows(file, wanted, "a labelled text")?.rows.into_iter().map(|(_, text)| text));
    }
    Ok(all)
}

/// A table of texts without labels.
#[derive(Clone, Debug)]
pub struct TextTable {
    /// Column names; empty without a header and for JSON Lines.
    pub names: Vec<String>,
    /// Texts in the order of the file, with empty labels.
    pub texts: Vec<LabelledText>,
    /// All cells of each row; for JSON Lines only the texts.
    pub cells: Vec<Vec<String>>,
}

/// Reads texts without labels from a file, in the formats of [`read_labelled`]. [`Columns::label`] is ignored.
///
/// # Errors
/// As [`read_labelled`].
pub fn read_texts(file: &Path, columns: &Columns) -> Result<TextTable, DataError> {
    let Rows { names, rows } = rows(file, &Wanted { columns, label: None, empty_label: true }, "a text")?;
    let (cells, texts) = rows.into_iter().unzip();
    Ok(TextTable { names, texts, cells })
}

/// The columns to read.
struct Wanted<'a> {
    columns: &'a Columns,
    /// Column of the labels; `None` for texts without labels.
    label: Option<&'a String>,
    /// If true, labels may be empty.
    empty_label: bool,
}

/// The rows of a file: the cells and the text of each.
#[derive(Default)]
struct Rows {
    names: Vec<String>,
    rows: Vec<(Vec<String>, LabelledText)>,
}

/// Reads the rows of a file. `item` describes the content of a line in error messages.
fn rows(file: &Path, wanted: &Wanted<'_>, item: &str) -> Result<Rows, DataError> {
    let bytes =
        std::fs::read(file).map_err(|error| DataError::other(format!("cannot read {}: {error}", file.display())))?;
    let named = Arc::new(file.to_owned());
    let found = match extension(file) {
        "jsonl" | "ndjson" => objects(&bytes, &named, wanted)?,
        extension @ ("tsv" | "csv" | "txt" | "") => {
            let default = if extension == "tsv" { b'\t' } else { b',' };
            table(&bytes, &named, wanted.columns.delimiter.unwrap_or(default), wanted)?
        }
        other => {
            return Err(DataError::other(format!(
                "{}: texts are read from .csv, .tsv, .txt and .jsonl files, and this is a .{other}; convert it",
                file.display()
            )));
        }
    };
    match found.rows.is_empty() {
        true => Err(DataError::other(format!("{} is empty; give a file with {item} on each line", file.display()))),
        false => Ok(found),
    }
}

/// Returns the distinct labels, sorted by name, or by value if all are integers.
///
/// # Errors
/// If all texts have the same label.
pub fn labels(texts: &[LabelledText]) -> Result<Vec<String>, DataError> {
    let mut labels: Vec<String> = texts.iter().map(|text| text.label.clone()).collect();
    labels.sort();
    labels.dedup();
    if labels.iter().all(|label| label.parse::<i64>().is_ok()) {
        labels.sort_by_key(|label| label.parse::<i64>().unwrap_or(0));
    }
    match (&labels[..], texts) {
        ([label], [first, ..]) => Err(DataError::other(format!(
            "{}: all texts from here on have the label '{label}', and a classifier needs at least two labels",
            first.place
        ))),
        _ => Ok(labels),
    }
}

/// Returns the sorted labels that occur in texts with any number of labels each.
///
/// # Errors
/// If no text has a label.
pub fn multi_labels(texts: &[LabelledText], separator: char) -> Result<Vec<String>, DataError> {
    let all: BTreeSet<&str> = texts.iter().flat_map(|text| labels_in(&text.label, separator)).collect();
    match (all.is_empty(), texts.first()) {
        (true, Some(first)) => Err(DataError::other(format!("{}: no text from here on has a label", first.place))),
        _ => Ok(all.into_iter().map(str::to_owned).collect()),
    }
}

/// Returns the labels of a text that has any number of them.
pub fn labels_in(list: &str, separator: char) -> impl Iterator<Item = &str> {
    list.split(separator).map(str::trim).filter(|label| !label.is_empty())
}

/// Maps each label to its index. Labels named `LABEL_0` and so on, transformers' default names, can also be given as
/// numbers.
fn indices(labels: &[String]) -> HashMap<&str, usize> {
    let numbers = labels.iter().enumerate().filter_map(|(i, label)| {
        let number = label.strip_prefix("LABEL_")?;
        (number == i.to_string()).then_some((number, i))
    });
    numbers.chain(labels.iter().enumerate().map(|(i, label)| (&**label, i))).collect()
}

/// True if [`with_classes`] finds the labels of all texts in the list.
pub fn have_labels(texts: &[LabelledText], labels: &[String]) -> bool {
    let indices = indices(labels);
    texts.iter().all(|text| indices.contains_key(&*text.label))
}

/// Returns each text with the index of its label. The labels 0, 1 and so on match transformers' default names
/// `LABEL_0`, `LABEL_1`.
///
/// # Errors
/// If the label of a text is not in the list.
pub fn with_classes(texts: Vec<LabelledText>, labels: &[String]) -> Result<Vec<(usize, LabelledText)>, DataError> {
    let indices = indices(labels);
    let class = |text: LabelledText| match indices.get(&*text.label) {
        Some(class) => Ok((*class, text)),
        None => Err(DataError::other(format!(
            "{}: the label '{}' is not one of the model's, which are {}",
            text.place,
            text.label,
            labels.join(", ")
        ))),
    };
    texts.into_iter().map(class).collect()
}

fn extension(file: &Path) -> &str {
    file.extension().and_then(|extension| extension.to_str()).unwrap_or("")
}

fn table(bytes: &[u8], file: &Arc<PathBuf>, delimiter: u8, wanted: &Wanted<'_>) -> Result<Rows, DataError> {
    let (columns, mut all) = (wanted.columns, vec![]);
    let mut reader = ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .delimiter(delimiter)
        .quoting(delimiter != b'\t')
        .from_reader(bytes);
    let at = |record: &ByteRecord| {
        let (byte, line) = record.position().map_or((0, 0), |position| (position.byte() as usize, position.line()));
        // The reader's line number is that of the first blank line before the record.
        let skipped = bytes[byte.min(bytes.len())..].iter().take_while(|byte| b"\r\n".contains(byte));
        Place { file: file.clone(), line: line + skipped.filter(|byte| **byte == b'\n').count() as u64 }
    };
    let mut record = ByteRecord::new();
    let mut next = |record: &mut ByteRecord| {
        reader.read_byte_record(record).map_err(|error| DataError::other(format!("{}: {error}", file.display())))
    };
    let mut names = vec![];
    if columns.header {
        if !next(&mut record)? {
            return Ok(Rows::default());
        }
        let cells: Result<Vec<_>, _> = record.iter().map(utf8).collect();
        names = cells.map_err(|reason| DataError::other(format!("{}: {reason}", at(&record))))?;
    }
    let column = |name: &String| -> Result<usize, DataError> {
        let number = || name.parse::<usize>().ok().filter(|number| *number > 0).map(|number| number - 1);
        names.iter().position(|known| known == name).or_else(number).ok_or_else(|| {
            let known = match columns.header {
                true => format!("{} (if these are not names, the file has no header)", names.join(", ")),
                false => "no names, for there is no header".into(),
            };
            let problem = format!("{}: there is no column '{name}'; the file has: {known}", file.display());
            no_column(problem, &names, delimiter)
        })
    };
    let label = wanted.label.map(column).transpose()?;
    let text = column(&columns.text)?;
    let pair = columns.pair.as_ref().map(column).transpose()?;
    while next(&mut record)? {
        if record.iter().all(|cell| cell.trim_ascii().is_empty()) {
            continue;
        }
        let place = at(&record);
        let wrong = |reason: String| DataError::other(format!("{place}: {reason}"));
        let cell = |index: usize| {
            let has = record.len();
            let between = match delimiter {
                b'\t' => "tabs".to_owned(),
                b',' => "commas".to_owned(),
                other => format!("'{}'", char::from(other)),
            };
            let missing = || {
                let cells: Vec<_> = record.iter().map(|cell| String::from_utf8_lossy(cell).into_owned()).collect();
                let problem = format!("{place}: there is no column {} here, only {has}, between {between}", index + 1);
                no_column(problem, &cells, delimiter)
            };
            record.get(index).ok_or_else(missing).and_then(|cell| utf8(cell).map_err(wrong))
        };
        let (label, pair) = (label.map(cell).transpose()?, pair.map(cell).transpose());
        let label = Label { text: label.unwrap_or_default(), may_be_empty: wanted.empty_label };
        let text = labelled(label, cell(text)?, pair?, place.clone()).map_err(wrong)?;
        all.push((record.iter().map(|cell| String::from_utf8_lossy(cell).into_owned()).collect(), text));
    }
    Ok(Rows { names, rows: all })
}

/// Returns the error of a missing column. A table with a single column may use another delimiter, which the error then
/// names.
fn no_column(problem: String, columns: &[String], delimiter: u8) -> DataError {
    let [only] = columns else { return DataError::other(problem) };
    let is_other = |byte: &u8| *byte != delimiter && only.contains(char::from(*byte));
    match [b'\t', b';', b',', b'|'].into_iter().find(is_other) {
        Some(delimiter) => DataError::Delimiter { problem, delimiter: char::from(delimiter) },
        None => DataError::other(problem),
    }
}

fn objects(bytes: &[u8], file: &Arc<PathBuf>, wanted: &Wanted<'_>) -> Result<Rows, DataError> {
    let (columns, mut all) = (wanted.columns, vec![]);
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
            let label = wanted.label.map(|name| field(&object, name, true)).transpose()?.unwrap_or_default();
            let label = Label { text: label, may_be_empty: wanted.empty_label };
            labelled(label, field(&object, &columns.text, false)?, pair?, place.clone())
        });
        let text = one.map_err(|reason| DataError::other(format!("{place}: {reason}")))?;
        all.push((std::iter::once(text.text.clone()).chain(text.pair.clone()).collect(), text));
    }
    Ok(Rows { names: vec![], rows: all })
}

fn field(object: &Value, name: &str, label: bool) -> Result<String, String> {
    match object.get(name) {
        Some(Value::String(text)) => Ok(text.clone()),
        // Class names may be numbers or booleans.
        Some(number @ (Value::Number(_) | Value::Bool(_))) if label => Ok(number.to_string()),
        Some(Value::Array(labels)) if label && labels.iter().all(Value::is_string) => {
            Ok(labels.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(","))
        }
        Some(_) => Err(format!("\"{name}\" is not a string")),
        None => {
            let known: Vec<&str> = object.as_object().into_iter().flatten().map(|(name, _)| &**name).collect();
            Err(format!("there is no \"{name}\" here, only: {}", known.join(", ")))
        }
    }
}

/// A label as read from the file.
struct Label {
    text: String,
    may_be_empty: bool,
}

/// Checks a text and its label.
fn labelled(label: Label, text: String, pair: Option<String>, place: Place) -> Result<LabelledText, String> {
    let Label { text: label, may_be_empty } = label;
    let (label, text, pair) =
        (label.trim().to_owned(), text.trim().to_owned(), pair.map(|pair| pair.trim().to_owned()));
    let length = label.chars().count();
    match (&*label, &*text, pair.as_deref()) {
        ("", ..) if !may_be_empty => Err("the label is empty".into()),
        _ if length > LONGEST_LABEL => Err(format!(
            "the label has {length} characters, more than {LONGEST_LABEL}; is it a column of texts? It starts with: {}…",
            label.chars().take(40).collect::<String>()
        )),
        (_, "", _) | (.., Some("")) => Err("the text is empty".into()),
        _ => Ok(LabelledText { label, text, pair, place }),
    }
}

fn utf8(bytes: &[u8]) -> Result<String, String> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let at = error.valid_up_to();
        // Byte order marks of UTF-16.
        let encoding = if matches!(bytes[at..], [0xff, 0xfe, ..] | [0xfe, 0xff, ..]) { "UTF-16" } else { "ISO-8859-1" };
        format!(
            "0x{:02x} after \"{}\" is not UTF-8; convert the file from the encoding it has, such as `iconv -f {encoding} \
             -t UTF-8`",
            bytes[at],
            String::from_utf8_lossy(&bytes[at.saturating_sub(20)..at])
        )
    })?;
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns() -> Columns {
        Columns { text: "text".into(), pair: None, label: "label".into(), header: true, delimiter: None }
    }

    fn read(name: &str, content: &str) -> Result<Vec<LabelledText>, String> {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = directory.path().join(name);
        std::fs::write(&file, content).expect("written");
        read_labelled(&[file], &columns()).map_err(|error| error.to_string())
    }

    #[test]
    fn reads_tables_and_objects() {
        for (name, content) in [
            ("a.csv", "text,label\n\"a, b\",good\n\nc,bad\n"),
            ("a.tsv", "label\ttext\ngood\ta, b\nbad\tc\n"),
            ("a.jsonl", "{\"text\": \"a, b\", \"label\": \"good\"}\n{\"text\": \"c\", \"label\": \"bad\"}\n"),
        ] {
            let texts = read(name, content).expect("readable");
            let found: Vec<_> = texts.iter().map(|text| (&*text.text, &*text.label)).collect();
            assert_eq!(found, [("a, b", "good"), ("c", "bad")], "{name}");
        }
    }

    #[test]
    fn reads_texts_without_labels() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = directory.path().join("a.csv");
        std::fs::write(&file, "id,text\n7,\"a, b\"\n\n9, c\n").expect("written");
        let table = read_texts(&file, &columns()).expect("readable");
        assert_eq!(
            (table.names, table.cells),
            (
                vec!["id".into(), "text".into()],
                vec![vec!["7".to_owned(), "a, b".into()], vec!["9".into(), " c".into()],]
            )
        );
        assert_eq!(table.texts.iter().map(|text| &*text.text).collect::<Vec<_>>(), ["a, b", "c"]);
    }

    #[test]
    fn errors_name_file_and_line() {
        for (content, words) in [
            ("text,label\na,good\n ,bad\n", ["a.csv, line 3", "the text is empty"]),
            ("words,label\na,good\n", ["no column 'text'", "words, label"]),
            ("text,label\na\n", ["line 2", "no column 2"]),
        ] {
            let error = read("a.csv", content).expect_err("refused");
            assert!(words.iter().all(|word| error.contains(word)), "{error}");
        }
    }

    #[test]
    fn labels_are_sorted_by_value_where_they_are_integers() {
        let texts = read("a.csv", "text,label\na,10\nb,9\nc,10\n").expect("readable");
        assert_eq!(labels(&texts).expect("two labels"), ["9", "10"]);
        let classes = with_classes(texts, &["9".into(), "10".into()]).expect("known labels");
        assert_eq!(classes.iter().map(|(class, _)| *class).collect::<Vec<_>>(), [1, 0, 1]);
    }

    #[test]
    fn labels_go_by_their_names() {
        let texts = read("a.csv", "text,label\na,1\nb,0\n").expect("readable");
        let named = ["LABEL_0", "LABEL_1"].map(String::from);
        let classes = with_classes(texts.clone(), &named).expect("transformers' names");
        assert_eq!(classes.iter().map(|(class, _)| *class).collect::<Vec<_>>(), [1, 0]);
        let own = ["1", "0", "2"].map(String::from);
        let classes = with_classes(texts.clone(), &own).expect("names");
        assert_eq!(classes.iter().map(|(class, _)| *class).collect::<Vec<_>>(), [0, 1]);
        assert!(have_labels(&texts, &named) && have_labels(&texts, &own));
        assert!(!have_labels(&texts, &["LABEL_1", "LABEL_0"].map(String::from)), "numbers of other classes");
        assert!(!have_labels(&texts, &own[..1]));
    }

    #[test]
    fn refuses_files_of_other_kinds() {
        let error = read("a.parquet", "PAR1").expect_err("refused");
        assert!(error.contains("a.parquet") && error.contains(".jsonl"), "{error}");
    }
}
