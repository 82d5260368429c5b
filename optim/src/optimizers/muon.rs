use grove_backend::Backend;
use grove_tree::Filter;
use serde::Deserialize;

use super::{Adamw, AdamwChain, adamw};
use crate::{
    AddDecayedWeights, MUON_NS_COEFFS, Masked, Preconditioning, Scalar, ScalarOrSchedule, ScaleByLearningRate,
    ScaleByMuon, ScaleByShape, WeightDimensionNumbers, add_decayed_weights, masked,
    options::{fraction, iterations, mask, nonnegative, setters, some_positive},
    scale_by_learning_rate, scale_by_shape,
};

/// Options of [`muon`].
#[derive(Clone, Deserialize)]
#[serde(default, deny_unknown_fields, bound = "")]
pub struct Muon<B: Backend> {
    /// Coefficients of the Newton–Schulz iteration, as in [`ScaleByMuon`]. Default [`MUON_NS_COEFFS`] in each step.
    #[serde(skip)]
    pub ns_coeffs: Vec<[f64; 3]>,
    /// Number of Newton–Schulz iterations. Default 5.
    #[serde(deserialize_with = "iterations")]
    pub ns_steps: usize,
    /// Decay rate of the moving average of gradients. Default 0.95.
    #[serde(deserialize_with = "fraction")]
    pub beta: Scalar<B>,
    /// Added to the Frobenius norm that divides each matrix, and to Adam's denominator outside the square root. Default
    /// 1e-8.
    #[serde(deserialize_with = "nonnegative")]
    pub eps: f64,
    /// Decoupled weight decay of matrices: each step subtracts this times the learning rate times the matrix. Default
    /// 0.
    pub weight_decay: ScalarOrSchedule<B>,
    /// Matrices that weight decay applies to; `None`, the default, for all.
    #[serde(deserialize_with = "mask")]
    pub weight_decay_mask: Option<Filter<B>>,
    /// If true, uses Nesterov momentum, in Adam too. Default true.
    pub nesterov: bool,
    /// If true, updates are multiplied by their inner product with the momentum. Default false.
    pub adaptive: bool,
    /// Normalisation of matrices to a norm of at most 1, before the iteration. Default [`Preconditioning::Frobenius`].
    #[serde(skip)]
    pub preconditioning: Preconditioning,
    /// Adam's `b1`, for parameters that are not matrices. Default 0.9.
    #[serde(deserialize_with = "fraction")]
    pub adam_b1: Scalar<B>,
    /// Adam's `b2`. Default 0.999.
    #[serde(deserialize_with = "fraction")]
    pub adam_b2: Scalar<B>,
    /// Adam's `eps_root`. Default 0.
    pub adam_eps_root: Scalar<B>,
    /// Decoupled weight decay of the other parameters: each step subtracts this times their learning rate times the
    /// parameter. Default 0.
    pub adam_weight_decay: ScalarOrSchedule<B>,
    /// Adam's learning rate; `None`, the default, for the learning rate of the matrices.
    #[serde(deserialize_with = "some_positive")]
    pub adam_learning_rate: Option<ScalarOrSchedule<B>>,
    /// Selects the leaves that are matrices, with their input and output axes. By default, leaves with two axes:
    /// `[inputs, outputs]`, or `[outputs, inputs]` in recurrent cells.
    #[serde(skip)]
    pub muon_weight_dimension_numbers: WeightDimensionNumbers<B>,
    /// Root mean square that updates are scaled to approximately (Adam's is about 0.2); `None`, the default, scales by
    /// width.
    #[serde(deserialize_with = "some_positive")]
    pub consistent_rms: Option<f64>,
}

