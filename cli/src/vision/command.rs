//! `grove classify images`: classifies images with a model of any family.

use grove::models::{ImageFamily, families::WithImageClassifier};

use super::{ClassifyArgs, classify, suggest_published};
use crate::{kind::WithModelAt, prelude::*};

/// Options of `grove classify images`.
#[derive(Args, Debug)]
#[command(about = None, after_help = "Examples:
  grove classify images cat.jpg
  grove classify images --model run/model photos/ --output predictions.csv
  grove classify images --model google/vit-base-patch16-224 --top-k 3 cat.jpg")]
pub struct ImageCommand {
    /// Directory, weights file, or hub id, such as microsoft/resnet-50 [default: a small network that ships with grove]
    #[arg(long)]
    pub model: Option<String>,

    /// Images and settings.
    #[command(flatten)]
    pub classify: ClassifyArgs,
}

impl Command for ImageCommand {
    fn check(&self) -> Result<DeviceSpec, Exit> {
        self.classify.check()
    }

    /// Classifies images with the model family of the weights.
    fn run<B: Backend>(&self, device: &B::Device) -> Result<Ended, Exit> {
        let path = resolve(self.model.as_deref(), "mnist-resnet")?;
        WithModelAt::<B, _> { options: &self.classify, path: &path, device }.image_classifier()?;
        suggest_published(self.model.as_deref(), &self.classify, "microsoft/resnet-50");
        Ok(Ended::Finished)
    }
}

impl<B: Backend> WithImageClassifier for WithModelAt<'_, B, ClassifyArgs> {
    type Output = Result<(), Exit>;

    fn run<F: ImageFamily>(self) -> Self::Output {
        classify::<B, F::Model<B>>(self.options, self.path, self.device, |_, _, _| Ok(()))
    }
}
