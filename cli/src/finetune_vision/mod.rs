//! Fine-tuning of image classifiers.

mod model;
mod options;

use grove::{
    models::vision::{ImageClassifier, Kind},
    prelude::*,
    train::{Ended, RunSettings},
};

use crate::{
    Exit, failure,
    vision::{
        Published, preprocessor_of,
        training::{Job, Split, evaluate, output_size, train},
    },
};
pub use options::Options;

/// Does what the options ask for: trains a model, or evaluates one.
pub fn run<B: Backend>(options: &Options, device: &B::Device) -> Result<Ended, Exit> {
    let published = Published::open(options.model.as_deref(), "mnist-resnet")?;
    match Kind::of(&published.path).map_err(failure)? {
        Kind::ResNet => run_model::<B, ResNet<B>>(options, &published, device),
        Kind::Vit => run_model::<B, Vit<B>>(options, &published, device),
    }
}

fn run_model<B: Backend, M>(options: &Options, published: &Published, device: &B::Device) -> Result<Ended, Exit>
where
    M: ImageClassifier<B>,
    M::On<Autodiff<B>>: ImageClassifier<Autodiff<B>>,
{
    // While training, the model itself stays in f32.
    let dtype = options.evaluate.then(|| options.run.device.dtype.into());
    let (model, _) = M::from_path(&published.path, device, dtype).map_err(failure)?;
    let asked = options.preprocess.as_deref();
    let preprocessor = options.preprocessor(preprocessor_of(asked, &published.directory, model.channels())?)?;
    let split = Split::open(options.data.as_deref(), &options.held_out, options.run.seed)?;
    if options.evaluate {
        let data = split.held_out.unwrap_or(split.training);
        same_classes(model.labels(), &data.labels)?;
        let batch_size = options.training.batch_size;
        return evaluate(&model, data, batch_size, (preprocessor, &options.sizes), options.run.json, device);
    }
    let batch_size = options.training.batch_size.min(split.training.examples.len());
    let size = output_size(&preprocessor, &model, &options.sizes, batch_size)?;
    let model = model.for_size(size).map_err(failure)?;
    let labels = split.training.labels.clone();
    let model = match model.labels() == labels && !options.new_head {
        true => model,
        false => {
            eprintln!("the head is new: {} classes in place of {}", labels.len(), model.labels().len());
            model.with_classes(labels, Key::new(options.run.seed).fold_in(1))
        }
    };
    let job = Job {
        run: &options.run,
        training: &options.training,
        augment: &options.augment,
        sizes: &options.sizes,
        preprocessor,
        epochs: options::EPOCHS,
        settings: RunSettings::new().with("freeze", options.freeze.join(",")).with("layer-decay", options.layer_decay),
        inference: options.freezes_backbone(),
    };
    let trainable = model::trainable(options, &model)?;
    train(&job, split, model, trainable, |model, schedule| model::optimizer(options, model, schedule), device)
}

/// Refuses images of other classes than the model's.
fn same_classes(model: &[String], images: &[String]) -> Result<(), Exit> {
    if model == images {
        return Ok(());
    }
    let unknown: Vec<&str> = images.iter().filter(|label| !model.contains(label)).map(String::as_str).collect();
    Err(failure(format!(
        "the images have {} classes and the model {}{}: evaluate with the classes that it was trained on",
        images.len(),
        model.len(),
        if unknown.is_empty() { String::new() } else { format!(", and it does not know {}", unknown.join(", ")) }
    )))
}
