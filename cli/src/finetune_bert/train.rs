//! Fine-tuning.

use grove::{
    layers::loss::CrossEntropy,
    models::{BertConfig, bert::TextBatch, check_finite},
    prelude::*,
    tensor::TensorData,
    train::{
        DataIdentity, Ended, Evaluation, Outcome, RunSettings, StepOptions,
        data::{Data, Examples},
        fit,
    },
};
use indicatif::HumanCount;
use std::{path::Path, sync::Arc};

use crate::{
    Exit,
    encoder::Published,
    failure,
    finetune_bert::data::{self, Example},
    finetune_bert::model::{self, Classifier},
    finetune_bert::optimizer::optimizer,
    finetune_bert::options::{self, Options},
    finetune_bert::report,
    labelled,
    training::{Output, POOL, Summary, draw_confusion, evaluation_failed, model_settings},
    write_json, write_line,
};

/// Model and data at the start of a run.
struct Prepared<B: Backend> {
    model: Classifier<B>,
    published: Published,
    training: Vec<Example>,
    held_out: Vec<Example>,
}

/// Trains a classifier, or evaluates it, as the options ask.
pub fn run<B: Backend>(options: &Options, device: &B::Device) -> Result<Ended, Exit> {
    if options.evaluate {
        return evaluate::<B>(options, device);
    }
    let asked = &options.training;
    let output = Output::open(&options.run, asked.keep)?;
    let Prepared { model, published, training, held_out } = prepare::<B>(options, output.as_ref(), device)?;
    let key = Key::new(options.run.seed);
    let counts = [training.len(), held_out.len()].map(|count| HumanCount(count as u64));
    let config = model.bert.config.clone();
    let made_of = settings(options, &config, &training, &held_out);
    let weights = data::weights(&training, config.labels.len(), options.balance);
    let collate = |batch: &[&Example]| batch.iter().map(|&example| example.clone()).collect::<Vec<_>>();
    let data = Examples::new(training, asked.batch_size, collate).map_err(failure)?;
    let data = data.shuffle(key.fold_in(2)).bucket(|example| example.text.ids.len(), POOL).map_err(failure)?;
    let data = Arc::new(data);
    let steps = asked.steps(options::EPOCHS, data.batches_per_epoch())?;
    let schedule = asked.schedule(steps)?;
    let optimizer = optimizer::<B>(options, &schedule, config.num_hidden_layers);
    let loss_fn =
        |model: Classifier<Autodiff<B>>, batch: &Vec<Example>, key: Key| loss(&model, batch, &weights, key, device);
    let evaluate = |model: &Classifier<B>| {
        let found = report::score(model, &held_out, asked.batch_size).map_err(evaluation_failed)?;
        let confusion = &found.confusion;
        Ok(Evaluation::from([
            ("loss".into(), found.loss()),
            ("accuracy".into(), confusion.accuracy()),
            ("macro_f1".into(), confusion.macro_f1()),
        ]))
    };
    let unit = ("texts", asked.batch_size as u64);
    let (run, evaluated) = (&options.run, !held_out.is_empty());
    let mut settings = asked.fit_options(run, output.as_ref(), made_of, steps, evaluated, schedule, unit)?;
    settings.step = StepOptions { trainable: model::trainable(options, &model)?, ..settings.step };
    if let Some(output) = &output {
        let json = serde_json::to_string_pretty(&config.to_json()).map_err(failure)?;
        output.begin(&options.run, &json, Some(&published.tokenizer))?;
    }
    let trained = tree::leaves(&tree::filter(model.clone(), &settings.step.trainable));
    let trained: usize = trained.iter().filter(|(_, leaf)| leaf.is_present()).map(|(_, leaf)| leaf.len()).sum();
    eprintln!(
        "{} parameters, of which {} are trained; {} classes; {} texts to train on, {} held out; {} steps of {} texts",
        HumanCount(tree::count_params(&model) as u64),
        HumanCount(trained as u64),
        config.labels.len(),
        counts[0],
        counts[1],
        HumanCount(steps),
        asked.batch_size * asked.accumulate,
    );
    let fitted = fit(model, &optimizer, &data, loss_fn, evaluate, key.fold_in(3), &settings).map_err(failure)?;
    let save = |model: Classifier<B>, directory: &Path| model::finished(model).save_pretrained(directory);
    let (model, summary) = Summary::save(fitted, output.as_ref(), asked.save_dtype, save)?;
    let found = if held_out.is_empty() { None } else { Some(report::score(&model, &held_out, asked.batch_size)?) };
    if let (Some(found), Some(output)) = (&found, &output) {
        draw_confusion(found, &output.directory().join("confusion.svg"))?;
    }
    let accuracy = found.as_ref().map(|found| found.confusion.accuracy());
    if options.run.json {
        let mut all = summary.json("accuracy", accuracy);
        all["evaluation"] = found.as_ref().map(report::json).into();
        write_json(&all)?;
        return Ok(summary.ended);
    }
    let measure = accuracy.map(|accuracy| ("accuracy", format!("{:.1} %", 100.0 * accuracy)));
    write_line(&summary.table("text", measure))?;
    if let Some(found) = found {
        write_line(&format!("\n{}", found.confusion.table()))?;
    }
    Ok(summary.ended)
}

