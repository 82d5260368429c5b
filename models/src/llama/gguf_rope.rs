//! Rotary angles in GGUF files.

use burn::tensor::DType;
use grove_files::printable::excerpt;
use grove_weights::TensorFiles;
use serde_json::{Map, Value, json};

use super::{LlamaConfig, gguf::Keys, rope::llama3_scaling};
use crate::error::{Result, invalid};

/// Kind of scaling with an explicit list of factors.
pub(super) const FACTORS: &str = "factors";

/// Tensor of the divisors of the rotary angles.
pub(super) const FREQUENCIES: &str = "rope_freqs.weight";

/// Returns the scaling of the rotary angles, one of each of `pairs` pairs, as llama.cpp reads it: without a type it is
/// linear, and the factors of the tensor `rope_freqs.weight` apply in addition to it.
pub(super) fn scaling(keys: &Keys<'_>, checkpoint: &TensorFiles, pairs: usize) -> Result<Option<Map<String, Value>>> {
    let object = |fields: Value| Ok(fields.as_object().cloned());
    let (name, kind) = (keys.key("rope.scaling.type"), keys.text("rope.scaling.type")?);
    let kind = kind.as_deref().unwrap_or("linear");
    if !["none", "linear", "yarn"].contains(&kind) {
        let kind = excerpt(kind, 60);
        return invalid(format!("{name} is '{kind}', which is not supported; known are none, linear, yarn"));
    }
    let factor = match keys.number("rope.scaling.factor")? {
        None => keys.number("rope.scale_linear")?,
        found => found,
    };
    // 0 means no factor; llama.cpp writes it.
    let factor = factor.filter(|factor| *factor != 0.0).unwrap_or(1.0);
    if !(factor > 0.0 && factor.is_finite()) {
        return invalid(format!("{} is {factor}; it must be a positive number", keys.key("rope.scaling.factor")));
    }
    let magnitude = check_magnitudes(keys, kind, factor)?;
    match (kind, factors(checkpoint, pairs)?) {
        ("yarn", Some(_)) => {
            invalid(format!("the file has both {FREQUENCIES} and {name} 'yarn', which are not supported together"))
        }
        ("yarn", None) => object(json!({
            "rope_type": "yarn", "factor": factor, "attention_factor": magnitude,
            "original_max_position_embeddings": keys.size("rope.scaling.original_context_length")?,
            "beta_fast": keys.number("rope.scaling.yarn_beta_fast")?,
            "beta_slow": keys.number("rope.scaling.yarn_beta_slow")?,
        })),
        ("linear", Some(factors)) if factor != 1.0 => {
            let factors: Vec<f64> = factors.iter().map(|own| f64::from(*own) * factor).collect();
            object(json!({ "rope_type": FACTORS, "factors": factors }))
        }
        (_, Some(factors)) => own_factors(keys, &factors),
        ("linear", None) if factor != 1.0 => object(json!({ "rope_type": "linear", "factor": factor })),
        _ => Ok(None),
    }
}

/// Returns YaRN's factor of queries and of keys. Refuses metadata that would change it, or mix the angles in another
/// way.
///
/// llama.cpp multiplies YaRN's own factor by `attn_factor`. It does not read `yarn_attn_factor` here.
/// Accepted are its default, 1, and YaRN's own factor, which converters copy from transformers' `attention_factor`.
fn check_magnitudes(keys: &Keys<'_>, kind: &str, factor: f64) -> Result<f64> {
    let yarn = kind == "yarn";
    let own = if factor > 1.0 { 0.1 * factor.ln() + 1.0 } else { 1.0 };
    let refused = |name: &str, value: f64, neutral: &str| {
        invalid(format!(
            "{} is {value}, which is not supported with the scaling '{kind}'; only {neutral} is",
            keys.key(name)
        ))
    };
    let attention = keys.number("rope.scaling.attn_factor")?.unwrap_or(1.0);
    if !yarn && attention != 1.0 {
        return refused("rope.scaling.attn_factor", attention, "1");
    }
    let name = "rope.scaling.yarn_attn_factor";
    if let Some(whole) = keys.number(name)?.filter(|whole| *whole != 1.0)
        && !(yarn && (whole - own).abs() < 1e-4)
    {
        return refused(name, whole, "1");
    }
    // 1 selects YaRN's mix of angles, and 0 none. A negative value leaves the choice to the program.
    let (name, mixed) = ("rope.scaling.yarn_ext_factor", if yarn { 1.0 } else { 0.0 });
    if let Some(value) = keys.number(name)?.filter(|value| *value != mixed && *value >= 0.0) {
        return refused(name, value, if yarn { "1" } else { "0" });
    }
    let name = "rope.scaling.yarn_log_multiplier";
    if let Some(value) = keys.number(name)?.filter(|value| *value != 0.0) {
        return refused(name, value, "0");
    }
    Ok(attention * own)
}

/// Returns the scaling that the factors of a file describe: settings of LLaMA 3 if they give these factors, else the
/// factors themselves.
fn own_factors(keys: &Keys<'_>, factors: &[f32]) -> Result<Option<Map<String, Value>>> {
    for factor in [8.0, 32.0] {
        let rope = LlamaConfig {
            head_dim: Some(2 * factors.len()),
            rope_theta: keys.number("rope.freq_base")?,
            rope_scaling: Some(llama3_scaling(factor, 4.0)),
            ..LlamaConfig::default()
        };
        let alike = |(a, b): (&f32, &f32)| (a / b - 1.0).abs() < 1e-4;
        if rope.rope()?.factors().iter().zip(factors).all(alike) {
            return Ok(rope.rope_scaling);
        }
    }
    Ok(json!({ "rope_type": FACTORS, "factors": factors }).as_object().cloned())
}

fn factors(checkpoint: &TensorFiles, pairs: usize) -> Result<Option<Vec<f32>>> {
    if !checkpoint.contains(FREQUENCIES) {
        return Ok(None);
    }
    let factors: Vec<f32> = checkpoint.tensor(FREQUENCIES)?.convert_dtype(DType::F32).iter::<f32>().collect();
    if factors.len() != pairs {
        return invalid(format!("{FREQUENCIES} has {} factors, but a head has {pairs} pairs", factors.len()));
    }
    match factors.iter().all(|factor| factor.is_finite() && *factor > 0.0) {
        true => Ok(Some(factors)),
        false => invalid(format!("{FREQUENCIES} has factors that are not positive")),
    }
}
