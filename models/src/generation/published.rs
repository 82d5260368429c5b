use serde::Deserialize;
use std::path::Path;

use super::Sampling;
use crate::{error::Result, pretrained::read_json};

/// The fields of a `generation_config.json` that say how to sample.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Published {
    do_sample: bool,
    temperature: Option<f32>,
    top_k: Option<usize>,
    top_p: Option<f32>,
    min_p: Option<f32>,
    repetition_penalty: Option<f32>,
}

impl Sampling {
    /// How whoever published a model means it to be sampled: the `generation_config.json` in its directory, or beside
    /// its weights file. `None` where there is none, or it does not ask for sampling.
    ///
    /// # Errors
    /// The file cannot be read, or is no such JSON, or says what is impossible; each error names it.
    pub fn published(model: impl AsRef<Path>) -> Result<Option<Self>> {
        let model = model.as_ref();
        let name = "generation_config.json";
        let file = if model.is_dir() { model.join(name) } else { model.with_file_name(name) };
        if !file.is_file() {
            return Ok(None);
        }
        let published: Published = read_json(&file)?;
        if !published.do_sample {
            return Ok(None);
        }
        let default = Self::default();
        let sampling = Self {
            temperature: published.temperature.unwrap_or(default.temperature),
            // transformers writes 0 for all.
            top_k: published.top_k.filter(|&k| k > 0),
            top_p: published.top_p,
            min_p: published.min_p,
            repetition_penalty: published.repetition_penalty.unwrap_or(default.repetition_penalty),
        };
        sampling.validate().map_err(|error| crate::ModelError::Json { file, reason: error.to_string() })?;
        Ok(Some(sampling))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_model_is_published_with() {
        let directory = tempfile::tempdir().unwrap();
        let write = |text: &str| std::fs::write(directory.path().join("generation_config.json"), text).unwrap();
        assert_eq!(Sampling::published(directory.path()).unwrap(), None);
        write(r#"{"eos_token_id": 50256, "temperature": 0.2}"#);
        assert_eq!(Sampling::published(directory.path()).unwrap(), None);
        write(r#"{"do_sample": true, "temperature": 0.5, "top_k": 0, "top_p": 0.9, "transformers_version": "5.23.0"}"#);
        let expected = Sampling { temperature: 0.5, top_p: Some(0.9), ..Sampling::default() };
        assert_eq!(Sampling::published(directory.path().join("model.safetensors")).unwrap(), Some(expected));
        for broken in ["{", r#"{"do_sample": true, "top_p": 7}"#] {
            write(broken);
            let error = Sampling::published(directory.path()).unwrap_err().to_string();
            assert!(error.contains("generation_config.json"), "{error}");
        }
    }
}
