//! Conversion between types that are equal at run time, which the compiler cannot prove.

use std::any::Any;

/// Returns the value as a value of type `U`; the value itself as the error if its type is another one.
pub(crate) fn same_type<T: Any, U: Any>(value: T) -> Result<U, T> {
    let mut value = Some(value);
    let of_any: Option<&mut Option<U>> = (&mut value as &mut dyn Any).downcast_mut();
    match (of_any.and_then(Option::take), value) {
        (Some(same), _) => Ok(same),
        (None, Some(value)) => Err(value),
        (None, None) => unreachable!("the value is taken only as a value of type `U`"),
    }
}
