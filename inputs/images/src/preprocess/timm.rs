//! Reading timm's preprocessing: `pretrained_cfg` of a `config.json`.

use serde_json::Value;

use super::entries::Entries;
use super::{IMAGENET_MEAN, IMAGENET_STD, Preprocessor, Resize, keys};
use crate::convention::ResampleCompat;
use crate::error::Result;
use crate::filter::Filter;

/// Reads the pipeline of timm's `create_transform` for evaluation.
pub(super) fn read(config: &Entries) -> Result<Preprocessor> {
    config.check(&keys::TIMM)?;
    let [height, width] = match config.get("input_size").and_then(Value::as_array).map(Vec::as_slice) {
        Some([_, height, width]) => [config.pixels("input_size", height)?, config.pixels("input_size", width)?],
        _ => return Err(config.wrong("input_size is not [channels, height, width]".into())),
    };
    let crop_pct = match config.get("crop_pct").map(Value::as_f64) {
        None => 0.875,
        Some(Some(part)) if part > 0.0 => part,
        Some(_) => return Err(config.wrong("crop_pct is not a positive number".into())),
    };
    let scaled = |side: u32| config.cast("crop_pct", (f64::from(side) / crop_pct).floor());
    let (tall, broad) = (scaled(height)?, scaled(width)?);
    let filter = match config.get("interpolation") {
        None => Filter::Bicubic,
        Some(Value::String(name)) => name.parse().map_err(|e| config.wrong(format!("interpolation: {e}")))?,
        Some(other) => return Err(config.wrong(format!("interpolation: {other} is not a name"))),
    };
    let mean = config.numbers("mean", &IMAGENET_MEAN)?;
    let mut fill = [0; 3];
    let resize = match config.get("crop_mode").map_or(Some("center"), Value::as_str) {
        Some("center") if tall == broad => Resize::Shorter(tall),
        Some("center") => Resize::Cover { height: tall, width: broad },
        Some("squash") => Resize::Exact { height: tall, width: broad },
        Some("border") => {
            // The padding has the mean colour, which normalises to about zero.
            for (level, mean) in fill.iter_mut().zip(mean.iter().cycle()) {
                *level = (255.0 * f64::from(*mean)).round_ties_even() as u8;
            }
            Resize::Within { height: tall, width: broad }
        }
        _ => return Err(config.wrong("crop_mode must be center, squash or border".into())),
    };
    Ok(Preprocessor {
        resize,
        filter,
        crop: Some([height, width]),
        crop_pct: Some(crop_pct),
        convention: ResampleCompat::Torchvision,
        fill,
        rescale: 1.0 / 255.0,
        mean,
        std: config.numbers("std", &IMAGENET_STD)?,
    })
}
