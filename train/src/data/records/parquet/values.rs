//! Conversion of the crate's values.

use parquet::record::Field;
use serde_json::Number;

use super::Value;

/// Converts a value of a row. Dates, times and maps become text.
///
/// # Errors
/// A number that is not finite.
pub(super) fn value(field: Field) -> Result<Value, String> {
    Ok(match field {
        Field::Null => Value::Null,
        Field::Bool(value) => Value::Boolean(value),
        Field::Byte(value) => Value::Number(value.into()),
        Field::Short(value) => Value::Number(value.into()),
        Field::Int(value) => Value::Number(value.into()),
        Field::Long(value) => Value::Number(value.into()),
        Field::UByte(value) => Value::Number(value.into()),
        Field::UShort(value) => Value::Number(value.into()),
        Field::UInt(value) => Value::Number(value.into()),
        Field::ULong(value) => Value::Number(value.into()),
        Field::Float16(value) => decimal(&f32::from(value).to_string())?,
        Field::Float(value) => decimal(&value.to_string())?,
        Field::Double(value) => decimal(&value.to_string())?,
        Field::Str(text) => Value::Text(text),
        Field::Bytes(bytes) => Value::Bytes(bytes.data().to_vec()),
        Field::Group(row) => {
            let fields = row.into_columns().into_iter().map(|(name, field)| Ok((name, value(field)?)));
            Value::Fields(fields.collect::<Result<_, String>>()?)
        }
        Field::ListInternal(list) => Value::List(list.elements().iter().cloned().map(value).collect::<Result<_, _>>()?),
        other => Value::Text(other.to_string()),
    })
}

/// Converts the shortest decimal form of a number, so that an f32 does not get digits of an f64.
fn decimal(text: &str) -> Result<Value, String> {
    let number = text.parse().ok().and_then(Number::from_f64);
    number.map(Value::Number).ok_or_else(|| format!("the number is {text}"))
}
