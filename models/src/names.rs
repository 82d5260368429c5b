//! Published names that several families share.

use grove_weights::{NameMap, Step};

/// Adds the names of a linear layer that is stored as `[out, in]`, as PyTorch does.
pub(crate) fn linear_names(map: NameMap, name: &str, path: &str) -> NameMap {
    Names::new(map).linear(name, path).map
}

/// A map to which published names are added, of models whose files have the names of one library or another.
pub(crate) struct Names {
    pub map: NameMap,
    /// If true, the names are used for loading only.
    pub alias: bool,
}

impl Names {
    pub fn new(map: NameMap) -> Self {
        Self { map, alias: false }
    }

    pub fn tensor(mut self, name: &str, path: &str) -> Self {
        self.map = if self.alias { self.map.alias(name, path) } else { self.map.rule(name, path) };
        self
    }

    /// Adds a step to the last name.
    pub fn then(mut self, step: Step) -> Self {
        self.map = self.map.then(step);
        self
    }

    /// Adds names that are used for loading only.
    pub fn aliases(mut self, add: impl FnOnce(Self) -> Self) -> Self {
        let alias = std::mem::replace(&mut self.alias, true);
        Self { alias, ..add(self) }
    }

    /// Adds the tensors of a layer whose parts have the same names as the model's.
    pub fn parts(self, name: &str, path: &str, parts: &[&str]) -> Self {
        parts.iter().fold(self, |names, part| names.tensor(&format!("{name}.{part}"), &format!("{path}.{part}")))
    }

    /// Adds a linear layer, which PyTorch stores as `[out, in]`.
    pub fn linear(self, name: &str, path: &str) -> Self {
        self.parts(name, path, &["weight"]).then(Step::Transpose).parts(name, path, &["bias"])
    }

    /// Adds the head of an image classifier. Without labels the model has none, and that of a file is ignored.
    pub fn head(mut self, name: &str, labels: &[String]) -> Self {
        if labels.is_empty() {
            let reason = "a head, which the configuration names no classes for";
            self.map = self.map.ignore_each(&[(&format!("{name}.*"), reason)]);
            return self;
        }
        self.linear(name, "head")
    }
}

/// Adds the name of the weight of a language model's output layer: that of the leaf `path`, or if `tied` another name of
/// the token embedding `table`.
pub(crate) fn output_names(map: NameMap, name: &str, path: &str, tied: bool, table: &str) -> NameMap {
    if tied { map.alias(name, table) } else { map.rule(name, path) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linear_layers_are_transposed() {
        let names = linear_names(NameMap::new(), "h.{i}.fc", "layers.{i}.up");
        assert_eq!(names.saved("layers.3.up.weight"), Some(("h.3.fc.weight".into(), vec![Step::Transpose])));
        assert_eq!(names.saved("layers.3.up.bias"), Some(("h.3.fc.bias".into(), vec![])));
    }
}
