//! The model that is trained, and which parts of it.

use grove::{
    layers::lora,
    models::bert::BertForSequenceClassification,
    optim::except,
    prelude::*,
    tree::{Filter, by_path},
};

use crate::{Exit, encoder::Published, failure, finetune_bert::options::Options};

pub type Classifier<B> = BertForSequenceClassification<B>;

/// The published encoder with a head for these labels, the model's own where it has one for as many, and with adapters
/// where they are asked for.
pub fn prepare<B: Backend>(
    options: &Options,
    published: &Published,
    labels: Vec<String>,
    device: &B::Device,
) -> Result<Classifier<B>, Exit> {
    // No matrix has a higher rank than its smaller side; a mistyped one would ask for memory without end.
    if let Some(rank) = options.lora_rank.filter(|rank| *rank > published.config.hidden_size) {
        let width = published.config.hidden_size;
        return Err(Exit::Usage(format!("--lora-rank is {rank}, and the model's matrices have at most rank {width}")));
    }
    let mut config = published.config.clone();
    config.labels = labels;
    config.problem_type = Some("single_label_classification".into());
    let key = Key::new(options.run.seed).fold_in(1);
    let (model, report) = Classifier::with_new_head(&published.path, &config, key, device, None).map_err(failure)?;
    let missing = report.missing.iter().map(|missing| &*missing.path);
    let new: Vec<&str> = missing.chain(report.mismatched.iter().map(|other| &*other.path)).collect();
    if !new.is_empty() {
        eprintln!("new, as the checkpoint does not have them: {}", new.join(", "));
    }
    let Some(rank) = options.lora_rank else { return Ok(model) };
    let alpha = options.lora_alpha.unwrap_or(2.0 * rank as f64);
    let bert = lora::add(model.bert, &options.lora_targets, rank, alpha, key.fold_in(1));
    Ok(Classifier { bert: bert.map_err(|error| Exit::Usage(format!("--lora-targets: {error}")))?, head: model.head })
}

/// The leaves that are trained: all but what is frozen, and with adapters those, the pooler and the head.
pub fn trainable<B: Backend>(options: &Options, model: &Classifier<B>) -> Result<Filter<B>, Exit> {
    let freeze = except(model, &options.freeze, "bert.").map_err(|error| Exit::Usage(format!("--freeze {error}")))?;
    Ok(match options.lora_rank {
        Some(_) => freeze & (lora::trainable() | by_path("head.**") | by_path("bert.pooler.**").optional()),
        None => freeze,
    })
}

/// The model as it is saved: with its adapters in the weights.
pub fn finished<B: Backend>(model: Classifier<B>) -> Classifier<B> {
    lora::merge(model)
}
