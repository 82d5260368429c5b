use serde_json::Number;

/// A value of a record.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// No value.
    Null,
    /// A string. All cells of delimited tables are strings.
    Text(String),
    /// An integer or a decimal number.
    Number(Number),
    /// True or false.
    Boolean(bool),
    /// A class that the file has as a number, and its name.
    Class {
        /// Number of the class, from 0.
        number: u64,
        /// Name of the class.
        name: String,
    },
    /// Values in order.
    List(Vec<Value>),
    /// Binary data.
    Bytes(Vec<u8>),
    /// Named values, such as `bytes` and `path` of an image.
    Fields(Vec<(String, Value)>),
}

impl Value {
    /// Returns the string of a column of texts. `name` is the column, for the error.
    ///
    /// # Errors
    /// The value is not a string.
    pub fn into_text(self, name: &str) -> Result<String, String> {
        match self {
            Self::Text(text) => Ok(text),
            Self::Null => Err(format!("\"{name}\" is null; remove the records without a text, or name another column")),
            _ => Err(format!("\"{name}\" is not a string")),
        }
    }

    /// Returns the value of a column of labels as a string. Labels may be numbers or booleans. The strings of a list are
    /// joined with commas.
    ///
    /// # Errors
    /// The value is not a label.
    pub fn into_label(self, name: &str) -> Result<String, String> {
        match self {
            Self::Text(text) | Self::Class { name: text, .. } => Ok(text),
            Self::Number(number) => Ok(number.to_string()),
            Self::Boolean(value) => Ok(value.to_string()),
            Self::Null => Err(format!("\"{name}\" is null; remove the records without a label")),
            Self::List(items) => {
                let labels = items.into_iter().map(|item| match item {
                    Self::Text(label) | Self::Class { name: label, .. } => Some(label),
                    _ => None,
                });
                let labels: Option<Vec<String>> = labels.collect();
                labels.map(|labels| labels.join(",")).ok_or_else(|| format!("\"{name}\" is not a string"))
            }
            Self::Bytes(_) | Self::Fields(_) => Err(format!("\"{name}\" is not a string")),
        }
    }

    /// Returns the number of a class.
    pub fn class_number(&self) -> Option<u64> {
        match self {
            Self::Class { number, .. } => Some(*number),
            _ => None,
        }
    }

    /// Returns the value of a name in [`Value::Fields`].
    pub fn field(&self, name: &str) -> Option<&Self> {
        match self {
            Self::Fields(fields) => fields.iter().find(|(field, _)| field == name).map(|(_, value)| value),
            _ => None,
        }
    }
}

impl From<serde_json::Value> for Value {
    fn from(value: serde_json::Value) -> Self {
        match value {
            serde_json::Value::Null => Self::Null,
            serde_json::Value::Bool(value) => Self::Boolean(value),
            serde_json::Value::Number(number) => Self::Number(number),
            serde_json::Value::String(text) => Self::Text(text),
            serde_json::Value::Array(items) => Self::List(items.into_iter().map(Self::from).collect()),
            serde_json::Value::Object(fields) => {
                Self::Fields(fields.into_iter().map(|(name, value)| (name, value.into())).collect())
            }
        }
    }
}
