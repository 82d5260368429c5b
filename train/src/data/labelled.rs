//! Labelled texts from the records of files.

use std::path::Path;

use super::{
    DataError,
    records::{self, Place, Record, TableFormat, Value},
};

/// A text or a pair of texts, its label, and its place in a file.
#[derive(Clone, Debug)]
pub struct LabelledText {
    /// The label.
    pub label: String,
    /// Number of the label, if the file has numbers of named classes.
    pub class_number: Option<u64>,
    /// The text, or the first of a pair.
    pub text: String,
    /// The second text of a pair.
    pub pair: Option<String>,
    /// File and line, for error messages.
    pub place: Place,
}

/// Columns of a table or fields of a JSON object: names, or column numbers from 1. By default, `text` and `label` of a
/// table with a header.
///
/// ```
/// # use grove_train::data::Columns;
/// let columns = Columns { text: "sentence".into(), ..Default::default() };
/// assert_eq!((&*columns.label, columns.pair), ("label", None));
/// ```
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

impl Default for Columns {
    fn default() -> Self {
        Self { text: "text".into(), pair: None, label: "label".into(), header: true, delimiter: None }
    }
}

/// Maximum length of a label, in characters. It catches a column of texts given as the labels.
const LONGEST_LABEL: usize = 1000;

/// Reads labelled texts from files, in the formats of [`records::open`]: CSV, TSV, JSON Lines and Parquet.
/// [`Columns::delimiter`] overrides the delimiter of a table. Empty lines are skipped.
///
/// # Errors
/// A file that cannot be read, is empty or has another extension; a missing column; an empty text or label; an encoding
/// other than UTF-8. The message names the file and the line, or the row of a Parquet file.
pub fn read_labelled(files: &[impl AsRef<Path>], columns: &Columns) -> Result<Vec<LabelledText>, DataError> {
    read_all(files, columns, Labels::One)
}

/// Reads texts with any number of labels each, in the formats of [`read_labelled`]. In JSON Lines and Parquet the
/// value may be a list of labels, which is joined with commas.
///
/// # Errors
/// As [`read_labelled`], except that labels may be empty.
pub fn read_multi_labelled(files: &[impl AsRef<Path>], columns: &Columns) -> Result<Vec<LabelledText>, DataError> {
    read_all(files, columns, Labels::Any)
}

fn read_all(files: &[impl AsRef<Path>], columns: &Columns, labels: Labels) -> Result<Vec<LabelledText>, DataError> {
    let mut all = Vec::new();
    for file in files {
        all.extend(read_table(file.as_ref(), columns, labels)?.texts);
    }
    Ok(all)
}

/// A table of texts without labels.
#[derive(Clone, Debug)]
pub struct TextTable {
    /// Names of the columns of `cells`; empty for a delimited table without a header.
    pub names: Vec<String>,
    /// Texts in the order of the file, with empty labels.
    pub texts: Vec<LabelledText>,
    /// All cells of each row; for JSON Lines and Parquet only the texts.
    pub cells: Vec<Vec<String>>,
}

/// Reads texts without labels from a file, in the formats of [`read_labelled`]. [`Columns::label`] is ignored.
///
/// # Errors
/// As [`read_labelled`].
pub fn read_texts(file: &Path, columns: &Columns) -> Result<TextTable, DataError> {
    read_table(file, columns, Labels::None)
}

/// Number of labels of a text.
#[derive(Clone, Copy, PartialEq)]
enum Labels {
    None,
    One,
    /// Any number: the list of labels may be empty.
    Any,
}

/// Reads the rows of a file.
fn read_table(file: &Path, columns: &Columns, labels: Labels) -> Result<TextTable, DataError> {
    let label = (labels != Labels::None).then_some(&columns.label);
    let texts = || std::iter::once(&columns.text).chain(&columns.pair);
    let names: Vec<&str> = label.into_iter().chain(texts()).map(String::as_str).collect();
    let format = TableFormat { header: columns.header, delimiter: columns.delimiter };
    let records = records::open(file, &names, format)?;
    let header = match records::is_record_file(file) {
        true => texts().cloned().collect(),
        false => records.header().to_vec(),
    };
    let mut table = TextTable { names: header, texts: vec![], cells: vec![] };
    for record in records {
        let Record { place, values, cells } = record?;
        let text = labelled(values, &names, labels, &place).map_err(|reason| place.error(reason))?;
        table.cells.push(match cells.is_empty() {
            true => std::iter::once(&text.text).chain(&text.pair).cloned().collect(),
            false => cells,
        });
        table.texts.push(text);
    }
    if table.texts.is_empty() {
        let item = if labels == Labels::None { "a text" } else { "a labelled text" };
        return Err(DataError::other(format!("{} is empty; give a file with {item} on each line", file.display())));
    }
    Ok(table)
}

