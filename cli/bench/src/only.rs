//! `--only`: selects rows of the benchmark and cases of the comparison by name.

use grove_terminal::{Exit, usage};

/// Selection of rows or cases by name.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Only {
    /// Only names that contain one of these texts, such as gpt2,bert; a comma before a space does not separate texts
    #[arg(long, value_name = "TEXTS")]
    only: Vec<String>,
}

impl Only {
    /// Removes the items that are not selected.
    ///
    /// # Errors
    /// A text occurs in no name. `all` completes the message: what was searched, and where to find the names.
    pub fn keep<T>(&self, items: &mut Vec<T>, name: impl Fn(&T) -> &str, all: &str) -> Result<(), Exit> {
        let texts: Vec<String> = self.only.iter().flat_map(|texts| split(texts)).collect();
        if let Some(text) = texts.iter().find(|text| !items.iter().any(|item| name(item).contains(&***text))) {
            return Err(usage(format!("--only {text}: no {all}")));
        }
        items.retain(|item| texts.is_empty() || texts.iter().any(|text| name(item).contains(&**text)));
        Ok(())
    }
}

/// Splits at commas that are not followed by a space, because names such as `gpt2 small, 1x16` contain a comma and a space.
fn split(texts: &str) -> Vec<String> {
    let mut parts: Vec<String> = Vec::new();
    for piece in texts.split(',') {
        match parts.last_mut() {
            Some(part) if piece.starts_with(' ') => *part = format!("{part},{piece}"),
            _ => parts.push(piece.to_owned()),
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(texts: &[&str]) -> Result<Vec<&'static str>, Exit> {
        let mut names = vec!["gpt2 small, 1x16", "gpt2 small, 8x128", "bert, 1x16"];
        let only = Only { only: texts.iter().map(|&text| text.to_owned()).collect() };
        only.keep(&mut names, |name| name, "row has that in its name")?;
        Ok(names)
    }

    #[test]
    fn commas_separate_texts_and_commas_with_spaces_belong_to_them() {
        assert_eq!(kept(&[]).unwrap().len(), 3);
        assert_eq!(kept(&["gpt2 small, 1x16"]).unwrap(), ["gpt2 small, 1x16"]);
        assert_eq!(kept(&["gpt2 small, 8x128,bert"]).unwrap(), ["gpt2 small, 8x128", "bert, 1x16"]);
        assert_eq!(kept(&["8x128", "bert"]).unwrap(), ["gpt2 small, 8x128", "bert, 1x16"]);
        let unknown = kept(&["bert,llama"]).unwrap_err();
        assert!(matches!(unknown, Exit::Usage(message) if message == "--only llama: no row has that in its name"));
    }
}
