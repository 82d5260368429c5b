use grove_backend::Backend;
use grove_tree::{Array, Tree};

use crate::{
    AddDecayedWeights, Count, GradientTransformation, Scalar, ScalarOrSchedule, ScaleByLearningRate, ScaleByRms, Sgd,
    SgdChain, add_decayed_weights,
    leafwise::{elementwise, flat, together, unflat, widened},
    scale_by_learning_rate, sgd,
    transformation::{has_no_leaves, increment, zero_count},
    warmup_constant_schedule,
};

/// Schedule-free learning: an average of the parameters replaces the learning rate schedule and the momentum; see
/// [`schedule_free`].
#[derive(Clone, Debug)]
pub struct ScheduleFree<B: Backend, T> {
    /// The optimizer, without momentum.
    pub base_optimizer: T,
    /// The learning rate of the optimizer.
    pub learning_rate: ScalarOrSchedule<B>,
    /// Position of the model's parameters between the optimizer's parameters (0) and their average (1). Default 0.9.
    pub b1: Scalar<B>,
    /// Exponent of the largest learning rate so far, in the weight of a step in the average. Default 2.
    pub weight_lr_power: f64,
}

/// Schedule-free learning: the optimizer updates its own parameters `z` with gradients at the model's parameters `y`,
/// which are an interpolation between `z` and the average `x` of all `z` so far. [`schedule_free_eval_params`] returns
/// `x`, the parameters for evaluation. `learning_rate` must be the learning rate of the optimizer.
///
/// Defazio et al., "The Road Less Scheduled" (2024).
pub fn schedule_free<B: Backend, T>(
    base_optimizer: T,
    learning_rate: impl Into<ScalarOrSchedule<B>>,
) -> ScheduleFree<B, T> {
    ScheduleFree { base_optimizer, learning_rate: learning_rate.into(), b1: 0.9.into(), weight_lr_power: 2.0 }
}

/// Weights, counts, and the optimizer's own parameters.
#[derive(Tree, Clone, Debug)]
pub struct ScheduleFreeState<B: Backend, S, P> {
    /// The value of `b1`, `[1]`.
    pub b1: Array<B, 1>,
    /// Sum of the weights so far, `[1]`.
    pub weight_sum: Array<B, 1>,
    /// Number of the next step, counted from 1.
    pub step_count: Count<B>,
    /// The largest learning rate so far, `[1]`.
    pub max_lr: Array<B, 1>,
    /// The state of the optimizer.
    pub base_optimizer_state: S,
    /// The optimizer's parameters, f32, or f64 for f64 parameters.
    pub z: P,
}

impl<B: Backend, P: Tree<B>, T: GradientTransformation<B, P>> GradientTransformation<B, P> for ScheduleFree<B, T> {
    type State = ScheduleFreeState<B, T::State, P>;

    fn init(&self, params: &P) -> Self::State {
        let zero = Scalar::Number(0.0);
        ScheduleFreeState {
            b1: self.b1.leaf(params),
            weight_sum: zero.leaf(params),
            step_count: increment(zero_count(params)),
            max_lr: zero.leaf(params),
            base_optimizer_state: self.base_optimizer.init(params),
            z: widened(params),
        }
    }

    fn update(&self, updates: P, state: Self::State, params: &P) -> (P, Self::State) {
        if has_no_leaves(&updates, &state.step_count) {
            return (updates, state);
        }
        let learning_rate = match &self.learning_rate {
            ScalarOrSchedule::Scalar(scalar) => scalar.array_like(&state.max_lr.val()),
            ScalarOrSchedule::Schedule(schedule) => schedule.at_in(state.step_count.val(), state.max_lr.dtype().into()),
        };
        let max_lr = state.max_lr.val().max_pair(learning_rate);
        let weight = max_lr.clone().powf_scalar(self.weight_lr_power);
        let weight_sum = state.weight_sum.val() + weight.clone();
        // With a warm-up from 0, the first weights are 0.
        let nothing = weight_sum.clone().equal_elem(0.0);
        let part = (weight / weight_sum.clone()).mask_fill(nothing, 0.0);
        let (stay, part) = (Scalar::Array(part.clone().neg().add_scalar(1.0)), Scalar::Array(part));

        let (steps, base_optimizer_state) = self.base_optimizer.update(updates, state.base_optimizer_state, params);
        let rest = self.b1.complement();
        let over_b1 = Scalar::Array(self.b1.array_like(&max_lr).recip());
        let [updates, _, z] = elementwise([steps, params.clone(), state.z], |[step, y, z]| {
            let x = over_b1.times(y.clone() - rest.times(z.clone()));
            let z = z + step;
            let x = stay.times(x) + part.times(z.clone());
            let next = self.b1.times(x) + rest.times(z.clone());
            [next - y.clone(), y, z]
        });
        let state = ScheduleFreeState {
            weight_sum: Array::new(weight_sum),
            step_count: increment(state.step_count),
            max_lr: Array::new(max_lr),
            base_optimizer_state,
            z,
            ..state
        };
        (updates, state)
    }
}

