//! Trains a classifier of pictures from scratch: `cargo run --example train_vision -- --arch vit --data pictures --output run`.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/labelled/mod.rs"]
mod labelled;
mod model;
mod options;
#[path = "../common/training/mod.rs"]
mod training;
#[path = "../common/vision/mod.rs"]
mod vision;
#[path = "../common/vision/training/mod.rs"]
mod vision_training;

use clap::Parser;
use grove::{models::vision::ImageClassifier, prelude::*, train::Ended, tree::is_param};
use std::process::ExitCode;

use common::{Exit, failure, memory};
use options::{Arch, Options};
use training::{finish_run, model_settings};
use vision_training::{Job, Split, train};

fn main() -> ExitCode {
    let options = Options::parse();
    finish_run(|| {
        options.check().map_err(Exit::Usage)?;
        options.run.device.spec()?.run(Run(&options))?
    })
}

/// The program, for whichever backend was chosen.
struct Run<'a>(&'a Options);

impl Program for Run<'_> {
    type Output = Result<Ended, Exit>;

    fn run<B: Backend>(self, device: B::Device) -> Result<Ended, Exit> {
        let options = self.0;
        if options.evaluate {
            return match options.arch {
                Arch::Resnet => evaluate::<B, ResNet<B>>(options, &device),
                Arch::Vit => evaluate::<B, Vit<B>>(options, &device),
            };
        }
        let split = Split::open(options.data.as_deref(), &options.held_out, options.run.seed)?;
        let preprocessor = options.preprocessor(&split.training)?;
        let key = Key::new(options.run.seed).fold_in(1);
        match options.arch {
            Arch::Resnet => {
                let config = model::resnet(options, &split.training, &preprocessor);
                memory::trains::<B>(&options.run.device, &ResNet::<B>::skeleton(&config).map_err(failure)?)?;
                let model = ResNet::<B>::init(&config, key, &device).map_err(failure)?;
                run(options, split, preprocessor, model, serde_json::to_value(&config), &device)
            }
            Arch::Vit => {
                let config = model::vit(options, &split.training, &preprocessor)?;
                memory::trains::<B>(&options.run.device, &Vit::<B>::skeleton(&config).map_err(failure)?)?;
                let model = Vit::<B>::init(&config, key, &device).map_err(failure)?;
                run(options, split, preprocessor, model, serde_json::to_value(&config), &device)
            }
        }
    }
}

fn run<B: Backend, M>(
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
    let (model, _) = M::open(&published.path, device, dtype).map_err(failure)?;
    let split = Split::open(options.data.as_deref(), &options.held_out, options.run.seed)?;
    let preprocessor = vision::preprocessor_of(None, &published.directory, model.channels())?;
    let data = split.held_out.unwrap_or(split.training);
    if data.labels.len() != model.labels().len() {
        return Err(failure(format!(
            "the pictures have {} classes, and {} tells {} apart",
            data.labels.len(),
            published.path.display(),
            model.labels().len()
        )));
    }
    let batch_size = options.training.batch_size;
    vision_training::evaluate(&model, data, batch_size, (preprocessor, &options.sizes), options.run.json, device)
}
