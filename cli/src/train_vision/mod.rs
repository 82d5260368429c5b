//! Training of image classifiers from scratch.

mod model;
mod options;

use grove::{models::vision::ImageClassifier, train::RunSettings, tree::is_param};

use crate::{
    prelude::*,
    published::Published,
    training::{config_json, new_model},
    vision::{
        preprocessor_of,
        training::{Split, VisionJob, evaluate, train},
    },
};
use options::Arch;
pub use options::Options;

impl Command for Options {
    fn check(&self) -> Result<DeviceSpec, Exit> {
        self.check_values()?;
        self.images.run.device.spec()
    }

    /// Trains a model, or evaluates one.
    fn run<B: Backend>(&self, device: &B::Device) -> Result<Ended, Exit> {
        match (self.images.evaluate, self.arch) {
            (true, Arch::Resnet) => self.evaluate::<B, ResNet<B>>(device),
            (true, Arch::Vit) => self.evaluate::<B, Vit<B>>(device),
            (false, Arch::Resnet) => self.train::<B, ResNet<B>>(model::resnet, device),
            (false, Arch::Vit) => self.train::<B, Vit<B>>(model::vit, device),
        }
    }
}

impl Options {
    fn train<B: Backend, M>(&self, config: model::NewConfig<M::Config>, device: &B::Device) -> Result<Ended, Exit>
    where
        M: ImageClassifier<B>,
        M::On<Autodiff<B>>: ImageClassifier<Autodiff<B>>,
    {
        let split = Split::open(&self.images)?;
        let preprocessor = self.preprocessor(&split.training)?;
        let config = config(self, &split.training, &preprocessor)?;
        let model: M = new_model(&self.images.run, &config, device)?;
        let job = VisionJob {
            args: &self.images,
            preprocessor,
            epochs: options::EPOCHS,
            settings: RunSettings::new().with_model(&config_json(&config)?),
            trainable: is_param(),
            inference: false,
        };
        let optimizer = |_: &M, schedule: &_| self.images.run.training.optimizer::<B, M>(schedule);
        train(job, split, model, optimizer, device)
    }

    /// Does what `--evaluate` asks for.
    fn evaluate<B: Backend, M: ImageClassifier<B>>(&self, device: &B::Device) -> Result<Ended, Exit> {
        let published = Published::open(self.model.as_deref(), "mnist-resnet")?;
        let preprocessor = |model: &M| preprocessor_of(None, &published.directory, model.channels());
        let same = |model: &[String], images: &[String]| match model.len() == images.len() {
            true => Ok(()),
            false => Err(failure(format!(
                "the images have {} classes, and {} tells {} apart",
                images.len(),
                published.path.display(),
                model.len()
            ))),
        };
        evaluate::<B, M>(&self.images, &published, preprocessor, same, device)
    }
}