impl<B: Backend> Default for Muon<B> {
    fn default() -> Self {
        Self {
            ns_coeffs: vec![MUON_NS_COEFFS],
            ns_steps: 5,
            beta: 0.95.into(),
            eps: 1e-8,
            weight_decay: 0.0.into(),
            weight_decay_mask: None,
            nesterov: true,
            adaptive: false,
            preconditioning: Preconditioning::Frobenius,
            adam_b1: 0.9.into(),
            adam_b2: 0.999.into(),
            adam_eps_root: 0.0.into(),
            adam_weight_decay: 0.0.into(),
            adam_learning_rate: None,
            muon_weight_dimension_numbers: WeightDimensionNumbers::default(),
            consistent_rms: None,
        }
    }
}

setters! {
    Muon:
    plain ns_coeffs: Vec<[f64; 3]>,
    plain ns_steps: usize,
    into beta: Scalar<B>,
    plain eps: f64,
    into weight_decay: ScalarOrSchedule<B>,
    some weight_decay_mask: Filter<B>,
    plain nesterov: bool,
    plain adaptive: bool,
    plain preconditioning: Preconditioning,
    into adam_b1: Scalar<B>,
    into adam_b2: Scalar<B>,
    into adam_eps_root: Scalar<B>,
    into adam_weight_decay: ScalarOrSchedule<B>,
    some adam_learning_rate: ScalarOrSchedule<B>,
    plain muon_weight_dimension_numbers: WeightDimensionNumbers<B>,
    plain consistent_rms: Option<f64>,
}

/// The chain of [`muon`]: one part for matrices, one for all other parameters.
pub type MuonChain<B> = (
    Masked<B, (ScaleByMuon<B>, ScaleByShape<B>, AddDecayedWeights<B>, ScaleByLearningRate<B>)>,
    Masked<B, AdamwChain<B>>,
);

/// The Muon optimizer for matrices, and AdamW for all other parameters. Jordan et al., "Muon: An optimizer for hidden
/// layers in neural networks" (2024).
///
/// AdamW also suits embeddings and the output layer better. Restrict Muon to hidden matrices with
/// `muon_weight_dimension_numbers`:
///
/// ```
/// use grove_optim::{Muon, MuonDimensionNumbers, WeightDimensionNumbers, muon};
/// # type B = burn_flex::Flex;
/// let hidden = WeightDimensionNumbers::new(|path, leaf| {
///     let hidden = path.as_str().starts_with("blocks.") && leaf.shape().len() == 2;
///     hidden.then(|| MuonDimensionNumbers { reduction_axis: vec![0], output_axis: vec![1] })
/// });
/// let optimizer = muon::<B>(0.02, Muon::default().muon_weight_dimension_numbers(hidden));
/// # let _ = optimizer;
/// ```
pub fn muon<B: Backend>(learning_rate: impl Into<ScalarOrSchedule<B>>, options: Muon<B>) -> MuonChain<B> {
    let learning_rate = learning_rate.into();
    let numbers = options.muon_weight_dimension_numbers;
    let of = numbers.clone();
    let is_matrix = Filter::new(move |path, leaf| leaf.dtype().is_float() && of.of(path, leaf).is_some());
    let scale = ScaleByMuon {
        ns_coeffs: options.ns_coeffs,
        ns_steps: options.ns_steps,
        beta: options.beta,
        eps: options.eps,
        nesterov: options.nesterov,
        adaptive: options.adaptive,
        preconditioning: options.preconditioning,
        weight_dimension_numbers: numbers.clone(),
    };
    let matrices = (
        scale,
        scale_by_shape(options.consistent_rms, numbers),
        add_decayed_weights(options.weight_decay, options.weight_decay_mask),
        scale_by_learning_rate(learning_rate.clone()),
    );
    let rest = Adamw {
        b1: options.adam_b1,
        b2: options.adam_b2,
        eps: options.eps.into(),
        eps_root: options.adam_eps_root,
        weight_decay: options.adam_weight_decay,
        mask: None,
        nesterov: options.nesterov,
    };
    let rest = adamw(options.adam_learning_rate.unwrap_or(learning_rate), rest);
    (masked(matrices, is_matrix.clone()), masked(rest, !is_matrix))
}
