//! Reading transformers' `preprocessor_config.json` and `processor_config.json`.

use std::path::{Path, PathBuf};

use grove_files::{FileError, directory_at, printable::excerpt};
use serde_json::Value;

use super::{Preprocessor, Resize, entries::Entries, keys, timm};
use crate::convention::ResampleCompat;
use crate::error::{ImageError, Result};
use crate::filter::Filter;

/// Means and standard deviations of CLIP's training set, which transformers uses for BiT too.
const CLIP: [[f32; 3]; 2] = [[0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.261_302_6, 0.275_777_1]];
const HALF: [[f32; 3]; 2] = [[0.5; 3]; 2];
/// Maximum size of a configuration in bytes; a real one is a page of text.
const MAX_BYTES: u64 = 16 << 20;
/// Image processor of a model.
pub(super) const PREPROCESSOR: &str = "preprocessor_config.json";
/// Processors of a model of several modalities. Its entry `image_processor` is an image processor.
pub(super) const PROCESSOR: &str = "processor_config.json";

/// Reads a configuration file of limited size.
fn text_of(file: &Path) -> Result<String> {
    let length = std::fs::metadata(file).map_err(FileError::io("open", file))?.len();
    if length > MAX_BYTES {
        return Err(ImageError::config(file, format!("{length} bytes are too large for a configuration")));
    }
    Ok(std::fs::read_to_string(file).map_err(FileError::io("read", file))?)
}

/// Reads a configuration file as JSON.
pub(super) fn json_of(file: &Path) -> Result<Value> {
    parse(&text_of(file)?, file)
}

/// Parses the text of a configuration file.
fn parse(text: &str, file: &Path) -> Result<Value> {
    grove_files::parse_json(text.as_bytes()).map_err(|error| ImageError::config(file, error))
}

/// Returns the configuration of a directory's image processor, and its file. As in transformers, the image processor
/// within a `processor_config.json` takes precedence over a `preprocessor_config.json`, and a `processor_config.json`
/// without one has no effect. Otherwise it is timm's `config.json`.
fn in_directory(directory: &Path) -> Result<Option<(Value, PathBuf)>> {
    let processor = directory.join(PROCESSOR);
    if processor.is_file() {
        let json = json_of(&processor)?;
        if json.get("image_processor").is_some_and(|inner| !inner.is_null()) {
            return Ok(Some((json, processor)));
        }
    }
    let preprocessor = directory.join(PREPROCESSOR);
    if preprocessor.is_file() {
        return Ok(Some((json_of(&preprocessor)?, preprocessor)));
    }
    // Errors in another configuration are reported by the model's own reader.
    let config = directory.join("config.json");
    let mentions_timm = |text: &String| text.contains("pretrained_cfg") || text.contains("input_size");
    let Some(text) = text_of(&config).ok().filter(mentions_timm) else { return Ok(None) };
    let json = parse(&text, &config)?;
    // timm's older files have the entries of `pretrained_cfg` beside the architecture.
    let of_timm = json.get("pretrained_cfg").is_some_and(Value::is_object)
        || ["architecture", "input_size"].iter().all(|key| json.get(key).is_some());
    Ok(of_timm.then_some((json, config)))
}

impl Preprocessor {
    /// Reads a model's own preprocessing: an image processor of transformers (of ViT, DeiT, BEiT, SigLIP, ConvNeXT, BiT
    /// and CLIP, old and new spellings), or timm's `pretrained_cfg`.
    ///
    /// `path` is such a file, or a directory with one. In a directory, the first of these is used, as in transformers:
    /// the entry `image_processor` of `processor_config.json`, `preprocessor_config.json`, and timm's `config.json`.
    ///
    /// # Errors
    /// The file does not exist or is not JSON, the image processor is unknown, or an entry is invalid.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        if !path.is_dir() {
            return Self::from_json(&json_of(path)?, path);
        }
        let Some((json, file)) = in_directory(path)? else {
            let reason = "it has no preprocessor_config.json, no processor_config.json with an image_processor, and no \
                          config.json of timm";
            return Err(ImageError::config(path, reason));
        };
        Self::from_json(&json, &file)
    }

    /// Reads the preprocessing of a model from the files in its directory or beside its weights file; see
    /// [`from_file`](Self::from_file). Returns `None` if there are none.
    ///
    /// # Errors
    /// As [`from_file`](Self::from_file).
    pub fn beside(model: impl AsRef<Path>) -> Result<Option<Self>> {
        let found = in_directory(directory_at(model.as_ref()))?;
        found.map(|(json, file)| Self::from_json(&json, &file)).transpose()
    }

    /// Like [`from_file`](Self::from_file), for parsed JSON; `name` only appears in errors.
    ///
    /// # Errors
    /// As [`from_file`](Self::from_file), except for reading.
    pub fn from_json(json: &Value, name: &Path) -> Result<Self> {
        let Some(mut entries) = json.as_object() else {
            return Err(ImageError::config(name, "it is not a JSON object"));
        };
        match entries.get("image_processor") {
            None | Some(Value::Null) => {}
            Some(Value::Object(inner)) => entries = inner,
            Some(other) => {
                let other = excerpt(&other.to_string(), 100);
                return Err(ImageError::config(name, format!("image_processor is {other}; it must be an object")));
            }
        }
        let entries = Entries { entries, file: name };
        let read = match entries.entries.get("pretrained_cfg").and_then(Value::as_object) {
            Some(inner) => timm::read(&Entries { entries: inner, file: name }),
            None if entries.has("input_size") => timm::read(&entries),
            None => transformers(&entries),
        }?;
        read.checked().map_err(|e| ImageError::config(name, e.to_string()))
    }
}

