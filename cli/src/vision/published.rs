//! A published classifier and how images are prepared for it.

use grove::{files::directory_of, images::Preprocessor, models::ModelKind, weights::FilePatterns};
use std::path::{Path, PathBuf};

use crate::{Exit, failure, resolve};

/// Files and configuration of a model.
pub struct Published {
    /// Directory or weights file.
    pub path: PathBuf,
    /// Directory of the weights and their configuration.
    pub directory: PathBuf,
}

impl Published {
    /// Opens the model that `--model` names, downloaded if needed, or one that ships.
    pub fn open(model: Option<&str>, default: &str) -> Result<Self, Exit> {
        let path = resolve(model, default, &FilePatterns::model())?;
        let directory = if path.is_dir() { path.clone() } else { directory_of(&path).to_owned() };
        Ok(Self { path, directory })
    }
}

/// Preprocessing of a model's images: by `--preprocess`, a name or a file; else by the files beside the model; else as
/// torchvision does it. `channels` is the number of channels that the model takes.
pub fn preprocessor_of(asked: Option<&str>, directory: &Path, channels: usize) -> Result<Preprocessor, Exit> {
    let preprocessor = find(asked, directory)?;
    let found = preprocessor.channels();
    match found == channels {
        true => Ok(preprocessor),
        false => Err(failure(format!(
            "images are prepared with {found} channels, and the model wants {channels}: choose with --preprocess"
        ))),
    }
}

fn find(asked: Option<&str>, directory: &Path) -> Result<Preprocessor, Exit> {
    if let Some(asked) = asked {
        let file = Path::new(asked);
        return match file.exists() {
            true => Preprocessor::from_file(file).map_err(failure),
            false => Preprocessor::preset(asked).map_err(|error| Exit::Usage(format!("--preprocess: {error}"))),
        };
    }
    match preprocessor_beside(directory)? {
        Some(preprocessor) => Ok(preprocessor),
        None => {
            eprintln!("no preprocessor_config.json beside the model: images are prepared as torchvision does it");
            Preprocessor::preset("torchvision").map_err(failure)
        }
    }
}

/// The preprocessing that the files in a model's directory describe: its preprocessor_config.json, or timm's config.json.
pub fn preprocessor_beside(directory: &Path) -> Result<Option<Preprocessor>, Exit> {
    let described = directory.join("preprocessor_config.json").is_file();
    let timm = std::fs::read_to_string(directory.join("config.json")).is_ok_and(|text| text.contains("pretrained_cfg"));
    (described || timm).then(|| Preprocessor::from_file(directory).map_err(failure)).transpose()
}

/// The error for a model that does not classify images.
pub fn not_for_images(kind: ModelKind) -> Exit {
    failure(format!("the model is a {kind:?}, which is neither a ResNet nor a ViT; images need one of those"))
}
