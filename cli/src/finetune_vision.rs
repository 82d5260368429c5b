//! Fine-tuning of image classifiers.

use clap::builder::ArgPredicate;
use grove::{
    models::{ImageFamily, families::WithImageClassifier, vision::ImageClassifier},
    optim::except,
    tree::by_path,
};

use crate::{
    kind::WithModelAt,
    labelled::tell_new_labels,
    prelude::*,
    training::with_new_parameters,
    vision::{ImageArgs, Split, VisionJob, output_size, preprocessor_of, train},
};

/// Name for all parameters except the head's in `--freeze`.
const BACKBONE: &str = "backbone";

/// Pattern of the head's parameters.
const HEAD: &str = "head.**";

/// Fine-tunes a ResNet, a ViT or a DINOv2 to classify your own images.
///
/// Without arguments, fine-tunes a small network for MNIST on 8x8 digits; both ship with grove. The result is a directory
/// that `--example resnet`, `--example vit` and the library of the model's parameter names load. Ctrl-C writes a checkpoint and
/// stops; the same command with --resume continues.
#[derive(Parser, Debug)]
#[command(
    name = "finetune_vision",
    version,
    allow_negative_numbers = true,
    mut_arg("evaluate", |arg| {
        arg.requires("data").help(
            "Print the model's metrics on --data, or on its evaluation part if it has one, instead of training",
        )
    }),
    mut_arg("epochs", |arg| arg.help("Number of passes over the data; may be a fraction [default: 5]")),
    mut_arg("batch_size", |arg| arg.default_value("32").help("Images per batch")),
    mut_arg("learning_rate", |arg| {
        arg.default_value("5e-4").help("Peak learning rate; for all weights of a large ViT, 5e-5 is usual")
    }),
    mut_arg("augment", |arg| {
        arg.default_value_if("data", ArgPredicate::IsPresent, "standard").default_value("shift").hide_default_value(true).help(
            "Augmentation of each image [default: standard; shift without --data]",
        )
    }),
)]
pub struct Options {
    /// Data, run and hyperparameters.
    #[command(flatten)]
    pub images: ImageArgs,

    /// Preprocessing: a name, as for --example resnet, or a preprocessor_config.json [default: the files beside the
    /// model]
    #[arg(long, value_name = "NAME")]
    pub preprocess: Option<String>,

    /// Height and width of the images, in pixels [default: that of the preprocessing]
    #[arg(long, value_name = "N")]
    pub image_size: Option<u32>,

    /// Model to fine-tune: directory, weights file, or hub id, such as microsoft/resnet-50 or google/vit-base-patch16-224
    #[arg(long, help_heading = "Model")]
    pub model: Option<String>,

    /// LoRA adapter (peft) to merge into the model before training: directory or hub id
    #[arg(long, value_name = "DIR|ID", help_heading = "Model")]
    pub adapter: Option<String>,

    /// Replace the model's head even if it already has these classes
    #[arg(long, help_heading = "Model")]
    pub new_head: bool,

    /// Parameters to freeze: backbone (all except the head), or path patterns such as "stem.**,stages.0.**". A new head is
    /// always trained
    #[arg(long, value_delimiter = ',', value_name = "PATTERNS", help_heading = "Model")]
    pub freeze: Vec<String>,

    /// Layer-wise learning-rate decay: factor for each layer below the head, such as 0.8; 1 disables it
    #[arg(long, default_value_t = 1.0, value_name = "FACTOR", help_heading = "Training")]
    pub layer_decay: f64,
}

impl Command for Options {
    fn check(&self) -> Result<DeviceSpec, Exit> {
        self.images.check()?;
        at_least_one([("image-size", self.image_size.unwrap_or(1) as usize)])?;
        check_layer_decay(self.layer_decay)?;
        self.images.run.device.spec()
    }

    /// Trains the model, or evaluates it with `--evaluate`.
    fn run<B: Backend>(&self, device: &B::Device) -> Result<Ended, Exit> {
        let path = resolve(self.model.as_deref(), "mnist-resnet")?;
        WithModelAt::<B, _> { options: self, path: &path, device }.image_classifier()
    }
}

impl<B: Backend> WithImageClassifier for WithModelAt<'_, B, Options> {
    type Output = Result<Ended, Exit>;

    /// Trains a model of the family, or evaluates it with `--evaluate`.
    fn run<F: ImageFamily>(self) -> Self::Output {
        let Self { options, path, device } = self;
        let files = with_adapter(path, options.adapter.as_deref())?;
        let preprocessor = |model: &F::Model<B>| {
            let found = preprocessor_of(options.preprocess.as_deref(), files.path(), model.channels())?;
            let Some(side) = options.image_size else { return Ok(found) };
            found.with_side(side).map_err(|error| usage(format!("--image-size: {error}")))
        };
        let args = &options.images;
        if args.evaluate {
            return args.evaluation()?.run(&files, preprocessor, device);
        }
        // Trained weights stay f32; `--dtype` is the compute type.
        let (model, _) = files.load::<B, F::Model<B>>(device, None)?;
        let preprocessor = preprocessor(&model)?;
        let mut split = Split::open(args)?;
        let batch_size = args.run.training.batch_size.min(split.training.examples.len());
        let size = output_size(&preprocessor, &model, &args.sizes, batch_size)?;
        let mut model = model.for_size(size)?;
        // Patterns of the parameters with random values.
        let mut new = vec![];
        let (labels, key) = (split.training.labels.clone(), Key::new(args.run.seed).fold_in(1));
        if options.new_head || !labels.iter().any(|label| model.labels().contains(label)) {
            tell(format_args!("the head is new: {} classes in place of {}", labels.len(), model.labels().len()));
            model = model.with_new_head(labels, key);
            new.push(HEAD.to_owned());
        } else if labels.iter().all(|label| model.labels().contains(label)) {
            // A model that has all classes of the data keeps its own list and head.
            split = split.relabelled(model.labels())?;
        } else {
            tell_new_labels(model.labels(), &labels);
            model = model.with_labels(labels, key);
            new.push(HEAD.to_owned());
        }
        let settings =
            RunSettings::new().with("freeze", options.freeze.join(",")).with("layer-decay", options.layer_decay);
        let inference = options.freeze.iter().any(|pattern| pattern == BACKBONE);
        let trainable = Some(options.trainable(&model, &new)?);
        let setup = Setup { run: &args.run, output: args.run.directory()?, epochs: 5.0, settings, trainable };
        let job = VisionJob { args, preprocessor, setup, inference };
        let optimizer = |model: &F::Model<B>, schedule: &_| {
            args.run.training.optimizer_by_layer(schedule, model, options.layer_decay, F::Model::<B>::depth)
        };
        train(job, split, model, optimizer, device)
    }
}

impl Options {
    /// Returns the filter of the trained leaves: all except the frozen ones, and all new parameters.
    fn trainable<B: Backend, M: Tree<B>>(&self, model: &M, new: &[String]) -> Result<Filter<B>, Exit> {
        let (backbone, named): (Vec<_>, Vec<_>) = self.freeze.iter().partition(|pattern| *pattern == BACKBONE);
        let trained = except(model, &named, "").map_err(|error| usage(format!("--freeze: {error}")))?;
        let trained = if backbone.is_empty() { trained } else { trained & by_path(HEAD) };
        Ok(with_new_parameters(model, trained, new))
    }
}
