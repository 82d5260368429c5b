//! Random keys of a graph.

use grove_backend::Backend;
use grove_tree::{AnyArray, Key, Path, StaticValue, Tree, Visitor, key::traced::DerivedKey};
use serde::{Deserialize, Serialize};
use std::{
    any::Any,
    collections::{HashMap, HashSet},
};

use super::Graph;
use crate::Primitive;

/// Random keys of a graph: arguments and the keys derived from them. Sampling operations have the words of one of these keys in
/// their static parameters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Words", into = "Words")]
pub struct Keys {
    /// Keys that are arguments, with their paths: the placeholders of the trace.
    pub inputs: Vec<(String, Key)>,
    /// Derived keys, each after its parent.
    pub derived: Vec<DerivedKey>,
    /// Keys in the result, with their paths.
    pub outputs: Vec<(String, Key)>,
}

/// [`Keys`] in serialised form, by their words.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Words {
    inputs: Vec<(String, [u32; 2])>,
    /// Words of the key, words of its parent, and its index among the parent's children.
    derived: Vec<([u32; 2], [u32; 2], u64)>,
    outputs: Vec<(String, [u32; 2])>,
}

impl From<Keys> for Words {
    fn from(Keys { inputs, derived, outputs }: Keys) -> Self {
        let named = |keys: Vec<(String, Key)>| keys.into_iter().map(|(path, key)| (path, key.words())).collect();
        let derived = derived.into_iter().map(|DerivedKey { key, parent, index }| (key.words(), parent.words(), index));
        Self { inputs: named(inputs), derived: derived.collect(), outputs: named(outputs) }
    }
}

impl From<Words> for Keys {
    fn from(Words { inputs, derived, outputs }: Words) -> Self {
        let key = Key::from_words;
        let named = |keys: Vec<(String, [u32; 2])>| keys.into_iter().map(|(path, words)| (path, key(words))).collect();
        let derived = derived.into_iter().map(|(words, parent, index)| DerivedKey {
            key: key(words),
            parent: key(parent),
            index,
        });
        Self { inputs: named(inputs), derived: derived.collect(), outputs: named(outputs) }
    }
}

/// Maps the keys of a graph to the keys of a call.
#[derive(Clone)]
pub(crate) struct KeyMap(HashMap<Key, Key>);

impl Keys {
    /// Computes the keys of a call with these arguments.
    pub(crate) fn with(&self, arguments: &[Key]) -> KeyMap {
        let inputs = self.inputs.iter().map(|(_, placeholder)| *placeholder);
        let mut map: HashMap<Key, Key> = inputs.zip(arguments.iter().copied()).collect();
        for derived in &self.derived {
            if let Some(parent) = map.get(&derived.parent) {
                map.insert(derived.key, derived.of(*parent));
            }
        }
        KeyMap(map)
    }

    /// Returns the keys in the result of a call.
    pub(crate) fn results(&self, call: &KeyMap) -> Vec<Key> {
        self.outputs.iter().map(|(_, key)| call.get(*key)).collect()
    }

    /// Keeps only the derived keys that equations or results need.
    pub(crate) fn keep_used(&mut self, used: impl IntoIterator<Item = Key>) {
        if self.derived.is_empty() {
            return;
        }
        let mut needed: HashSet<Key> = used.into_iter().chain(self.outputs.iter().map(|(_, key)| *key)).collect();
        let mut retained: Vec<DerivedKey> = Vec::with_capacity(self.derived.len());
        for derived in self.derived.drain(..).rev() {
            if needed.contains(&derived.key) {
                needed.insert(derived.parent);
                retained.push(derived);
            }
        }
        retained.reverse();
        self.derived = retained;
    }
}

impl KeyMap {
    /// Returns the replacement for a key of the graph; other keys are unchanged.
    pub fn get(&self, key: Key) -> Key {
        self.0.get(&key).copied().unwrap_or(key)
    }

    /// Replaces the key of a sampling operation; `None` for other operations. If `inside` is true, also replaces the keys in
    /// the sub-graphs of an operation.
    pub fn replaced(&self, primitive: &Primitive, inside: bool) -> Option<Primitive> {
        match primitive {
            Primitive::Grove(call) => {
                let mut call = call.clone();
                let words = call.key_mut()?;
                *words = self.0.get(&Key::from_words(*words))?.words();
                Some(Primitive::Grove(call))
            }
            Primitive::HigherOrder(op) if inside && keys_in(primitive).iter().any(|key| self.0.contains_key(key)) => {
                let keys = self.clone();
                let replaced = move |mut graph: Graph| {
                    for equation in &mut graph.equations {
                        if let Some(primitive) = keys.replaced(&equation.primitive, true) {
                            equation.primitive = primitive;
                        }
                    }
                    graph
                };
                Some(Primitive::HigherOrder(op.map_graphs(replaced)))
            }
            _ => None,
        }
    }
}

/// Returns the keys that an operation samples from, including its sub-graphs.
pub(crate) fn keys_in(primitive: &Primitive) -> Vec<Key> {
    match primitive {
        Primitive::Grove(call) => call.clone().key_mut().map(|words| Key::from_words(*words)).into_iter().collect(),
        Primitive::HigherOrder(op) => {
            let equations = op.sub_graphs().into_iter().flat_map(|(_, graph)| graph.equations.iter());
            equations.flat_map(|equation| keys_in(&equation.primitive)).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns the key if a constant of a tree is one.
pub(crate) fn as_key(value: &dyn StaticValue) -> Option<Key> {
    let value: &dyn Any = value;
    value.downcast_ref::<Key>().copied()
}

/// Returns the keys of a tree with their paths, in order, without those in static fields.
pub(crate) fn keys_of<B: Backend, T: Tree<B>>(tree: &T) -> Vec<(String, Key)> {
    #[derive(Default)]
    struct Collector(Vec<(String, Key)>);

    impl<B: Backend> Visitor<B> for Collector {
        fn leaf(&mut self, _: &Path, _: &AnyArray<B>) {}

        fn constant(&mut self, path: &Path, value: &dyn StaticValue) {
            self.0.extend(as_key(value).map(|key| (path.to_string(), key)));
        }
    }

    let mut keys = Collector::default();
    tree.visit(&mut Path::root(), &mut keys);
    keys.0
}

impl Graph {
    /// Returns, for each key, its words as operations print them and its name; for a derived key also the name of its parent
    /// and its index.
    pub(super) fn named_keys(&self, names: impl Fn(usize) -> String) -> Vec<NamedKey> {
        let mut known: HashMap<Key, String> = HashMap::new();
        let inputs = self.keys.inputs.iter().map(|(_, key)| (*key, None));
        let derived = self.keys.derived.iter().map(|derived| (derived.key, Some(derived)));
        let mut named = Vec::new();
        for (i, (key, derived)) in inputs.chain(derived).enumerate() {
            let name = names(i);
            let source =
                derived.map(|derived| (known.get(&derived.parent).cloned().unwrap_or_default(), derived.index));
            known.insert(key, name.clone());
            named.push(NamedKey { words: format!("{:?}", key.words()), name, source });
        }
        named
    }
}

/// A named key of a graph.
pub(super) struct NamedKey {
    /// Words as operations print them.
    pub words: String,
    pub name: String,
    /// Name of the parent, and index among its children.
    pub source: Option<(String, u64)>,
}
