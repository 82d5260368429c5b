//! Where a graph runs: its device with the types that it has, and the keys of the program.

use burn::tensor::{BoolDType, DType, FloatDType, IntDType, TensorData, backend::BackendTypes};
use grove_backend::{Backend, ops::AnyTensor};
use std::{cell::RefCell, rc::Rc};

use crate::{graph::KeyMap, types::Types};

thread_local! {
    /// The keys in place of those of the programs that are running on this thread, the innermost last. A sub-graph draws with those
    /// of the program that it is part of.
    static KEYS: RefCell<Vec<Rc<KeyMap>>> = const { RefCell::new(Vec::new()) };
}

/// A device, and the types that it has in place of a graph's.
pub(crate) struct Target<'a, B: Backend> {
    pub device: &'a <B as BackendTypes>::Device,
    types: Types,
}

impl<'a, B: Backend> Target<'a, B> {
    pub fn new(device: &'a <B as BackendTypes>::Device) -> Self {
        Self { device, types: Types::of::<B>(Some(device)) }
    }

    /// The default types.
    pub fn types(&self) -> Types {
        self.types
    }

    pub fn boolean(&self) -> BoolDType {
        self.types.boolean
    }

    /// An integer type, or the device's default if it lacks it.
    pub fn int(&self, dtype: DType) -> IntDType {
        if B::supports_dtype(self.device, dtype) { dtype.into() } else { self.types.int }
    }

    pub fn float(&self, dtype: DType) -> FloatDType {
        dtype.into()
    }

    pub fn constant(&self, data: &TensorData) -> AnyTensor<B> {
        let dtype = match data.dtype {
            dtype if dtype.is_float() => dtype,
            dtype @ DType::Bool(_) => dtype,
            dtype => self.int(dtype).into(),
        };
        AnyTensor::from_data(data.clone().convert_dtype(dtype), self.device)
    }
}

/// Calls a function with keys in place of those of the program that it runs.
pub(crate) fn with_keys<R>(keys: &Rc<KeyMap>, f: impl FnOnce() -> R) -> R {
    struct Pop;
    impl Drop for Pop {
        fn drop(&mut self) {
            KEYS.with_borrow_mut(|maps| drop(maps.pop()));
        }
    }
    KEYS.with_borrow_mut(|maps| maps.push(keys.clone()));
    let _pop = Pop;
    f()
}

/// The keys in place of those of the programs that are running.
pub(crate) fn keys() -> Option<Rc<KeyMap>> {
    KEYS.with_borrow(|maps| maps.last().cloned())
}

pub(crate) fn missing() -> ! {
    unreachable!("every variable of a graph is assigned before it is used")
}
