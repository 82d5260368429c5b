//! Values of trees that are not leaves.

use std::{
    any::{Any, TypeId},
    fmt,
};

/// A value in a tree that is not a leaf: a number, a string, a `#[tree(static)]` field.
///
/// Implemented for every type that is `Debug + PartialEq + Clone + Send + Sync + 'static`.
#[diagnostic::on_unimplemented(
    message = "a static field of a tree must be comparable, but `{Self}` is not",
    note = "write `#[derive(Clone, Debug, PartialEq)]` on `{Self}`; it must own its data, and be `Send` and `Sync`"
)]
pub trait StaticValue: fmt::Debug + Any + Send + Sync {
    /// Returns true if the other value has the same type and is equal. A value that does not equal itself (NaN) is
    /// compared by its `Debug` text. `0.0` and `-0.0` are equal here.
    fn same(&self, other: &dyn StaticValue) -> bool;
    /// Returns the `Debug` text of a value that contains a floating-point zero, because `==` ignores the sign of zero;
    /// otherwise `None`.
    fn text_with_zero(&self) -> Option<String>;
    /// Returns a boxed copy.
    fn boxed(&self) -> Box<dyn StaticValue>;
}

impl<T: fmt::Debug + PartialEq + Clone + Send + Sync + 'static> StaticValue for T {
    fn same(&self, other: &dyn StaticValue) -> bool {
        let other: &dyn Any = other;
        other.downcast_ref::<T>().is_some_and(|other| {
            #[allow(clippy::eq_op)]
            let reflexive = self == self;
            self == other || !reflexive && format!("{self:?}") == format!("{other:?}")
        })
    }

    fn text_with_zero(&self) -> Option<String> {
        let without_numbers = size_of::<T>() < size_of::<u16>()
            || [TypeId::of::<usize>(), TypeId::of::<Option<usize>>(), TypeId::of::<String>()]
                .contains(&TypeId::of::<T>());
        if without_numbers {
            return None;
        }
        Some(format!("{self:?}")).filter(|text| text.contains("0.0"))
    }

    fn boxed(&self) -> Box<dyn StaticValue> {
        Box::new(self.clone())
    }
}
