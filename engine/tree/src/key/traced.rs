//! Keys of traced functions.
//!
//! In a trace, an argument that is a key is a placeholder: a key with unique words. It splits and folds like any key,
//! and the trace records the keys derived from it, so that the program can derive the same keys from another key.
//! Sampling operations have the placeholder's words, or derived words, in their static parameters; the program replaces
//! them by the words of the key that it is called with.
//!
//! A key that the program itself computes, such as a key in a loop's carry, is a placeholder for an array of two words
//! ([`Key::from_data`](super::Key::from_data)). Operations that sample from this key, or from a key derived from it,
//! take the array as an input.

use std::{any::Any, cell::RefCell, collections::HashMap, rc::Rc};

use super::Key;

thread_local! {
    /// Active traces with placeholders, the innermost last.
    static TRACES: RefCell<Vec<Trace>> = const { RefCell::new(Vec::new()) };
    /// The active exchange of keys.
    static EXCHANGE: RefCell<Exchange> = const { RefCell::new(Exchange::None) };
}

/// First word of the key that placeholders are derived from. Any odd constant would do.
const PLACEHOLDERS: u32 = 0x9D3A_51C7;

#[derive(Default)]
struct Trace {
    depth: usize,
    /// Number of placeholders of both kinds.
    count: u64,
    placeholders: Vec<Key>,
    derived: Vec<DerivedKey>,
    known: HashMap<Key, Origin>,
}

/// The origin of a key of a trace.
#[derive(Clone)]
pub(super) enum Origin {
    /// An argument, or a key derived from an argument.
    Argument,
    /// An array, as an `AnyTensor` of the innermost backend.
    Data(Rc<dyn Fn() -> Box<dyn Any>>),
    /// A key derived from a key that is an array.
    Child(Key, u64),
}

impl Trace {
    /// Creates a placeholder of the trace.
    fn placeholder(&mut self, origin: Origin) -> Key {
        let source = Key::from_words([PLACEHOLDERS, self.depth as u32]);
        let key = Key::from_words(super::threefry2x32(source.words, super::threefry::counter(self.count)));
        self.count += 1;
        self.known.insert(key, origin);
        key
    }
}

/// A key that was derived from another key in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DerivedKey {
    /// The derived key.
    pub key: Key,
    /// The key that it was derived from.
    pub parent: Key,
    /// Index among the parent's children, as in [`Key::split`] or [`Key::fold_in`].
    pub index: u64,
}

impl DerivedKey {
    /// Derives the child with the same index from another parent.
    pub fn of(&self, parent: Key) -> Key {
        parent.child(self.index)
    }
}

/// Guard of a trace with placeholder keys on the current thread. Dropping the guard ends the trace.
#[derive(Debug)]
pub struct TracedKeys(());

impl TracedKeys {
    /// Begins a trace.
    pub fn start() -> Self {
        TRACES.with_borrow_mut(|traces| traces.push(Trace { depth: traces.len(), ..Trace::default() }));
        Self(())
    }

    /// Returns a new placeholder. Placeholders of nested traces differ.
    pub fn placeholder(&self) -> Key {
        TRACES.with_borrow_mut(|traces| {
            let Some(trace) = traces.last_mut() else { unreachable!("the trace ends when this is dropped") };
            let key = trace.placeholder(Origin::Argument);
            trace.placeholders.push(key);
            key
        })
    }

    /// Takes the placeholders and the keys derived from them, each key after its parent.
    pub fn take(&self) -> (Vec<Key>, Vec<DerivedKey>) {
        let taken = |trace: &mut Trace| (std::mem::take(&mut trace.placeholders), std::mem::take(&mut trace.derived));
        TRACES.with_borrow_mut(|traces| traces.last_mut().map(taken).unwrap_or_default())
    }
}

impl Drop for TracedKeys {
    fn drop(&mut self) {
        // Dropped after the borrow, because the arrays of the trace may use keys.
        drop(TRACES.with_borrow_mut(Vec::pop));
    }
}

/// Records a derived key in the trace of its parent.
pub(super) fn note(key: Key, parent: Key, index: u64) {
    TRACES.with_borrow_mut(|traces| {
        let found = traces.iter_mut().rev().find_map(|trace| Some((trace.known.get(&parent)?.clone(), trace)));
        let Some((origin, trace)) = found.filter(|(_, trace)| !trace.known.contains_key(&key)) else { return };
        match origin {
            Origin::Argument => {
                trace.derived.push(DerivedKey { key, parent, index });
                trace.known.insert(key, Origin::Argument);
            }
            Origin::Data(_) | Origin::Child(..) => drop(trace.known.insert(key, Origin::Child(parent, index))),
        }
    });
}

/// Returns a placeholder for an array of the innermost trace.
///
/// # Panics
/// If no trace is active.
#[track_caller]
pub(super) fn of_array(array: Rc<dyn Fn() -> Box<dyn Any>>) -> Key {
    TRACES.with_borrow_mut(|traces| match traces.last_mut() {
        Some(trace) => trace.placeholder(Origin::Data(array)),
        None => panic!("a traced key is used after its trace has ended"),
    })
}

/// Exchange of the keys in a tree that is mapped or lifted.
enum Exchange {
    /// Keys stay unchanged.
    None,
    /// Keys are collected and replaced by the stand-in.
    Take(Vec<Key>),
    /// Keys are replaced by the next keys of the iterator.
    Put(std::vec::IntoIter<Key>),
}

