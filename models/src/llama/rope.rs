//! Rotary angles, from the configurations of transformers 4 and 5.

use grove_files::{KnownKeys, RefusedKey};
use grove_layers::{Rope, RopeScaling};
use serde_json::{Map, Value};
use std::path::Path;

use super::{LlamaConfig, gguf_rope};
use crate::{
    checks::check,
    error::{Result, invalid},
};

/// Supported kinds of scaling, for error messages.
const KINDS: &str = "default, linear, dynamic, llama3, yarn, longrope";

/// Keys of `rope_parameters` and `rope_scaling`.
const KEYS: KnownKeys = KnownKeys {
    followed: &[
        "rope_type",
        "type",
        "rope_theta",
        "factor",
        "original_max_position_embeddings",
        "attention_factor",
        "beta_fast",
        "beta_slow",
        "mscale",
        "mscale_all_dim",
        "truncate",
        "low_freq_factor",
        "high_freq_factor",
        "short_factor",
        "long_factor",
        "factors",
    ],
    without_effect: &[
        ("finetuned", "a note of whether the model was trained with the scaling"),
        ("max_position_embeddings", "the model's own counts"),
    ],
    refused: &[
        RefusedKey { key: "partial_rotary_factor", neutral: &["1.0", "1"], instead: "whole heads are rotated" },
        RefusedKey { key: "full_attention", neutral: &[], instead: "all layers must have the same rotary positions" },
        RefusedKey {
            key: "sliding_attention",
            neutral: &[],
            instead: "all layers must have the same rotary positions",
        },
        RefusedKey { key: "short_mscale", neutral: &["1.0", "1"], instead: "use attention_factor" },
        RefusedKey { key: "long_mscale", neutral: &["1.0", "1"], instead: "use attention_factor" },
    ],
};

/// Returns the fields of LLaMA 3's scaling of the angles.
pub(super) fn llama3_scaling(factor: f64, high_freq_factor: f64) -> Map<String, Value> {
    let fields = [
        ("rope_type", "llama3".into()),
        ("factor", factor.into()),
        ("low_freq_factor", 1.0.into()),
        ("high_freq_factor", high_freq_factor.into()),
        ("original_max_position_embeddings", 8192.into()),
    ];
    fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// Fields of a configuration that describe the scaling of the angles.
struct Scaling<'a>(&'a Map<String, Value>);

impl Scaling<'_> {
    fn number(&self, name: &str) -> Result<Option<f64>> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match value.as_f64().filter(|value| value.is_finite() && *value > 0.0) {
                Some(value) => Ok(Some(value)),
                None => {
                    invalid(format!("{name} of the rotary angles' scaling is {value}; it must be a positive number"))
                }
            },
        }
    }

    /// Reads a positive number; 0 counts as absent.
    fn magnitude(&self, name: &str) -> Result<Option<f64>> {
        if self.0.get(name).and_then(Value::as_f64) == Some(0.0) { Ok(None) } else { self.number(name) }
    }

    /// Reads a list of factors of the angles, one per pair of a head's dimensions.
    fn list(&self, name: &str, pairs: usize) -> Result<Vec<f32>> {
        let values = self.0.get(name).and_then(Value::as_array);
        let factors: Option<Vec<f32>> =
            values.and_then(|values| values.iter().map(|value| value.as_f64().map(|value| value as f32)).collect());
        match factors {
            Some(factors) if factors.len() == pairs && factors.iter().all(|factor| *factor > 0.0) => Ok(factors),
            _ => invalid(format!("{name} of the rotary angles' scaling must be a list of {pairs} positive numbers")),
        }
    }

    fn needed(&self, name: &str, kind: &str) -> Result<f64> {
        self.number(name)?.map_or_else(|| invalid(format!("the scaling '{kind}' of rotary angles needs {name}")), Ok)
    }
}

impl LlamaConfig {
    /// Returns the rotary position embedding that the configuration describes.
    ///
    /// # Errors
    /// [`ModelError::Config`](crate::ModelError::Config) if the kind of scaling is unknown or lacks a parameter.
    pub fn rope(&self) -> Result<Rope> {
        let empty = Map::new();
        let fields = Scaling(self.rope_fields().unwrap_or(&empty));
        KEYS.check(Path::new("the rotary positions"), fields.0)
            .or_else(|reason| invalid(format!("rope_parameters: {reason}")))?;
        let part = self.other.get("partial_rotary_factor").unwrap_or(&Value::Null);
        check(part.is_null() || part.as_f64() == Some(1.0), || {
            format!("partial_rotary_factor is {part}, which is not supported; whole heads are rotated")
        })?;
        let base = fields.number("rope_theta")?.or(self.rope_theta).unwrap_or(10_000.0);
        check(base.is_finite() && base > 1.0, || format!("rope_theta is {base}; it must be more than 1"))?;
        // `type` is the older key.
        let kind = match fields.0.get("rope_type").or_else(|| fields.0.get("type")) {
            None | Some(Value::Null) => "default",
            Some(Value::String(kind)) => kind.as_str(),
            Some(other) => return invalid(format!("rope_type is {other}; known are {KINDS}")),
        };
        let scaling = self.scaling(&fields, kind)?;
        Ok(Rope { head_dim: self.head_dim(), base, scaling, interleaved: false })
    }

