//! Trainable parts of a model, and their learning rates.

use grove::{
    models::vision::ImageClassifier,
    optim::{GradientTransformation, Schedule, chain, partition, scale},
    prelude::*,
    tree::{Filter, by_path, is_param, path_fits, paths},
};

use crate::{
    common::Exit,
    options::{BACKBONE, Options},
};

/// The leaves that are trained: all but what is frozen.
pub fn trainable<B: Backend, M: Tree<B>>(options: &Options, model: &M) -> Result<Filter<B>, Exit> {
    let known = paths(model);
    let mut trained = is_param();
    for pattern in &options.freeze {
        if pattern == BACKBONE {
            trained = trained & by_path("head.**");
            continue;
        }
        if !known.iter().any(|path| path_fits(pattern, path)) {
            let first = known.iter().take(3).map(String::as_str).collect::<Vec<_>>().join(", ");
            return Err(Exit::Usage(format!(
                "--freeze {pattern}: nothing in the model is called so; its first parts are {first}"
            )));
        }
        trained = trained & !by_path(pattern);
    }
    Ok(trained)
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
        let slower = (0..=deepest).map(|depth| (depth.to_string(), scale(options.layer_decay.powi(depth as i32))));
        let depth = move |path: &str| depths.get(path).copied().unwrap_or(0).to_string();
        partition::<B, _, _>(slower.collect::<Vec<_>>(), move |path, _| depth(path.as_str()))
    });
    chain((options.training.optimizer::<B, M>(schedule), decay))
}
