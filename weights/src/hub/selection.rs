//! Selection of the requested files among those of a repository or a directory.

use std::path::{Path, PathBuf};

use super::wanted::FilePatterns;
use crate::adapter::has_tokenizer;
use crate::gguf::{part_name, part_of};
use crate::locate::{ENDINGS, PUBLISHED, ShardIndex, file_name, find, is_plain_file_name};
use crate::names_of_files::{ADAPTER_FILE, is_gguf};

/// Folder of the transformer in older repositories of sentence-transformers.
const TRANSFORMER: &str = "0_Transformer/";

/// Checks for the client.
impl FilePatterns {
    /// Returns the prefix of the model's own files: empty, or the folder of the transformer in an older repository of
    /// sentence-transformers, whose root has no model.
    pub(super) fn root(&self, exists: impl Fn(&str) -> bool) -> &'static str {
        let in_folder = self.weights
            && self.gguf.is_none()
            && !exists("config.json")
            && exists("modules.json")
            && exists(&format!("{TRANSFORMER}config.json"));
        if in_folder { TRANSFORMER } else { "" }
    }

    /// Returns the first required file that does not exist. A GGUF file and an adapter need no `config.json`.
    pub(super) fn missing(&self, of_gguf: bool, exists: impl Fn(&str) -> bool) -> Option<&String> {
        let needs_none = of_gguf || self.weights && exists(ADAPTER_FILE);
        let root = self.root(&exists);
        let found = |name: &str| exists(&format!("{root}{name}")) || needs_none && name == "config.json";
        self.required.iter().find(|name| !found(name))
    }

    /// Describes the first required file that a directory lacks; `None` if all exist.
    pub(super) fn lacking(&self, directory: &Path) -> Option<String> {
        let weights = self.weights.then(|| self.weights_in(directory));
        let of_gguf = self.gguf.is_some() || matches!(&weights, Some(Some(weights)) if is_gguf(weights));
        if let Some(missing) = self.missing(of_gguf, |name| directory.join(name).exists()) {
            return Some(missing.clone());
        }
        if self.tokenizer && !has_tokenizer(directory) {
            return Some("a tokenizer".into());
        }
        let Some(weights) = weights? else {
            return Some(self.gguf.clone().unwrap_or_else(|| "a weights file".into()));
        };
        if of_gguf {
            let (name, folder) = (file_name(&weights), weights.parent()?);
            return parts_of(&name).into_iter().find(|part| !folder.join(part).exists());
        }
        if weights.extension().is_none_or(|extension| extension != "json") {
            return None;
        }
        let folder = weights.parent()?;
        match ShardIndex::read(&weights) {
            Ok(index) => index.shards().into_iter().find(|shard| !folder.join(shard).exists()).map(Into::into),
            Err(_) => Some("a valid index of shards".into()),
        }
    }

    /// Returns the weights in a directory: a file, or the index of several.
    pub(crate) fn weights_in(&self, directory: &Path) -> Option<PathBuf> {
        let Some(choice) = &self.gguf else {
            return find(&directory.join(self.root(|name| directory.join(name).exists()))).ok();
        };
        let names = |folder: &Path, before: &str| -> Vec<String> {
            let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
            entries.map(|entry| format!("{before}{}", entry.file_name().to_string_lossy())).collect()
        };
        let mut files = names(directory, "");
        let folders: Vec<String> = files.iter().filter(|name| directory.join(name).is_dir()).cloned().collect();
        files.extend(folders.iter().flat_map(|folder| names(&directory.join(folder), &format!("{folder}/"))));
        let files: Vec<&str> = files.iter().map(String::as_str).collect();
        gguf_among(&files, choice).map(|file| directory.join(file))
    }

    /// Returns the weights file in a list of a repository's files, or the index of several.
    ///
    /// # Errors
    /// A description of what is missing.
    pub(super) fn weights_among<'a>(&self, files: &[&'a str]) -> Result<&'a str, String> {
        let choices = || {
            let of = |file: &&str| quantization(file).map(str::to_owned);
            let found: std::collections::BTreeSet<String> = files.iter().filter_map(of).collect();
            found.into_iter().collect::<Vec<_>>().join(", ")
        };
        match &self.gguf {
            Some(choice) => gguf_among(files, choice).ok_or_else(|| match choices() {
                none if none.is_empty() => format!("GGUF file of {choice}, nor any other"),
                others => format!("GGUF file of {choice}, but of {others}"),
            }),
            None => weights_among(files).ok_or_else(|| match choices() {
                none if none.is_empty() => "weights in safetensors, PyTorch's, numpy's or GGUF's format".into(),
                several => format!("single file of weights, but GGUF files of {several}: name one, as id:Q4_K_M"),
            }),
        }
    }
}

