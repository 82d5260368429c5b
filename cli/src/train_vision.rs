//! Training of image classifiers from scratch.

use grove::{
    images::{Preprocessor, datasets::LabelledImages},
    models::{
        ImageFamily,
        families::WithImageClassifier,
        vision::{ImageClassifier, TrainableImageClassifier},
    },
    tree::is_param,
};

use crate::{
    kind::WithModelAt,
    prelude::*,
    training::{Given, config_json, need, new_model},
    vision::{ImageArgs, Split, VisionJob, preprocessor_of, train},
};

/// Trains a ResNet or a ViT from scratch as an image classifier.
///
/// Without arguments, trains a small ResNet on 8x8 handwritten digits that ship with grove. The result is a directory
/// that `--example resnet` or `--example vit` loads. Ctrl-C writes a checkpoint and stops; the same command with --resume
/// continues.
#[derive(Parser, Debug)]
#[command(
    name = "train_vision",
    version,
    allow_negative_numbers = true,
    mut_arg("epochs", |arg| arg.help("Number of passes over the data; may be a fraction [default: 10]")),
    mut_arg("batch_size", |arg| arg.default_value("64").help("Images per batch")),
    mut_arg("learning_rate", |arg| arg.default_value("2e-3")),
    mut_arg("augment", |arg| arg.default_value("shift")),
)]
pub struct Options {
    #[command(flatten)]
    given: Given,

    /// Data, run and hyperparameters.
    #[command(flatten)]
    pub images: ImageArgs,

    /// Model to evaluate: directory or weights file
    #[arg(long)]
    pub model: Option<String>,

    /// Architecture of the model
    #[arg(long, value_enum, value_name = "NAME", default_value_t = Arch::Resnet, help_heading = "Model")]
    pub arch: Arch,

    /// Height and width of the images, in pixels [default: the size of the data, at least 16, or 64 if sizes differ]
    #[arg(long, value_name = "N", help_heading = "Model")]
    pub image_size: Option<usize>,

    /// Channels of each stage of the ResNet
    #[arg(long, value_delimiter = ',', value_name = "NUMBERS", default_value = "16,32,64", help_heading = "Model")]
    pub channels: Vec<usize>,

    /// Number of blocks of each stage of the ResNet
    #[arg(long, value_delimiter = ',', value_name = "NUMBERS", default_value = "2,2,2", help_heading = "Model")]
    pub depths: Vec<usize>,

    /// Height and width of the ViT's patches, in pixels [default: 1/7 or 1/8 of the image height]
    #[arg(long, value_name = "N", help_heading = "Model")]
    pub patch_size: Option<usize>,

    /// Width of the ViT
    #[arg(long, value_name = "N", default_value_t = 64, help_heading = "Model")]
    pub hidden_size: usize,

    /// Number of blocks of the ViT
    #[arg(long, value_name = "N", default_value_t = 6, help_heading = "Model")]
    pub layers: usize,

    /// Number of attention heads per block of the ViT
    #[arg(long, value_name = "N", default_value_t = 4, help_heading = "Model")]
    pub heads: usize,

    /// Input of the ViT's head
    #[arg(long, value_enum, value_name = "NAME", default_value_t = Pool::Mean, help_heading = "Model")]
    pub pool: Pool,
}

/// Options of one architecture only.
const OF_RESNET: [&str; 2] = ["channels", "depths"];
const OF_VIT: [&str; 5] = ["patch_size", "hidden_size", "layers", "heads", "pool"];

/// Architecture of the model.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arch {
    /// Residual network of basic blocks
    Resnet,
    /// Vision transformer
    Vit,
}

/// Input of the ViT's head.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pool {
    /// The mean of all patches; the model is saved with timm's names
    Mean,
    /// A class token; the model is saved with transformers' names
    Class,
}

impl Command for Options {
    fn check(&self) -> Result<DeviceSpec, Exit> {
        need("model", self.model.is_some(), [("evaluate", self.images.evaluate)])?;
        if let (Some(model), false) = (&self.model, self.images.evaluate) {
            return Err(usage(format!(
                "--model is the model of --evaluate; to train {model} further: grove finetune images --model {model}"
            )));
        }
        self.images.check()?;
        let (others, arch) = match self.arch {
            Arch::Resnet => (&OF_VIT[..], "vit"),
            Arch::Vit => (&OF_RESNET[..], "resnet"),
        };
        if let Some(option) = self.given.first_of(others) {
            return Err(usage(format!("--{option} has no effect here: it needs --arch {arch}")));
        }
        let (channels, depths, width, heads) = (self.channels.len(), self.depths.len(), self.hidden_size, self.heads);
        at_least_one([
            ("image-size", self.image_size.unwrap_or(1)),
            ("patch-size", self.patch_size.unwrap_or(1)),
            ("hidden-size", width),
            ("layers", self.layers),
            ("heads", heads),
        ])?;
        if channels != depths {
            return Err(usage(format!(
                "--channels has {channels} stages, but --depths has {depths}: give the same number"
            )));
        }
        if !width.is_multiple_of(heads) {
            return Err(usage(format!("--hidden-size {width} is not divisible by --heads {heads}")));
        }
        if self.images.run.training.batch_size == 1 && self.arch == Arch::Resnet {
            return Err(usage("--batch-size is 1; batch normalisation needs at least two images"));
        }
        self.images.run.device.spec()
    }

