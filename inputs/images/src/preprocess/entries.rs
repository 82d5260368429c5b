//! Entries of a configuration, with errors that name them.

use std::path::Path;

use grove_files::KnownKeys;
use serde_json::{Map, Value};

use super::Resize;
use crate::error::{ImageError, Result};
use crate::filter::Filter;

/// A JSON object, and its file for error messages.
pub(super) struct Entries<'a> {
    pub entries: &'a Map<String, Value>,
    pub file: &'a Path,
}

impl Entries<'_> {
    pub fn wrong(&self, reason: String) -> ImageError {
        ImageError::config(self.file, reason)
    }

    /// Refuses unsupported keys.
    pub fn check(&self, known: &KnownKeys) -> Result<()> {
        known.check(self.file, self.entries).map_err(|reason| self.wrong(reason))
    }

    /// Returns an entry; `None` if it is missing or null.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.entries.get(key).filter(|value| !value.is_null())
    }

    pub fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// Returns the class of the image processor, without suffixes that only name the implementation.
    pub fn class(&self) -> Result<String> {
        let named = self.get("image_processor_type").or_else(|| self.get("feature_extractor_type"));
        if let Some(name) = named.and_then(Value::as_str) {
            let name = name.strip_suffix("Fast").or_else(|| name.strip_suffix("Pil")).unwrap_or(name);
            let name = name.strip_suffix("ImageProcessor").or_else(|| name.strip_suffix("FeatureExtractor"));
            return Ok(name.unwrap_or_default().to_owned());
        }
        // Older files have no type.
        if !self.has("size") {
            return Err(self.wrong("it has neither an image_processor_type, a size nor a pretrained_cfg".into()));
        }
        Ok(if self.has("crop_pct") { "ConvNext" } else { "ViT" }.to_owned())
    }

    pub fn resize(&self, size: &Value, square: bool) -> Result<Resize> {
        match size {
            Value::Object(sides) if sides.get("longest_edge").is_some_and(|v| !v.is_null()) => {
                Err(self.wrong("size: longest_edge is not supported; give height and width, or shortest_edge".into()))
            }
            Value::Object(sides) if sides.get("shortest_edge").is_some_and(|v| !v.is_null()) => {
                Ok(Resize::Shorter(self.side(sides, "shortest_edge")?))
            }
            Value::Object(sides) => {
                Ok(Resize::Exact { height: self.side(sides, "height")?, width: self.side(sides, "width")? })
            }
            Value::Array(sides) => match sides.as_slice() {
                [height, width] => {
                    Ok(Resize::Exact { height: self.pixels("size", height)?, width: self.pixels("size", width)? })
                }
                _ => Err(self.wrong(format!("size {size} is not [height, width]"))),
            },
            side => {
                let side = self.pixels("size", side)?;
                Ok(if square { Resize::Exact { height: side, width: side } } else { Resize::Shorter(side) })
            }
        }
    }

    pub fn side(&self, sides: &Map<String, Value>, key: &str) -> Result<u32> {
        let side = sides.get(key).ok_or_else(|| self.wrong(format!("size without `{key}`")))?;
        self.pixels(key, side)
    }

    pub fn pixels(&self, key: &str, value: &Value) -> Result<u32> {
        let number = value.as_f64().filter(|n| n.fract() == 0.0);
        self.cast(key, number.ok_or_else(|| self.wrong(format!("{key}: {value} is not a number of pixels")))?)
    }

    /// Converts to a number of pixels, truncating the fraction.
    pub fn cast(&self, key: &str, number: f64) -> Result<u32> {
        if (1.0..=65536.0).contains(&number) {
            Ok(number as u32)
        } else {
            Err(self.wrong(format!("{key}: {number} pixels are not between 1 and 65536")))
        }
    }

    pub fn flag(&self, key: &str, default: bool) -> Result<bool> {
        match self.get(key) {
            None => Ok(default),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(other) => Err(self.wrong(format!("{key}: {other} is neither true nor false"))),
        }
    }

    pub fn number(&self, key: &str, default: f32) -> Result<f32> {
        match self.get(key) {
            None => Ok(default),
            Some(value) => {
                value.as_f64().map(|n| n as f32).ok_or_else(|| self.wrong(format!("{key}: {value} is not a number")))
            }
        }
    }

    /// Reads a list of numbers, or one number for all channels.
    pub fn numbers(&self, key: &str, default: &[f32]) -> Result<Vec<f32>> {
        let wrong = |value: &Value| self.wrong(format!("{key}: {value} is not a list of numbers"));
        match self.get(key) {
            None => Ok(default.to_vec()),
            Some(value @ Value::Array(list)) => {
                list.iter().map(|n| n.as_f64().map(|n| n as f32).ok_or_else(|| wrong(value))).collect()
            }
            Some(value) => Ok(vec![value.as_f64().ok_or_else(|| wrong(value))? as f32; default.len()]),
        }
    }

    pub fn filter(&self) -> Result<Option<Filter>> {
        let wrong = |value: &Value| self.wrong(format!("resample: {value} is not a filter from 0 to 3"));
        match self.get("resample") {
            None => Ok(None),
            Some(value) => {
                let number = value.as_u64().and_then(|n| u8::try_from(n).ok()).ok_or_else(|| wrong(value))?;
                Filter::try_from(number).map(Some).map_err(|_| wrong(value))
            }
        }
    }
}
