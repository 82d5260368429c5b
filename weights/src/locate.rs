//! Finds the weights in a directory, and the shards named by an index.

use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

use grove_files::FileError;
use serde::Deserialize;

use crate::error::{Result, WeightsError};
use crate::foreign;
use crate::gguf::part_of;
use crate::shards::{INDEX, SINGLE, shard_of};
use crate::unique::Unique;

/// File names of published weights, by precedence.
pub(crate) const PUBLISHED: [&str; 4] = [SINGLE, INDEX, "pytorch_model.bin", "pytorch_model.bin.index.json"];

/// Extensions of weights files with other names, by precedence.
pub(crate) const ENDINGS: [&str; 6] = ["safetensors", "bin", "pt", "pth", "npz", "gguf"];

/// Files with these extensions that contain no weights.
const NOT_WEIGHTS: [&str; 4] = ["training_args.bin", "optimizer.bin", "optimizer.pt", "scheduler.pt"];

/// Maximum size of an index in bytes. An index has one line per tensor; a larger file is not an index.
const INDEX_LIMIT: u64 = 256 << 20;

/// Returns the weights file in `directory`, or the index of its shards.
///
/// # Errors
/// If there is no weights file, or several without an index.
pub(crate) fn find(directory: &Path) -> Result<PathBuf> {
    if let Some(found) = PUBLISHED.iter().map(|name| directory.join(name)).find(|path| path.exists()) {
        return Ok(found);
    }
    let listing = std::fs::read_dir(directory).map_err(FileError::io("list", directory))?;
    let mut files: Vec<PathBuf> = Vec::new();
    for item in listing {
        files.push(item.map_err(FileError::io("list", directory))?.path());
    }
    files.sort();
    let found = files.iter().map(|path| file_name(path)).collect();
    // The first part of a split GGUF represents all parts.
    let is_later_part = |path: &Path| part_of(&file_name(path)).is_some_and(|(_, number, _)| number > 1);
    files.retain(|path| {
        path.is_file()
            && !path.file_name().is_some_and(|name| NOT_WEIGHTS.iter().any(|not| name == *not))
            && !is_later_part(path)
    });
    for ending in ENDINGS {
        let with_ending: Vec<_> = files.iter().filter(|path| path.extension() == Some(OsStr::new(ending))).collect();
        match with_ending[..] {
            [] => {}
            // Remains of an unfinished save, or a single downloaded shard.
            [single] if shard_of(&file_name(single)).is_some_and(|(.., count)| count > 1) && ending != "gguf" => {
                let reason = "it is one of several files of a model, but the index that lists them is missing";
                return Err(WeightsError::unsupported(single, reason));
            }
            [single] => return Ok(single.clone()),
            [first, second, ..] => {
                let reason = format!(
                    "it has several weights files ({}, {}, …) and no index; give the path of one",
                    file_name(first),
                    file_name(second)
                );
                return Err(WeightsError::unsupported(directory, reason));
            }
        }
    }
    let looked_for =
        PUBLISHED.iter().map(|name| (*name).to_string()).chain(ENDINGS.iter().map(|e| format!("a single *.{e}")));
    let foreign = files.iter().map(|path| file_name(path)).filter_map(|name| {
        let what = foreign::by_name(&name)?;
        Some(format!("{name} ({what})"))
    });
    Err(WeightsError::NothingFound {
        directory: directory.into(),
        looked_for: looked_for.collect(),
        found,
        foreign: foreign.collect(),
    })
}

/// Returns the last component of a path, for messages.
pub(crate) fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// Content of `model.safetensors.index.json` and similar files: the shard of each tensor.
#[derive(Debug)]
pub(crate) struct ShardIndex {
    /// Pairs of tensor name and shard file name, in the order of the file.
    pub(crate) weight_map: Vec<(String, String)>,
}

#[derive(Deserialize)]
struct IndexText {
    weight_map: Unique<String>,
}

