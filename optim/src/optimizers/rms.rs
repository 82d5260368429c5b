use grove_backend::Backend;
use grove_tree::Tree;

use crate::{
    Count, GradientTransformation, Scalar, ScalarOrSchedule, ScaleByLearningRate, ScaleByRms, ScaleByRmsState,
    ScaleByRss, ScaleByStddev, ScaleByStddevState, Trace, scale_by_learning_rate, scale_by_stddev, trace,
};

/// Options of [`adagrad`].
pub type Adagrad<B> = ScaleByRss<B>;

/// What [`adagrad`] chains.
pub type AdagradChain<B> = (ScaleByRss<B>, ScaleByLearningRate<B>);

/// AdaGrad. Duchi, Hazan and Singer, "Adaptive Subgradient Methods for Online Learning and Stochastic Optimization"
/// (2011).
pub fn adagrad<B: Backend>(learning_rate: impl Into<ScalarOrSchedule<B>>, options: Adagrad<B>) -> AdagradChain<B> {
    (options, scale_by_learning_rate(learning_rate))
}

/// Options of [`rmsprop`].
#[derive(Clone, Debug)]
pub struct Rmsprop<B: Backend> {
    /// How much of the mean of squares stays at each step: 0.9.
    pub decay: Scalar<B>,
    /// Added to the mean or to its root: 1e-8.
    pub eps: Scalar<B>,
    /// The mean of squares before the first step: 0.
    pub initial_scale: f64,
    /// Whether `eps` is added below the root (yes) or to it, as in PyTorch.
    pub eps_in_sqrt: bool,
    /// Whether to divide by the standard deviation in place of the root of the mean square: no.
    pub centered: bool,
    /// How much of the sum of updates stays at each step; none: no momentum.
    pub momentum: Option<Scalar<B>>,
    /// Whether momentum looks one step ahead: no.
    pub nesterov: bool,
    /// Whether to correct means for having begun at zero: no.
    pub bias_correction: bool,
}

impl<B: Backend> Default for Rmsprop<B> {
    fn default() -> Self {
        let ScaleByRms { decay, eps, initial_scale, eps_in_sqrt, bias_correction } = ScaleByRms::default();
        let (centered, momentum, nesterov) = (false, None, false);
        Self { decay, eps, initial_scale, eps_in_sqrt, centered, momentum, nesterov, bias_correction }
    }
}

/// What [`rmsprop`] chains.
pub type RmspropChain<B> = (RmspropScale<B>, ScaleByLearningRate<B>, Option<Trace<B>>);

/// RMSProp. Tieleman and Hinton (2012), and Graves, "Generating Sequences With Recurrent Neural Networks" (2013).
///
/// Momentum comes after the learning rate, as in optax.
pub fn rmsprop<B: Backend>(learning_rate: impl Into<ScalarOrSchedule<B>>, options: Rmsprop<B>) -> RmspropChain<B> {
    let Rmsprop { decay, eps, initial_scale, eps_in_sqrt, centered, momentum, nesterov, bias_correction } = options;
    let scale = ScaleByRms { decay, eps, initial_scale, eps_in_sqrt, bias_correction };
    let scale = if centered { RmspropScale::Stddev(scale_by_stddev(scale)) } else { RmspropScale::Rms(scale) };
    (scale, scale_by_learning_rate(learning_rate), momentum.map(|momentum| trace(momentum, nesterov)))
}

/// The rescaling of [`rmsprop`]: by the root of the mean square, or by the standard deviation.
#[derive(Clone, Debug)]
pub enum RmspropScale<B: Backend> {
    /// By the root of the mean square.
    Rms(ScaleByRms<B>),
    /// By the standard deviation.
    Stddev(ScaleByStddev<B>),
}

/// The means of [`RmspropScale`].
#[derive(Tree, Clone, Debug)]
pub struct RmspropScaleState<B: Backend, P> {
    /// Steps so far; nothing without bias correction.
    pub count: Option<Count<B>>,
    /// Decaying mean, f32; nothing unless it is the standard deviation.
    pub mu: Option<P>,
    /// Decaying mean of the squares, f32.
    pub nu: P,
}

impl<B: Backend, P> From<ScaleByRmsState<B, P>> for RmspropScaleState<B, P> {
    fn from(ScaleByRmsState { count, nu }: ScaleByRmsState<B, P>) -> Self {
        Self { count, mu: None, nu }
    }
}

impl<B: Backend, P> From<ScaleByStddevState<B, P>> for RmspropScaleState<B, P> {
    fn from(ScaleByStddevState { count, mu, nu }: ScaleByStddevState<B, P>) -> Self {
        Self { count, mu: Some(mu), nu }
    }
}

impl<B: Backend, P: Tree<B>> GradientTransformation<B, P> for RmspropScale<B> {
    type State = RmspropScaleState<B, P>;

    fn init(&self, params: &P) -> Self::State {
        match self {
            Self::Rms(inner) => inner.init(params).into(),
            Self::Stddev(inner) => inner.init(params).into(),
        }
    }

    fn update(&self, updates: P, state: Self::State, params: &P) -> (P, Self::State) {
        let RmspropScaleState { count, mu, nu } = state;
        match (self, mu) {
            (Self::Rms(inner), None) => {
                let (updates, state) = inner.update(updates, ScaleByRmsState { count, nu }, params);
                (updates, state.into())
            }
            (Self::Stddev(inner), Some(mu)) => {
                let (updates, state) = inner.update(updates, ScaleByStddevState { count, mu, nu }, params);
                (updates, state.into())
            }
            _ => panic!("the state does not belong to this chain: `centered` has changed"),
        }
    }
}
