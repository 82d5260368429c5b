//! File names of a saved model, chosen so that a directory always loads as one save.
//!
//! Readers use `model.safetensors` if it exists, otherwise the files named in `model.safetensors.index.json`. New files
//! never have the names of files in use: the last rename, or the removal of `model.safetensors`, replaces the old save
//! with the new one. A crash before that leaves the old save, a crash after it the new one; the next save removes
//! unused files.

use std::path::Path;

use crate::error::Result;
use grove_files::FileError;

/// File name of a model in one file.
pub(crate) const SINGLE: &str = "model.safetensors";
/// File name of the index, which maps tensors to shards.
pub(crate) const INDEX: &str = "model.safetensors.index.json";

/// Returns names for the shards of a save: `model-00001-of-00003.safetensors` and so on, or
/// `model-2-00001-of-00003.safetensors` and so on if a file in the directory has one of these names.
pub(crate) fn free_names(directory: &Path, count: usize) -> Vec<String> {
    let names = |save: usize| -> Vec<String> {
        let save = if save > 1 { format!("{save}-") } else { String::new() };
        (1..=count).map(|number| format!("model-{save}{number:05}-of-{count:05}.safetensors")).collect()
    };
    let is_free = |name: &String| std::fs::symlink_metadata(directory.join(name)).is_err();
    let mut save = 1;
    while !names(save).iter().all(is_free) {
        save += 1;
    }
    names(save)
}

/// Removes weights files in `directory` that this crate or transformers would read instead of, or together with, the
/// new ones.
pub(crate) fn remove_stale(directory: &Path, kept: &[String]) -> Result<()> {
    let listing = std::fs::read_dir(directory).map_err(FileError::io("list", directory))?;
    let names = listing.filter_map(|item| item.ok()?.file_name().into_string().ok());
    let mut stale: Vec<String> =
        names.filter(|name| (name == SINGLE || name == INDEX || is_shard(name)) && !kept.contains(name)).collect();
    // The order matters: first a file that would be read instead of the new ones, then an index, then its shards.
    stale.sort_by_key(|name| (name != SINGLE, name != INDEX));
    for path in stale.iter().map(|name| directory.join(name)) {
        crash_point();
        std::fs::remove_file(&path).map_err(FileError::io("remove", &path))?;
    }
    Ok(())
}

/// Returns true for names that [`free_names`] can return.
fn is_shard(name: &str) -> bool {
    let is_save = |save: &str| !save.is_empty() && save.bytes().all(|byte| byte.is_ascii_digit());
    name.ends_with(".safetensors")
        && shard_of(name).is_some_and(|(stem, ..)| stem == "model" || stem.strip_prefix("model-").is_some_and(is_save))
}

/// Returns stem, number and count of a shard from its name in any format: `stem-00001-of-00003.…`.
pub(crate) fn shard_of(name: &str) -> Option<(&str, u64, u64)> {
    let digits = |text: &str| text.len() >= 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    let (name, _) = name.rsplit_once('.')?;
    let (rest, count) = name.rsplit_once("-of-").filter(|(_, count)| digits(count))?;
    let (stem, number) = rest.rsplit_once('-').filter(|(_, number)| digits(number))?;
    Some((stem, number.parse().ok()?, count.parse().ok()?))
}

/// Called before each change of a directory. Unit tests can make the process abort here.
#[cfg(not(test))]
pub(crate) fn crash_point() {}

/// Number of the call of [`crash_point`], counted from 1, at which the process aborts.
#[cfg(test)]
const CRASH_AT: &str = "GROVE_TEST_CRASH_AT";

