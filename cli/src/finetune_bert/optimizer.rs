//! Learning rates of the parts of a model.

use grove::{
    optim::{GradientTransformation, Schedule, chain, layer_decay},
    prelude::*,
};

use crate::{finetune_bert::model::Classifier, finetune_bert::options::Options};

/// AdamW, slower the lower a layer lies where `--layer-decay` says so.
pub fn optimizer<B: Backend>(
    options: &Options,
    schedule: &Schedule,
    layers: usize,
) -> impl GradientTransformation<B, Classifier<B>> + use<B> {
    let decay = (options.layer_decay < 1.0).then(|| {
        // The head has depth 0, the last layer 1, the embeddings one more than there are layers.
        layer_decay::<B>(options.layer_decay, layers + 1, move |path| depth(path, layers))
    });
    chain((options.training.optimizer::<B, Classifier<B>>(schedule), decay))
}

/// Number of layers between a leaf and the head.
fn depth(path: &str, layers: usize) -> usize {
    if path.starts_with("bert.embeddings.") {
        return layers + 1;
    }
    let layer = path.strip_prefix("bert.encoder.layer.").and_then(|rest| rest.split('.').next()?.parse::<usize>().ok());
    layer.map_or(0, |layer| layers - layer)
}

#[cfg(test)]
mod tests {
    use super::depth;

    #[test]
    fn depths_below_the_head() {
        let paths = ["head.classifier.weight", "bert.pooler.dense.bias", "bert.encoder.layer.11.output.bias"];
        assert_eq!(paths.map(|path| depth(path, 12)), [0, 0, 1]);
        assert_eq!(depth("bert.encoder.layer.0.attention.query.weight", 12), 12);
        assert_eq!(depth("bert.embeddings.layer_norm.weight", 12), 13);
    }
}
