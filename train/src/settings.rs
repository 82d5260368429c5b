use grove_text::TextIds;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::{
    collections::BTreeMap,
    fmt::{self, Display},
};

/// Fields of a `config.json` that do not influence the computation.
const IRRELEVANT_FIELDS: [&str; 5] = ["_name_or_path", "architectures", "dtype", "torch_dtype", "transformers_version"];

/// Maximum length of a value, in characters; longer values are replaced by a digest.
const LONGEST_VALUE: usize = 120;

/// Named settings that determine a run: seed, data, learning rate, model sizes, …. A resumed run must have the same
/// settings. Settings that may change, such as the number of steps or the log directory, are not included.
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

/// A setting that has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingDifference {
    /// Name of the setting.
    pub name: String,
    /// Value at the start of the run.
    pub was: String,
    /// Current value.
    pub is: String,
}

impl Display for SettingDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} was {} and is {}", self.name, self.was, self.is)
    }
}

impl RunSettings {
    /// Creates empty settings.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a setting, replacing one of the same name.
    pub fn with(mut self, name: impl Into<String>, value: impl Display) -> Self {
        self.0.insert(name.into(), shortened(value.to_string()));
        self
    }

    /// Adds an optional setting; `None` is compared like any other value.
    pub fn with_option(self, name: impl Into<String>, value: Option<impl Display>) -> Self {
        self.with(name, value.map_or_else(|| "none".to_owned(), |value| value.to_string()))
    }

    /// Adds each field of a model's `config.json` as `model.field`, except those that do not influence the computation,
    /// such as the version of the program that wrote it.
    pub fn with_model(self, config: &serde_json::Value) -> Self {
        let fields = config.as_object().into_iter().flatten();
        let relevant = fields.filter(|(name, _)| !IRRELEVANT_FIELDS.contains(&name.as_str()));
        relevant.fold(self, |settings, (name, value)| settings.with(format!("model.{name}"), value))
    }

    /// Adds the settings of `others` whose names are not present yet.
    pub fn or(mut self, others: Self) -> Self {
        for (name, value) in others.0 {
            self.0.entry(name).or_insert(value);
        }
        self
    }

    /// Returns all names and values.
    pub(crate) fn facts(&self) -> impl Iterator<Item = (String, String)> {
        self.0.iter().map(|(name, value)| (name.clone(), value.clone()))
    }

    /// Returns the value of this name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Returns the settings whose values differ, sorted by name. A name that only one side has is not a difference: a
    /// later version of a program may have more settings.
    pub fn differences(&self, now: &Self) -> Vec<SettingDifference> {
        let both = self.0.iter().filter_map(|(name, was)| Some((name, was, now.0.get(name)?)));
        both.filter(|(_, was, is)| was != is)
            .map(|(name, was, is)| SettingDifference { name: name.clone(), was: was.clone(), is: is.clone() })
            .collect()
    }
}

/// Shortens a value for use in a sentence.
fn shortened(value: String) -> String {
    if value.chars().count() <= LONGEST_VALUE && !value.contains(char::is_control) {
        return value;
    }
    let mut identity = DataIdentity::new();
    identity.add(value.as_bytes());
    let start: String = value.chars().take(40).filter(|c| !c.is_control()).collect();
    format!("{start}… ({})", identity.finish())
}

/// Digest of the content of data, independent of its location.
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
    /// Creates the digest of no data.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a part, such as a text, the bytes of an image or a label.
    pub fn add(&mut self, part: &[u8]) {
        self.hasher.update((part.len() as u64).to_le_bytes());
        self.hasher.update(part);
        self.parts += 1;
    }

    /// Adds integers, such as tokens.
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

    /// Returns the number of examples and the [digest](Self::finish), such as `100 texts (0123456789abcdef)`.
    pub fn describe(self, count: usize, unit: &str) -> String {
        format!("{count} {unit} ({})", self.finish())
    }

    /// Returns the number of texts and a digest of their tokens and segments, for the settings of a run.
    pub fn of_texts(texts: &[TextIds]) -> String {
        let mut identity = Self::new();
        for text in texts {
            identity.add_tokens(&text.ids);
            identity.add_tokens(&text.token_types);
        }
        identity.describe(texts.len(), "texts")
    }

    /// Returns the first sixteen hexadecimal digits of the SHA-256 digest.
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
        let messages: Vec<String> = began.differences(&now).iter().map(ToString::to_string).collect();
        assert_eq!(messages, ["b was 2 and is 3", "c was none and is 0.5"]);
        assert!(began.differences(&began).is_empty());
    }

    #[test]
    fn fields_of_an_object_are_settings() {
        let object = serde_json::json!({ "n_layer": 2, "dropout": 0.1, "architectures": ["a", "b"] });
        let settings = RunSettings::new().with_model(&object);
        assert_eq!((settings.get("model.n_layer"), settings.get("model.dropout")), (Some("2"), Some("0.1")));
        assert_eq!(settings.get("model.architectures"), None);
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
