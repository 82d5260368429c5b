//! Code shared by the examples for images.

mod classify;
mod options;
mod train;

use grove::images::Preprocessor;

use crate::prelude::*;
pub use classify::{ClassifyArgs, NamedImage, SizeArgs, classify};
pub use options::ImageArgs;
pub use train::{EvaluationImages, ImageEvaluation, Split, VisionJob, output_size, train};

/// Preprocessing of the images of the model at a path: by `--preprocess`, a name or a file; else by the files beside the
/// model; else as torchvision does it. `channels` is the number of channels that the model takes.
pub fn preprocessor_of(asked: Option<&str>, model: &Path, channels: usize) -> Result<Preprocessor, Exit> {
    let preprocessor = match asked {
        Some(file) if Path::new(file).exists() => Preprocessor::from_file(file)?,
        Some(name) => Preprocessor::preset(name).map_err(|error| usage(format!("--preprocess: {error}")))?,
        None => match Preprocessor::beside(model)? {
            Some(preprocessor) => preprocessor,
            None => {
                tell(format_args!(
                    "no preprocessor_config.json beside the model: images are prepared as torchvision does it"
                ));
                Preprocessor::preset("torchvision")?
            }
        },
    };
    let found = preprocessor.channels();
    match found == channels {
        true => Ok(preprocessor),
        false => Err(failure(format!(
            "images are prepared with {found} channels, and the model wants {channels}: choose with --preprocess"
        ))),
    }
}
