//! Published names that several families share.

use grove_weights::{NameMap, Step};

/// Adds the names of a linear layer that is stored as `[out, in]`, as PyTorch does.
pub(crate) fn linear_names(map: NameMap, name: &str, path: &str) -> NameMap {
    map.rule(&format!("{name}.weight"), &format!("{path}.weight"))
        .then(Step::Transpose)
        .rule(&format!("{name}.bias"), &format!("{path}.bias"))
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