/// More parts than any model has; the number comes from the server.
const MAX_PARTS: u64 = 10_000;

/// Returns the names of all parts of a GGUF file, from the name of the first.
pub(super) fn parts_of(file: &str) -> Vec<String> {
    let (folder, name) = file.rsplit_once('/').map_or(("", file), |(folder, name)| (&file[..=folder.len()], name));
    match part_of(name) {
        Some((stem, 1, count)) if count <= MAX_PARTS => {
            (1..=count).map(|number| format!("{folder}{}", part_name(stem, number, count))).collect()
        }
        _ => vec![file.to_owned()],
    }
}

/// Returns the quantization in the name of a GGUF file, such as `Q4_K_M` in `model-Q4_K_M.gguf`; `None` for a later
/// part of a model, and for a file that is not a model.
fn quantization(file: &str) -> Option<&str> {
    let name = file.rsplit('/').next()?;
    let stem = match part_of(name) {
        Some((_, number, _)) if number > 1 => return None,
        Some((stem, ..)) => stem,
        None => name.strip_suffix(".gguf")?,
    };
    // The image encoder of a multimodal model.
    if stem.starts_with("mmproj") {
        return None;
    }
    let begins = |part: &str| {
        let part = part.to_ascii_uppercase();
        ["Q", "IQ", "TQ", "F16", "F32", "BF16", "MXFP"].iter().any(|kind| {
            part.strip_prefix(kind)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(|c: char| c.is_ascii_digit()))
        })
    };
    let at = stem.rfind(['-', '.']).map_or(0, |at| at + 1);
    begins(&stem[at..]).then_some(&stem[at..])
}

/// Returns the GGUF file with a name or a quantization.
fn gguf_among<'a>(files: &[&'a str], choice: &str) -> Option<&'a str> {
    if is_gguf(choice) {
        return files.iter().find(|file| **file == choice).copied();
    }
    let fits = |file: &&&str| quantization(file).is_some_and(|found| found.eq_ignore_ascii_case(choice));
    files.iter().filter(fits).min_by_key(|file| (file.matches('/').count(), file.len(), **file)).copied()
}

