//! The target of a run: the device with its dtypes, and the random keys of the program.

use burn::tensor::{BoolDType, DType, IntDType, TensorData, backend::BackendTypes};
use grove_backend::{Backend, ops::AnyTensor};
use std::{cell::RefCell, rc::Rc};

use crate::{graph::KeyMap, types::Types};

thread_local! {
    /// Key maps of the programs running on this thread, the innermost last. A sub-graph samples with the keys of the program
    /// that contains it.
    static KEYS: RefCell<Vec<Rc<KeyMap>>> = const { RefCell::new(Vec::new()) };
}

/// A device, and the default dtypes that replace those of a graph.
pub(crate) struct Target<'a, B: Backend> {
    pub device: &'a <B as BackendTypes>::Device,
    types: Types,
}

impl<'a, B: Backend> Target<'a, B> {
    pub fn new(device: &'a <B as BackendTypes>::Device) -> Self {
        Self { device, types: Types::of::<B>(Some(device)) }
    }

    /// Returns the default dtypes.
    pub fn types(&self) -> Types {
        self.types
    }

    pub fn boolean(&self) -> BoolDType {
        self.types.boolean
    }

    /// Returns an integer dtype, or the device's default if the device does not support it.
    pub fn int(&self, dtype: DType) -> IntDType {
        if B::supports_dtype(self.device, dtype) { dtype.into() } else { self.types.int }
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

/// Calls a function that runs a program with these keys.
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

/// Returns the keys of the innermost running program.
pub(crate) fn keys() -> Option<Rc<KeyMap>> {
    KEYS.with_borrow(|maps| maps.last().cloned())
}

pub(crate) fn missing() -> ! {
    unreachable!("every variable of a graph is assigned before it is used")
}
