//! Image classification: options, preprocessing, training and evaluation.

mod classify;
mod command;
mod data;
mod options;
mod train;

use grove::images::Preprocessor;

use crate::prelude::*;
pub use classify::{ClassifyArgs, NamedImage, SizeArgs, classify, suggest_published};
pub use command::ImageCommand;
pub use data::ImageColumns;
pub use options::ImageArgs;
pub use train::{EvaluationImages, ImageEvaluation, Split, VisionJob, output_size, train};

/// Returns the preprocessing of the model at a path: that of `--preprocess` (a name or a file), else that of the files beside the
/// model, else torchvision's.
///
/// # Errors
/// The images do not have the model's number of `channels`; the files cannot be read.
pub fn preprocessor_of(preprocess: Option<&str>, model: &Path, channels: usize) -> Result<Preprocessor, Exit> {
    let preprocessor = match preprocess {
        Some(file) if Path::new(file).exists() => Preprocessor::from_file(file)?,
        Some(name) => Preprocessor::preset(name).map_err(|error| usage(format!("--preprocess: {error}")))?,
        None => match Preprocessor::beside(model)? {
            Some(preprocessor) => preprocessor,
            None => {
                tell(format_args!(
                    "no processor_config.json or preprocessor_config.json beside the model: images are preprocessed as in torchvision"
                ));
                Preprocessor::preset("torchvision")?
            }
        },
    };
    let found = preprocessor.channels();
    match found == channels {
        true => Ok(preprocessor),
        false => Err(failure(format!(
            "the preprocessing gives {found} channels, but the model expects {channels}: choose another with --preprocess"
        ))),
    }
}