    /// Trains a model, or evaluates one with `--evaluate`.
    fn run<B: Backend>(&self, device: &B::Device) -> Result<Ended, Exit> {
        if self.images.evaluate {
            let path = resolve(self.model.as_deref(), "mnist-resnet")?;
            return WithModelAt::<B, _> { options: self, path: &path, device }.image_classifier();
        }
        match self.arch {
            Arch::Resnet => self.train::<B, ResNet<B>>(Self::resnet, device),
            Arch::Vit => self.train::<B, Vit<B>>(Self::vit, device),
        }
    }
}

impl<B: Backend> WithImageClassifier for WithModelAt<'_, B, Options> {
    type Output = Result<Ended, Exit>;

    /// Prints the evaluation of `--evaluate`.
    fn run<F: ImageFamily>(self) -> Self::Output {
        let files = ModelFiles::at(self.path)?;
        let preprocessor = |model: &F::Model<B>| preprocessor_of(None, files.path(), model.channels());
        self.options.images.evaluation()?.run(&files, preprocessor, self.device)
    }
}

/// Function that returns the configuration of a new model for images and their preprocessing.
type NewConfig<C> = fn(&Options, &LabelledImages, &Preprocessor) -> Result<C, Exit>;

impl Options {
    fn train<B: Backend, M>(&self, config: NewConfig<M::Config>, device: &B::Device) -> Result<Ended, Exit>
    where
        M: TrainableImageClassifier<B>,
    {
        let split = Split::open(&self.images)?;
        let preprocessor = self.preprocessor(&split.training)?;
        let config = config(self, &split.training, &preprocessor)?;
        let (args, run) = (&self.images, &self.images.run);
        let model: M = new_model(run, &config, device)?;
        let settings = RunSettings::new().with_model(&config_json(&config)?);
        let trainable = Some(is_param());
        let setup = Setup { run, output: run.directory()?, epochs: 10.0, settings, trainable };
        let job = VisionJob { args, preprocessor, setup, inference: false };
        let optimizer = |model: &M, schedule: &_| run.training.optimizer::<B, M>(schedule, model);
        train(job, split, model, optimizer, device)
    }

    /// Returns the preprocessing of the images: MNIST's for greyscale images, otherwise ImageNet's.
    fn preprocessor(&self, data: &LabelledImages) -> Result<Preprocessor, Exit> {
        let size = self.image_size.unwrap_or_else(|| data.size.map_or(64, |[_, h, w]| h.max(w).max(16)));
        let side = u32::try_from(size).map_err(|_| usage(format!("--image-size {size} is too large")))?;
        Preprocessor::for_images(data.size, side).map_err(|error| usage(format!("--image-size: {error}")))
    }

    /// Returns the configuration of a ResNet of basic blocks.
    fn resnet(&self, data: &LabelledImages, preprocessor: &Preprocessor) -> Result<ResNetConfig, Exit> {
        let [height, _] = preprocessor.size().unwrap_or([usize::MAX; 2]);
        let (channels, depths) = (self.channels.clone(), self.depths.clone());
        let config = ResNetConfig::basic(preprocessor.channels(), height, channels, depths);
        Ok(config.with_labels(data.labels.clone()))
    }

    /// Returns the configuration of a ViT that timm or transformers can load, depending on `--pool`.
    fn vit(&self, data: &LabelledImages, preprocessor: &Preprocessor) -> Result<VitConfig, Exit> {
        let [height, width] = preprocessor.size().unwrap_or([64; 2]);
        let patch_size = self.patch_size.unwrap_or_else(|| VitConfig::patch_size_for(height));
        if height % patch_size != 0 || width % patch_size != 0 {
            return Err(usage(format!(
                "images of {height}x{width} pixels are not divisible into patches of {patch_size}: choose another --patch-size"
            )));
        }
        let config = VitConfig {
            hidden_size: self.hidden_size,
            num_hidden_layers: self.layers,
            num_attention_heads: self.heads,
            intermediate_size: self.hidden_size.saturating_mul(4),
            image_size: [height, width],
            patch_size,
            num_channels: preprocessor.channels(),
            layer_norm_eps: 1e-6,
            ..VitConfig::default()
        };
        let config = if self.pool == Pool::Mean { config.with_mean_pooling() } else { config };
        Ok(config.with_labels(data.labels.clone()))
    }
}