/// Settings of the run besides the options of every run.
fn settings(options: &Options, config: &BertConfig, training: &[Example], held_out: &[Example]) -> RunSettings {
    let identity = |examples: &[Example]| {
        let mut identity = DataIdentity::new();
        for example in examples {
            identity.add_tokens(&example.text.ids);
            identity.add_tokens(&example.text.token_types);
            identity.add_tokens(&[example.class as u32]);
        }
        format!("{} texts ({})", examples.len(), identity.finish())
    };
    model_settings(&config.to_json().into())
        .with("data", identity(training))
        .with("held-out", identity(held_out))
        .with("balance", options.balance)
        .with("freeze", options.freeze.join(","))
        .with_option("lora-rank", options.lora_rank)
        .with_option("lora-alpha", options.lora_alpha)
        .with("lora-targets", options.lora_targets.join(","))
        .with("layer-decay", options.layer_decay)
}

/// Mean loss of the texts, each counting what its class does, and by how much that is.
fn loss<B: Backend>(
    model: &Classifier<Autodiff<B>>,
    batch: &[Example],
    weights: &[f32],
    key: Key,
    device: &B::Device,
) -> Outcome<B, Classifier<B>> {
    let texts: Vec<_> = batch.iter().map(|example| example.text.clone()).collect();
    let texts =
        TextBatch::new(&texts, &model.bert.config, device).expect("texts are not empty, and of the model's tokens");
    let count = batch.len();
    let classes: Vec<i64> = batch.iter().map(|example| example.class as i64).collect();
    let each: Vec<f32> = batch.iter().map(|example| weights[example.class]).collect();
    let total: f32 = each.iter().sum();
    let losses = CrossEntropy::default().per_example(
        model.forward(&texts, Some(key)),
        Tensor::<_, 1, Int>::from_data(TensorData::new(classes, [count]), device),
    );
    let each = Tensor::<_, 1>::from_data(TensorData::new(each, [count]), device).cast(losses.dtype());
    Outcome::new((losses * each).sum().div_scalar(total)).weight(f64::from(total))
}

/// Does what `--evaluate` asks for.
fn evaluate<B: Backend>(options: &Options, device: &B::Device) -> Result<Ended, Exit> {
    let Published { path, config, tokenizer, .. } = Published::open(options.model.as_deref())?;
    let dtype = Some(options.run.device.dtype.into());
    let (model, _) = Classifier::<B>::from_path(&path, device, dtype).map_err(failure)?;
    let (texts, _) = data::read(options)?;
    let (examples, cut) = data::examples(texts, &config.labels, &tokenizer, &config, options)?;
    tell_cut(cut);
    let examples: Vec<Example> = examples.into_iter().map(|(_, example)| example).collect();
    labelled::tell_unheld(&config.labels, examples.iter().map(|example| example.class));
    let score = report::score(&model, &examples, options.training.batch_size)?;
    check_finite(&model, [score.loss()]).map_err(failure)?;
    report::print(&score, options.run.json)?;
    Ok(Ended::Finished)
}

/// Model and data, from the options and from the run that is resumed.
fn prepare<B: Backend>(options: &Options, output: Option<&Output>, device: &B::Device) -> Result<Prepared<B>, Exit> {
    let (texts, other) = data::read(options)?;
    let published = Published::open(options.model.as_deref())?;
    let resumed = output.map_or(Ok(None), Output::config)?.map(BertConfig::from_file).transpose().map_err(failure)?;
    let labels = resumed.map_or_else(|| data::labels(options, &texts), |config| Ok(config.labels))?;
    let examples = |texts| data::examples(texts, &labels, &published.tokenizer, &published.config, options);
    let (texts, cut) = examples(texts)?;
    tell_cut(cut);
    let (training, held_out) = match other {
        None => data::split(texts, options)?,
        Some(other) => {
            let only = |texts: Vec<(usize, Example)>| texts.into_iter().map(|(_, example)| example).collect();
            (only(texts), only(examples(other)?.0))
        }
    };
    labelled::tell_unheld(&labels, held_out.iter().map(|example| example.class));
    let model = model::prepare::<B>(options, &published, labels.clone(), device)?;
    Ok(Prepared { model, published, training, held_out })
}

fn tell_cut(cut: usize) {
    if cut > 0 {
        eprintln!("{cut} texts are cut, as they are longer than --max-length");
    }
}