#[cfg(test)]
pub(crate) fn crash_point() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    let call = CALLS.fetch_add(1, Ordering::SeqCst) + 1;
    if std::env::var(CRASH_AT).is_ok_and(|at| at == call.to_string()) {
        std::process::abort();
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::Tensor;
    use burn_flex::Flex;
    use grove_tree::Array;

    use super::*;
    use crate::{NameMap, SaveOptions, TensorFiles, save_model};

    /// Environment variable: the directory in which a child process saves.
    const DIRECTORY: &str = "GROVE_TEST_DIRECTORY";
    /// Environment variable: the value of the saved model's elements, and the maximum number of bytes per file.
    const SAVE: &str = "GROVE_TEST_SAVE";

    /// Saves a model of four tensors in which every element is `value`.
    fn save(directory: &Path, value: f32, limit: usize) {
        let device = Default::default();
        let leaf = || Array::new(Tensor::<Flex, 1>::full([4], value, &device));
        let model: Vec<Array<Flex, 1>> = vec![leaf(), leaf(), leaf(), leaf()];
        let options = SaveOptions { max_shard_bytes: Some(limit), ..SaveOptions::default() };
        save_model(&model, &NameMap::new(), directory, &options).expect("saved");
    }

    /// Returns the value of all elements of all tensors in the directory.
    fn loaded(directory: &Path) -> f32 {
        let checkpoint = TensorFiles::open(directory).expect("opened");
        assert_eq!(checkpoint.names().count(), 4);
        let tensors = checkpoint.names().map(|name| checkpoint.tensor(name).expect("read"));
        let values: Vec<f32> = tensors.flat_map(|data| data.iter::<f32>().collect::<Vec<_>>()).collect();
        assert!(values.iter().all(|value| *value == values[0]), "tensors of two saves: {values:?}");
        values[0]
    }

    fn files(directory: &Path) -> Vec<String> {
        let listing = std::fs::read_dir(directory).expect("listed");
        let mut files: Vec<_> = listing.filter_map(|item| item.ok()?.file_name().into_string().ok()).collect();
        files.sort();
        files
    }

    /// Not a test by itself: the crashing child process of [`a_crash_at_any_rename_leaves_one_of_both_saves`].
    #[test]
    fn child_that_saves() {
        let (Ok(directory), Ok(text)) = (std::env::var(DIRECTORY), std::env::var(SAVE)) else { return };
        let (value, limit) = text.split_once(' ').expect("a value and a limit");
        save(Path::new(&directory), value.parse().expect("a value"), limit.parse().expect("a limit"));
    }

    #[test]
    fn a_crash_at_any_rename_leaves_one_of_both_saves() {
        const WHOLE: usize = usize::MAX;
        // Four tensors of 16 bytes: one file, two, or four.
        for (before, after) in [(32, 32), (16, 16), (WHOLE, 32), (32, WHOLE), (16, 32), (32, 16), (WHOLE, WHOLE)] {
            let mut crash = 1;
            let mut seen = Vec::new();
            loop {
                let directory = tempfile::tempdir().expect("a directory");
                let directory = directory.path();
                save(directory, 1.0, before);
                let child = std::process::Command::new(std::env::current_exe().expect("this test's program"))
                    .args(["--exact", "shards::tests::child_that_saves"])
                    .env(DIRECTORY, directory)
                    .env(SAVE, format!("2 {after}"))
                    .env(CRASH_AT, crash.to_string())
                    .output()
                    .expect("started");
                let value = loaded(directory);
                assert!(value == 1.0 || value == 2.0);
                seen.push(value);
                let finished = child.status.success();
                assert!(!finished || value == 2.0);
                // The next save is complete and removes unused files.
                save(directory, 3.0, after);
                assert_eq!(loaded(directory), 3.0);
                let expected = match after {
                    WHOLE => 1,
                    after => 64 / after + 1,
                };
                let left: Vec<_> = files(directory).into_iter().filter(|name| !name.ends_with(".tmp")).collect();
                assert_eq!(left.len(), expected, "{left:?}");
                if finished {
                    break;
                }
                crash += 1;
            }
            // The process crashed at least once before the new save took effect; from then on the new save is loaded.
            assert_eq!(seen[0], 1.0);
            assert!(seen.is_sorted(), "{seen:?}");
            assert!(seen.len() > 1, "{seen:?}");
        }
    }

    #[test]
    fn shards_in_use_keep_their_names() {
        let directory = tempfile::tempdir().expect("a directory");
        let directory = directory.path();
        let first = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", INDEX];
        let second = ["model-2-00001-of-00002.safetensors", "model-2-00002-of-00002.safetensors", INDEX];
        for (value, expected) in [(1.0, first), (2.0, second), (3.0, first)] {
            save(directory, value, 32);
            assert_eq!(files(directory), expected);
            assert_eq!(loaded(directory), value);
        }
    }

    #[test]
    fn names_of_shards() {
        for name in ["model-00001-of-00002.safetensors", "model-12-00001-of-00002.safetensors"] {
            assert!(is_shard(name), "{name}");
            assert_eq!(shard_of(name).map(|(_, number, count)| (number, count)), Some((1, 2)), "{name}");
        }
        for name in
            ["model-1-of-2.safetensors", "model-a-00001-of-00002.safetensors", "model-00001-of-00002.txt", SINGLE]
        {
            assert!(!is_shard(name), "{name}");
        }
        assert_eq!(shard_of("pytorch_model-00003-of-00007.bin"), Some(("pytorch_model", 3, 7)));
        assert_eq!(shard_of("model.safetensors"), None);
    }
}
