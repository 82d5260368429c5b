use grove_backend::Backend;
use grove_tree::Filter;

use super::{Adamw, AdamwChain, adamw};
use crate::{
    AddDecayedWeights, MUON_NS_COEFFS, Masked, Preconditioning, Scalar, ScalarOrSchedule, ScaleByLearningRate,
    ScaleByMuon, ScaleByShape, WeightDimensionNumbers, add_decayed_weights, masked, scale_by_learning_rate,
    scale_by_shape,
};

/// Options of [`muon`].
#[derive(Clone)]
pub struct Muon<B: Backend> {
    /// Coefficients of the Newton–Schulz iteration, as in [`ScaleByMuon`]: [`MUON_NS_COEFFS`] in each step.
    pub ns_coeffs: Vec<[f64; 3]>,
    /// Steps of the iteration: 5.
    pub ns_steps: usize,
    /// How much of the mean of gradients stays at each step: 0.95.
    pub beta: Scalar<B>,
    /// Added to the norm that matrices are divided by, and to Adam's root: 1e-8.
    pub eps: f64,
    /// What part of a matrix, times the learning rate, is taken from it at each step: 0.
    pub weight_decay: ScalarOrSchedule<B>,
    /// Which matrices decay: all.
    pub weight_decay_mask: Option<Filter<B>>,
    /// Whether to look one step ahead, in Adam too: yes.
    pub nesterov: bool,
    /// Whether to multiply updates by their inner product with the momentum: no.
    pub adaptive: bool,
    /// How matrices are brought to a norm of at most 1: by their Frobenius norm.
    pub preconditioning: Preconditioning,
    /// Adam's `b1`, for what is no matrix: 0.9.
    pub adam_b1: Scalar<B>,
    /// Adam's `b2`: 0.999.
    pub adam_b2: Scalar<B>,
    /// Adam's `eps_root`: 0.
    pub adam_eps_root: Scalar<B>,
    /// What part of the other parameters, times their learning rate, is taken from them at each step: 0.
    pub adam_weight_decay: ScalarOrSchedule<B>,
    /// Adam's learning rate: the same.
    pub adam_learning_rate: Option<ScalarOrSchedule<B>>,
    /// Which leaves are matrices, and how: those with two axes, `[inputs, outputs]`.
    pub muon_weight_dimension_numbers: WeightDimensionNumbers<B>,
    /// The root mean square that updates are scaled to, about (0.2 is Adam's); none: scaled by width.
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

/// What [`muon`] chains: one part for matrices, one for everything else.
pub type MuonChain<B> = (
    Masked<B, (ScaleByMuon<B>, ScaleByShape<B>, AddDecayedWeights<B>, ScaleByLearningRate<B>)>,
    Masked<B, AdamwChain<B>>,
);

/// Muon for matrices, AdamW for everything else. Jordan et al., "Muon: An optimizer for hidden layers in neural
/// networks" (2024).
///
/// Embeddings and the last layer are better left to AdamW too, which `muon_weight_dimension_numbers` can do:
///
/// ```
/// use grove_optim::{Muon, MuonDimensionNumbers, WeightDimensionNumbers, muon};
/// # type B = burn_flex::Flex;
/// let hidden = WeightDimensionNumbers::new(|path, leaf| {
///     let hidden = path.as_str().starts_with("blocks.") && leaf.shape().len() == 2;
///     hidden.then(|| MuonDimensionNumbers { reduction_axis: vec![0], output_axis: vec![1] })
/// });
/// let optimizer = muon::<B>(0.02, Muon { muon_weight_dimension_numbers: hidden, ..Muon::default() });
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
