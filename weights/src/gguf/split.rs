//! Models split into several files by llama.cpp's `gguf-split`.

use std::path::{Path, PathBuf};

use super::GgufMetadata;
use crate::error::{Result, WeightsError};
use crate::locate::file_name;
use crate::shards::shard_of;

/// Advice on joining the parts.
const MERGE: &str = "or join the parts with `llama-gguf-split --merge`";

/// A model in several files, of which the first is open.
#[derive(Debug)]
pub(crate) struct Split {
    first: PathBuf,
    /// Common prefix of the parts' names.
    stem: String,
    /// Number of parts, at least two.
    count: u64,
    /// Total number of tensors; `None` if the first part does not state it.
    tensors: Option<u64>,
}

impl Split {
    /// Reads the description of a split from a file's metadata; `None` if the file is the whole model.
    ///
    /// # Errors
    /// [`WeightsError::Unsupported`], if the file is not the first part, or is not named like one.
    pub(crate) fn of(path: &Path, metadata: &GgufMetadata) -> Result<Option<Self>> {
        let Some(count) = metadata.integer("split.count").filter(|&count| count > 1) else { return Ok(None) };
        let number = metadata.integer("split.no").map_or(1, |number| number.saturating_add(1));
        let unsupported = |what: String| {
            WeightsError::unsupported(path, format!("it is part {number} of {count} of a model; {what}, {MERGE}"))
        };
        let name = file_name(path);
        let Some((stem, ..)) = part_of(&name).filter(|&(_, part, parts)| (part, parts) == (number, count)) else {
            let like = part_name("…", number, count);
            return Err(unsupported(format!("the others are found by its name, which must be like {like}: rename it")));
        };
        if number != 1 {
            return Err(unsupported(format!("give the first, {}", part_name(stem, 1, count))));
        }
        let tensors = metadata.integer("split.tensors.count");
        Ok(Some(Self { first: path.into(), stem: stem.into(), count, tensors }))
    }

    /// Returns the paths of the other parts, each with its number.
    ///
    /// # Errors
    /// [`WeightsError::Malformed`] for a missing part.
    pub(crate) fn others(&self) -> impl Iterator<Item = Result<(u64, PathBuf)>> {
        (2..=self.count).map(|number| {
            let path = self.first.with_file_name(part_name(&self.stem, number, self.count));
            if path.exists() {
                return Ok((number, path));
            }
            let reason = format!("its part {number} of {}, {}, is missing", self.count, path.display());
            Err(WeightsError::malformed(&self.first, reason))
        })
    }

    /// Checks with its metadata that a file is the part that its name claims.
    pub(crate) fn check_part(&self, number: u64, path: &Path, metadata: Option<&GgufMetadata>) -> Result<()> {
        let says = |key| metadata.and_then(|metadata| metadata.integer(key));
        if says("split.no") == number.checked_sub(1) && says("split.count") == Some(self.count) {
            return Ok(());
        }
        let reason = format!("its name says part {number} of {} of a model, but its header differs", self.count);
        Err(WeightsError::malformed(path, reason))
    }

    /// Checks that all parts together have the number of tensors that the first part states.
    pub(crate) fn check_total(&self, found: usize) -> Result<()> {
        match self.tensors.filter(|&tensors| tensors != found as u64) {
            Some(tensors) => {
                let reason = format!("its {} parts have {found} tensors instead of {tensors}", self.count);
                Err(WeightsError::malformed(&self.first, reason))
            }
            None => Ok(()),
        }
    }
}

/// Returns the name of a part: `model-00002-of-00003.gguf`.
pub(crate) fn part_name(stem: &str, number: u64, count: u64) -> String {
    format!("{stem}-{number:05}-of-{count:05}.gguf")
}

/// Returns stem, number and count of a name made by [`part_name`]; `None` for other names.
pub(crate) fn part_of(name: &str) -> Option<(&str, u64, u64)> {
    shard_of(name).filter(|_| name.ends_with(".gguf"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_parts() {
        for (stem, number, count) in [("m", 1, 2), ("a-00001-of-00002", 3, 12), ("", 99_999, 100_000)] {
            assert_eq!(part_of(&part_name(stem, number, count)), Some((stem, number, count)));
        }
        for name in ["m.gguf", "m-1-of-2.gguf", "m-00001-of-00002.bin", "m-0000x-of-00002.gguf", "00001-of-00002.gguf"]
        {
            assert_eq!(part_of(name), None, "{name}");
        }
        assert_eq!(part_of("m-00001-of-99999999999999999999.gguf"), None);
    }
}