/// Defaults of an image processor class of transformers.
struct Defaults {
    /// If true, a single number is the side of a square; otherwise it is the shorter side.
    square: bool,
    resize: Resize,
    /// Size of a crop. BEiT's class has one, but does not crop unless `do_center_crop` is set.
    crop: Option<[u32; 2]>,
    filter: Filter,
    colours: [[f32; 3]; 2],
}

fn defaults(class: &str) -> Option<Defaults> {
    let exact = |side| Resize::Exact { height: side, width: side };
    let known = |square, resize, crop, filter, colours| Some(Defaults { square, resize, crop, filter, colours });
    match class {
        "ViT" => known(true, exact(224), None, Filter::Bilinear, HALF),
        "DeiT" => known(true, exact(256), Some([224; 2]), Filter::Bicubic, HALF),
        "Beit" => known(true, exact(224), Some([224; 2]), Filter::Bicubic, HALF),
        "Siglip" => known(false, exact(224), None, Filter::Bicubic, HALF),
        "ConvNext" => known(false, Resize::Shorter(384), None, Filter::Bicubic, HALF),
        "Bit" | "CLIP" => known(false, Resize::Shorter(224), Some([224; 2]), Filter::Bicubic, CLIP),
        _ => None,
    }
}

fn transformers(config: &Entries) -> Result<Preprocessor> {
    config.check(&keys::TRANSFORMERS)?;
    let class = config.class()?;
    let Some(defaults) = defaults(&class) else {
        let known = "ViT, DeiT, Beit, Siglip, ConvNext, Bit and CLIP";
        return Err(config.wrong(format!("unknown image processor `{class}`; known are {known}")));
    };
    let resize = match config.get("size") {
        None => defaults.resize,
        Some(size) => config.resize(size, config.flag("default_to_square", defaults.square)?)?,
    };
    let crop = match config.get("crop_size") {
        None => defaults.crop,
        Some(Value::Object(sides)) => Some([config.side(sides, "height")?, config.side(sides, "width")?]),
        Some(side) => Some([config.pixels("crop_size", side)?; 2]),
    };
    let on = |key, default| config.flag(key, default);
    let mut read = Preprocessor {
        resize: if on("do_resize", true)? { resize } else { Resize::None },
        filter: config.filter()?.unwrap_or(defaults.filter),
        crop: None,
        crop_pct: None,
        convention: ResampleCompat::Transformers,
        fill: [0; 3],
        rescale: if on("do_rescale", true)? { config.number("rescale_factor", 1.0 / 255.0)? } else { 1.0 },
        mean: config.numbers("image_mean", &defaults.colours[0])?,
        std: config.numbers("image_std", &defaults.colours[1])?,
    };
    if config.get("convention").and_then(Value::as_str) == Some("torchvision") {
        read.convention = ResampleCompat::Torchvision;
    }
    if on("do_center_crop", defaults.crop.is_some() && class != "Beit")? {
        read.crop = Some(crop.ok_or_else(|| config.wrong("do_center_crop is true, but crop_size is missing".into()))?);
    }
    if !on("do_normalize", true)? {
        read.mean.fill(0.0);
        read.std.fill(1.0);
    }
    if class == "ConvNext" && read.resize != Resize::None {
        let Resize::Shorter(side) = resize else {
            return Err(config.wrong("a ConvNext image processor needs a size of {\"shortest_edge\": …}".into()));
        };
        let crop_pct = config.number("crop_pct", 224.0 / 256.0)?;
        if side < 384 {
            if read.crop.is_some_and(|crop| crop != [side; 2]) {
                return Err(config.wrong("crop_size does not match crop_pct".into()));
            }
            // In double precision, as in Python: 224 / 0.875 is 256 exactly.
            let larger =
                f64::from(side) / config.get("crop_pct").and_then(Value::as_f64).unwrap_or(f64::from(crop_pct));
            read.resize = Resize::Shorter(config.cast("crop_pct", larger)?);
            read.crop = Some([side; 2]);
        } else {
            read.resize = Resize::Exact { height: side, width: side };
        }
    }
    Ok(read)
}
