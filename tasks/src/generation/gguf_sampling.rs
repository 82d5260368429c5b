//! Sampling settings that GGUF files recommend.

use grove_files::{JsonFields, note_once, printable::excerpt};
use grove_models::{ModelFiles, Result};

use super::Sampling;

/// Replaces sampling settings by those that a GGUF file recommends, and names the ones that are not followed.
pub(super) fn recommended(files: &ModelFiles, default: Sampling) -> Result<Sampling> {
    let Some(mut keys) = files.gguf_sampling() else { return Ok(default) };
    let (sampling, others) = sampling_of(&mut keys, default)?;
    if !others.is_empty() {
        let (file, others) = (files.path().display(), others.join("; "));
        note_once(&format!("{file}: the file recommends sampling settings that are not followed: {others}"));
    }
    Ok(sampling)
}

/// Returns the sampling settings of a GGUF file, with missing ones from `default`, and descriptions of the settings that
/// llama.cpp would follow in another way.
fn sampling_of(keys: &mut JsonFields, default: Sampling) -> Result<(Sampling, Vec<String>)> {
    // llama.cpp reads integers that are written as floats too, and truncates them.
    let integer = |keys: &mut JsonFields, key: &'static str| -> Result<Option<i64>> {
        Ok(keys.get::<f64>(key)?.map(|number| number as i64))
    };
    let temperature: Option<f32> = keys.get("general.sampling.temp")?;
    let top_k = integer(keys, "general.sampling.top_k")?;
    let top_p: Option<f32> = keys.get("general.sampling.top_p")?;
    let min_p: Option<f32> = keys.get("general.sampling.min_p")?;
    let penalty: Option<f32> = keys.get("general.sampling.penalty_repeat")?;
    let window = integer(keys, "general.sampling.penalty_last_n")?.unwrap_or(64);
    let sampling = Sampling {
        temperature: temperature.map_or(default.temperature, |temperature| temperature.max(0.0)),
        top_k: top_k.map_or(default.top_k, |k| usize::try_from(k).ok().filter(|&k| k > 0)),
        top_p: top_p.map_or(default.top_p, |p| Some(p).filter(|&p| p < 1.0)),
        min_p: min_p.map_or(default.min_p, |p| Some(p).filter(|&p| p > 0.0)),
        repetition_penalty: penalty.map_or(default.repetition_penalty, |by| if window == 0 { 1.0 } else { by }),
    };
    sampling.validate().map_err(|error| keys.error(format!("general.sampling: {error}")))?;

    let mut others = Vec::new();
    for key in ["general.sampling.xtc_probability", "general.sampling.mirostat"] {
        if let Some(value) = keys.get::<f64>(key)?.filter(|value| *value > 0.0) {
            others.push(format!("{key} is {value}"));
        }
    }
    if let Some(order) = keys.get::<String>("general.sampling.sequence")? {
        others.push(format!("general.sampling.sequence is '{}'", excerpt(&order, 100)));
    }
    if penalty.is_some() && sampling.repetition_penalty != 1.0 && window > 0 {
        others.push(format!("the penalty of repetitions is for all tokens, and not for the last {window} alone"));
    }
    let samples = ![0.0, 1.0].contains(&sampling.temperature);
    if samples && temperature.is_some() && (sampling.top_p.is_some() || sampling.min_p.is_some()) {
        others.push("the temperature comes before top_p and min_p, as in transformers, and not after them".into());
    }
    Ok((sampling, others))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::path::Path;

    /// llama.cpp's rules: `common_init_sampler_from_model` and its samplers.
    #[test]
    fn follows_the_sampling_of_files() {
        let ours = Sampling { temperature: 0.8, top_k: Some(40), ..Sampling::default() };
        let read = |fields: Value| {
            let Value::Object(fields) = fields else { unreachable!() };
            let fields = fields.into_iter().map(|(key, value)| (format!("general.sampling.{key}"), value)).collect();
            sampling_of(&mut JsonFields::new(Path::new("model.gguf"), fields), ours.clone())
        };
        let none: Vec<String> = vec![];
        assert_eq!(read(json!({})).unwrap(), (ours.clone(), none.clone()));
        let all = json!({"temp": 1.0, "top_k": 20, "top_p": 0.95, "min_p": 0.05, "penalty_repeat": 1.1,
            "penalty_last_n": -1, "xtc_probability": 0.0, "xtc_threshold": 0.1, "mirostat": 0, "mirostat_tau": 5.0});
        let expected = Sampling {
            temperature: 1.0,
            top_k: Some(20),
            top_p: Some(0.95),
            min_p: Some(0.05),
            repetition_penalty: 1.1,
        };
        assert_eq!(read(all).unwrap(), (expected, none.clone()));
        let off = json!({"temp": -1.0, "top_k": 0.0, "top_p": 1.0, "min_p": 0.0, "penalty_repeat": 1.5,
            "penalty_last_n": 0});
        assert_eq!(read(off).unwrap(), (Sampling::greedy(), none));

        let others = |fields| read(fields).unwrap().1.join("\n");
        assert!(others(json!({"sequence": "top_k;temperature"})).contains("'top_k;temperature'"));
        assert!(others(json!({"mirostat": 2})).contains("mirostat is 2"));
        assert!(others(json!({"xtc_probability": 0.5})).contains("xtc_probability is 0.5"));
        assert!(others(json!({"penalty_repeat": 1.1})).contains("for the last 64"));
        assert!(others(json!({"temp": 0.6, "top_p": 0.9})).contains("before top_p"));
        for (fields, word) in [(json!({"temp": "hot"}), "`general.sampling.temp` is"), (json!({"top_p": 0.0}), "top-p")]
        {
            let error = read(fields).unwrap_err().to_string();
            assert!(error.contains("model.gguf") && error.contains(word), "{error}");
        }
    }
}
