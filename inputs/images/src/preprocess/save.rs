//! Writing preprocessing in transformers' format.

use std::path::Path;

use grove_files::write_text;
use serde_json::{Map, Value, json};

use super::{
    Preprocessor, Resize,
    config::{PREPROCESSOR, PROCESSOR, json_of},
};
use crate::convention::ResampleCompat;
use crate::error::{ImageError, Result};

impl Preprocessor {
    /// Returns the content of a `preprocessor_config.json` for transformers' `AutoImageProcessor`: a
    /// `ViTImageProcessor` if there is no crop and the shorter side is not fixed, otherwise a `BitImageProcessor`.
    ///
    /// transformers always uses [`ResampleCompat::Transformers`]. The entry `convention`, which transformers ignores,
    /// preserves the other convention for [`from_file`](Self::from_file).
    ///
    /// # Errors
    /// As [`check`](Self::check); also for settings that transformers' image processors lack: [`Resize::Cover`],
    /// [`Resize::Within`], and padding that is not black.
    pub fn to_json(&self) -> Result<Value> {
        self.check()?;
        let size = match self.resize {
            Resize::None => Value::Null,
            Resize::Exact { height, width } => json!({"height": height, "width": width}),
            Resize::Shorter(side) => json!({"shortest_edge": side}),
            Resize::Cover { .. } | Resize::Within { .. } => {
                let reason = "no image processor of transformers can cover or pad a size that is not square: use \
                              Exact or Shorter";
                return Err(ImageError::BadOption(reason.into()));
            }
        };
        if self.crop.is_some() && self.fill != [0; 3] {
            return Err(ImageError::BadOption("transformers only pads with black: set fill to 0".into()));
        }
        // Writes the shortest decimal, 0.485, rather than the f32's exact value, 0.48500001430511475.
        let number = |v: f32| v.to_string().parse().unwrap_or(f64::from(v));
        let numbers = |list: &[f32]| list.iter().map(|&v| number(v)).collect::<Vec<f64>>();
        let rescale = if self.rescale == 1.0 / 255.0 { 1.0 / 255.0 } else { number(self.rescale) };
        let plain = self.mean.iter().all(|&m| m == 0.0) && self.std.iter().all(|&s| s == 1.0);

        let mut entries = Map::new();
        let mut put = |key: &str, value: Value| entries.insert(key.to_owned(), value);
        // The ViT processor would make a square of a shorter side, and only the BiT processor crops.
        let vit = self.crop.is_none() && !matches!(self.resize, Resize::Shorter(_));
        put("image_processor_type", if vit { "ViTImageProcessor" } else { "BitImageProcessor" }.into());
        put("do_resize", (self.resize != Resize::None).into());
        if !size.is_null() {
            put("size", size);
        }
        put("resample", u8::from(self.filter).into());
        put("do_center_crop", self.crop.is_some().into());
        if let Some([height, width]) = self.crop {
            put("crop_size", json!({"height": height, "width": width}));
        }
        if self.convention == ResampleCompat::Torchvision {
            put("convention", "torchvision".into());
        }
        put("do_rescale", (self.rescale != 1.0).into());
        put("rescale_factor", rescale.into());
        put("do_normalize", (!plain).into());
        put("image_mean", numbers(&self.mean).into());
        put("image_std", numbers(&self.std).into());
        put("do_convert_rgb", (self.mean.len() == 3).into());
        Ok(Value::Object(entries))
    }

    /// Writes [`to_json`](Self::to_json) to a file, or to `preprocessor_config.json` in a directory. If a
    /// `processor_config.json` beside a `preprocessor_config.json` contains an image processor, which would take
    /// precedence, it is replaced too. Files are written atomically.
    ///
    /// # Errors
    /// As [`to_json`](Self::to_json); also if a file cannot be written, or that `processor_config.json` is not JSON.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let file = if path.is_dir() { path.join(PREPROCESSOR) } else { path.to_owned() };
        let json = self.to_json()?;
        let processor = file.with_file_name(PROCESSOR);
        if file.ends_with(PREPROCESSOR) && processor.is_file() {
            let mut outer = json_of(&processor)?;
            if let Some(inner) = outer.get_mut("image_processor").filter(|inner| !inner.is_null()) {
                *inner = json.clone();
                write(&processor, &outer)?;
            }
        }
        write(&file, &json)
    }
}

/// Writes a JSON file atomically.
fn write(file: &Path, json: &Value) -> Result<()> {
    Ok(write_text(file, &format!("{json:#}\n"))?)
}