    /// Returns the fields of the rotary angles. `rope_scaling` takes precedence over `rope_parameters`, as in transformers.
    fn rope_fields(&self) -> Option<&Map<String, Value>> {
        self.rope_scaling.as_ref().filter(|fields| !fields.is_empty()).or(self.rope_parameters.as_ref())
    }

    /// Returns the scaling of the angles of this kind.
    fn scaling(&self, fields: &Scaling<'_>, kind: &str) -> Result<RopeScaling> {
        let factor = || fields.needed("factor", kind);
        let original = || -> Result<usize> {
            let own = self.other.get("original_max_position_embeddings").and_then(Value::as_f64);
            let configured = own.or(fields.number("original_max_position_embeddings")?);
            Ok(configured.map_or(self.max_position_embeddings, |configured| configured as usize).max(1))
        };
        let growth = || -> Result<f64> { Ok(self.max_position_embeddings as f64 / original()? as f64) };
        Ok(match kind {
            "default" => RopeScaling::None,
            "linear" => RopeScaling::Linear { factor: factor()? },
            // transformers uses `max_position_embeddings` here.
            "dynamic" => RopeScaling::Dynamic { factor: factor()?, original: self.max_position_embeddings },
            "llama3" => {
                let low_freq_factor = fields.needed("low_freq_factor", kind)?;
                let high_freq_factor = fields.needed("high_freq_factor", kind)?;
                check(high_freq_factor > low_freq_factor, || {
                    "high_freq_factor must be more than low_freq_factor".into()
                })?;
                RopeScaling::Llama3 { factor: factor()?, low_freq_factor, high_freq_factor, original: original()? }
            }
            "yarn" => {
                let factor = fields.number("factor")?.map_or_else(growth, Ok)?;
                let magnitude = |scale: f64| if factor <= 1.0 { 1.0 } else { 0.1 * scale * factor.ln() + 1.0 };
                let scales = fields.magnitude("mscale")?.zip(fields.magnitude("mscale_all_dim")?);
                let own = fields.number("attention_factor")?;
                RopeScaling::Yarn {
                    factor,
                    beta_fast: fields.magnitude("beta_fast")?.unwrap_or(32.0),
                    beta_slow: fields.magnitude("beta_slow")?.unwrap_or(1.0),
                    original: original()?,
                    attention_factor: own.or(scales.map(|(own, all)| magnitude(own) / magnitude(all))),
                    truncate: fields.0.get("truncate") != Some(&Value::Bool(false)),
                }
            }
            // `su` is the name in the first files.
            "longrope" | "su" => {
                let (pairs, original) = (self.head_dim() / 2, original()?);
                let factor = fields.number("factor")?.map_or_else(growth, Ok)?;
                let usual = if factor <= 1.0 { 1.0 } else { (1.0 + factor.ln() / (original as f64).ln()).sqrt() };
                RopeScaling::LongRope {
                    short: fields.list("short_factor", pairs)?,
                    long: fields.list("long_factor", pairs)?,
                    original,
                    attention_factor: fields.number("attention_factor")?.unwrap_or(usual),
                }
            }
            gguf_rope::FACTORS => RopeScaling::Factors(fields.list("factors", self.head_dim() / 2)?),
            other => return invalid(format!("the scaling of rotary angles is of kind '{other}'; known are {KINDS}")),
        })
    }

    /// Returns the sequence length that the model supports: the training length, extended by the scaling of the rotary
    /// angles.
    pub fn trained_positions(&self) -> usize {
        let own = self.max_position_embeddings;
        let number = |name: &str| self.rope_fields().and_then(|fields| fields.get(name)).and_then(Value::as_f64);
        let before = number("original_max_position_embeddings");
        let stretched = |factor: f64| (own.max((before.unwrap_or(own as f64) * factor) as usize)).min(1 << 40);
        match self.rope().map(|rope| rope.scaling) {
            Ok(
                RopeScaling::Linear { factor } | RopeScaling::Dynamic { factor, .. } | RopeScaling::Yarn { factor, .. },
            ) => stretched(factor),
            _ => own,
        }
    }
}
