use burn::tensor::{Tensor, TensorData};
use grove_backend::{AnyTensor, Backend};
use grove_transform::Stacked;
use grove_tree::{AnyArray, Key, Tree, map};

/// Settings of [`per_example_clip`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PerExampleClip {
    /// Maximum norm of the gradient of one example, over all leaves.
    pub max_norm: f64,
    /// Standard deviation of the noise that is added to the sum over the examples, in units of `max_norm`; 0 for no
    /// noise.
    pub noise_multiplier: f64,
}

/// Averages the gradients of the examples of a batch, each scaled down to a norm of at most `max_norm`, and adds
/// normally distributed noise, as `optax.contrib.differentially_private_aggregate` does. With the gradients of
/// `per_example_grads` of grove-compile and any optimizer, this is DP-SGD.
///
/// Abadi et al., "Deep Learning with Differential Privacy" (2016).
///
/// The key is split into one key per leaf. Norms and sums of 16-bit gradients are computed in f32. Absent leaves and
/// leaves that are not floating-point are absent in the result.
///
/// # Shapes
/// - leaf of `grads` `[examples, ...]`
/// - leaf of the output `[...]`
///
/// # Panics
/// If `max_norm` is not positive, or `noise_multiplier` is negative.
pub fn per_example_clip<B: Backend, P: Tree<B>>(grads: Stacked<B, P>, settings: PerExampleClip, key: Key) -> P {
    let PerExampleClip { max_norm, noise_multiplier } = settings;
    assert!(max_norm > 0.0, "`max_norm` is {max_norm}: it must be positive");
    assert!(noise_multiplier >= 0.0, "`noise_multiplier` is {noise_multiplier}: it must be finite and at least 0");
    let examples = grads.len();
    let (one, leaves) = grads.into_leaves();
    // One row per example, in f32, or f64 for an f64 leaf.
    let rows = |leaf: &AnyArray<B>| -> Option<Tensor<B, 2>> {
        let size = leaf.len() / examples;
        leaf.clone().widen().into_value()?.reshape([examples, size]).into_float()
    };
    let squares = leaves.iter().filter_map(rows).map(|rows| rows.square().sum_dim(1));
    let divisor = squares.reduce(|a, b| a + b).map(|sum| (sum.sqrt() / max_norm).clamp_min(1.0));
    let mut keys = key.split_n(leaves.len()).into_iter();
    let mut leaves = leaves.into_iter();
    map(one, |absent| {
        let key = keys.next();
        let (Some(leaf), Some(divisor)) = (leaves.next(), divisor.clone()) else { return absent };
        let (Some(rows), Some(key)) = (rows(&leaf), key) else { return absent };
        let mut sum = (rows / divisor).sum_dim(0);
        if noise_multiplier > 0.0 {
            let noise = TensorData::new(key.normal_vec(absent.len()), sum.dims());
            let noise = Tensor::<B, 2>::from_data(noise, &sum.device()).cast(sum.dtype());
            sum = sum + noise * (noise_multiplier * max_norm);
        }
        let mean = AnyTensor::from(sum / examples as f64).reshape(absent.shape().to_vec());
        AnyArray::present(mean).cast_float(absent.dtype().into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Int;
    use burn_flex::Flex;
    use grove_tree::{Array, leaves};

    type B = Flex;
    type Model = (Array<B, 1>, Array<B, 2>, Array<B, 1, Int>);

    fn grads(values: [f32; 3]) -> Model {
        let device = Default::default();
        let [a, b, c] = values;
        (
            Array::new(Tensor::from_floats([a, b], &device)),
            Array::new(Tensor::from_floats([[c]], &device)),
            Array::absent([2]),
        )
    }

    #[test]
    fn large_gradients_are_scaled_down_as_a_whole() {
        // Norms 5 and 1.
        let stacked = Stacked::new(vec![grads([3.0, 0.0, 4.0]), grads([0.6, 0.8, 0.0])]);
        let settings = PerExampleClip { max_norm: 2.5, noise_multiplier: 0.0 };
        let (a, b, c) = per_example_clip(stacked, settings, Key::new(0));
        let list = |data: TensorData| data.to_vec::<f32>().unwrap();
        let close = |found: Vec<f32>, expected: &[f32]| found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6);
        assert!(close(list(a.val().into_data()), &[1.05, 0.4]));
        assert!(close(list(b.val().into_data()), &[1.0]));
        assert!(!c.is_present());
    }

    #[test]
    fn noise_has_the_deviation_that_is_asked_for() {
        let zero = Array::<B, 1>::new(Tensor::zeros([20_000], &Default::default()));
        let stacked = Stacked::new(vec![(zero.clone(), zero.clone()), (zero.clone(), zero)]);
        let settings = PerExampleClip { max_norm: 3.0, noise_multiplier: 2.0 };
        let mean = per_example_clip(stacked, settings, Key::new(1));
        let lists = leaves(&mean).into_iter().map(|(_, leaf)| leaf.into_data().unwrap().to_vec::<f32>().unwrap());
        let lists: Vec<_> = lists.collect();
        for list in &lists {
            let deviation = (list.iter().map(|x| x * x).sum::<f32>() / list.len() as f32).sqrt();
            assert!((deviation - 3.0).abs() < 0.1, "{deviation}");
        }
        assert_ne!(lists[0], lists[1]);
    }
}
