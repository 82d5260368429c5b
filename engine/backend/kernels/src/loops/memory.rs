//! The memory of a program, and places in it.

use std::ops::Range;

/// Type of the elements of a place.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    F32,
    F64,
    I32,
    I64,
    Bool,
}

/// A part of a memory: consecutive elements of one type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Type of the elements.
    pub kind: Kind,
    /// Number of the first element among those of its type.
    pub start: usize,
    /// Number of elements.
    pub len: usize,
}

impl Place {
    /// Some of the elements.
    ///
    /// # Panics
    /// If the range is not within the place.
    pub fn part(self, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} is not within {self:?}");
        Self { start: self.start + range.start, len: range.len(), ..self }
    }

    /// True if an element is in both places.
    pub fn overlaps(self, other: Self) -> bool {
        self.kind == other.kind && self.start < other.start + other.len && other.start < self.start + self.len
    }

    #[inline(always)]
    pub(super) fn range(self) -> Range<usize> {
        self.start..self.start + self.len
    }
}

/// How many elements of each type a memory has: as many as the places that were given away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes([usize; 5]);

impl Sizes {
    /// A new place behind all others.
    pub fn place(&mut self, kind: Kind, len: usize) -> Place {
        let size = &mut self.0[kind as usize];
        let start = *size;
        *size += len;
        Place { kind, start, len }
    }

    /// Number of elements of all types.
    pub fn total(&self) -> usize {
        self.0.iter().sum()
    }
}

/// The elements of all places.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    pub(super) f32s: Vec<f32>,
    pub(super) f64s: Vec<f64>,
    pub(super) i32s: Vec<i32>,
    pub(super) i64s: Vec<i64>,
    pub(super) bools: Vec<bool>,
}

impl Memory {
    /// Zeros everywhere.
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

    /// The elements of a place.
    ///
    /// # Panics
    /// If the place is not within the memory.
    pub fn get<T: Element>(&self, place: Place) -> &[T] {
        debug_assert_eq!(place.kind, T::KIND);
        &T::all(self)[place.range()]
    }

    /// The elements of a place, to be written.
    ///
    /// # Panics
    /// If the place is not within the memory.
    pub fn get_mut<T: Element>(&mut self, place: Place) -> &mut [T] {
        debug_assert_eq!(place.kind, T::KIND);
        &mut T::all_mut(self)[place.range()]
    }

    /// The elements before a place, and those of the place.
    #[inline(always)]
    pub(super) fn split<T: Element>(&mut self, place: Place) -> (&[T], &mut [T]) {
        let (before, rest) = T::all_mut(self).split_at_mut(place.start);
        (before, &mut rest[..place.len])
    }
}

/// A type of elements.
pub trait Element: Copy {
    /// The type's name.
    const KIND: Kind;
    /// The elements of a memory of this type.
    fn all(memory: &Memory) -> &[Self];
    /// The elements of a memory of this type, to be written.
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
