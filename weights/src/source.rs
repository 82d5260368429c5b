//! The origin of a model: a path or a hub id.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::error::{Result, WeightsError};
use crate::hub::{FilePatterns, HubOptions, fetch};
use crate::hub_names::{check_id, check_revision};
use crate::locate::is_plain_file_name;

/// Endings of file names, which hub ids do not usually have.
const FILE_ENDINGS: [&str; 10] =
    [".safetensors", ".bin", ".pt", ".pth", ".npz", ".npy", ".gguf", ".json", ".ckpt", ".zip"];

/// Origin of a model: a path on disk, or a repository on the hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A directory or a file.
    Local(PathBuf),
    /// A repository on the hub.
    Hub {
        /// `owner/name`, or only `name` for the oldest repositories.
        id: String,
        /// Branch, tag or commit; `None` for the revision of the [`HubOptions`].
        revision: Option<String>,
        /// One of the repository's GGUF files: its name, or its quantization, such as `Q4_K_M`.
        gguf: Option<String>,
    },
}

impl Source {
    /// Parses a directory, a file, or a hub id with an optional revision (`openai-community/gpt2`, `gpt2@main`). A GGUF
    /// file of a repository is chosen by its quantization (`user/repo:Q4_K_M`) or its name (`user/repo/model.gguf`). An
    /// existing path has precedence over a hub id of the same spelling. A path into an existing directory (`run/model`
    /// if `run` exists) is never a hub id.
    ///
    /// # Errors
    /// [`WeightsError::BadSource`], if nothing of that name exists and the text cannot be a hub id.
    pub fn parse(text: &str) -> Result<Self> {
        if !text.is_empty() && Path::new(text).exists() {
            return Ok(Self::Local(text.into()));
        }
        let bad = |reason: String| WeightsError::BadSource { text: text.into(), reason };
        let named = text.ends_with(".gguf").then(|| text.match_indices('/').nth(1)).flatten();
        let (text_of_id, gguf) = match (named, text.rsplit_once(':')) {
            (Some((at, _)), _) => (&text[..at], Some(&text[at + 1..])),
            (None, Some((id, quantization))) => (id, Some(quantization)),
            (None, None) => (text, None),
        };
        let is_path = text.starts_with(['.', '/', '~', '\\']);
        if is_path || named.is_none() && FILE_ENDINGS.iter().any(|ending| text.ends_with(ending)) {
            return Err(bad("no such file or directory (a hub id looks like openai-community/gpt2)".into()));
        }
        let (id, revision) = match text_of_id.split_once('@') {
            Some((id, revision)) => (id, Some(revision)),
            None => (text_of_id, None),
        };
        check_id(id).and_then(|()| revision.map_or(Ok(()), check_revision)).map_err(bad)?;
        let plain = |part: &str| part.split('/').all(is_plain_file_name) && !part.contains(char::is_whitespace);
        if gguf.is_some_and(|gguf| !plain(gguf) || named.is_none() && gguf.contains('/')) {
            return Err(bad("after the colon comes the quantization of one of its GGUF files, such as Q4_K_M".into()));
        }
        if let Some((first, rest)) = id.split_once('/')
            && Path::new(first).exists()
        {
            return Err(bad(format!(
                "no such file or directory: there is a {first} here, but it has no {rest} (to get the hub id {id}, \
                 start the program in another directory)"
            )));
        }
        Ok(Self::Hub { id: id.into(), revision: revision.map(Into::into), gguf: gguf.map(Into::into) })
    }

    /// Returns the directory or file on disk. A hub repository is downloaded first, unless it is in the cache.
    ///
    /// # Errors
    /// Those of [`fetch`].
    pub fn resolve(&self, options: &HubOptions, wanted: &FilePatterns) -> Result<PathBuf> {
        let (id, revision, gguf) = match self {
            Self::Local(path) => return Ok(path.clone()),
            Self::Hub { id, revision, gguf } => (id, revision, gguf),
        };
        let options = match revision {
            Some(revision) => &HubOptions { revision: revision.clone(), ..options.clone() },
            None => options,
        };
        let Some(gguf) = gguf.as_ref().filter(|_| wanted.weights) else { return fetch(options, id, wanted) };
        let wanted = wanted.clone().with_gguf(gguf);
        let directory = fetch(options, id, &wanted)?;
        wanted.weights_in(&directory).ok_or_else(|| WeightsError::MissingFile {
            id: id.clone(),
            wanted: gguf.clone(),
            endpoint: options.endpoint.clone(),
        })
    }
}

