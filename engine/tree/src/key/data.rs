//! Keys as arrays.

use burn::tensor::{Int, Tensor};
use grove_backend::{AnyTensor, Backend, ops};
use std::{any::Any, rc::Rc};

use super::{
    Key,
    traced::{self, Origin},
};

impl Key {
    /// Returns the words of this key as an array (`jax.random.key_data`).
    ///
    /// # Shapes
    /// - output: `[2]`, u32
    pub fn data<B: Backend>(self, device: &B::Device) -> Tensor<B, 1, Int> {
        match self.origin() {
            Some(Origin::Data(array)) => match B::from_innermost(array()) {
                Some(AnyTensor::Int(words)) => Tensor::from_primitive(words),
                _ => panic!("a traced key is used on another backend than the backend of its trace"),
            },
            Some(Origin::Child(parent, index)) => {
                let index = Tensor::from_ints([index as i64], device);
                ops::random_fold_in(parent.data::<B>(device), index).reshape([2])
            }
            _ => ops::random_key_data(self.words, device),
        }
    }

    /// Creates a key from an array of its words (`jax.random.wrap_key_data`). In a trace the key is a value of the
    /// program, like the array; otherwise the words are read to the host.
    ///
    /// # Shapes
    /// - data: `[2]`, u32
    ///
    /// # Panics
    /// If `data` does not have two elements.
    #[track_caller]
    pub fn from_data<B: Backend>(data: Tensor<B, 1, Int>) -> Self {
        let [count] = data.dims();
        assert!(count == 2, "a random key has two words, not {count}");
        if B::has_values(&data.device()) {
            let words: Vec<u32> = data.into_data().iter::<u32>().collect();
            return Self::from_words([words[0], words[1]]);
        }
        let array: AnyTensor<B> = data.into();
        traced::of_array(Rc::new(move || -> Box<dyn Any> { B::into_innermost(array.clone()).0 }))
    }

    /// Like [`fold_in`](Self::fold_in), with an integer in an array, such as the step counter in the carry of a traced
    /// loop (`jax.random.fold_in` with a traced integer). Only the low 32 bits are used.
    ///
    /// # Shapes
    /// - data: `[1]`
    ///
    /// # Panics
    /// If `data` does not have one element.
    ///
    /// ```
    /// use burn::tensor::Tensor;
    /// use grove_tree::Key;
    /// # type B = burn_flex::Flex;
    /// let step = Tensor::<B, 1, _>::from_ints([7], &Default::default());
    /// assert_eq!(Key::new(0).fold_in_tensor(step), Key::new(0).fold_in(7));
    /// ```
    #[track_caller]
    pub fn fold_in_tensor<B: Backend>(self, data: Tensor<B, 1, Int>) -> Self {
        let ([count], device) = (data.dims(), data.device());
        assert!(count == 1, "one integer can be folded into a key, not {count}");
        if B::has_values(&device) && !self.is_traced() {
            let data = data.into_data().iter::<i64>().next().unwrap_or_default();
            return self.fold_in(data as u32);
        }
        Self::from_data(ops::random_fold_in(self.data::<B>(&device), data).reshape([2]))
    }
}
