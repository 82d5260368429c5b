use grove_backend::Backend;
use grove_tree::{AnyArray, Path, Tree};
use std::{fmt, sync::Arc};

use super::{
    moment::FirstMoment,
    orthogonalize::{Preconditioning, orthogonalize},
};
use crate::{
    Count, GradientTransformation, Scalar,
    leafwise::{elementwise, flat, is_outputs_first, leafwise, permuted, shaped, unflat, zeros_like},
    scalar::divided,
    transformation::{has_no_leaves, next_step, zero_count},
};

/// Rescales updates according to the Muon algorithm: orthogonalised momentum, so that the update of a matrix has
/// singular values near 1. The fields are the hyperparameters; [`Default`] has optax's values.
///
/// Jordan et al., "Muon: An optimizer for hidden layers in neural networks" (2024).
#[derive(Clone, Debug)]
pub struct ScaleByMuon<B: Backend> {
    /// Coefficients of the Newton–Schulz iteration `a x + b (x x') x + c (x x')^2 x`: one triple for all iterations, or
    /// one for each. In the latter case `ns_steps` is ignored. Default [`MUON_NS_COEFFS`].
    pub ns_coeffs: Vec<[f64; 3]>,
    /// Number of iterations. Default 5.
    pub ns_steps: usize,
    /// Decay rate of the moving average of gradients. Default 0.95.
    pub beta: Scalar<B>,
    /// Added to the Frobenius norm that divides each matrix, for numerical stability. Default 1e-8.
    pub eps: f64,
    /// If true, uses Nesterov momentum. Default true.
    pub nesterov: bool,
    /// If true, updates are multiplied by their inner product with the momentum. Default false.
    pub adaptive: bool,
    /// Normalisation of matrices to a norm of at most 1, before the iteration. Default [`Preconditioning::Frobenius`].
    pub preconditioning: Preconditioning,
    /// Input and output axes of each leaf as a matrix. By default, leaves with two axes are matrices `[inputs,
    /// outputs]`, or `[outputs, inputs]` in recurrent cells; other leaves are not matrices.
    pub weight_dimension_numbers: WeightDimensionNumbers<B>,
}

/// Jordan's coefficients, which converge fast to singular values between about 0.7 and 1.2.
pub const MUON_NS_COEFFS: [f64; 3] = [3.4445, -4.7750, 2.0315];

/// Coefficients of the five iterations of Dion (Ahn et al., "Dion: Distributed Orthonormalized Updates", 2025).
pub const DION_NS_COEFFS: [[f64; 3]; 5] = [
    [4.0848, -6.8946, 2.9270],
    [3.9505, -6.3029, 2.6377],
    [3.7418, -5.5913, 2.3037],
    [2.8769, -3.1427, 1.2046],
    [2.8366, -3.0525, 1.2012],
];

impl<B: Backend> Default for ScaleByMuon<B> {
    fn default() -> Self {
        Self {
            ns_coeffs: vec![MUON_NS_COEFFS],
            ns_steps: 5,
            beta: 0.95.into(),
            eps: 1e-8,
            nesterov: true,
            adaptive: false,
            preconditioning: Preconditioning::Frobenius,
            weight_dimension_numbers: WeightDimensionNumbers::default(),
        }
    }
}

/// Rescales updates according to the Muon algorithm; see [`ScaleByMuon`].
pub fn scale_by_muon<B: Backend>(options: ScaleByMuon<B>) -> ScaleByMuon<B> {
    options
}

/// Input and output axes of a leaf as a matrix. The remaining axes are batch axes of several matrices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MuonDimensionNumbers {
    /// Axes of the inputs.
    pub reduction_axis: Vec<usize>,
    /// Axes of the outputs.
    pub output_axis: Vec<usize>,
}

/// A function from leaves to their matrix axes.
#[derive(Clone)]
pub struct WeightDimensionNumbers<B: Backend>(Arc<DimensionNumbers<B>>);

type DimensionNumbers<B> = dyn Fn(&Path, &AnyArray<B>) -> Option<MuonDimensionNumbers> + Send + Sync;

impl<B: Backend> WeightDimensionNumbers<B> {
    /// Wraps a function of path and leaf. It returns `None` for leaves that are not matrices.
    pub fn new(f: impl Fn(&Path, &AnyArray<B>) -> Option<MuonDimensionNumbers> + Send + Sync + 'static) -> Self {
        Self(Arc::new(f))
    }

    /// Returns the matrix axes of a leaf; `None` if the leaf is not a matrix.
    pub fn of(&self, path: &Path, leaf: &AnyArray<B>) -> Option<MuonDimensionNumbers> {
        (self.0)(path, leaf)
    }

    fn matrix(&self, path: &Path, leaf: &AnyArray<B>) -> MuonDimensionNumbers {
        self.of(path, leaf).unwrap_or_else(|| {
            panic!(
                "`{path}`, {leaf}, is not a matrix: exclude it with `masked`, or give the axes of its matrix in \
                 `weight_dimension_numbers`"
            )
        })
    }
}

