use grove_weights::{NameMap, Step};

use super::{LayerType, Naming, ResNetConfig};

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