/// Calls a function with an exchange of keys. Returns the result and the final state of the exchange.
fn exchanging<T>(exchange: Exchange, f: impl FnOnce() -> T) -> (T, Exchange) {
    struct Reset(Exchange);
    impl Drop for Reset {
        fn drop(&mut self) {
            EXCHANGE.set(std::mem::replace(&mut self.0, Exchange::None));
        }
    }
    let _reset = Reset(EXCHANGE.replace(exchange));
    let result = f();
    (result, EXCHANGE.replace(Exchange::None))
}

/// Calls a function that maps or lifts a tree, and collects the keys of the tree in order. In the result every key is
/// replaced by [`Key::stand_in`]. Keys in static fields stay unchanged.
pub fn take_keys<T>(f: impl FnOnce() -> T) -> (T, Vec<Key>) {
    match exchanging(Exchange::Take(Vec::new()), f) {
        (result, Exchange::Take(keys)) => (result, keys),
        _ => unreachable!("an exchange stays of its kind"),
    }
}

/// Calls a function that maps or lifts a tree, and replaces the tree's keys by `keys`, in order. Keys in static fields
/// stay unchanged.
pub fn put_keys<T>(keys: Vec<Key>, f: impl FnOnce() -> T) -> T {
    exchanging(Exchange::Put(keys.into_iter()), f).0
}

impl Key {
    /// Returns true if the key is an argument of a function that is being traced, or derived from one. A traced key has
    /// no values.
    pub fn is_traced(self) -> bool {
        self.origin().is_some()
    }

    /// Returns true if the program that is being traced computes the key, so that the host cannot know its words. See
    /// [`Key::from_data`](super::Key::from_data).
    pub fn is_array(self) -> bool {
        matches!(self.origin(), Some(Origin::Data(_) | Origin::Child(..)))
    }

    /// Returns the origin of a traced key; `None` for other keys.
    pub(super) fn origin(self) -> Option<Origin> {
        TRACES.with_borrow(|traces| traces.iter().rev().find_map(|trace| trace.known.get(&self).cloned()))
    }

    /// Returns the key that [`take_keys`] puts in place of each collected key.
    pub fn stand_in() -> Self {
        Self::from_words([PLACEHOLDERS; 2])
    }

    /// Returns the words of a key that has values.
    ///
    /// # Panics
    /// If the key [is traced](Self::is_traced).
    #[track_caller]
    pub(super) fn host_words(self) -> [u32; 2] {
        assert!(
            !self.is_traced(),
            "a traced key cannot give random numbers on the host: draw a tensor (`key.normal(shape, device)` instead \
             of `key.normal_vec(n)`), or draw before the trace and pass the numbers as an argument"
        );
        self.words
    }

    /// Returns the replacement for this key in a tree that is mapped or lifted.
    pub(crate) fn exchanged(self) -> Self {
        EXCHANGE.with_borrow_mut(|exchange| match exchange {
            Exchange::None => self,
            Exchange::Take(keys) => {
                keys.push(self);
                Self::stand_in()
            }
            Exchange::Put(keys) => keys.next().unwrap_or(self),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Path, Tree};
    use burn_flex::Flex;

    #[test]
    fn derived_keys_can_be_derived_from_another_key() {
        let trace = TracedKeys::start();
        let placeholder = trace.placeholder();
        let leaf = placeholder.fold_in(7).split().1;
        assert!(leaf.is_traced() && !Key::new(0).fold_in(7).is_traced());
        let (placeholders, derived) = trace.take();
        assert_eq!(placeholders, [placeholder]);
        let mut key = Key::new(3);
        let last = derived.iter().rposition(|derived| derived.key == leaf).unwrap();
        let first = derived.iter().position(|other| other.key == derived[last].parent).unwrap();
        for i in [first, last] {
            key = derived[i].of(key);
        }
        assert_eq!(key, Key::new(3).fold_in(7).split().1);
        drop(trace);
        assert!(!leaf.is_traced());
    }

    #[test]
    fn traces_within_traces_have_placeholders_of_their_own() {
        let outer = TracedKeys::start();
        let of_outer = outer.placeholder();
        let inner = TracedKeys::start();
        let of_inner = inner.placeholder();
        assert_ne!(of_outer, of_inner);
        let derived = of_outer.fold_in(1);
        assert_eq!(inner.take().1, []);
        drop(inner);
        assert_eq!(outer.take().1, [DerivedKey { key: derived, parent: of_outer, index: 1 }]);
    }

    #[test]
    #[should_panic(expected = "a traced key cannot give random numbers on the host")]
    fn traced_keys_have_no_numbers() {
        let trace = TracedKeys::start();
        trace.placeholder().split().0.normal_vec(3);
    }

    #[test]
    fn keys_of_trees_are_taken_and_put_back() {
        let tree = |a, b| (Key::new(a), [Some(Key::new(b)), None]);
        let walk = |tree| Tree::<Flex>::map(tree, &mut Path::root(), &mut |_, leaf| leaf);
        let (first, keys) = take_keys(|| walk(tree(1, 2)));
        assert_eq!(keys, [Key::new(1), Key::new(2)]);
        assert_eq!(take_keys(|| walk(tree(3, 4))).0, first);
        assert_eq!(put_keys(keys, || walk(first)), tree(1, 2));
        assert_eq!(walk(tree(5, 6)), tree(5, 6));
    }
}