/// Returns the text of a record. `names` are its columns: the label if there is one, the text, and the second text if
/// there is one.
fn labelled(values: Vec<Value>, names: &[&str], labels: Labels, place: &Place) -> Result<LabelledText, String> {
    let mut named = values.into_iter().zip(names);
    let (class_number, label) = match (labels != Labels::None).then(|| named.next()).flatten() {
        Some((value, name)) => (value.class_number(), value.into_label(name)?.trim().to_owned()),
        None => (None, String::new()),
    };
    let mut texts = named.map(|(value, name)| value.into_text(name).map(|text| text.trim().to_owned()));
    let (text, pair) = (texts.next().transpose()?.unwrap_or_default(), texts.next().transpose()?);
    let length = label.chars().count();
    match (&*label, &*text, pair.as_deref()) {
        ("", ..) if labels == Labels::One => Err("the label is empty".into()),
        _ if length > LONGEST_LABEL => Err(format!(
            "the label has {length} characters, more than {LONGEST_LABEL}; is it a column of texts? It starts with: {}…",
            label.chars().take(40).collect::<String>()
        )),
        (_, "", _) | (.., Some("")) => Err("the text is empty".into()),
        _ => Ok(LabelledText { label, class_number, text, pair, place: place.clone() }),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::labels, *};
    use std::path::PathBuf;

    fn read(name: &str, content: &str) -> Result<Vec<LabelledText>, String> {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = directory.path().join(name);
        std::fs::write(&file, content).expect("written");
        read_labelled(&[file], &Columns::default()).map_err(|error| error.to_string())
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
        let table = read_texts(&file, &Columns::default()).expect("readable");
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
            ("words,label\na,good\n", ["no column `text`", "words, label"]),
            ("text,label\na\n", ["line 2", "no column 2"]),
        ] {
            let error = read("a.csv", content).expect_err("refused");
            assert!(words.iter().all(|word| error.contains(word)), "{error}");
        }
    }

    #[test]
    fn refuses_files_of_other_kinds() {
        let error = read("a.xlsx", "PK").expect_err("refused");
        assert!(error.contains("a.xlsx") && error.contains(".jsonl") && error.contains(".parquet"), "{error}");
    }

    /// A file of tools/fixtures/records.py.
    fn fixture(name: &str) -> PathBuf {
        PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/records")).join(name)
    }

    #[test]
    fn reads_parquet() {
        let texts = read_labelled(&[fixture("classes.parquet")], &Columns::default()).expect("readable");
        let found: Vec<_> = texts.iter().map(|text| (&*text.text, &*text.label)).collect();
        assert_eq!(found, [("peace", "World"), ("a goal", "Sports"), ("a rise", "Business"), ("a match", "Sports")]);
        assert_eq!(labels(&texts).expect("labels"), ["Business", "Sports", "World"]);
        let pairs = Columns { pair: Some("second".into()), label: "stars".into(), ..Columns::default() };
        let texts = read_labelled(&[fixture("zstd.parquet")], &pairs).expect("readable");
        assert_eq!(texts.len(), 11);
        assert_eq!((&*texts[1].label, texts[1].pair.as_deref()), ("2", Some("1 nehcnüM sua eßürG")));
        assert!(texts[10].place.to_string().ends_with("zstd.parquet, row 11"));
    }

    #[test]
    fn reads_lists_of_labels_from_parquet() {
        for (file, column, expected) in [
            ("snappy.parquet", "tags", ["", "joy", "joy,fear", "joy,fear,calm"]),
            ("classes.parquet", "topics", ["war", "ball", "money,ball", ""]),
        ] {
            let columns = Columns { label: column.into(), ..Columns::default() };
            let texts = read_multi_labelled(&[fixture(file)], &columns).expect("readable");
            assert_eq!(texts.iter().take(4).map(|text| &*text.label).collect::<Vec<_>>(), expected, "{file}");
        }
    }

    #[test]
    fn errors_name_the_row_of_a_parquet_file() {
        let file = fixture("null.parquet");
        let error =
            read_labelled(std::slice::from_ref(&file), &Columns::default()).expect_err("a null label").to_string();
        assert!(error.contains("null.parquet, row 4: \"label\" is null"), "{error}");
        let error = read_texts(&file, &Columns::default()).expect_err("a null text").to_string();
        assert!(error.contains("null.parquet, row 5: \"text\" is null"), "{error}");
        let table = read_texts(&fixture("classes.parquet"), &Columns::default()).expect("readable");
        assert_eq!((&table.names[..], &table.cells[1][..]), (&["text".to_owned()][..], &["a goal".to_owned()][..]));
    }
}
