//! Values that are computed once.

use std::{any::Any, sync::OnceLock};

/// A linked list of values, at most one of each type.
#[derive(Default)]
pub(super) struct Memo {
    value: OnceLock<Box<dyn Any + Send + Sync>>,
    next: OnceLock<Box<Memo>>,
}

impl Memo {
    /// Returns the value of type `T`; computes it if it does not exist. Other values can be added during the computation.
    pub(super) fn get_or_init<T: Any + Send + Sync>(&self, make: impl FnOnce() -> T) -> &T {
        if let Some(value) = self.find() {
            return value;
        }
        let mut place = self;
        let mut value: Box<dyn Any + Send + Sync> = Box::new(make());
        loop {
            // Another thread may have added a value meanwhile.
            let left = place.value.set(value).err();
            match (place.value.get().and_then(|value| value.downcast_ref()), left) {
                (Some(value), _) => return value,
                (None, Some(back)) => value = back,
                (None, None) => unreachable!("the value was put there above"),
            }
            place = place.next.get_or_init(Box::default);
        }
    }

    fn find<T: Any>(&self) -> Option<&T> {
        let value = self.value.get()?;
        value.downcast_ref().or_else(|| self.next.get()?.find())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn one_value_of_each_type() {
        let memo = Memo::default();
        let number = memo.get_or_init(|| {
            assert_eq!(memo.get_or_init(|| "a text".to_owned()), "a text");
            7_u32
        });
        assert_eq!(*number, 7);
        assert_eq!((memo.get_or_init(|| 8_u32), memo.get_or_init(String::new).as_str()), (&7, "a text"));
    }

    #[test]
    fn threads_get_the_same_value() {
        let (memo, next) = (Memo::default(), AtomicUsize::new(0));
        let found: Vec<_> = std::thread::scope(|scope| {
            let get = || *memo.get_or_init(|| next.fetch_add(1, Ordering::Relaxed));
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(get)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(found.iter().all(|value| *value == found[0]), "{found:?}");
    }
}
