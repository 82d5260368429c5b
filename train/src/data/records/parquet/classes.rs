//! Names of classes that `datasets` of Hugging Face writes into the footer of a file.
//!
//! The key `huggingface` has JSON: `{"info": {"features": {"label": {"names": ["neg", "pos"], "_type": "ClassLabel"}}}}`.

use parquet::file::metadata::FileMetaData;
use serde_json::Value as Json;

use super::Value;

/// Returns the class names of a column, or `None` if the file has none for it.
pub(super) fn of_column(metadata: &FileMetaData, column: &str) -> Option<Vec<String>> {
    let pairs = metadata.key_value_metadata()?;
    let text = pairs.iter().find(|pair| pair.key == "huggingface")?.value.as_deref()?;
    let described: Json = serde_json::from_str(text).ok()?;
    of_feature(described.get("info")?.get("features")?.get(column)?)
}

/// Returns the class names of a feature, or of the items of a list.
fn of_feature(feature: &Json) -> Option<Vec<String>> {
    // Old files have a list of one feature for a list.
    let inner = match feature {
        Json::Array(items) => items.first(),
        feature => feature.get("feature"),
    };
    if let Some(Json::Array(names)) = feature.get("names") {
        return names.iter().map(|name| name.as_str().map(str::to_owned)).collect();
    }
    match inner? {
        inner @ Json::Object(_) if inner.get("names").is_some() => of_feature(inner),
        _ => None,
    }
}

/// Adds their names to the numbers of classes.
///
/// # Errors
/// A number without a name.
pub(super) fn named(value: Value, names: &[String]) -> Result<Value, String> {
    match value {
        Value::Number(number) => match number.as_u64().and_then(|class| Some((class, names.get(class as usize)?))) {
            Some((number, name)) => Ok(Value::Class { number, name: name.clone() }),
            None if number.as_i64() == Some(-1) => {
                Err("the label is -1: this part of the data set has no labels; give another part, such as train".into())
            }
            None => Err(format!("the label {number} has no name; the file names {} classes, from 0", names.len())),
        },
        Value::List(items) => {
            items.into_iter().map(|item| named(item, names)).collect::<Result<_, _>>().map(Value::List)
        }
        other => Ok(other),
    }
}
