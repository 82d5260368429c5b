//! Text files, and the texts of files of records.

use grove_files::{FileError, note_once};
use std::path::{Path, PathBuf};

use super::{
    DataError,
    records::{self, TableFormat, is_record_file},
};

/// Reads documents: text files, the texts in `.jsonl` and `.parquet` files, and the files of folders, sorted by name.
///
/// A text file is a document, as is each record of a file of records. Records with an empty text, and other files of a folder,
/// are left out with a note.
///
/// - `text_column`: column of the texts in files of records, such as `text`
///
/// # Errors
/// If a folder cannot be listed, has no files with text, or has both `.txt` files and files of records; those of
/// [`read_text`] and [`records::open`]; a record whose text is null or not a string.
pub fn read_documents(paths: &[impl AsRef<Path>], text_column: &str) -> Result<Vec<String>, DataError> {
    let mut documents = Vec::new();
    for path in paths.iter().map(AsRef::as_ref) {
        let files = if path.is_dir() { files_with_text(path)? } else { vec![path.to_owned()] };
        for file in files {
            match is_record_file(&file) {
                true => read_record_texts(&file, text_column, &mut documents)?,
                false => documents.push(read_text(file)?),
            }
        }
    }
    Ok(documents)
}

/// Returns the `.txt` files of a folder, or its files of records.
fn files_with_text(directory: &Path) -> Result<Vec<PathBuf>, DataError> {
    let listed = std::fs::read_dir(directory).and_then(|items| items.map(|item| Ok(item?.path())).collect());
    let files: Vec<PathBuf> = listed.map_err(FileError::io("list", directory))?;
    let (mut records, others): (Vec<_>, Vec<_>) = files.into_iter().partition(|file| is_record_file(file));
    let (mut texts, others): (Vec<_>, Vec<_>) =
        others.into_iter().partition(|file| file.extension().is_some_and(|extension| extension == "txt"));
    texts.sort();
    records.sort();
    let named = directory.display();
    if let Some(note) = left_out(directory, &others).filter(|_| !texts.is_empty() || !records.is_empty()) {
        note_once(&note);
    }
    match (&texts[..], &records[..]) {
        ([], []) => Err(DataError::other(format!(
            "{named} has no .txt, .jsonl or .parquet files; name text files of other types"
        ))),
        ([], _) => Ok(records),
        (_, []) => Ok(texts),
        ([text, ..], [record, ..]) => Err(DataError::other(format!(
            "{named} has text files, such as {}, and files of records, such as {}; name the files to read",
            text.display(),
            record.display()
        ))),
    }
}

/// Returns a note that names files of a folder that are not read. Folders and hidden files are not named.
fn left_out(directory: &Path, others: &[PathBuf]) -> Option<String> {
    let is_hidden = |file: &Path| file.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
    let files: Vec<&PathBuf> = others.iter().filter(|file| file.is_file() && !is_hidden(file)).collect();
    let name = files.iter().filter_map(|file| file.file_name()).min()?.to_string_lossy();
    let (count, what) = match files.len() {
        1 => (format!("1 file of {}", directory.display()), "is not .txt, .jsonl or .parquet and is"),
        many => (format!("{many} files of {}", directory.display()), "are not .txt, .jsonl or .parquet and are"),
    };
    Some(format!("{count} {what} left out: {name}{}", if files.len() > 1 { ", …" } else { "" }))
}

/// Adds the texts of a file of records to documents.
fn read_record_texts(file: &Path, column: &str, documents: &mut Vec<String>) -> Result<(), DataError> {
    let (before, mut empty) = (documents.len(), 0_usize);
    for record in records::open(file, &[column], TableFormat::default())? {
        let record = record?;
        let text = record.values.into_iter().next().unwrap_or(records::Value::Null);
        let text = text.into_text(column).map_err(|reason| record.place.error(reason))?;
        match text.trim().is_empty() {
            true => empty += 1,
            false => documents.push(text),
        }
    }
    if documents.len() == before {
        return Err(DataError::NotText {
            file: file.into(),
            reason: format!("it has no texts in the column \"{column}\"; give a file with a text in each record"),
        });
    }
    if empty > 0 {
        note_once(&format!("{}: {empty} records have an empty text and are left out", file.display()));
    }
    Ok(())
}