/// Returns the local path of a published model's files, given a directory, a file or a hub id. A hub id is downloaded
/// unless it is cached.
///
/// # Errors
/// Those of [`Source::parse`] and [`fetch`].
pub fn resolve_model(source: &str) -> Result<PathBuf> {
    Source::parse(source)?.resolve(&HubOptions::from_env(), &FilePatterns::model())
}

impl std::str::FromStr for Source {
    type Err = WeightsError;

    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text)
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(path) => write!(f, "{}", path.display()),
            Self::Hub { id, revision, gguf } => {
                f.write_str(id)?;
                revision.iter().try_for_each(|revision| write!(f, "@{revision}"))?;
                gguf.iter().try_for_each(|gguf| write!(f, "{}{gguf}", if gguf.ends_with(".gguf") { '/' } else { ':' }))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hub_ids() {
        for (text, id, revision) in [
            ("gpt2", "gpt2", None),
            ("openai-community/gpt2", "openai-community/gpt2", None),
            ("gpt2@v1.0", "gpt2", Some("v1.0")),
            ("a/b_c.d@refs/pr/5", "a/b_c.d", Some("refs/pr/5")),
        ] {
            let expected = Source::Hub { id: id.into(), revision: revision.map(Into::into), gguf: None };
            let source = Source::parse(text).expect("a hub id");
            assert_eq!(source, expected);
            assert_eq!(source.to_string(), text);
        }
    }

    #[test]
    fn one_of_several_gguf_files() {
        for (text, id, revision, gguf) in [
            ("a/b-GGUF:Q4_K_M", "a/b-GGUF", None, "Q4_K_M"),
            ("a/b-GGUF@v1:IQ3_M", "a/b-GGUF", Some("v1"), "IQ3_M"),
            ("a/b/m.Q8_0.gguf", "a/b", None, "m.Q8_0.gguf"),
            ("a/b@main/BF16/m-00001-of-00002.gguf", "a/b@main", None, "BF16/m-00001-of-00002.gguf"),
        ] {
            let (id, revision) = match id.split_once('@') {
                Some((id, revision)) => (id, Some(revision)),
                None => (id, revision),
            };
            let source = Source::parse(text).expect("a hub id with a file");
            let expected = Source::Hub { id: id.into(), revision: revision.map(Into::into), gguf: Some(gguf.into()) };
            assert_eq!(source, expected);
            assert_eq!(source.to_string(), text);
        }
        for text in
            ["a/b:", "a/b:Q4 K", "a/b:x/y", "a/b/../m.gguf", "a/b//m.gguf", "./a/b/m.gguf", "/a/b/m.gguf", "a/m.gguf"]
        {
            assert!(matches!(Source::parse(text), Err(WeightsError::BadSource { .. })), "{text}");
        }
    }

    #[test]
    fn existing_paths_take_precedence() {
        let directory = tempfile::tempdir().expect("a directory");
        let text = directory.path().to_str().expect("a plain path");
        assert_eq!(Source::parse(text).ok(), Some(Source::Local(directory.path().into())));
    }

    #[test]
    fn paths_into_directories_are_not_hub_ids() {
        // Tests run in the directory of their package, which contains `src`.
        for text in ["src/model", "src/model@main"] {
            let error = Source::parse(text).expect_err(text);
            assert!(matches!(error, WeightsError::BadSource { .. }), "{error}");
            assert!(error.to_string().contains("there is a src here, but it has no model"), "{error}");
        }
        assert!(matches!(Source::parse("source/model"), Ok(Source::Hub { .. })));
    }

    #[test]
    fn bad_source_error_mentions_path_and_hub() {
        for text in [
            "",
            "./nowhere",
            "/nowhere/model",
            "model.safetensors",
            "ViT-B_16.npz",
            "~/models/gpt2",
            "a/b/c",
            "a b",
            "-x",
            "a//b",
            "a/..",
            "gpt2@",
            "gpt2@../x",
            "gpt2@a b",
            "a/b@c@d",
            "x\\y",
            "ä/b",
            "a/b?c=d",
        ] {
            let error = Source::parse(text).expect_err(text);
            assert!(matches!(error, WeightsError::BadSource { .. }), "{error}");
            let message = error.to_string();
            assert!(message.contains("file or directory") && message.contains("hub id"), "{message}");
        }
    }
}
