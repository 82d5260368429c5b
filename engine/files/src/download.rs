/// Describes content that is commonly saved in place of a download, with the remedy: a git-lfs pointer, or a web page
/// with an error. `None` for any other content.
///
/// ```
/// let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\n";
/// assert!(grove_files::failed_download(pointer).unwrap().contains("git lfs pull"));
/// assert_eq!(grove_files::failed_download(b"GGUF"), None);
/// ```
pub fn failed_download(bytes: &[u8]) -> Option<&'static str> {
    let head = bytes.get(..512).unwrap_or(bytes);
    let text = String::from_utf8_lossy(head).trim_start_matches('\u{feff}').trim_start().to_ascii_lowercase();
    if text.starts_with("version https://git-lfs") {
        Some("it is a git-lfs pointer; run `git lfs pull` in its repository to get the content")
    } else if ["<!doctype html", "<html", "<?xml"].iter().any(|start| text.starts_with(start)) {
        Some("it is a web page, saved in place of the download; download the file itself")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recognises_pages_and_pointers() {
        for page in ["\u{feff}\n <!DOCTYPE html>", "<HTML>", "<?xml version='1.0'?><Error/>"] {
            assert!(failed_download(page.as_bytes()).is_some_and(|found| found.contains("web page")), "{page}");
        }
        assert!(failed_download(b"version https://git-lfs.github.com/spec/v1").is_some());
        for other in [&b""[..], b"<", b"<svg>", b"version 2", b"\x89PNG", &[0xff; 600]] {
            assert_eq!(failed_download(other), None, "{other:?}");
        }
    }
}
