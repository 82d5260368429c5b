use burn::tensor::{Bool, DType, Int, Tensor};
use grove_backend::Backend;
use grove_tree::{AnyArray, Array, Tree, map};

/// Bounds of the factor: a factor below 1 would shrink gradients, and a larger one gains nothing.
const BOUNDS: (f64, f64) = (1.0, 16_777_216.0);

/// Dynamic loss scaling for f16: the loss is multiplied by a large factor, so that small gradients do not underflow. If
/// a gradient overflows, the step is skipped and the factor halved; after `growth_interval` finite steps it doubles.
/// The factor stays between 1 and 2^24. Micikevicius et al., "Mixed Precision Training" (2018); the defaults are those
/// of PyTorch's `GradScaler`.
#[derive(Tree, Clone, Debug)]
pub struct LossScale<B: Backend> {
    /// Factor of the loss, `[1]`.
    pub factor: Array<B, 1>,
    /// Number of finite steps since the factor changed, `[1]`.
    pub good_steps: Array<B, 1, Int>,
    /// Number of finite steps after which the factor doubles.
    pub growth_interval: u64,
}

impl<B: Backend> LossScale<B> {
    /// Creates a loss scale with a factor of 65,536, which doubles after 2,000 finite steps.
    pub fn new(device: &B::Device) -> Self {
        Self {
            factor: Array::new(Tensor::full([1], 65_536.0, (device, DType::F32))),
            good_steps: Array::new(Tensor::zeros([1], device)),
            growth_interval: 2_000,
        }
    }

    /// Divides gradients by the factor, in f32 or wider: in f16 they might underflow.
    pub(crate) fn unscale<P: Tree<B>>(&self, grads: P) -> P {
        let inverse = self.factor.val().recip();
        map(grads, |leaf| {
            let leaf = leaf.widen();
            if !leaf.is_present() || !leaf.dtype().is_float() {
                return leaf;
            }
            let inverse = AnyArray::present(inverse.clone().cast(leaf.dtype()).into());
            let inverse = inverse.reshape(vec![1; leaf.shape().len()]);
            leaf.try_mul(inverse).expect("both are present and float")
        })
    }

    /// Returns the loss scale for the next step, given whether all gradients were finite.
    pub(crate) fn adjusted(self, finite: Tensor<B, 1, Bool>) -> Self {
        let good_steps = (self.good_steps.val() + 1) * finite.clone().int();
        let grown = good_steps.clone().equal_elem(self.growth_interval as i64);
        // Halved, kept or doubled.
        let change = (finite.float() + 1.0) * (grown.clone().float() + 1.0) * 0.5;
        let factor = (self.factor.val() * change.cast(DType::F32)).clamp(BOUNDS.0, BOUNDS.1);
        let good_steps = good_steps.mask_fill(grown, 0);
        Self { factor: Array::new(factor), good_steps: Array::new(good_steps), ..self }
    }

    /// True if the factor cannot be halved any further, so that non-finite gradients will stay non-finite.
    pub(crate) fn is_least(factor: f64) -> bool {
        factor <= BOUNDS.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn_flex::Flex;

    fn scale(factor: f32, good_steps: i32, growth_interval: u64) -> LossScale<Flex> {
        let device = Default::default();
        LossScale {
            factor: Array::new(Tensor::from_floats([factor], &device)),
            good_steps: Array::new(Tensor::from_ints([good_steps], &device)),
            growth_interval,
        }
    }

    /// Returns the factor and the number of finite steps after each step.
    fn history(mut scale: LossScale<Flex>, steps: &[bool]) -> Vec<(f32, i64)> {
        let mut seen = Vec::new();
        for finite in steps {
            scale = scale.adjusted(Tensor::from_data([*finite], &Default::default()));
            let good_steps = scale.good_steps.val().into_data().iter::<i64>().next().expect("one number");
            seen.push((scale.factor.val().into_scalar(), good_steps));
        }
        seen
    }

    /// Computed by hand from the documentation of `torch.amp.GradScaler(init_scale=1024, growth_interval=3)`: halved
    /// after an overflow, doubled after 3 consecutive finite steps.
    #[test]
    fn follows_grad_scaler() {
        let steps = [true, true, true, true, false, true, true, false, false, true, true, true];
        let expected = [
            (1024.0, 1),
            (1024.0, 2),
            (2048.0, 0),
            (2048.0, 1),
            (1024.0, 0),
            (1024.0, 1),
            (1024.0, 2),
            (512.0, 0),
            (256.0, 0),
            (256.0, 1),
            (256.0, 2),
            (512.0, 0),
        ];
        assert_eq!(history(scale(1024.0, 0, 3), &steps), expected);
    }

    #[test]
    fn initial_scale_matches_grad_scaler() {
        let new = LossScale::<Flex>::new(&Default::default());
        assert_eq!((new.factor.val().into_scalar(), new.growth_interval), (65_536.0, 2_000));
        assert_eq!(history(scale(65_536.0, 1_999, 2_000), &[true]), [(131_072.0, 0)]);
    }

    #[test]
    fn stays_within_bounds() {
        assert_eq!(history(scale(2.0, 0, 1), &[false, false, false]), [(1.0, 0), (1.0, 0), (1.0, 0)]);
        let most = BOUNDS.1 as f32;
        assert_eq!(history(scale(most / 2.0, 0, 1), &[true, true]), [(most, 0), (most, 0)]);
        assert!(LossScale::<Flex>::is_least(1.0) && !LossScale::<Flex>::is_least(2.0));
    }

    #[test]
    fn unscales_in_f32() {
        // 2^-20 is subnormal in f16, and 2^-20 / 65,536 underflows to 0.
        let tiny = Tensor::<Flex, 1>::from_floats([2f32.powi(-20)], &Default::default()).cast(DType::F16);
        let grads = LossScale::new(&Default::default()).unscale(Array::<Flex, 1>::new(tiny));
        assert_eq!(grads.val().dtype(), DType::F32);
        assert_eq!(grads.val().into_scalar(), 2f32.powi(-36));
    }
}
