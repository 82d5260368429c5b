//! Sizes of the model that is trained.

use grove::{
    images::{Preprocessor, datasets::LabelledImages},
    models::{
        resnet::{LayerType, Naming, ResNetConfig, Stem},
        vit::{self, Pooling, VitConfig},
    },
};

use crate::{
    Exit,
    train_vision::options::{Options, Pool},
};

/// From this size on images are made smaller as they enter.
const LARGE: usize = 96;

/// Makes the configuration of a new model for images and their preprocessing.
pub type NewConfig<C> = fn(&Options, &LabelledImages, &Preprocessor) -> Result<C, Exit>;

/// A network of basic blocks.
pub fn resnet(options: &Options, data: &LabelledImages, preprocessor: &Preprocessor) -> Result<ResNetConfig, Exit> {
    let [height, _] = preprocessor.size().unwrap_or([LARGE; 2]);
    let config = ResNetConfig {
        num_channels: preprocessor.channels(),
        embedding_size: options.channels.first().copied().unwrap_or_default(),
        hidden_sizes: options.channels.clone(),
        depths: options.depths.clone(),
        layer_type: LayerType::Basic,
        stem: if height < LARGE { Stem::Small } else { Stem::Large },
        naming: Naming::Torchvision,
        ..ResNetConfig::default()
    };
    Ok(config.with_labels(data.labels.clone()))
}

/// A model of which timm or transformers has the like.
pub fn vit(options: &Options, data: &LabelledImages, preprocessor: &Preprocessor) -> Result<VitConfig, Exit> {
    let [height, width] = preprocessor.size().unwrap_or([64; 2]);
    let seventh =
        [7, 8].into_iter().find(|parts| height % parts == 0).map_or(height.div_ceil(8), |parts| height / parts);
    let patch_size = options.patch_size.unwrap_or(seventh).max(1);
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
    let config = match options.pool {
        Pool::Mean => VitConfig {
            class_token: false,
            position_prefix: 0,
            pooling: Pooling::MeanThenNorm,
            naming: vit::Naming::Timm,
            ..config
        },
        Pool::Class => config,
    };
    Ok(config.with_labels(data.labels.clone()))
}
