use burn::tensor::{DType, Int, Tensor};
use grove_backend::Backend;
use grove_tree::{AnyArray, AnyTensor, Array, Tree, leaves, map};

/// Loss scaling for f16: gradients too small for the type are made with a loss that is multiplied by a large factor.
/// Where they overflow the step is left out and the factor halved; after `growth_interval` good steps it doubles.
/// Micikevicius et al., "Mixed Precision Training" (2018); the numbers are those of PyTorch's `GradScaler`.
#[derive(Tree, Clone, Debug)]
pub struct LossScale<B: Backend> {
    /// The factor, `[1]`.
    pub factor: Array<B, 1>,
    /// Good steps since the factor changed, `[1]`.
    pub good_steps: Array<B, 1, Int>,
    /// Good steps before the factor doubles.
    pub growth_interval: u64,
}

impl<B: Backend> LossScale<B> {
    /// A factor of 65,536, doubling after 2,000 good steps.
    pub fn new(device: &B::Device) -> Self {
        Self {
            factor: Array::new(Tensor::full([1], 65_536.0, (device, DType::F32))),
            good_steps: Array::new(Tensor::zeros([1], device)),
            growth_interval: 2_000,
        }
    }

    /// Gradients of the loss itself.
    pub(crate) fn unscale<P: Tree<B>>(&self, grads: P) -> P {
        let inverse = self.factor.val().recip();
        map(grads, |leaf| {
            let rank = leaf.shape().len();
            leaf.map_float(|x| {
                let inverse = B::float_reshape(inverse.clone().into_primitive().tensor(), vec![1; rank].into());
                B::float_mul(x, inverse)
            })
        })
    }

    /// The next factor. `finite` is 1 where all gradients were finite, else 0.
    pub(crate) fn adjusted(self, finite: Tensor<B, 1>) -> Self {
        let good_steps = (self.good_steps.val() + 1) * finite.clone().int();
        let grown = good_steps.clone().equal_elem(self.growth_interval as i64).float();
        // Halved, kept or doubled: 2^(grown - overflow).
        let change = (grown.clone() * std::f32::consts::LN_2).exp() * (finite + 1.0) * 0.5;
        let factor = (self.factor.val() * change).clamp(1.0, 16_777_216.0);
        let good_steps = good_steps * (grown.neg() + 1.0).int();
        Self { factor: Array::new(factor), good_steps: Array::new(good_steps), ..self }
    }
}

/// 1 where all elements of all floating-point leaves are finite, else 0: `[1]`.
pub(crate) fn all_finite<B: Backend, P: Tree<B>>(tree: &P, device: &B::Device) -> Tensor<B, 1> {
    let mut finite = Tensor::<B, 1>::ones([1], device);
    for (_, leaf) in leaves(tree) {
        let count = leaf.len();
        if let Some(AnyTensor::Float(x)) = leaf.into_value() {
            let x = B::float_reshape(x, [count].into());
            let x = Tensor::<B, 1>::from_primitive(burn::tensor::TensorPrimitive::Float(x)).cast(DType::F32);
            // A sum of squares may overflow where no element does; x * 0 is NaN exactly for those that are not finite.
            let zero = (x * 0.0).sum();
            finite = finite * zero.equal_elem(0.0).float();
        }
    }
    finite
}

/// One of two trees: `then` where the condition, `[1]`, is 1, `otherwise` where it is 0.
pub(crate) fn select<B: Backend, P: Tree<B>>(condition: &Tensor<B, 1>, then: P, otherwise: P) -> P {
    let [selected, _] = grove_tree::map_together([then, otherwise], |_, [then, otherwise]: [AnyArray<B>; 2]| {
        let absent = otherwise.clone().into_absent();
        [choose(condition, then, otherwise), absent]
    })
    .expect("two states of one run");
    selected
}

fn choose<B: Backend>(condition: &Tensor<B, 1>, then: AnyArray<B>, otherwise: AnyArray<B>) -> AnyArray<B> {
    let (shape, rank) = (then.shape().to_vec(), then.shape().len());
    let mask = condition.clone().equal_elem(0.0).into_primitive();
    let mask = B::bool_expand(B::bool_reshape(mask, vec![1; rank].into()), shape.into());
    match (then.clone().into_value(), otherwise.into_value()) {
        (Some(AnyTensor::Float(x)), Some(AnyTensor::Float(y))) => {
            AnyArray::present(AnyTensor::Float(B::float_mask_where(x, mask, y)))
        }
        (Some(AnyTensor::Int(x)), Some(AnyTensor::Int(y))) => {
            AnyArray::present(AnyTensor::Int(B::int_mask_where(x, mask, y)))
        }
        _ => then,
    }
}
