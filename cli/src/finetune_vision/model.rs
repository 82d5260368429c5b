//! Trainable parts of a model, and their learning rates.

use grove::{
    models::vision::ImageClassifier,
    optim::{GradientTransformation, Schedule, chain, except, layer_decay},
    prelude::*,
    tree::{Filter, by_path, paths},
};

use crate::{
    Exit,
    finetune_vision::options::{BACKBONE, Options},
};

/// The leaves that are trained: all but what is frozen.
pub fn trainable<B: Backend, M: Tree<B>>(options: &Options, model: &M) -> Result<Filter<B>, Exit> {
    let (backbone, named): (Vec<_>, Vec<_>) = options.freeze.iter().partition(|pattern| *pattern == BACKBONE);
    let trained = except(model, &named, "").map_err(|error| Exit::Usage(format!("--freeze {error}")))?;
    Ok(if backbone.is_empty() { trained } else { trained & by_path("head.**") })
}

/// AdamW, slower the lower a layer lies where `--layer-decay` says so.
pub fn optimizer<B: Backend, M: ImageClassifier<B>>(
    options: &Options,
    model: &M,
    schedule: &Schedule,
) -> impl GradientTransformation<B, M> + use<B, M> {
    let decay = (options.layer_decay < 1.0).then(|| {
        let depths: std::collections::BTreeMap<String, usize> =
            paths(model).into_iter().map(|path| (path.clone(), model.depth(&path))).collect();
        let deepest = depths.values().copied().max().unwrap_or(0);
        layer_decay::<B>(options.layer_decay, deepest, move |path| depths.get(path).copied().unwrap_or(0))
    });
    chain((options.training.optimizer::<B, M>(schedule), decay))
}
