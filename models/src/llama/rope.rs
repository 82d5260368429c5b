//! Rotary angles, as configurations of transformers 4 and 5 describe them.

use grove_layers::{Rope, RopeScaling};
use serde_json::{Map, Value};

use super::{LlamaConfig, gguf};
use crate::error::{ModelError, Result};

/// The kinds that are known.
const KINDS: &str = "default, linear, dynamic, llama3, yarn";

/// Fields that say how angles are scaled.
struct Scaling<'a>(&'a Map<String, Value>);

impl Scaling<'_> {
    fn number(&self, name: &str) -> Result<Option<f64>> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match value.as_f64().filter(|value| value.is_finite() && *value > 0.0) {
                Some(value) => Ok(Some(value)),
                None => wrong(format!("{name} of the rotary angles' scaling is {value}; it must be a positive number")),
            },
        }
    }

    fn needed(&self, name: &str, kind: &str) -> Result<f64> {
        self.number(name)?.map_or_else(|| wrong(format!("the scaling '{kind}' of rotary angles needs {name}")), Ok)
    }
}

fn wrong<T>(reason: String) -> Result<T> {
    Err(ModelError::Config { reason })
}

impl LlamaConfig {
    /// The rotary angles.
    ///
    /// # Errors
    /// [`ModelError::Config`] if the scaling is of an unknown kind, or lacks what its kind needs.
    pub fn rope(&self) -> Result<Rope> {
        let empty = Map::new();
        let newer = self.rope_parameters.as_ref();
        let fields = Scaling(newer.or(self.rope_scaling.as_ref()).unwrap_or(&empty));
        let base = fields.number("rope_theta")?.or(self.rope_theta).unwrap_or(10_000.0);
        if !(base.is_finite() && base > 1.0) {
            return wrong(format!("rope_theta is {base}; it must be more than 1"));
        }
        // The older key is `type`.
        let kind = match fields.0.get("rope_type").or_else(|| fields.0.get("type")) {
            None | Some(Value::Null) => "default",
            Some(Value::String(kind)) => kind.as_str(),
            Some(other) => return wrong(format!("rope_type is {other}; known are {KINDS}")),
        };
        let factor = || fields.needed("factor", kind);
        let original = || -> Result<usize> {
            let said = fields.number("original_max_position_embeddings")?;
            Ok(said.map_or(self.max_position_embeddings, |said| said as usize))
        };
        let scaling = match kind {
            "default" => RopeScaling::None,
            "linear" => RopeScaling::Linear { factor: factor()? },
            // Of this kind transformers takes the length from the model, not from here.
            "dynamic" => RopeScaling::Dynamic { factor: factor()?, original: self.max_position_embeddings },
            "llama3" => {
                let low_freq_factor = fields.needed("low_freq_factor", kind)?;
                let high_freq_factor = fields.needed("high_freq_factor", kind)?;
                if high_freq_factor <= low_freq_factor {
                    return wrong("high_freq_factor must be more than low_freq_factor".into());
                }
                RopeScaling::Llama3 { factor: factor()?, low_freq_factor, high_freq_factor, original: original()? }
            }
            "yarn" => RopeScaling::Yarn {
                factor: factor()?,
                beta_fast: fields.number("beta_fast")?.unwrap_or(32.0),
                beta_slow: fields.number("beta_slow")?.unwrap_or(1.0),
                original: original()?,
                attention_factor: fields.number("attention_factor")?,
            },
            gguf::FACTORS => gguf::listed(fields.0)?,
            other => return wrong(format!("the scaling of rotary angles is of kind '{other}'; known are {KINDS}")),
        };
        Ok(Rope { head_dim: self.head_dim(), base, scaling, interleaved: false })
    }
}
