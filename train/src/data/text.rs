//! Text files.

use std::path::{Path, PathBuf};

use super::DataError;

/// Reads documents: text files and the `.txt` files of folders, sorted by name.
///
/// # Errors
/// If a folder cannot be listed or has no `.txt` files; those of [`read_text`].
pub fn read_documents(paths: &[impl AsRef<Path>]) -> Result<Vec<String>, DataError> {
    let mut documents = Vec::new();
    for path in paths.iter().map(AsRef::as_ref) {
        let files = if path.is_dir() { text_files(path)? } else { vec![path.to_owned()] };
        for file in files {
            documents.push(read_text(file)?);
        }
    }
    Ok(documents)
}

fn text_files(directory: &Path) -> Result<Vec<PathBuf>, DataError> {
    let listed = std::fs::read_dir(directory).and_then(|items| items.map(|item| Ok(item?.path())).collect());
    let mut files: Vec<PathBuf> = listed.map_err(DataError::io("list", directory))?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "txt"));
    files.sort();
    match files.is_empty() {
        true => Err(DataError::other(format!("{} has no .txt files", directory.display()))),
        false => Ok(files),
    }
}

/// Returns the lines of a text that are not blank, each with its place for error messages: `name, line 3`. A byte order
/// mark is removed.
///
/// # Errors
/// If a line is not UTF-8, or all are blank.
pub fn lines_with_places(bytes: &[u8], name: &str) -> Result<Vec<(String, String)>, DataError> {
    if is_utf16(bytes) {
        return Err(DataError::other(format!("{name}: {}", what_instead(bytes, 0))));
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
    if std::fs::metadata(path).map_err(DataError::io("open", path))?.is_dir() {
        return Err(not_text("it is a directory; give one of the files in it"));
    }
    let bytes = std::fs::read(path).map_err(DataError::io("read", path))?;
    if bytes.is_empty() {
        return Err(not_text("it is empty; give a file with text in it"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let offset = error.utf8_error().valid_up_to();
        not_text(&what_instead(error.as_bytes(), offset))
    })
}

/// Returns true if bytes begin with a byte order mark of UTF-16.
fn is_utf16(bytes: &[u8]) -> bool {
    bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff])
}

/// Describes bytes that are not UTF-8 from `offset` on, with the command to convert them.
fn what_instead(bytes: &[u8], offset: usize) -> String {
    let wrong = bytes.get(offset).copied().unwrap_or_default();
    if is_utf16(bytes) {
        "it is UTF-16; convert it with `iconv -f UTF-16 -t UTF-8`".into()
    } else if bytes.contains(&0) {
        format!("byte {offset} (0x{wrong:02x}) is not UTF-8, and there are zero bytes: it seems to be no text at all")
    } else {
        format!(
            "byte {offset} (0x{wrong:02x}) is not UTF-8; convert it from the encoding it has, \
             such as `iconv -f ISO-8859-1 -t UTF-8`"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_what_is_none() {
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
            (b"\x89PNG\r\n\0\0", &["byte 0 (0x89)", "no text"]),
        ] {
            let error = read(bytes).expect_err("no text");
            assert!(words.iter().all(|word| error.contains(word)) && error.contains("text.txt"), "{error}");
        }
    }

    #[test]
    fn files_that_are_not_there() {
        let directory = tempfile::tempdir().expect("a directory");
        let error = read_text(directory.path()).expect_err("a directory").to_string();
        assert!(error.contains("it is a directory"), "{error}");
        let error = read_text("/nowhere/text.txt").expect_err("absent").to_string();
        assert!(error.starts_with("cannot open /nowhere/text.txt: "), "{error}");
    }
}