/// Returns the parameters for evaluation: the average of the optimizer's parameters. Untrained leaves and dtypes are
/// those of `params`, the model in training. If the optimizer has no leaves, returns `params`.
pub fn schedule_free_eval_params<B: Backend, S, P: Tree<B>>(state: &ScheduleFreeState<B, S, P>, params: P) -> P {
    if !state.b1.is_present() {
        return params;
    }
    let b1 = Scalar::Array(state.b1.val());
    let (rest, over_b1) = (b1.complement(), Scalar::Array(state.b1.val().recip()));
    let [params, _] = together([params, state.z.clone()], |_, [y, z]| {
        if !y.is_present() || !z.is_present() || !y.dtype().is_float() {
            return [y, z];
        }
        let (shape, dtype) = (y.shape().to_vec(), y.dtype());
        let x = over_b1.times(flat(y) - rest.times(flat(z.clone())));
        [unflat(x, &shape).cast_float(dtype.into()), z]
    });
    params
}

/// Options of [`schedule_free_sgd`].
#[derive(Clone, Debug)]
pub struct ScheduleFreeSgd<B: Backend> {
    /// Number of steps of a linear warm-up of the learning rate; `None`, the default, for no warm-up.
    pub warmup_steps: Option<u64>,
    /// As in [`ScheduleFree`]. Default 0.9.
    pub b1: Scalar<B>,
    /// Multiple of the parameters that is added to the gradients; `None`, the default, for no decay.
    pub weight_decay: Option<ScalarOrSchedule<B>>,
    /// As in [`ScheduleFree`]. Default 2.
    pub weight_lr_power: f64,
}

impl<B: Backend> Default for ScheduleFreeSgd<B> {
    fn default() -> Self {
        Self { warmup_steps: None, b1: 0.9.into(), weight_decay: None, weight_lr_power: 2.0 }
    }
}

/// Schedule-free stochastic gradient descent. optax's default learning rate is 1. Defazio et al. (2024).
pub fn schedule_free_sgd<B: Backend>(
    learning_rate: f64,
    options: ScheduleFreeSgd<B>,
) -> ScheduleFree<B, (Option<AddDecayedWeights<B>>, SgdChain<B>)> {
    let rate = warm_up(learning_rate, options.warmup_steps);
    let decay = options.weight_decay.map(|weight_decay| add_decayed_weights(weight_decay, None));
    let base_optimizer = (decay, sgd(rate.clone(), Sgd::default()));
    let ScheduleFreeSgd { b1, weight_lr_power, .. } = options;
    ScheduleFree { base_optimizer, learning_rate: rate, b1, weight_lr_power }
}

/// Options of [`schedule_free_adamw`].
#[derive(Clone, Debug)]
pub struct ScheduleFreeAdamw<B: Backend> {
    /// Number of steps of a linear warm-up of the learning rate; `None`, the default, for no warm-up.
    pub warmup_steps: Option<u64>,
    /// As in [`ScheduleFree`]. Default 0.9.
    pub b1: Scalar<B>,
    /// Decay rate of the second moment. Default 0.999.
    pub b2: Scalar<B>,
    /// Added to the denominator outside the square root, for numerical stability. Default 1e-8.
    pub eps: Scalar<B>,
    /// Decoupled weight decay: each step subtracts this times the learning rate times the parameter. Default 0.
    pub weight_decay: ScalarOrSchedule<B>,
    /// As in [`ScheduleFree`]. Default 2.
    pub weight_lr_power: f64,
}

impl<B: Backend> Default for ScheduleFreeAdamw<B> {
    fn default() -> Self {
        Self {
            warmup_steps: None,
            b1: 0.9.into(),
            b2: 0.999.into(),
            eps: 1e-8.into(),
            weight_decay: 0.0.into(),
            weight_lr_power: 2.0,
        }
    }
}

/// The optimizer inside [`schedule_free_adamw`].
pub type ScheduleFreeAdamwBase<B> = (ScaleByRms<B>, AddDecayedWeights<B>, ScaleByLearningRate<B>);

/// Schedule-free AdamW. optax's default learning rate is 0.0025. Defazio et al. (2024).
pub fn schedule_free_adamw<B: Backend>(
    learning_rate: f64,
    options: ScheduleFreeAdamw<B>,
) -> ScheduleFree<B, ScheduleFreeAdamwBase<B>> {
    let ScheduleFreeAdamw { warmup_steps, b1, b2, eps, weight_decay, weight_lr_power } = options;
    let rate = warm_up(learning_rate, warmup_steps);
    let base_optimizer = (
        ScaleByRms { decay: b2, eps, initial_scale: 0.0, eps_in_sqrt: false, bias_correction: true },
        add_decayed_weights(weight_decay, None),
        scale_by_learning_rate(rate.clone()),
    );
    ScheduleFree { base_optimizer, learning_rate: rate, b1, weight_lr_power }
}

fn warm_up<B: Backend>(learning_rate: f64, warmup_steps: Option<u64>) -> ScalarOrSchedule<B> {
    match warmup_steps {
        Some(steps) => warmup_constant_schedule(0.0, learning_rate, steps).into(),
        None => learning_rate.into(),
    }
}
