//! `Tree` for containers of trees and for values without leaves.

use grove_backend::Backend;
use std::{
    any::Any,
    collections::{BTreeMap, HashMap},
};

use crate::{AnyArray, Node, Path, Tree, Visitor, key::Key};

type MapFn<'a, B, C> = &'a mut dyn FnMut(&Path, AnyArray<B>) -> AnyArray<C>;
type LayerFn<'a> = &'a mut dyn FnMut(&Path, &mut dyn Any);

/// Walks a sequence; the path segment of an element is its index.
fn walk_sequence<T, U, S: FromIterator<U>>(
    sequence: impl IntoIterator<Item = T>,
    path: &mut Path,
    mut walk: impl FnMut(T, &mut Path) -> U,
) -> S {
    sequence.into_iter().enumerate().map(|(i, tree)| path.within_index(i, |path| walk(tree, path))).collect()
}

/// Walks a map; the path segment of a value is its key.
fn walk_map<T, U, S: FromIterator<(String, U)>>(
    entries: impl IntoIterator<Item = (String, T)>,
    path: &mut Path,
    mut walk: impl FnMut(T, &mut Path) -> U,
) -> S {
    let value = |(key, tree): (String, T)| {
        let tree = path.within(&key, |path| walk(tree, path));
        (key, tree)
    };
    entries.into_iter().map(value).collect()
}

impl<B: Backend, T: Tree<B>> Tree<B> for Vec<T> {
    type On<C: Backend> = Vec<T::On<C>>;

    fn visit(&self, path: &mut Path, visitor: &mut dyn Visitor<B>) {
        visitor.enter(path, Node::Sequence);
        for (i, tree) in self.iter().enumerate() {
            path.within_index(i, |path| tree.visit(path, visitor));
        }
        visitor.exit(path, Node::Sequence);
    }

    fn map(self, path: &mut Path, f: MapFn<'_, B, B>) -> Self {
        walk_sequence(self, path, |tree, path| tree.map(path, f))
    }

    fn lift<C: Backend>(self, path: &mut Path, f: MapFn<'_, B, C>) -> Self::On<C> {
        walk_sequence(self, path, |tree, path| tree.lift(path, f))
    }

    fn visit_layers(&mut self, path: &mut Path, f: LayerFn<'_>) {
        for (i, tree) in self.iter_mut().enumerate() {
            path.within_index(i, |path| tree.visit_layers(path, f));
        }
    }
}

impl<B: Backend, T: Tree<B>, const N: usize> Tree<B> for [T; N] {
    type On<C: Backend> = [T::On<C>; N];

    fn visit(&self, path: &mut Path, visitor: &mut dyn Visitor<B>) {
        visitor.enter(path, Node::Sequence);
        for (i, tree) in self.iter().enumerate() {
            path.within_index(i, |path| tree.visit(path, visitor));
        }
        visitor.exit(path, Node::Sequence);
    }

    fn map(self, path: &mut Path, f: MapFn<'_, B, B>) -> Self {
        let mut indices = 0..N;
        self.map(|tree| path.within_index(indices.next().unwrap_or(N), |path| tree.map(path, f)))
    }

    fn lift<C: Backend>(self, path: &mut Path, f: MapFn<'_, B, C>) -> Self::On<C> {
        let mut indices = 0..N;
        self.map(|tree| path.within_index(indices.next().unwrap_or(N), |path| tree.lift(path, f)))
    }

    fn visit_layers(&mut self, path: &mut Path, f: LayerFn<'_>) {
        for (i, tree) in self.iter_mut().enumerate() {
            path.within_index(i, |path| tree.visit_layers(path, f));
        }
    }
}

impl<B: Backend, T: Tree<B>> Tree<B> for Option<T> {
    type On<C: Backend> = Option<T::On<C>>;

    fn visit(&self, path: &mut Path, visitor: &mut dyn Visitor<B>) {
        match self {
            Some(tree) => tree.visit(path, visitor),
            None => visitor.constant(path, &None::<()>),
        }
    }

    fn map(self, path: &mut Path, f: MapFn<'_, B, B>) -> Self {
        self.map(|tree| tree.map(path, f))
    }

    fn lift<C: Backend>(self, path: &mut Path, f: MapFn<'_, B, C>) -> Self::On<C> {
        self.map(|tree| tree.lift(path, f))
    }

    fn visit_layers(&mut self, path: &mut Path, f: LayerFn<'_>) {
        if let Some(tree) = self {
            tree.visit_layers(path, f);
        }
    }
}

impl<B: Backend, T: Tree<B>> Tree<B> for Box<T> {
    type On<C: Backend> = Box<T::On<C>>;

    fn visit(&self, path: &mut Path, visitor: &mut dyn Visitor<B>) {
        (**self).visit(path, visitor);
    }

    fn map(self, path: &mut Path, f: MapFn<'_, B, B>) -> Self {
        Box::new((*self).map(path, f))
    }

    fn lift<C: Backend>(self, path: &mut Path, f: MapFn<'_, B, C>) -> Self::On<C> {
        Box::new((*self).lift(path, f))
    }

    fn visit_layers(&mut self, path: &mut Path, f: LayerFn<'_>) {
        (**self).visit_layers(path, f);
    }
}

