use burn::tensor::{Int, Tensor, TensorData};
use grove_backend::Backend;
use grove_tree::{Array, Key, Tree};

use crate::{
    Count, GradientTransformation, Scalar,
    leafwise::{leafwise, takes_part, unflat},
    transformation::{device_of, has_no_leaves, next_step, zero_count},
};

/// See [`add_noise`].
#[derive(Clone, Debug)]
pub struct AddNoise<B: Backend> {
    eta: Scalar<B>,
    gamma: Scalar<B>,
    key: Key,
}

/// Adds normally distributed noise of variance `eta / count^gamma`, which decreases over the steps.
///
/// The key is part of the state and is split at each step, with the random bits of `jax.random`. Grove generates random
/// numbers on the host, so each step reads the two words of the key from the device. No other transformation reads from
/// the device in a step, unless a schedule is a closure.
///
/// Neelakantan et al., "Adding Gradient Noise Improves Learning for Very Deep Networks" (2015).
pub fn add_noise<B: Backend>(eta: impl Into<Scalar<B>>, gamma: impl Into<Scalar<B>>, key: Key) -> AddNoise<B> {
    AddNoise { eta: eta.into(), gamma: gamma.into(), key }
}

/// Step count and key.
#[derive(Tree, Clone, Debug)]
pub struct AddNoiseState<B: Backend> {
    /// Number of steps.
    pub count: Count<B>,
    /// The two words of the key, `[2]`, each reinterpreted as a signed 32-bit integer (not every device has longer
    /// integers).
    pub rng_key: Array<B, 1, Int>,
}

impl<B: Backend, P: Tree<B>> GradientTransformation<B, P> for AddNoise<B> {
    type State = AddNoiseState<B>;

    fn init(&self, params: &P) -> Self::State {
        let rng_key = match device_of(params) {
            Some(device) => Array::new(key_array(self.key, &device)),
            None => Array::absent([2]),
        };
        AddNoiseState { count: zero_count(params), rng_key }
    }

    fn update(&self, updates: P, state: Self::State, _params: &P) -> (P, Self::State) {
        if has_no_leaves(&updates, &state.count) {
            return (updates, state);
        }
        let (count, steps) = next_step(state.count, &updates);
        let words = state.rng_key.val();
        let device = words.device();
        let words: Vec<u32> = words.into_data().iter::<i64>().map(|word| word as u32).collect();
        let (next, sample) = Key::from_words([words[0], words[1]]).split();
        let variance = self.eta.array_like(&steps) / steps.clone().powf(self.gamma.array_like(&steps));
        let deviation = Scalar::Array(variance.sqrt());
        let leaves = grove_tree::leaves(&updates).into_iter().filter(|(_, leaf)| takes_part(leaf)).count();
        let mut keys = sample.split_n(leaves).into_iter();
        let [updates] = leafwise([updates], |_, [g]| {
            let noise = keys.next().map(|key| {
                let noise = key.normal::<B, 1>([g.len()], &device).cast(g.dtype());
                unflat(deviation.times(noise), g.shape())
            });
            [noise.and_then(|noise| g.try_add(noise)).expect("a key for each leaf that takes part")]
        });
        (updates, AddNoiseState { count, rng_key: Array::new(key_array(next, &device)) })
    }
}

fn key_array<B: Backend>(key: Key, device: &B::Device) -> Tensor<B, 1, Int> {
    let words: Vec<i64> = key.words().iter().map(|word| i64::from(*word as i32)).collect();
    Tensor::from_data(TensorData::new(words, [2]), device)
}