/// Returns the weights file, or the index of several, in a list of a repository's files; `None` if there is none.
pub(super) fn weights_among<'a>(files: &[&'a str]) -> Option<&'a str> {
    let published = PUBLISHED.iter().find_map(|name| files.iter().find(|file| *file == name));
    let single = || {
        ENDINGS.iter().find_map(|ending| {
            let mut fitting = files.iter().filter(|file| {
                is_plain_file_name(file) && Path::new(file).extension().is_some_and(|extension| extension == *ending)
            });
            fitting.next().filter(|_| fitting.next().is_none())
        })
    };
    published.or_else(single).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefers_safetensors() {
        for (files, expected) in [
            (&["pytorch_model.bin", "model.safetensors"][..], Some("model.safetensors")),
            (&["pytorch_model.bin", "model.safetensors.index.json"], Some("model.safetensors.index.json")),
            (&["onnx/model.pt", "resnet.pth", "README.md"], Some("resnet.pth")),
            (&["a.safetensors", "b.safetensors"], None),
            (&["ViT-B_16.npz", "config.json"], Some("ViT-B_16.npz")),
            (&["model.Q4_1.gguf", "config.json"], Some("model.Q4_1.gguf")),
            (&["model.Q4_1.gguf", "model.Q8_0.gguf"], None),
            (&["README.md"], None),
        ] {
            assert_eq!(weights_among(files), expected);
        }
    }

    #[test]
    fn a_quantization_names_a_file() {
        let files = [
            "README.md",
            "Qwen2-7B-Instruct.Q2_K.gguf",
            "qwen2-7b-instruct-q4_k_m.gguf",
            "qwen2-7b-instruct-q8_0-00001-of-00002.gguf",
            "qwen2-7b-instruct-q8_0-00002-of-00002.gguf",
            "BF16/qwen2-BF16-00001-of-00003.gguf",
            "mmproj-model-f16.gguf",
        ];
        let find = |choice: &str| FilePatterns::model().with_gguf(choice).weights_among(&files);
        assert_eq!(find("Q4_K_M"), Ok("qwen2-7b-instruct-q4_k_m.gguf"));
        assert_eq!(find("q2_k"), Ok("Qwen2-7B-Instruct.Q2_K.gguf"));
        assert_eq!(find("Q8_0"), Ok("qwen2-7b-instruct-q8_0-00001-of-00002.gguf"));
        assert_eq!(find("BF16"), Ok("BF16/qwen2-BF16-00001-of-00003.gguf"));
        assert_eq!(find("Qwen2-7B-Instruct.Q2_K.gguf"), Ok("Qwen2-7B-Instruct.Q2_K.gguf"));
        let error = find("Q5_0").unwrap_err();
        assert_eq!(error, "GGUF file of Q5_0, but of BF16, Q2_K, q4_k_m, q8_0");
        assert!(FilePatterns::model().weights_among(&files).unwrap_err().contains("name one, as id:Q4_K_M"));
        assert_eq!(parts_of("a/x-00001-of-00002.gguf"), ["a/x-00001-of-00002.gguf", "a/x-00002-of-00002.gguf"]);
        assert_eq!(parts_of("x.gguf"), ["x.gguf"]);
    }

    #[test]
    fn error_names_the_missing_files() {
        let directory = tempfile::tempdir().expect("a directory");
        let put = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).expect("written");
        let lacking = || FilePatterns::model().lacking(directory.path());
        assert_eq!(lacking().as_deref(), Some("config.json"));
        put("config.json", "{}");
        assert_eq!(lacking().as_deref(), Some("a weights file"));
        put("model.safetensors.index.json", r#"{"weight_map": {"a": "x.safetensors"}}"#);
        assert_eq!(lacking().as_deref(), Some("x.safetensors"));
        let tokenizer = || FilePatterns::tokenizer().lacking(directory.path());
        assert_eq!(tokenizer().as_deref(), Some("a tokenizer"));
        put("vocab.txt", "");
        assert_eq!(tokenizer(), None);
        put("x.safetensors", "");
        assert_eq!(lacking(), None);

        let older = tempfile::tempdir().expect("a directory");
        let lacking = || FilePatterns::model().lacking(older.path());
        let put_older = |name: &str| std::fs::write(older.path().join(name), "{}").expect("written");
        std::fs::create_dir(older.path().join("0_Transformer")).expect("made");
        put_older("0_Transformer/config.json");
        assert_eq!(lacking().as_deref(), Some("config.json"), "the folder counts if modules.json names it");
        put_older("modules.json");
        assert_eq!(lacking().as_deref(), Some("a weights file"));
        put_older("0_Transformer/pytorch_model.bin");
        assert_eq!(lacking(), None);

        let gguf = || FilePatterns::model().with_gguf("q8_0").lacking(directory.path());
        assert_eq!(gguf().as_deref(), Some("q8_0"));
        put("m-Q8_0-00001-of-00002.gguf", "");
        std::fs::remove_file(directory.path().join("config.json")).expect("removed");
        assert_eq!(gguf().as_deref(), Some("m-Q8_0-00002-of-00002.gguf"));
        put("m-Q8_0-00002-of-00002.gguf", "");
        assert_eq!(gguf(), None, "a GGUF file needs no config.json");

        let directory = tempfile::tempdir().expect("a directory");
        std::fs::write(directory.path().join("adapter_config.json"), "{}").expect("written");
        let lacking = || FilePatterns::model().lacking(directory.path());
        assert_eq!(lacking().as_deref(), Some("a weights file"), "an adapter needs no config.json");
        std::fs::write(directory.path().join("adapter_model.safetensors"), "").expect("written");
        assert_eq!(lacking(), None);
    }
}
