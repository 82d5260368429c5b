//! Random keys as arrays of two u32 words, for traced functions, in which the words are unknown.

use burn::tensor::{Shape, TensorData};
use grove_kernels::threefry::{counter, threefry2x32};

use super::{AnyTensor, Backend, Differentiation, Outcome, Rules, Shapes, Values};

/// The two words of a random key: `jax.random.key_data`.
///
/// # Shapes
/// - no inputs, only a [device](Values::on)
/// - output: `[2]`, u32
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct RandomKeyData {
    /// Words of the key, high word first.
    pub key: [u32; 2],
}

/// Derives a key from a key and each of several integers: `jax.random.fold_in`, and `jax.random.split` for the integers
/// `0..n`. The low 32 bits of the integers are used. The keys are computed on the host.
///
/// # Shapes
/// - inputs: one key `[2]`, or a key per integer `[n, 2]`, u32; the integers `[n]`
/// - output: `[n, 2]`, u32
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct RandomFoldIn;

impl Rules for RandomKeyData {
    const DIFFERENTIATION: Differentiation = Differentiation::None;

    fn shapes(&self, _inputs: &Shapes) -> Vec<Shape> {
        vec![[2].into()]
    }

    fn key_mut(&mut self) -> Option<&mut [u32; 2]> {
        Some(&mut self.key)
    }

    fn compose<B: Backend>(&self, inputs: Values<B>, _needs: &[bool]) -> Outcome<B> {
        let words = B::int_from_data(TensorData::new(self.key.to_vec(), [2]), inputs.device());
        Values::default().with(AnyTensor::Int(words)).into()
    }
}

impl Rules for RandomFoldIn {
    const DIFFERENTIATION: Differentiation = Differentiation::None;

    #[track_caller]
    fn shapes(&self, inputs: &Shapes) -> Vec<Shape> {
        let [key, data] = [0, 1].map(|i| inputs.get(i).unwrap_or_default());
        let fits = matches!((key, data), ([2], [_])) || matches!((key, data), ([n, 2], [m]) if n == m);
        inputs.require(fits, "random_fold_in", "a key [2], or keys [n, 2], and integers [n]");
        vec![[data[0], 2].into()]
    }

    fn compose<B: Backend>(&self, mut inputs: Values<B>, _needs: &[bool]) -> Outcome<B> {
        let data = AnyTensor::<B>::Int(inputs.take_int(1));
        let device = data.device();
        let integers: Vec<u32> = data.into_data().iter::<i64>().map(|integer| integer as u32).collect();
        let words: Vec<u32> = AnyTensor::<B>::Int(inputs.take_int(0)).into_data().iter::<u32>().collect();
        let key = |i: usize| if words.len() == 2 { [words[0], words[1]] } else { [words[2 * i], words[2 * i + 1]] };
        let child = |(i, data): (usize, &u32)| threefry2x32(key(i), counter(u64::from(*data)));
        let children: Vec<u32> = integers.iter().enumerate().flat_map(child).collect();
        let children = TensorData::new(children, [integers.len(), 2]);
        Values::default().with(AnyTensor::Int(B::int_from_data(children, &device))).into()
    }
}
