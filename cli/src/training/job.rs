//! Setup of a training run, shared by all training commands.

use grove::{
    text::TextError,
    train::{Fitted, data::Data},
    tree::{by_path, is_param},
};
use indicatif::HumanCount;
use std::sync::Arc;

use super::Summary;
use crate::{memory, prelude::*};

/// Initialises a model. Fails if the configuration is invalid or training needs more memory than is available.
pub fn new_model<B: Backend, M: Pretrained<B>>(
    run: &RunArgs,
    config: &M::Config,
    device: &B::Device,
) -> Result<M, Exit> {
    memory::trains::<B>(&run.device, &M::skeleton(config).map_err(usage)?)?;
    M::init(config, Key::new(run.seed).fold_in(1), device).map_err(usage)
}

/// Returns the tokenizer of a new model: that of the run to resume, that of `--tokenizer`, or the one that `learn` trains.
pub fn new_tokenizer<T: From<Tokenizer>>(
    resumed: Option<Tokenizer>,
    named: Option<&Path>,
    learn: impl FnOnce() -> Result<T, TextError>,
) -> Result<T, Exit> {
    match (resumed, named) {
        (Some(tokenizer), _) => Ok(tokenizer.into()),
        (None, Some(path)) if path.exists() => Ok(Tokenizer::from_path(path)?.into()),
        (None, Some(id)) => Ok(Tokenizer::from_pretrained(&id.to_string_lossy())?.into()),
        (None, None) => learn().map_err(|error| match error {
            TextError::Option { value, range, .. } => usage(format!("--vocab-size is {value}; it must be {range}")),
            error => error.into(),
        }),
    }
}

/// Extends a filter by the new parameters, which `new` has as patterns. Prints the new parameters that `--freeze` would freeze:
/// they are trained because their values are random.
pub fn with_new_parameters<B: Backend>(model: &impl Tree<B>, trained: Filter<B>, new: &[String]) -> Filter<B> {
    let paths = |filter: &Filter<B>| -> Vec<String> {
        let leaves = tree::leaves(&tree::filter(model.clone(), filter));
        leaves.into_iter().filter(|(_, leaf)| leaf.is_present()).map(|(path, _)| path.to_string()).collect()
    };
    let both = new.iter().fold(trained.clone(), |filter, pattern| filter | (by_path(pattern).optional() & is_param()));
    let before = paths(&trained);
    let frozen: Vec<String> = paths(&both).into_iter().filter(|path| !before.contains(path)).collect();
    if !frozen.is_empty() {
        tell(format_args!("trained despite --freeze, because the values are random: {}", frozen.join(", ")));
    }
    both
}

/// The parts of a run except its data.
pub struct Setup<'a, B: Backend> {
    /// Directory, device and hyperparameters.
    pub run: &'a RunArgs,
    /// Directory of the run.
    pub output: RunDirectory,
    /// Default number of epochs.
    pub epochs: f64,
    /// Settings of the run in addition to the options of every run.
    pub settings: RunSettings,
    /// Leaves to train; `None` for all parameters.
    pub trainable: Option<Filter<B>>,
}

/// A prepared run, for [`fit`](grove::train::fit).
pub struct Job<B: Backend, D> {
    /// Training data.
    pub data: Arc<D>,
    /// Learning-rate schedule.
    pub schedule: Schedule,
    /// Key of the training steps, for example for dropout.
    pub key: Key,
    /// Settings of the loop.
    pub settings: FitOptions<B>,
    /// Directory of the run.
    pub output: RunDirectory,
    save_dtype: Dtype,
}

impl<B: Backend> Setup<'_, B> {
    /// Prepares a training run and prints its sizes to standard error.
    ///
    /// - `classes`: number of classes, if the model is a classifier
    /// - `unit`, `batch`: unit of the data, such as `texts`, and number of units per batch
    /// - `counts`: number of training units and of held-out units
    pub fn job<D: Data>(
        self,
        model: &impl Tree<B>,
        data: D,
        classes: Option<usize>,
        (unit, batch): (&'static str, usize),
        counts: [usize; 2],
    ) -> Result<Job<B, D>, Exit> {
        let Self { run, output, epochs, settings, trainable } = self;
        let training = &run.training;
        let [count, held_out] = counts.map(|count| HumanCount(count as u64));
        let steps = training.steps(epochs, data.batches_per_epoch())?;
        let schedule = training.schedule(steps)?;
        let mut settings = run.fit_options::<B>(steps, settings)?;
        if counts[1] == 0 {
            settings.evaluate_every = 0;
        }
        settings.lock = output.lock()?;
        settings.learning_rate = Some(schedule.clone());
        settings.unit = Some((unit, batch as u64));
        let parameters = tree::count_params(model);
        let mut line = counted(parameters, "parameter");
        if let Some(trainable) = trainable {
            let trained = tree::leaves(&tree::filter(model.clone(), &trainable));
            let trained: usize = trained.iter().filter(|(_, leaf)| leaf.is_present()).map(|(_, leaf)| leaf.len()).sum();
            if trained == 0 {
                return Err(usage("--freeze leaves nothing to train"));
            }
            if trained < parameters {
                line += &format!(", {} of them trained", HumanCount(trained as u64));
            }
            settings.step.trainable = trainable;
        }
        if let Some(classes) = classes {
            line += &format!("; {classes} classes");
        }
        let (steps, each) = (counted(steps as usize, "step"), HumanCount((batch * training.accumulate) as u64));
        let shared = match settings.ranks.size() {
            1 => String::new(),
            size => format!(" on {size} ranks"),
        };
        if settings.ranks.rank() == 0 {
            eprintln!("{line}; {count} {unit} to train on, {held_out} held out; {steps} of {each} {unit}{shared}");
        }
        let key = Key::new(run.seed).fold_in(3);
        Ok(Job { data: Arc::new(data), schedule, key, settings, output, save_dtype: training.save_dtype })
    }
}

impl<B: Backend, D> Job<B, D> {
    /// Saves the model unless the run was interrupted. Returns the trained model and the summary of the run.
    pub fn save<M: Tree<B>>(
        &self,
        fitted: Fitted<M>,
        save: impl FnOnce(M, &Path) -> Result<(), ModelError>,
    ) -> Result<(M, Summary), Exit> {
        let summary = Summary::new(&fitted, &self.output);
        Ok((self.output.save(fitted, self.save_dtype.into(), save)?, summary))
    }
}
