//! Memory of a program and places in it.

use std::ops::Range;

/// Element type of a place.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    F32,
    F64,
    I32,
    I64,
    Bool,
}

/// A slice of a memory: consecutive elements of one type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Element type.
    pub kind: Kind,
    /// Index of the first element among those of its type.
    pub start: usize,
    /// Number of elements.
    pub len: usize,
}

impl Place {
    /// Returns a slice of the place.
    ///
    /// # Panics
    /// If the range is not within the place.
    pub fn part(self, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} is not within {self:?}");
        Self { start: self.start + range.start, len: range.len(), ..self }
    }

    /// Returns true if the places share an element.
    pub fn overlaps(self, other: Self) -> bool {
        self.kind == other.kind && self.start < other.start + other.len && other.start < self.start + self.len
    }

    #[inline(always)]
    pub(super) fn range(self) -> Range<usize> {
        self.start..self.start + self.len
    }
}

/// Number of elements of each type in a memory: the total size of the allocated places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes([usize; 5]);

impl Sizes {
    /// Allocates a new place after all others.
    pub fn place(&mut self, kind: Kind, len: usize) -> Place {
        let size = &mut self.0[kind as usize];
        let start = *size;
        *size += len;
        Place { kind, start, len }
    }

    /// Total number of elements of all types.
    pub fn total(&self) -> usize {
        self.0.iter().sum()
    }
}

/// Elements of all places.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    pub(super) f32s: Vec<f32>,
    pub(super) f64s: Vec<f64>,
    pub(super) i32s: Vec<i32>,
    pub(super) i64s: Vec<i64>,
    pub(super) bools: Vec<bool>,
}

impl Memory {
    /// Creates a memory of zeros.
    pub fn new(sizes: &Sizes) -> Self {
        let [f32s, f64s, i32s, i64s, bools] = sizes.0;
        Self {
            f32s: vec![0.0; f32s],
            f64s: vec![0.0; f64s],
            i32s: vec![0; i32s],
            i64s: vec![0; i64s],
            bools: vec![false; bools],
        }
    }

    /// Returns the elements of a place.
    ///
    /// # Panics
    /// If the place is not within the memory.
    pub fn get<T: Element>(&self, place: Place) -> &[T] {
        debug_assert_eq!(place.kind, T::KIND);
        &T::all(self)[place.range()]
    }

    /// Returns the elements of a place, mutably.
    ///
    /// # Panics
    /// If the place is not within the memory.
    pub fn get_mut<T: Element>(&mut self, place: Place) -> &mut [T] {
        debug_assert_eq!(place.kind, T::KIND);
        &mut T::all_mut(self)[place.range()]
    }

    /// Returns the elements before a place, and those of the place mutably.
    #[inline(always)]
    pub(super) fn split<T: Element>(&mut self, place: Place) -> (&[T], &mut [T]) {
        let (before, rest) = T::all_mut(self).split_at_mut(place.start);
        (before, &mut rest[..place.len])
    }
}

/// An element type.
pub trait Element: Copy {
    /// Kind of the type.
    const KIND: Kind;
    /// Returns all elements of this type in a memory.
    fn all(memory: &Memory) -> &[Self];
    /// Returns all elements of this type in a memory, mutably.
    fn all_mut(memory: &mut Memory) -> &mut [Self];
}

macro_rules! element {
    ($type:ident, $kind:ident, $field:ident) => {
        impl Element for $type {
            const KIND: Kind = Kind::$kind;
            #[inline(always)]
            fn all(memory: &Memory) -> &[Self] {
                &memory.$field
            }
            #[inline(always)]
            fn all_mut(memory: &mut Memory) -> &mut [Self] {
                &mut memory.$field
            }
        }
    };
}

element!(f32, F32, f32s);
element!(f64, F64, f64s);
element!(i32, I32, i32s);
element!(i64, I64, i64s);
element!(bool, Bool, bools);
