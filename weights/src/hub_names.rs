//! Names of repositories, revisions and commits on the hub.

/// Checks the hub's rules for repository names. The error is the reason.
pub(crate) fn check_id(id: &str) -> std::result::Result<(), String> {
    let valid = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
            && !part.starts_with(['-', '.'])
            && !part.ends_with(['-', '.'])
            && !part.contains("--")
            && !part.contains("..")
    };
    let parts: Vec<&str> = id.split('/').collect();
    if parts.len() > 2 {
        return Err("nothing on disk has this path, and a hub id is `owner/name`".into());
    }
    if id.len() > 96 || !parts.into_iter().all(valid) {
        return Err(
            "nothing on disk has this name, and a hub id is `owner/name` of letters, digits, `-`, `_` and `.`".into()
        );
    }
    Ok(())
}

/// Checks git's rules for branch and tag names, as far as they matter for paths and URLs. The error is the reason.
pub(crate) fn check_revision(revision: &str) -> std::result::Result<(), String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'/');
    let valid = !revision.is_empty()
        && revision.len() <= 255
        && revision.bytes().all(plain)
        && !revision.starts_with(['/', '-', '.'])
        && !revision.ends_with(['/', '.'])
        && !["..", "//", "/."].iter().any(|part| revision.contains(part));
    if valid { Ok(()) } else { Err(format!("`{revision}` is not the name of a branch, a tag or a commit")) }
}

/// Returns true if the text can be a commit hash, and so a directory name.
#[cfg(feature = "hub")]
pub(crate) fn is_commit(text: &str) -> bool {
    (7..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}
