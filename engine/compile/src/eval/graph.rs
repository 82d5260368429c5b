//! Evaluating graphs directly.

use burn::tensor::DType;
use grove_backend::{AnyTensor, Backend};
use grove_tree::{Key, Tree};
use std::rc::Rc;

use super::Program;
use crate::{
    Graph,
    graph::keys_of,
    target::Target,
    tree_arrays::arrays,
    words::{dtype_name, leaf_name},
};

impl Graph {
    /// Evaluates the graph for a tree of arguments, whose leaves must have the shapes and dtypes of the traced arguments:
    /// `jax.core.eval_jaxpr`. For repeated calls, use [`jit`](crate::jit()), which prepares more.
    ///
    /// # Panics
    /// If the number of present leaves or of random keys differs from the graph's inputs, or a leaf differs in shape or dtype.
    /// Integers of a dtype that the backend does not support have the backend's default instead, and booleans have the dtype
    /// of the backend.
    #[track_caller]
    pub fn eval<B: Backend, A: Tree<B>>(&self, args: &A) -> Vec<AnyTensor<B>> {
        let (values, device) = arrays(args);
        let target = Target::<B>::new(&device);
        let (found, expected) = (values.len(), self.inputs.len());
        assert!(found == expected, "the graph expects {expected} arrays, but got {found}");
        for (value, (path, var)) in values.iter().zip(&self.inputs) {
            let (found, expected) = (value.shape(), self.shape(*var));
            let input = leaf_name("input", path);
            assert!(found == *expected, "the graph expects shape {expected:?} for its {input}, but got {found:?}");
            let (found, traced) = (value.dtype(), self.dtype(*var));
            let is_integer = traced.is_int() || traced.is_uint();
            let expected = if is_integer { DType::from(target.int(traced)) } else { traced };
            assert!(
                found == expected || found.is_bool() && expected.is_bool(),
                "the graph expects dtype {} for its {input}, but got {}",
                dtype_name(expected),
                dtype_name(found)
            );
        }
        let keys: Vec<Key> = keys_of(args).into_iter().map(|(_, key)| key).collect();
        let (found, expected) = (keys.len(), self.keys.inputs.len());
        assert!(found == expected || expected == 0, "the graph expects {expected} random keys, but got {found}");
        let keys = Rc::new(self.keys.with(&keys));
        Program::new(self.clone()).run_with_keys(values, &keys, &device)
    }
}
