//! The AdamW update.

use burn::tensor::{DType, Shape, TensorMetadata, ops::FloatTensor};

use super::{Backend, Differentiation, Outcome, Rules, Shapes, Values, cast, flat, float, primitive};

/// One step of AdamW (Loshchilov and Hutter, 2019) for any number of leaves. Returns the updated parameters and moments.
///
/// # Shapes
/// - inputs: for each leaf the parameters, gradient, first and second moment, all of one shape; after all leaves
///   the hyperparameters `[10]`, f32: `b1`, `1 - b1`, `b2`, `1 - b2`, `eps` (added to the square root), `eps_root` (added
///   under the square root), the bias corrections of the first and second moment, the learning rate, the weight decay
/// - outputs: for each leaf the parameters, first and second moment
///
/// The moments and the hyperparameters have one dtype, f32 or f64, in which the step is computed. Parameters and gradient may
/// have 16 bits; the new parameters are then rounded to the dtype of the old ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct AdamStep;

impl Rules for AdamStep {
    const DIFFERENTIATION: Differentiation = Differentiation::Composed;

    #[track_caller]
    fn shapes(&self, inputs: &Shapes) -> Vec<Shape> {
        let shapes: Vec<_> = inputs.given().cloned().collect();
        let Some((hyperparameters, leaves)) = shapes.split_last() else { return vec![] };
        let same = leaves.chunks(4).all(|leaf| leaf.len() == 4 && leaf.iter().all(|shape| *shape == leaf[0]));
        let rule = "four tensors of equal shape for each leaf, and 10 hyperparameters";
        inputs.require(same && hyperparameters[..] == [10], "adam_step", rule);
        leaves.chunks(4).flat_map(|leaf| leaf[..3].to_vec()).collect()
    }

    fn compose<B: Backend>(&self, inputs: Values<B>, _needs: &[bool]) -> Outcome<B> {
        let (leaves, hyperparameters) = leaves_of(inputs);
        let step = |leaves: Vec<[FloatTensor<B>; 4]>| {
            leaves.into_iter().map(|leaf| step::<B>(leaf, hyperparameters.clone())).collect()
        };
        Outcome::new(with_dtype_of_moments::<B>(leaves, step))
    }
}

/// Casts the parameters and gradients of leaves to the dtype of their moments, computes a step, and casts the new parameters back.
pub(super) fn with_dtype_of_moments<B: Backend>(
    leaves: Vec<[FloatTensor<B>; 4]>,
    step: impl FnOnce(Vec<[FloatTensor<B>; 4]>) -> Vec<[FloatTensor<B>; 3]>,
) -> impl Iterator<Item = FloatTensor<B>> {
    let dtypes: Vec<DType> = leaves.iter().map(|[p, ..]| p.dtype()).collect();
    let widened = leaves.into_iter().map(|[p, g, mu, nu]| {
        let dtype = mu.dtype();
        [cast::<B>(p, dtype), cast::<B>(g, dtype), mu, nu]
    });
    let new = step(widened.collect()).into_iter().zip(dtypes);
    new.flat_map(|([p, mu, nu], dtype)| [cast::<B>(p, dtype), mu, nu])
}

/// Splits the inputs into those of each leaf and the hyperparameters.
pub(super) fn leaves_of<B: Backend>(inputs: Values<B>) -> (Vec<[FloatTensor<B>; 4]>, FloatTensor<B>) {
    let mut inputs = inputs.into_floats();
    let hyperparameters = inputs.pop().expect("hyperparameters behind the leaves");
    let mut inputs = inputs.into_iter();
    let next = || Some([inputs.next()?, inputs.next()?, inputs.next()?, inputs.next()?]);
    (std::iter::from_fn(next).collect(), hyperparameters)
}

/// Computes the step of one leaf.
pub(super) fn step<B: Backend>(leaf: [FloatTensor<B>; 4], hyperparameters: FloatTensor<B>) -> [FloatTensor<B>; 3] {
    let shape = leaf[0].shape();
    let [p, g, mu, nu] = leaf.map(flat::<B>);
    let hyperparameters = float::<B, 1>(hyperparameters);
    let number = |i: usize| hyperparameters.clone().narrow(0, i, 1);
    let mu = mu * number(0) + g.clone() * number(1);
    let nu = nu * number(2) + g.clone() * g * number(3);
    let root = (nu.clone() / number(7) + number(5)).sqrt() + number(4);
    let update = mu.clone() / number(6) / root + p.clone() * number(9);
    [p - update * number(8), mu, nu].map(|x| B::float_reshape(primitive(x), shape.clone()))
}
