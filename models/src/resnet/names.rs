use grove_backend::Backend;
use grove_weights::{NameMap, Step};

use super::{LayerType, Naming, ResNet, ResNetConfig};

/// Returns the published names of a network's tensors: transformers', and those of torchvision and timm. The
/// configuration's [`Naming`] determines the names for saving.
pub fn published_names(config: &ResNetConfig) -> NameMap {
    let counters = [("**.num_batches_tracked", "counters of batches, on which no result depends")];
    let map = NameMap::new().prefix("resnet.").prefix("module.").prefix("model.").ignore_each(&counters);
    match config.naming {
        Naming::Transformers => torchvision(transformers(map, config, NameMap::rule), config, NameMap::alias),
        Naming::Torchvision => transformers(torchvision(map, config, NameMap::rule), config, NameMap::alias),
    }
}

/// Returns the names of all batch norms of a network, in its [`Naming`].
pub(super) fn norm_names<B: Backend>(model: &ResNet<B>) -> Vec<String> {
    let below = if model.head.is_some() { "resnet." } else { "" };
    let naming = model.config.naming;
    let stem = match naming {
        Naming::Transformers => format!("{below}embedder.embedder.normalization"),
        Naming::Torchvision => "bn1".to_owned(),
    };
    // Name of the batch norm after convolution `layer` of block `j` in stage `s`; `None` for the shortcut's.
    let name = |s: usize, j: usize, layer: Option<usize>| match naming {
        Naming::Transformers => {
            let part = layer.map_or("shortcut".to_owned(), |k| format!("layer.{k}"));
            format!("{below}encoder.stages.{s}.layers.{j}.{part}.normalization")
        }
        Naming::Torchvision => {
            let part = layer.map_or("downsample.1".to_owned(), |k| format!("bn{}", k + 1));
            format!("layer{}.{j}.{part}", s + 1)
        }
    };
    let mut names = vec![stem];
    for (s, stage) in model.stages.iter().enumerate() {
        for (j, block) in stage.iter().enumerate() {
            names.extend((0..block.layers.len()).map(|k| name(s, j, Some(k))));
            names.extend(block.shortcut.as_ref().map(|_| name(s, j, None)));
        }
    }
    names
}

/// Adds the name of a tensor and its path: [`NameMap::rule`], or [`NameMap::alias`] for names that are only used for
/// loading.
type Add = fn(NameMap, &str, &str) -> NameMap;

fn conv_bn(map: NameMap, add: Add, conv: &str, norm: &str, path: &str) -> NameMap {
    let map = add(map, &format!("{conv}.weight"), &format!("{path}.conv.weight"));
    ["weight", "bias", "running_mean", "running_var"]
        .iter()
        .fold(map, |map, part| add(map, &format!("{norm}.{part}"), &format!("{path}.norm.{part}")))
}

fn head(map: NameMap, add: Add, config: &ResNetConfig, name: &str) -> NameMap {
    if config.labels.is_empty() {
        let reason = "a head, which the configuration names no classes for";
        return map.ignore_each(&[(&format!("{name}.*"), reason)]);
    }
    let map = add(map, &format!("{name}.weight"), "head.weight").then(Step::Transpose);
    add(map, &format!("{name}.bias"), "head.bias")
}

fn transformers(map: NameMap, config: &ResNetConfig, add: Add) -> NameMap {
    // With a head, the backbone's names have a prefix.
    let below = if config.labels.is_empty() { "" } else { "resnet." };
    let part = |map, name: &str, path: &str| {
        let (conv, norm) = (format!("{below}{name}.convolution"), format!("{below}{name}.normalization"));
        conv_bn(map, add, &conv, &norm, path)
    };
    let map = part(map, "embedder.embedder", "stem");
    let map = part(map, "encoder.stages.{s}.layers.{j}.layer.{k}", "stages.{s}.{j}.layers.{k}");
    let map = part(map, "encoder.stages.{s}.layers.{j}.shortcut", "stages.{s}.{j}.shortcut");
    head(map, add, config, "classifier.1")
}

fn torchvision(map: NameMap, config: &ResNetConfig, add: Add) -> NameMap {
    let convolutions = if config.layer_type == LayerType::Basic { 2 } else { 3 };
    let mut map = conv_bn(map, add, "conv1", "bn1", "stem");
    for s in 0..config.depths.len() {
        let (block, path) = (format!("layer{}.{{j}}", s + 1), format!("stages.{s}.{{j}}"));
        for k in 0..convolutions {
            let [conv, norm] = ["conv", "bn"].map(|kind| format!("{block}.{kind}{}", k + 1));
            map = conv_bn(map, add, &conv, &norm, &format!("{path}.layers.{k}"));
        }
        let [conv, norm] = [0, 1].map(|part| format!("{block}.downsample.{part}"));
        map = conv_bn(map, add, &conv, &norm, &format!("{path}.shortcut"));
    }
    head(map, add, config, "fc")
}
