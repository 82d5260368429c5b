//! The report of loading: matched, missing, unexpected and mismatched names.

use std::fmt;

use crate::error::did_you_mean;

/// Number of lines printed per section.
const SHOWN: usize = 10;

/// The result of matching a checkpoint's names with a model's leaves. `Display` prints at most ten lines per section.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Leaves with values from the checkpoint.
    pub loaded: Vec<Loaded>,
    /// Leaves without a tensor in the checkpoint.
    pub missing: Vec<Missing>,
    /// Tensors of the checkpoint without a leaf.
    pub unexpected: Vec<Unexpected>,
    /// Leaves whose tensor has another shape.
    pub mismatched: Vec<Mismatched>,
    /// Tensors that the name map ignores, or that repeat one that was used (tied weights).
    pub ignored: Vec<Ignored>,
    /// The most frequent optional prefix of the checkpoint's names, such as `transformer.`; empty if there is none.
    pub prefix: String,
}

/// A leaf and the names of its tensors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// The leaf's path in the model.
    pub path: String,
    /// Names in the checkpoint; several for a merge.
    pub names: Vec<String>,
}

/// A leaf without values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The leaf's path in the model.
    pub path: String,
    /// The leaf's shape.
    pub shape: Vec<usize>,
    /// Names that were searched.
    pub names: Vec<String>,
    /// Unused names in the checkpoint that resemble `names` (for the first few leaves only).
    pub suggestions: Vec<String>,
    /// Shard that the checkpoint's index names for the leaf, but that lacks it.
    pub shard: Option<String>,
}

/// A tensor without a leaf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unexpected {
    /// The tensor's name in the checkpoint.
    pub name: String,
    /// The tensor's shape.
    pub shape: Vec<usize>,
    /// Names of missing tensors that resemble this name (for the first few tensors only).
    pub suggestions: Vec<String>,
}

/// A tensor that is not loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ignored {
    /// The tensor's name in the checkpoint.
    pub name: String,
    /// Reason for which it has no effect on the model.
    pub reason: &'static str,
}

/// A leaf whose tensor has another shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatched {
    /// The leaf's path in the model.
    pub path: String,
    /// The leaf's shape.
    pub expected: Vec<usize>,
    /// Names and published shapes in the checkpoint; several for a merge.
    pub found: Vec<(String, Vec<usize>)>,
}

impl Report {
    /// Returns true if every leaf is loaded and every tensor is used or ignored.
    pub fn is_complete(&self) -> bool {
        self.missing.is_empty() && self.unexpected.is_empty() && self.mismatched.is_empty()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let leaves = self.loaded.len() + self.missing.len() + self.mismatched.len();
        write!(f, "{} of {leaves} leaves loaded", self.loaded.len())?;
        if !self.prefix.is_empty() {
            write!(f, ", names with prefix `{}`", self.prefix)?;
        }
        if !self.ignored.is_empty() {
            let mut reasons: Vec<&str> = self.ignored.iter().map(|ignored| ignored.reason).collect();
            reasons.sort_unstable();
            reasons.dedup();
            write!(f, ", {} tensors ignored ({})", self.ignored.len(), reasons.join("; "))?;
        }
        section(f, "missing from the checkpoint", &self.missing, |missing| {
            let mut line = format!("{} {:?}", missing.path, missing.shape);
            if missing.names != [missing.path.as_str()] {
                line += &format!(", looked for as {}", quoted(&missing.names));
            }
            if let Some(shard) = &missing.shard {
                line += &format!("; the index names {shard}, which does not have it");
            }
            line + &did_you_mean(&missing.suggestions)
        })?;
        section(f, "unexpected in the checkpoint", &self.unexpected, |unexpected| {
            format!("{} {:?}{}", unexpected.name, unexpected.shape, did_you_mean(&unexpected.suggestions))
        })?;
        section(f, "of another shape", &self.mismatched, |mismatched| {
            let found: Vec<_> = mismatched.found.iter().map(|(name, shape)| format!("`{name}` {shape:?}")).collect();
            format!(
                "{}: the model needs {:?}, the checkpoint has {}",
                mismatched.path,
                mismatched.expected,
                found.join(" + ")
            )
        })
    }
}

fn section<T>(f: &mut fmt::Formatter<'_>, title: &str, items: &[T], line: impl Fn(&T) -> String) -> fmt::Result {
    if items.is_empty() {
        return Ok(());
    }
    write!(f, "\n{title} ({}):", items.len())?;
    for item in items.iter().take(SHOWN) {
        write!(f, "\n  {}", line(item))?;
    }
    match items.len().saturating_sub(SHOWN) {
        0 => Ok(()),
        more => write!(f, "\n  … and {more} more"),
    }
}

fn quoted(names: &[String]) -> String {
    format!("`{}`", names.join("` or `"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_well_and_is_cut_short() {
        let missing = |i: usize| Missing {
            path: format!("blocks.{i}.w"),
            shape: vec![2, 3],
            names: vec![format!("h.{i}.w")],
            suggestions: if i == 0 { vec!["h.0.weight".into()] } else { Vec::new() },
            shard: None,
        };
        let report = Report {
            loaded: vec![Loaded { path: "a".into(), names: vec!["a".into()] }],
            missing: (0..12).map(missing).collect(),
            mismatched: vec![Mismatched { path: "b".into(), expected: vec![4], found: vec![("b".into(), vec![5])] }],
            prefix: "transformer.".into(),
            ignored: ["h.1.mask", "h.0.mask"].map(|name| Ignored { name: name.into(), reason: "masks" }).into(),
            ..Report::default()
        };
        let text = report.to_string();
        assert!(
            text.starts_with(
                "1 of 14 leaves loaded, names with prefix `transformer.`, 2 tensors ignored (masks)\nmissing from the \
                 checkpoint (12):"
            ),
            "{text}"
        );
        assert!(text.contains("blocks.0.w [2, 3], looked for as `h.0.w`; did you mean `h.0.weight`?"), "{text}");
        assert!(text.contains("… and 2 more"), "{text}");
        assert!(text.contains("b: the model needs [4], the checkpoint has `b` [5]"), "{text}");
        assert!(!report.is_complete() && Report::default().is_complete());
    }
}