/// Returns the lines of a text that are not blank, each with its place for error messages: `name, line 3`. A byte order
/// mark is removed.
///
/// # Errors
/// If a line is not UTF-8, or all are blank.
pub fn lines_with_places(bytes: &[u8], name: &str) -> Result<Vec<(String, String)>, DataError> {
    if is_utf16(bytes) {
        return Err(DataError::other(format!("{name}: {}", describe_non_utf8(bytes, 0))));
    }
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let mut found = vec![];
    for (i, line) in bytes.split(|&byte| byte == b'\n').enumerate() {
        let place = format!("{name}, line {}", i + 1);
        let line = std::str::from_utf8(line).map_err(|error| {
            DataError::other(format!(
                "{place}: byte {} is not UTF-8; convert the text from the encoding it has, such as `iconv -f ISO-8859-1 -t \
                 UTF-8`",
                error.valid_up_to() + 1
            ))
        })?;
        if !line.trim().is_empty() {
            found.push((line.trim_end_matches('\r').to_owned(), place));
        }
    }
    match found.is_empty() {
        true => Err(DataError::other(format!("{name} has no text; give one on each line"))),
        false => Ok(found),
    }
}

/// Reads a UTF-8 text file.
///
/// # Errors
/// If the file cannot be read, is a directory, is empty, or is not UTF-8; the error then names the first invalid byte
/// and how to convert the file.
pub fn read_text(path: impl AsRef<Path>) -> Result<String, DataError> {
    let path = path.as_ref();
    let not_text = |reason: &str| DataError::NotText { file: path.into(), reason: reason.into() };
    // Refuse only directories: a pipe, such as a shell's `<(…)`, is a valid source of text.
    if std::fs::metadata(path).map_err(FileError::io("open", path))?.is_dir() {
        return Err(not_text("it is a directory; give one of the files in it"));
    }
    let bytes = std::fs::read(path).map_err(FileError::io("read", path))?;
    if bytes.is_empty() {
        return Err(not_text("it is empty; give a file with text in it"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let offset = error.utf8_error().valid_up_to();
        not_text(&describe_non_utf8(error.as_bytes(), offset))
    })
}

/// Returns true if bytes begin with a byte order mark of UTF-16.
pub(super) fn is_utf16(bytes: &[u8]) -> bool {
    bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff])
}

