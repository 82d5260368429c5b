use grove_weights::NameMap;

use super::{LayerType, Naming, ResNetConfig};
use crate::names::Names;

/// Returns the published names of a network's tensors: transformers', and those of torchvision and timm. The
/// configuration's [`Naming`] determines the names for saving.
pub fn published_names(config: &ResNetConfig) -> NameMap {
    let counters = [("**.num_batches_tracked", "counters of batches, on which no result depends")];
    let map = NameMap::new().prefix("resnet.").prefix("module.").prefix("model.").ignore_each(&counters);
    let names = match config.naming {
        Naming::Transformers => transformers(Names::new(map), config).aliases(|names| torchvision(names, config)),
        Naming::Torchvision => torchvision(Names::new(map), config).aliases(|names| transformers(names, config)),
    };
    names.map
}

fn conv_bn(names: Names, conv: &str, norm: &str, path: &str) -> Names {
    let parts = ["weight", "bias", "running_mean", "running_var"];
    names.parts(conv, &format!("{path}.conv"), &["weight"]).parts(norm, &format!("{path}.norm"), &parts)
}

fn transformers(names: Names, config: &ResNetConfig) -> Names {
    // With a head, the backbone's names have a prefix.
    let below = if config.labels.is_empty() { "" } else { "resnet." };
    let part = |names, name: &str, path: &str| {
        let (conv, norm) = (format!("{below}{name}.convolution"), format!("{below}{name}.normalization"));
        conv_bn(names, &conv, &norm, path)
    };
    let names = part(names, "embedder.embedder", "stem");
    let names = part(names, "encoder.stages.{s}.layers.{j}.layer.{k}", "stages.{s}.{j}.layers.{k}");
    let names = part(names, "encoder.stages.{s}.layers.{j}.shortcut", "stages.{s}.{j}.shortcut");
    names.head("classifier.1", &config.labels)
}

fn torchvision(names: Names, config: &ResNetConfig) -> Names {
    let convolutions = if config.layer_type == LayerType::Basic { 2 } else { 3 };
    let mut names = conv_bn(names, "conv1", "bn1", "stem");
    for s in 0..config.depths.len() {
        let (block, path) = (format!("layer{}.{{j}}", s + 1), format!("stages.{s}.{{j}}"));
        for k in 0..convolutions {
            let [conv, norm] = ["conv", "bn"].map(|kind| format!("{block}.{kind}{}", k + 1));
            names = conv_bn(names, &conv, &norm, &format!("{path}.layers.{k}"));
        }
        let [conv, norm] = [0, 1].map(|part| format!("{block}.downsample.{part}"));
        names = conv_bn(names, &conv, &norm, &format!("{path}.shortcut"));
    }
    names.head("fc", &config.labels)
}
