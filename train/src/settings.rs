use grove_models::bert::TextIds;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::{
    collections::BTreeMap,
    fmt::{self, Display},
};

/// Fields of a `config.json` that do not change what is computed.
const IRRELEVANT_FIELDS: [&str; 5] =
    ["model._name_or_path", "model.architectures", "model.dtype", "model.torch_dtype", "model.transformers_version"];

/// Longest value that is kept as it is; of longer ones there is a digest.
const LONGEST_VALUE: usize = 120;

/// Everything that makes a run, by name: seed, data, learning rate, sizes of the model, …. A resumed run has to have the
/// same, or it is another run. What may change freely, such as the number of steps or where it is logged, is not here.
///
/// ```
/// use grove_train::RunSettings;
///
/// let began = RunSettings::new().with("seed", 0).with("learning-rate", 1e-3).with("clip", 1);
/// let now = RunSettings::new().with("seed", 0).with("learning-rate", 1e-4);
/// let [difference] = &began.differences(&now)[..] else { panic!("one") };
/// assert_eq!(difference.to_string(), "learning-rate was 0.001 and is 0.0001");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RunSettings(BTreeMap<String, String>);

/// A setting that is another one now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingDifference {
    /// The setting.
    pub name: String,
    /// The value that the run began with.
    pub was: String,
    /// The value now.
    pub is: String,
}

impl Display for SettingDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} was {} and is {}", self.name, self.was, self.is)
    }
}

impl RunSettings {
    /// No settings.
    pub fn new() -> Self {
        Self::default()
    }

    /// The settings with one more, in place of one of that name.
    pub fn with(mut self, name: impl Into<String>, value: impl Display) -> Self {
        self.0.insert(name.into(), shortened(value.to_string()));
        self
    }

    /// The settings with one more that may be missing, which is a value of its own.
    pub fn with_option(self, name: impl Into<String>, value: Option<impl Display>) -> Self {
        self.with(name, value.map_or_else(|| "none".to_owned(), |value| value.to_string()))
    }

    /// The settings with each field of a JSON object, `prefix.field`; with a value that is no object as a whole.
    pub fn with_fields(self, prefix: &str, value: &serde_json::Value) -> Self {
        match value {
            serde_json::Value::Object(fields) => {
                fields.iter().fold(self, |settings, (name, value)| settings.with(format!("{prefix}.{name}"), value))
            }
            value => self.with(prefix, value),
        }
    }

    /// The settings with the fields of a model's `config.json`, but for those that do not change what is computed, such as the
    /// version of the program that wrote it.
    pub fn with_model(self, config: &serde_json::Value) -> Self {
        self.with_fields("model", config).without(&IRRELEVANT_FIELDS)
    }

    /// The settings without those of these names.
    pub fn without(mut self, names: &[&str]) -> Self {
        self.0.retain(|name, _| !names.contains(&&**name));
        self
    }

    /// The settings and those of another collection whose names are not here yet.
    pub fn or(mut self, others: Self) -> Self {
        for (name, value) in others.0 {
            self.0.entry(name).or_insert(value);
        }
        self
    }

    /// Names and values.
    pub(crate) fn facts(&self) -> impl Iterator<Item = (String, String)> {
        self.0.iter().map(|(name, value)| (name.clone(), value.clone()))
    }

    /// The value of this name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Those whose values differ, in the order of their names. A name that only one of the collections has is no
    /// difference: a later program may know more settings than the one that began the run.
    pub fn differences(&self, now: &Self) -> Vec<SettingDifference> {
        let both = self.0.iter().filter_map(|(name, was)| Some((name, was, now.0.get(name)?)));
        both.filter(|(_, was, is)| was != is)
            .map(|(name, was, is)| SettingDifference { name: name.clone(), was: was.clone(), is: is.clone() })
            .collect()
    }
}

/// A value that fits into a sentence.
fn shortened(value: String) -> String {
    if value.chars().count() <= LONGEST_VALUE && !value.contains(char::is_control) {
        return value;
    }
    let mut identity = DataIdentity::new();
    identity.add(value.as_bytes());
    let start: String = value.chars().take(40).filter(|c| !c.is_control()).collect();
    format!("{start}… ({})", identity.finish())
}