/// Describes bytes that are not UTF-8 from `offset` on, with the command to convert them.
pub(super) fn describe_non_utf8(bytes: &[u8], offset: usize) -> String {
    let byte = bytes.get(offset).copied().unwrap_or_default();
    if is_utf16(bytes) {
        "the file is UTF-16; convert it with `iconv -f UTF-16 -t UTF-8`".into()
    } else if bytes.contains(&0) {
        format!("byte {offset} (0x{byte:02x}) is not UTF-8, and the file has zero bytes: it seems to be a binary file")
    } else {
        format!(
            "byte {offset} (0x{byte:02x}) is not UTF-8; convert it from the encoding it has, \
             such as `iconv -f ISO-8859-1 -t UTF-8`"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_utf8_and_rejects_other_files() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("text.txt");
        let read = |bytes: &[u8]| {
            std::fs::write(&path, bytes).expect("written");
            read_text(&path).map_err(|error| error.to_string())
        };
        assert_eq!(read("Grüße\r\n".as_bytes()).as_deref(), Ok("Grüße\r\n"));
        for (bytes, words) in [
            (&b""[..], &["is empty"][..]),
            (b"Gr\xfc\xdfe", &["byte 2 (0xfc)", "iconv -f ISO-8859-1 -t UTF-8"]),
            (b"Gr\xc3", &["byte 2 (0xc3)"]),
            (b"\xff\xfeG\0r\0", &["UTF-16"]),
            (b"\x89PNG\r\n\0\0", &["byte 0 (0x89)", "binary file"]),
        ] {
            let error = read(bytes).expect_err("no text");
            assert!(words.iter().all(|word| error.contains(word)) && error.contains("text.txt"), "{error}");
        }
    }

    #[test]
    fn errors_name_a_directory_or_a_missing_file() {
        let directory = tempfile::tempdir().expect("a directory");
        let error = read_text(directory.path()).expect_err("a directory").to_string();
        assert!(error.contains("it is a directory"), "{error}");
        let error = read_text("/nowhere/text.txt").expect_err("absent").to_string();
        assert!(error.starts_with("cannot open /nowhere/text.txt: "), "{error}");
    }

    #[test]
    fn records_are_documents() {
        let directory = tempfile::tempdir().expect("a directory");
        let put = |name: &str, content: &[u8]| {
            let file = directory.path().join(name);
            std::fs::write(&file, content).expect("written");
            file
        };
        let lines =
            put("a.jsonl", b"{\"text\": \"one\\ntwo\", \"id\": 3}\n\n{\"text\": \"\"}\n{\"text\": \" three\"}\n");
        assert_eq!(read_documents(&[&lines], "text").expect("texts"), ["one\ntwo", " three"]);
        let table = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/records/classes.parquet");
        put("b.parquet", &std::fs::read(table).expect("a fixture"));
        let all = read_documents(&[directory.path()], "text").expect("texts");
        assert_eq!(all, ["one\ntwo", " three", "peace", "a goal", "a rise", "a match"]);
        let text = put("c.txt", b"four");
        let error = read_documents(&[directory.path()], "text").expect_err("both kinds").to_string();
        assert!(error.contains("c.txt") && error.contains("a.jsonl"), "{error}");
        assert_eq!(read_documents(&[&text, &lines], "text").expect("texts"), ["four", "one\ntwo", " three"]);
    }

    #[test]
    fn other_files_of_folders_are_named() {
        let directory = tempfile::tempdir().expect("a directory");
        let put = |name: &str| {
            let file = directory.path().join(name);
            std::fs::write(&file, "a text").expect("written");
            file
        };
        put("a.txt");
        let inner = directory.path().join("inner");
        std::fs::create_dir(&inner).expect("created");
        let mut others = vec![inner, put(".hidden")];
        assert_eq!(left_out(directory.path(), &others), None);
        others.push(put("notes.md"));
        let one = left_out(directory.path(), &others).expect("a note");
        assert!(one.starts_with("1 file of ") && one.ends_with("and is left out: notes.md"), "{one}");
        others.push(put("index.html"));
        let two = left_out(directory.path(), &others).expect("a note");
        assert!(two.starts_with("2 files of ") && two.ends_with("and are left out: index.html, …"), "{two}");
        assert_eq!(read_documents(&[directory.path()], "text").expect("texts"), ["a text"]);
    }

    #[test]
    fn errors_of_records_name_the_place() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("a.jsonl");
        for (content, column, words) in [
            ("{\"text\": \"a\"}\n{\"text\": null}\n", "text", "a.jsonl, line 2: \"text\" is null"),
            ("{\"text\": \"a\"}\n{\"text\": 7}\n", "text", "a.jsonl, line 2: \"text\" is not a string"),
            ("{\"text\": \"a\"}\n", "content", "a.jsonl, line 1: there is no field `content`; the record has: text"),
            ("{\"text\": \" \"}\n", "text", "it has no texts in the column \"text\""),
        ] {
            std::fs::write(&file, content).expect("written");
            let error = read_documents(&[&file], column).expect_err("refused").to_string();
            assert!(error.contains(words), "{error}");
        }
        let nulls = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/records/null.parquet");
        let error = read_documents(&[nulls], "text").expect_err("a null").to_string();
        assert!(error.contains("null.parquet, row 5: \"text\" is null"), "{error}");
    }
}