impl ShardIndex {
    /// Reads an index file.
    ///
    /// # Errors
    /// If the index is not valid, names a tensor twice, or names a shard outside its own directory.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let about = std::fs::metadata(path).map_err(FileError::io("open", path))?;
        if !about.is_file() || about.len() > INDEX_LIMIT {
            let found = "an index of shards is a JSON file of one line per tensor".into();
            return Err(WeightsError::NotWeights { file: path.into(), found });
        }
        let bytes = std::fs::read(path).map_err(FileError::io("read", path))?;
        Self::parse(&bytes).map_err(|reason| WeightsError::malformed(path, reason))
    }

    /// Parses the content of an index file. The error is the reason.
    pub(crate) fn parse(bytes: &[u8]) -> std::result::Result<Self, String> {
        let index: IndexText = serde_json::from_slice(bytes).map_err(|error| format!("not a valid index: {error}"))?;
        let weight_map = index.weight_map.0;
        match weight_map.iter().find(|(_, shard)| !is_plain_file_name(shard)) {
            Some((tensor, shard)) => Err(format!(
                "tensor `{tensor}` belongs to `{shard}` according to the index; a shard must be a file beside the index"
            )),
            None if weight_map.is_empty() => Err("its `weight_map` is empty".into()),
            None => Ok(Self { weight_map }),
        }
    }

    /// Returns the names of the shards without duplicates, in order of first mention.
    pub(crate) fn shards(&self) -> Vec<&str> {
        let mut seen = std::collections::HashSet::new();
        self.weight_map.iter().map(|(_, shard)| shard.as_str()).filter(|shard| seen.insert(*shard)).collect()
    }
}

/// Returns true if `name` is a plain file name on every system: no separators, no `..`, no drive, no control
/// characters.
pub(crate) fn is_plain_file_name(name: &str) -> bool {
    let mut components = Path::new(name).components();
    !name.contains(['/', '\\', ':'])
        && !name.contains(char::is_control)
        && matches!((components.next(), components.next()), (Some(Component::Normal(_)), None))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(files: &[&str]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().expect("a directory");
        for file in files {
            std::fs::write(directory.path().join(file), b"x").expect("written");
        }
        directory
    }

    #[test]
    fn takes_the_published_names_in_order() {
        for (files, expected) in [
            (&["pytorch_model.bin", "model.safetensors", "config.json"][..], "model.safetensors"),
            (&["pytorch_model.bin", "model.safetensors.index.json"], "model.safetensors.index.json"),
            (&["pytorch_model.bin", "training_args.bin"], "pytorch_model.bin"),
            (&["resnet50.pth", "notes.txt"], "resnet50.pth"),
            (&["lstm.pt", "optimizer.pt"], "lstm.pt"),
            (&["ViT-B_16.npz", "README.md"], "ViT-B_16.npz"),
            (&["voices.npz", "kokoro.pth"], "kokoro.pth"),
            (&["SmolLM2-135M.Q4_1.gguf", "README.md"], "SmolLM2-135M.Q4_1.gguf"),
            (&["model-00002-of-00002.gguf", "model-00001-of-00002.gguf"], "model-00001-of-00002.gguf"),
            (&["model.gguf", "model.safetensors"], "model.safetensors"),
        ] {
            let directory = directory(files);
            let found = find(directory.path()).map(|path| file_name(&path));
            assert_eq!(found.ok().as_deref(), Some(expected));
        }
    }

    #[test]
    fn error_lists_the_files_searched_for() {
        let error = find(directory(&["config.json"]).path()).expect_err("nothing there").to_string();
        for word in PUBLISHED.iter().chain(&["a single *.pth", "a single *.npz", "a single *.gguf"]) {
            assert!(error.contains(word), "{error}");
        }
        let shard = "model-00001-of-00002.safetensors";
        let error = find(directory(&[shard]).path()).expect_err("no index").to_string();
        assert!(error.contains(shard) && error.contains("index"), "{error}");
        assert!(find(directory(&["model-00001-of-00001.safetensors"]).path()).is_ok());
        for ending in ["safetensors", "gguf"] {
            let files = [format!("a.{ending}"), format!("b.{ending}")];
            let error = find(directory(&[&files[0], &files[1]]).path()).expect_err("two").to_string();
            assert!(error.contains(&files.join(", ")), "{error}");
        }
    }

    #[test]
    fn refuses_shards_elsewhere() {
        for name in ["../x.safetensors", "/etc/passwd", "a/b", "..", ".", "", "c:\\x", "a\\b", "a\nb"] {
            assert!(!is_plain_file_name(name), "{name}");
            let text = serde_json::json!({ "weight_map": { "a": name } }).to_string();
            assert!(ShardIndex::parse(text.as_bytes()).is_err_and(|reason| reason.contains("`a`")), "{name}");
        }
        assert!(is_plain_file_name("model-00001-of-00002.safetensors"));
    }

    #[test]
    fn refuses_broken_indices() {
        for text in [
            "",
            "{",
            "[]",
            "{}",
            r#"{"weight_map": {}}"#,
            r#"{"weight_map": {"a": 1}}"#,
            r#"{"weight_map": {"a": "x", "a": "y"}}"#,
        ] {
            assert!(ShardIndex::parse(text.as_bytes()).is_err(), "{text}");
        }
    }
}