/// The identity of data, by its content: the same data has the same, wherever it lies.
///
/// ```
/// use grove_train::DataIdentity;
///
/// let identity = |parts: &[&str]| {
///     let mut identity = DataIdentity::new();
///     parts.iter().for_each(|part| identity.add(part.as_bytes()));
///     identity.finish()
/// };
/// assert_eq!(identity(&["ab", "c"]), identity(&["ab", "c"]));
/// assert_ne!(identity(&["ab", "c"]), identity(&["a", "bc"]));
/// ```
#[derive(Clone, Debug, Default)]
pub struct DataIdentity {
    hasher: Sha256,
    parts: u64,
}

impl DataIdentity {
    /// The identity of nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a part: a text, the bytes of an image, a label.
    pub fn add(&mut self, part: &[u8]) {
        self.hasher.update((part.len() as u64).to_le_bytes());
        self.hasher.update(part);
        self.parts += 1;
    }

    /// Adds whole numbers, such as tokens.
    pub fn add_tokens(&mut self, tokens: &[u32]) {
        self.hasher.update((4 * tokens.len() as u64).to_le_bytes());
        let mut bytes = [0; 4096];
        for chunk in tokens.chunks(bytes.len() / 4) {
            for (bytes, token) in bytes.chunks_exact_mut(4).zip(chunk) {
                bytes.copy_from_slice(&token.to_le_bytes());
            }
            self.hasher.update(&bytes[..4 * chunk.len()]);
        }
        self.parts += 1;
    }

    /// The number of examples and the [digest](Self::finish), such as `100 texts (0123456789abcdef)`.
    pub fn describe(self, count: usize, unit: &str) -> String {
        format!("{count} {unit} ({})", self.finish())
    }

    /// The number of texts and a digest of their tokens and segments, for the settings of a run.
    pub fn of_texts(texts: &[TextIds]) -> String {
        let mut identity = Self::new();
        for text in texts {
            identity.add_tokens(&text.ids);
            identity.add_tokens(&text.token_types);
        }
        identity.describe(texts.len(), "texts")
    }

    /// Sixteen hexadecimal digits of a SHA-256 digest.
    pub fn finish(mut self) -> String {
        self.hasher.update(self.parts.to_le_bytes());
        self.hasher.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_both_have_is_compared() {
        let began = RunSettings::new().with("a", 1).with("b", 2).with_option("c", None::<f64>);
        let now = RunSettings::new().with("b", 3).with_option("c", Some(0.5)).with("d", 4);
        let said: Vec<String> = began.differences(&now).iter().map(ToString::to_string).collect();
        assert_eq!(said, ["b was 2 and is 3", "c was none and is 0.5"]);
        assert!(began.differences(&began).is_empty());
    }

    #[test]
    fn fields_of_an_object_are_settings() {
        let object = serde_json::json!({ "n_layer": 2, "dropout": 0.1, "labels": ["a", "b"] });
        let settings = RunSettings::new().with_fields("model", &object).without(&["model.labels"]);
        assert_eq!((settings.get("model.n_layer"), settings.get("model.dropout")), (Some("2"), Some("0.1")));
        assert_eq!(settings.get("model.labels"), None);
        assert_eq!(RunSettings::new().with("n_layer", 1).or(settings).get("n_layer"), Some("1"));
    }

    #[test]
    fn long_values_are_shortened_and_still_differ() {
        let long = |end: &str| RunSettings::new().with("labels", format!("{}{end}", "x".repeat(500)));
        let [difference] = &long("a").differences(&long("b"))[..] else { panic!("one") };
        assert!(difference.to_string().chars().count() < 200, "{difference}");
    }

    #[test]
    fn an_identity_is_that_of_the_content() {
        let of = |tokens: &[u32]| {
            let mut identity = DataIdentity::new();
            identity.add_tokens(tokens);
            identity.finish()
        };
        let many: Vec<u32> = (0..3000).collect();
        let bytes: Vec<u8> = many.iter().flat_map(|token| token.to_le_bytes()).collect();
        let mut identity = DataIdentity::new();
        identity.add(&bytes);
        assert_eq!(of(&many), identity.finish(), "tokens are their bytes");
        assert_ne!(of(&many), of(&many[1..]));
        assert_eq!(of(&[]).len(), 16);
    }
}