/// Visits the entries of a string-keyed map in the order of their keys.
fn visit_map<'a, B: Backend, T: Tree<B> + 'a>(
    entries: impl Iterator<Item = (&'a String, &'a T)>,
    path: &mut Path,
    visitor: &mut dyn Visitor<B>,
) {
    visitor.enter(path, Node::Map);
    for (key, tree) in entries {
        path.within(key, |path| tree.visit(path, visitor));
    }
    visitor.exit(path, Node::Map);
}

impl<B: Backend, T: Tree<B>> Tree<B> for BTreeMap<String, T> {
    type On<C: Backend> = BTreeMap<String, T::On<C>>;

    fn visit(&self, path: &mut Path, visitor: &mut dyn Visitor<B>) {
        visit_map(self.iter(), path, visitor);
    }

    fn map(self, path: &mut Path, f: MapFn<'_, B, B>) -> Self {
        walk_map(self, path, |tree, path| tree.map(path, f))
    }

    fn lift<C: Backend>(self, path: &mut Path, f: MapFn<'_, B, C>) -> Self::On<C> {
        walk_map(self, path, |tree, path| tree.lift(path, f))
    }

    fn visit_layers(&mut self, path: &mut Path, f: LayerFn<'_>) {
        for (key, tree) in self {
            path.within(key, |path| tree.visit_layers(path, f));
        }
    }
}

/// Walked in the order of the keys, so that all walks visit the entries in the same order.
impl<B: Backend, T: Tree<B>> Tree<B> for HashMap<String, T> {
    type On<C: Backend> = HashMap<String, T::On<C>>;

    fn visit(&self, path: &mut Path, visitor: &mut dyn Visitor<B>) {
        visit_map(self.iter().collect::<BTreeMap<_, _>>().into_iter(), path, visitor);
    }

    fn map(self, path: &mut Path, f: MapFn<'_, B, B>) -> Self {
        let sorted: BTreeMap<_, _> = self.into_iter().collect();
        walk_map(sorted, path, |tree, path| tree.map(path, f))
    }

    fn lift<C: Backend>(self, path: &mut Path, f: MapFn<'_, B, C>) -> Self::On<C> {
        let sorted: BTreeMap<_, _> = self.into_iter().collect();
        walk_map(sorted, path, |tree, path| tree.lift(path, f))
    }

    fn visit_layers(&mut self, path: &mut Path, f: LayerFn<'_>) {
        for (key, tree) in self.iter_mut().collect::<BTreeMap<_, _>>() {
            path.within(key, |path| tree.visit_layers(path, f));
        }
    }
}

macro_rules! tuples {
    ($($T:ident $i:tt),*) => {
        impl<BB: Backend, $($T: Tree<BB>),*> Tree<BB> for ($($T,)*) {
            type On<CC: Backend> = ($($T::On<CC>,)*);

            fn visit(&self, path: &mut Path, visitor: &mut dyn Visitor<BB>) {
                visitor.enter(path, Node::Tuple(""));
                $(path.within_index($i, |path| self.$i.visit(path, visitor));)*
                visitor.exit(path, Node::Tuple(""));
            }

            fn map(self, path: &mut Path, f: MapFn<'_, BB, BB>) -> Self {
                ($(path.within_index($i, |path| self.$i.map(path, f)),)*)
            }

            fn lift<CC: Backend>(self, path: &mut Path, f: MapFn<'_, BB, CC>) -> Self::On<CC> {
                ($(path.within_index($i, |path| self.$i.lift(path, f)),)*)
            }

            fn visit_layers(&mut self, path: &mut Path, f: LayerFn<'_>) {
                $(path.within_index($i, |path| self.$i.visit_layers(path, f));)*
            }
        }
    };
}
tuples!(T0 0);
tuples!(T0 0, T1 1);
tuples!(T0 0, T1 1, T2 2);
tuples!(T0 0, T1 1, T2 2, T3 3);
tuples!(T0 0, T1 1, T2 2, T3 3, T4 4);
tuples!(T0 0, T1 1, T2 2, T3 3, T4 4, T5 5);
tuples!(T0 0, T1 1, T2 2, T3 3, T4 4, T5 5, T6 6);
tuples!(T0 0, T1 1, T2 2, T3 3, T4 4, T5 5, T6 6, T7 7);

/// Implements `Tree` for values without leaves, which are the same on every backend.
macro_rules! constants {
    ($($ty:ty),*) => {$(
        impl<B: Backend> Tree<B> for $ty {
            type On<C: Backend> = $ty;

            fn visit(&self, path: &mut Path, visitor: &mut dyn Visitor<B>) {
                visitor.constant(path, self);
            }

            fn map(self, _: &mut Path, _: MapFn<'_, B, B>) -> Self {
                self
            }

            fn lift<C: Backend>(self, _: &mut Path, _: MapFn<'_, B, C>) -> Self {
                self
            }
        }
    )*};
}
constants!(bool, char, u8, u16, u32, u64, usize, i8, i16, i32, i64, isize, f32, f64, String, &'static str, ());

/// A key is a constant of a tree. Transformations that trace may replace it by another key.
impl<B: Backend> Tree<B> for Key {
    type On<C: Backend> = Self;

    fn visit(&self, path: &mut Path, visitor: &mut dyn Visitor<B>) {
        visitor.constant(path, self);
    }

    fn map(self, _: &mut Path, _: MapFn<'_, B, B>) -> Self {
        self.exchanged()
    }

    fn lift<C: Backend>(self, _: &mut Path, _: MapFn<'_, B, C>) -> Self {
        self.exchanged()
    }
}