/// Treats leaves with two axes as matrices `[inputs, outputs]`, or `[outputs, inputs]` in recurrent cells, and no other
/// leaves.
///
/// The weights of recurrent cells have PyTorch's names and layout: `weight_ih`, `weight_hh` and `weight_hr`.
impl<B: Backend> Default for WeightDimensionNumbers<B> {
    fn default() -> Self {
        let matrix = |path: &Path| {
            let (inputs, outputs) = if is_outputs_first(path) { (1, 0) } else { (0, 1) };
            MuonDimensionNumbers { reduction_axis: vec![inputs], output_axis: vec![outputs] }
        };
        Self::new(move |path, leaf| (leaf.shape().len() == 2).then(|| matrix(path)))
    }
}

impl<B: Backend> fmt::Debug for WeightDimensionNumbers<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WeightDimensionNumbers")
    }
}

/// Step count and momentum.
#[derive(Tree, Clone, Debug)]
pub struct MuonState<B: Backend, P> {
    /// Number of steps.
    pub count: Count<B>,
    /// Moving average of gradients, f32, or f64 for f64 parameters.
    pub mu: P,
}

impl<B: Backend> ScaleByMuon<B> {
    /// Returns the coefficients of each iteration.
    fn coefficients(&self) -> Vec<[f64; 3]> {
        match self.ns_coeffs[..] {
            [one] => vec![one; self.ns_steps],
            _ => self.ns_coeffs.clone(),
        }
    }

    fn orthogonal(&self, path: &Path, leaf: &AnyArray<B>, coefficients: &[[f64; 3]]) -> AnyArray<B> {
        let numbers = self.weight_dimension_numbers.matrix(path, leaf);
        let MuonDimensionNumbers { reduction_axis, output_axis } = numbers;
        let rank = leaf.shape().len();
        let batch: Vec<usize> =
            (0..rank).filter(|axis| !reduction_axis.contains(axis) && !output_axis.contains(axis)).collect();
        let order = [batch.clone(), reduction_axis.clone(), output_axis.clone()].concat();
        let mut inverse = vec![0; rank];
        for (to, &from) in order.iter().enumerate() {
            inverse[from] = to;
        }
        let size = |axes: &[usize]| axes.iter().map(|&axis| leaf.shape()[axis]).product::<usize>();
        let matrices = permuted(leaf.clone(), &order);
        let shape = matrices.shape().to_vec();
        let matrices = shaped(matrices, [size(&batch), size(&reduction_axis), size(&output_axis)]);
        let matrices = orthogonalize(matrices, coefficients, self.preconditioning, self.eps);
        permuted(unflat(matrices, &shape), &inverse)
    }
}

impl<B: Backend, P: Tree<B>> GradientTransformation<B, P> for ScaleByMuon<B> {
    type State = MuonState<B, P>;

    fn init(&self, params: &P) -> Self::State {
        MuonState { count: zero_count(params), mu: zeros_like(params) }
    }

    fn update(&self, updates: P, state: Self::State, _params: &P) -> (P, Self::State) {
        if has_no_leaves(&updates, &state.count) {
            return (updates, state);
        }
        let (count, t) = next_step(state.count, &updates);
        let moment = FirstMoment::new(&self.beta, t, self.nesterov);
        let [means, mu] = elementwise([updates, state.mu], |[g, mu]| {
            let (mean, mu) = moment.add(mu, g);
            [divided(mean, moment.correction.clone()), mu]
        });
        let coefficients = self.coefficients();
        let [updates] = leafwise([means], |path, [mean]| {
            let update = self.orthogonal(path, &mean, &coefficients);
            if !self.adaptive {
                return [update];
            }
            let shape = update.shape().to_vec();
            let update = flat(update);
            let product = (flat(mean) * update.clone()).sum();
            [unflat(update * product, &shape)]
        });
        (updates, MuonState { count, mu })
    }
}

/// Scales updates by the shapes of their matrices; see [`scale_by_shape`].
#[derive(Clone, Debug)]
pub struct ScaleByShape<B: Backend> {
    consistent_rms: Option<f64>,
    weight_dimension_numbers: WeightDimensionNumbers<B>,
}

/// Scales the update of each matrix by `sqrt(max(1, outputs / inputs))`, so that one learning rate suits all widths.
/// With `consistent_rms`, the factor is `consistent_rms * sqrt(max(inputs, outputs))` instead, which makes the root
/// mean square of the update about `consistent_rms` (Adam's is about 0.2). Liu et al., "Muon is Scalable for LLM
/// Training" (2025).
pub fn scale_by_shape<B: Backend>(
    consistent_rms: Option<f64>,
    weight_dimension_numbers: WeightDimensionNumbers<B>,
) -> ScaleByShape<B> {
    ScaleByShape { consistent_rms, weight_dimension_numbers }
}

impl<B: Backend, P: Tree<B>> GradientTransformation<B, P> for ScaleByShape<B> {
    type State = ();

    fn init(&self, _params: &P) {}

    fn update(&self, updates: P, (): (), _params: &P) -> (P, ()) {
        let [updates] = leafwise([updates], |path, [g]| {
            let numbers = self.weight_dimension_numbers.matrix(path, &g);
            let size = |axes: &[usize]| axes.iter().map(|&axis| g.shape()[axis]).product::<usize>() as f64;
            let (inputs, outputs) = (size(&numbers.reduction_axis), size(&numbers.output_axis));
            let factor = match self.consistent_rms {
                Some(rms) => inputs.max(outputs).sqrt() * rms,
                None => (outputs / inputs).max(1.0).sqrt(),
            };
            [g.mul_scalar(factor)]
        });
        (updates, ())
    }
}
