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

/// The random keys of a graph: arguments and what is derived from them. Operations that draw have one of them in their static
/// parameters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Words", into = "Words")]
pub struct Keys {
    /// Arguments, with their paths: the placeholders of the trace.
    pub inputs: Vec<(String, Key)>,
    /// Derived keys, each after its parent.
    pub derived: Vec<DerivedKey>,
    /// Keys of the result, with their paths.
    pub outputs: Vec<(String, Key)>,
}

/// [`Keys`] as they are stored: by their words.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Words {
    inputs: Vec<(String, [u32; 2])>,
    /// Words, words of the parent, and the number among its children.
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

/// The keys of a call in place of a graph's.
#[derive(Clone)]
pub(crate) struct KeyMap(HashMap<Key, Key>);

impl Keys {
    /// The keys of a call with these arguments.
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

    /// The keys of the result of a call.
    pub(crate) fn results(&self, call: &KeyMap) -> Vec<Key> {
        self.outputs.iter().map(|(_, key)| call.get(*key)).collect()
    }

    /// Keeps the derived keys that equations or results need.
    pub(crate) fn keep_used(&mut self, used: impl IntoIterator<Item = Key>) {
        if self.derived.is_empty() {
            return;
        }
        let mut needed: HashSet<Key> = used.into_iter().chain(self.outputs.iter().map(|(_, key)| *key)).collect();
        let mut kept: Vec<DerivedKey> = Vec::with_capacity(self.derived.len());
        for derived in self.derived.drain(..).rev() {
            if needed.contains(&derived.key) {
                needed.insert(derived.parent);
                kept.push(derived);
            }
        }
        kept.reverse();
        self.derived = kept;
    }
}

impl KeyMap {
    /// The key in place of one of the graph's. Others stay.
    pub fn get(&self, key: Key) -> Key {
        self.0.get(&key).copied().unwrap_or(key)
    }

    /// An operation that draws with a key of the graph's, with the one in its place; none for other operations. Where `inside` is
    /// true, operations with sub-graphs that draw are among them.
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

/// The keys that an operation draws with, those of its sub-graphs included.
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

/// A constant of a tree that is a key.
pub(crate) fn as_key(value: &dyn StaticValue) -> Option<Key> {
    let value: &dyn Any = value;
    value.downcast_ref::<Key>().copied()
}

/// The keys of a tree with their paths, in order; those in static fields are not among them.
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
    /// For each key: its words as they are in prints of operations, its name and, if it is derived, its parent's and its
    /// number.
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

/// A key of a graph with its name.
pub(super) struct NamedKey {
    /// The words as they are in prints of operations.
    pub words: String,
    pub name: String,
    /// The parent's name, and the number among its children.
    pub source: Option<(String, u64)>,
}
