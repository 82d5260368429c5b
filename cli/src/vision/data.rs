//! Labelled images of a command: paths, and columns of Parquet files.

use grove::{
    images::datasets::{LabelledImages, open_labelled},
    train::classify::read_labelled_images,
};

use crate::prelude::*;

/// Columns of labelled images in Parquet files.
#[derive(Args, Debug)]
pub struct ImageColumns {
    /// Column of the images in .parquet files [default: image]
    #[arg(long, value_name = "NAME", help_heading = "Data")]
    pub image_column: Option<String>,

    /// Column of the labels in .parquet files [default: label]
    #[arg(long, value_name = "NAME", help_heading = "Data")]
    pub label_column: Option<String>,
}

impl ImageColumns {
    /// Rejects the columns if no path is a Parquet file.
    pub fn check<'a>(&self, mut paths: impl Iterator<Item = &'a PathBuf>) -> Result<(), Exit> {
        let option = match (&self.image_column, &self.label_column) {
            (Some(_), _) => "--image-column",
            (None, Some(_)) => "--label-column",
            (None, None) => return Ok(()),
        };
        match paths.any(|path| is_parquet(path)) {
            true => Ok(()),
            false => Err(usage(format!("{option} names a column of .parquet files, but the data has none"))),
        }
    }

    /// Opens the data set at a path, and its evaluation part, if it has one. Prints a note for each folder without images.
    pub fn open(&self, path: &Path) -> Result<(LabelledImages, Option<LabelledImages>), Exit> {
        let [image, label] = [(&self.image_column, "image"), (&self.label_column, "label")]
            .map(|(named, default)| named.as_deref().unwrap_or(default));
        match is_parquet(path) {
            true => Ok((read_labelled_images(path, image, label)?, None)),
            false => Ok(open_labelled(path, |warning| tell(format_args!("{warning}")))?),
        }
    }
}

fn is_parquet(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "parquet")
}
