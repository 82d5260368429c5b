//! Fine-tuning of image classifiers.

mod options;

use grove::{
    models::{ModelKind, vision::ImageClassifier},
    optim::except,
    train::RunSettings,
    tree::{Filter, by_path},
};

use crate::{
    prelude::*,
    published::Published,
    vision::{
        not_for_images, preprocessor_of,
        training::{Split, VisionJob, evaluate, output_size, train},
    },
};
pub use options::Options;
use options::{BACKBONE, EPOCHS};

impl Command for Options {
    fn check(&self) -> Result<DeviceSpec, Exit> {
        self.check_values()?;
        self.images.run.device.spec()
    }

    /// Trains a model, or evaluates one.
    fn run<B: Backend>(&self, device: &B::Device) -> Result<Ended, Exit> {
        let published = Published::open(self.model.as_deref(), "mnist-resnet")?;
        match ModelKind::of(&published.path)? {
            ModelKind::ResNet => self.run_model::<B, ResNet<B>>(&published, device),
            ModelKind::Vit => self.run_model::<B, Vit<B>>(&published, device),
            other => Err(not_for_images(other)),
        }
    }
}

impl Options {
    fn run_model<B: Backend, M>(&self, published: &Published, device: &B::Device) -> Result<Ended, Exit>
    where
        M: ImageClassifier<B>,
        M::On<Autodiff<B>>: ImageClassifier<Autodiff<B>>,
    {
        let preprocessor = |model: &M| {
            let found = preprocessor_of(self.preprocess.as_deref(), &published.directory, model.channels())?;
            let Some(side) = self.image_size else { return Ok(found) };
            found.with_side(side).map_err(|error| Exit::Usage(format!("--image-size: {error}")))
        };
        let args = &self.images;
        if args.evaluate {
            return evaluate::<B, M>(args, published, preprocessor, same_classes, device);
        }
        // While training, the model itself stays in f32.
        let (model, _) = M::from_path(&published.path, device, None)?;
        let preprocessor = preprocessor(&model)?;
        let split = Split::open(args)?;
        let batch_size = args.run.training.batch_size.min(split.training.examples.len());
        let size = output_size(&preprocessor, &model, &args.sizes, batch_size)?;
        let model = model.for_size(size)?;
        let labels = split.training.labels.clone();
        let model = match model.labels() == labels && !self.new_head {
            true => model,
            false => {
                eprintln!("the head is new: {} classes in place of {}", labels.len(), model.labels().len());
                model.with_classes(labels, Key::new(args.run.seed).fold_in(1))
            }
        };
        let settings = RunSettings::new().with("freeze", self.freeze.join(",")).with("layer-decay", self.layer_decay);
        let (trainable, inference) = (self.trainable(&model)?, self.freezes_backbone());
        let job = VisionJob { args, preprocessor, epochs: EPOCHS, settings, trainable, inference };
        let optimizer =
            |model: &M, schedule: &_| args.run.training.optimizer_by_layer(schedule, model, self.layer_decay, M::depth);
        train(job, split, model, optimizer, device)
    }

    /// The leaves that are trained: all but what is frozen.
    fn trainable<B: Backend, M: Tree<B>>(&self, model: &M) -> Result<Filter<B>, Exit> {
        let (backbone, named): (Vec<_>, Vec<_>) = self.freeze.iter().partition(|pattern| *pattern == BACKBONE);
        let trained = except(model, &named, "").map_err(|error| Exit::Usage(format!("--freeze {error}")))?;
        Ok(if backbone.is_empty() { trained } else { trained & by_path("head.**") })
    }
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
