//! Labelled images in the records of Parquet files.

use grove_images::datasets::{LabelledImage, LabelledImages};
use std::path::Path;

use crate::data::{
    DataError,
    records::{self, TableFormat, Value},
    sorted_labels,
};

/// Reads labelled images from a Parquet file, as `datasets` of Hugging Face writes them. The encoded images stay in
/// memory; each is decoded when a batch needs it.
///
/// - `image`: column of the images, which are the bytes of image files, alone or as `bytes` beside `path`
/// - `label`: column of the labels; the class names of the file give their order, otherwise they are sorted
///
/// # Errors
/// Those of [`records::open`]; a record without the bytes of an image or without a label; fewer than two classes.
pub fn read_labelled_images(file: &Path, image: &str, label: &str) -> Result<LabelledImages, DataError> {
    let mut records = records::open(file, &[image, label], TableFormat::default())?;
    let mut found = vec![];
    for record in &mut *records {
        let record = record?;
        let [bytes, class] = <[Value; 2]>::try_from(record.values).unwrap_or([Value::Null, Value::Null]);
        let bytes = image_bytes(bytes, image).map_err(|reason| record.place.error(reason))?;
        let class = class.into_label(label).map_err(|reason| record.place.error(reason))?;
        found.push((bytes, class, record.place));
    }
    let labels = records
        .classes(1)
        .map(<[String]>::to_vec)
        .unwrap_or_else(|| sorted_labels(found.iter().map(|(_, label, _)| &**label)));
    if labels.len() < 2 || found.is_empty() {
        let named = file.display();
        return Err(DataError::other(format!("{named}: a classifier needs images of at least two classes")));
    }
    let examples = found.into_iter().map(|(bytes, label, place)| {
        let class = labels.iter().position(|known| *known == label);
        let class = class.ok_or_else(|| place.error(format!("the label '{label}' is not a class of the file")))?;
        Ok(LabelledImage::from_bytes(&bytes, place.to_string().as_ref(), class))
    });
    let examples = examples.collect::<Result<_, DataError>>()?;
    Ok(LabelledImages { labels, examples, size: None })
}

/// Returns the bytes of an image file.
fn image_bytes(value: Value, column: &str) -> Result<Vec<u8>, String> {
    if let (Some(Value::Null), Some(Value::Text(path))) = (value.field("bytes"), value.field("path")) {
        return Err(format!(
            "\"{column}\" has the path {path} and no bytes; write the file again with the images in it"
        ));
    }
    let bytes = match value {
        Value::Fields(fields) => {
            let bytes = fields.into_iter().find(|(name, _)| name == "bytes");
            bytes.map_or(Value::Null, |(_, bytes)| bytes)
        }
        value => value,
    };
    match bytes {
        Value::Bytes(bytes) => Ok(bytes),
        Value::Null => Err(format!("\"{column}\" is null; remove the records without an image")),
        _ => Err(format!("\"{column}\" is not an image; name the column of the images")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IMAGES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/records/images.parquet");

    #[test]
    fn reads_images_and_class_names() {
        let images = read_labelled_images(IMAGES.as_ref(), "image", "label").expect("readable");
        assert_eq!(images.labels, ["dark", "bright"]);
        assert_eq!(images.examples.iter().map(|example| example.class).collect::<Vec<_>>(), [0, 1, 0, 1]);
        let image = images.examples[1].read().expect("a PNG");
        assert_eq!((image.dimensions(), image.get_pixel(5, 3).0), ((6, 4), [250, 5, 7]));
        let hash = |images: &LabelledImages| {
            let mut all = vec![];
            images.hash_into(|bytes| all.extend_from_slice(bytes));
            all
        };
        let mut other = images.clone();
        other.examples.swap(0, 2);
        assert_ne!(hash(&images), hash(&other));
    }

    #[test]
    fn errors_name_file_and_row() {
        let error = read_labelled_images(IMAGES.as_ref(), "label", "label").expect_err("no image").to_string();
        assert!(error.contains("images.parquet, row 1: \"label\" is not an image"), "{error}");
        let error = read_labelled_images(IMAGES.as_ref(), "img", "label").expect_err("no column").to_string();
        assert!(error.contains("no column `img`; the file has: image, label"), "{error}");
        let pathless = Value::Fields(vec![("bytes".into(), Value::Null), ("path".into(), Value::Text("a.png".into()))]);
        assert!(image_bytes(pathless, "image").expect_err("refused").contains("the path a.png and no bytes"));
    }
}
