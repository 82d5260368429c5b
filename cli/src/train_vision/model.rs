//! Sizes of the model that is trained.

use grove::images::{Preprocessor, datasets::LabelledImages};

use crate::prelude::*;
use crate::train_vision::options::{Options, Pool};

/// Makes the configuration of a new model for images and their preprocessing.
pub type NewConfig<C> = fn(&Options, &LabelledImages, &Preprocessor) -> Result<C, Exit>;

/// A network of basic blocks.
pub fn resnet(options: &Options, data: &LabelledImages, preprocessor: &Preprocessor) -> Result<ResNetConfig, Exit> {
    let [height, _] = preprocessor.size().unwrap_or([usize::MAX; 2]);
    let (channels, depths) = (options.channels.clone(), options.depths.clone());
    let config = ResNetConfig::basic(preprocessor.channels(), height, channels, depths);
    Ok(config.with_labels(data.labels.clone()))
}

/// A model of which timm or transformers has the like.
pub fn vit(options: &Options, data: &LabelledImages, preprocessor: &Preprocessor) -> Result<VitConfig, Exit> {
    let [height, width] = preprocessor.size().unwrap_or([64; 2]);
    let patch_size = options.patch_size.unwrap_or_else(|| VitConfig::patch_size_for(height));
    if height % patch_size != 0 || width % patch_size != 0 {
        return Err(Exit::Usage(format!(
            "images of {height}x{width} pixels do not fall into patches of {patch_size}: choose another --patch-size"
        )));
    }
    let config = VitConfig {
        hidden_size: options.hidden_size,
        num_hidden_layers: options.layers,
        num_attention_heads: options.heads,
        intermediate_size: options.hidden_size.saturating_mul(4),
        image_size: [height, width],
        patch_size,
        num_channels: preprocessor.channels(),
        layer_norm_eps: 1e-6,
        ..VitConfig::default()
    };
    let config = if options.pool == Pool::Mean { config.with_mean_pooling() } else { config };
    Ok(config.with_labels(data.labels.clone()))
}
