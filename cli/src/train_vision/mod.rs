//! Training of image classifiers from scratch.

mod model;
mod options;

use grove::{models::vision::ImageClassifier, prelude::*, train::Ended, tree::is_param};

use crate::{
    Exit, failure, memory,
    training::model_settings,
    vision::{
        self,
        training::{Job, Split, train},
    },
};
use options::Arch;
pub use options::Options;

/// Does what the options ask for: trains a model, or evaluates one.
pub fn run<B: Backend>(options: &Options, device: &B::Device) -> Result<Ended, Exit> {
    if options.evaluate {
        return match options.arch {
            Arch::Resnet => evaluate::<B, ResNet<B>>(options, device),
            Arch::Vit => evaluate::<B, Vit<B>>(options, device),
        };
    }
    let split = Split::open(options.data.as_deref(), &options.held_out, options.run.seed)?;
    let preprocessor = options.preprocessor(&split.training)?;
    let key = Key::new(options.run.seed).fold_in(1);
    match options.arch {
        Arch::Resnet => {
            let config = model::resnet(options, &split.training, &preprocessor);
            memory::trains::<B>(&options.run.device, &ResNet::<B>::skeleton(&config).map_err(failure)?)?;
            let model = ResNet::<B>::init(&config, key, device).map_err(failure)?;
            train_model(options, split, preprocessor, model, serde_json::to_value(&config), device)
        }
        Arch::Vit => {
            let config = model::vit(options, &split.training, &preprocessor)?;
            memory::trains::<B>(&options.run.device, &Vit::<B>::skeleton(&config).map_err(failure)?)?;
            let model = Vit::<B>::init(&config, key, device).map_err(failure)?;
            train_model(options, split, preprocessor, model, serde_json::to_value(&config), device)
        }
    }
}

fn train_model<B: Backend, M>(
    options: &Options,
    split: Split,
    preprocessor: grove::images::Preprocessor,
    model: M,
    config: serde_json::Result<serde_json::Value>,
    device: &B::Device,
) -> Result<Ended, Exit>
where
    M: ImageClassifier<B>,
    M::On<Autodiff<B>>: ImageClassifier<Autodiff<B>>,
{
    let job = Job {
        run: &options.run,
        training: &options.training,
        augment: &options.augment,
        sizes: &options.sizes,
        preprocessor,
        epochs: options::EPOCHS,
        settings: model_settings(&config.map_err(failure)?),
        inference: false,
    };
    let optimizer = |_: &M, schedule: &_| options.training.optimizer::<B, M>(schedule);
    train(&job, split, model, is_param(), optimizer, device)
}

/// Does what `--evaluate` asks for.
fn evaluate<B: Backend, M: ImageClassifier<B>>(options: &Options, device: &B::Device) -> Result<Ended, Exit> {
    let published = vision::Published::open(options.model.as_deref(), "mnist-resnet")?;
    let dtype = Some(options.run.device.dtype.into());
    let (model, _) = M::from_path(&published.path, device, dtype).map_err(failure)?;
    let split = Split::open(options.data.as_deref(), &options.held_out, options.run.seed)?;
    let preprocessor = vision::preprocessor_of(None, &published.directory, model.channels())?;
    let data = split.held_out.unwrap_or(split.training);
    if data.labels.len() != model.labels().len() {
        return Err(failure(format!(
            "the images have {} classes, and {} tells {} apart",
            data.labels.len(),
            published.path.display(),
            model.labels().len()
        )));
    }
    let batch_size = options.training.batch_size;
    vision::training::evaluate(&model, data, batch_size, (preprocessor, &options.sizes), options.run.json, device)
}
