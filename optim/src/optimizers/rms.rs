use grove_backend::Backend;
use serde::Deserialize;

use crate::{
    Either, Scalar, ScalarOrSchedule, ScaleByLearningRate, ScaleByRms, ScaleByRss, ScaleByStddev, Trace,
    options::{fraction, nonnegative, setters, some_fraction},
    scale_by_learning_rate, scale_by_stddev, trace,
};

/// Options of [`adagrad`].
pub type Adagrad<B> = ScaleByRss<B>;

/// The chain of [`adagrad`].
pub type AdagradChain<B> = (ScaleByRss<B>, ScaleByLearningRate<B>);

/// The AdaGrad optimizer. Duchi, Hazan and Singer, "Adaptive Subgradient Methods for Online Learning and Stochastic
/// Optimization" (2011).
pub fn adagrad<B: Backend>(learning_rate: impl Into<ScalarOrSchedule<B>>, options: Adagrad<B>) -> AdagradChain<B> {
    (options, scale_by_learning_rate(learning_rate))
}

/// Options of [`rmsprop`].
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, bound = "")]
pub struct Rmsprop<B: Backend> {
    /// Decay rate of the average of squares. Default 0.9.
    #[serde(deserialize_with = "fraction")]
    pub decay: Scalar<B>,
    /// Added to the average of squares or to its square root, for numerical stability. Default 1e-8.
    pub eps: Scalar<B>,
    /// Initial average of squares. Default 0.
    #[serde(deserialize_with = "nonnegative")]
    pub initial_scale: f64,
    /// If true, the default, `eps` is added inside the square root; otherwise outside, as in PyTorch.
    pub eps_in_sqrt: bool,
    /// If true, gradients are divided by their standard deviation instead of the root of their mean square. Default
    /// false.
    pub centered: bool,
    /// Decay rate of the accumulated updates; `None`, the default, for no momentum.
    #[serde(deserialize_with = "some_fraction")]
    pub momentum: Option<Scalar<B>>,
    /// If true, uses Nesterov momentum. Default false.
    pub nesterov: bool,
    /// If true, corrects the bias of the averages. Default false.
    pub bias_correction: bool,
}

impl<B: Backend> Default for Rmsprop<B> {
    fn default() -> Self {
        let ScaleByRms { decay, eps, initial_scale, eps_in_sqrt, bias_correction } = ScaleByRms::default();
        let (centered, momentum, nesterov) = (false, None, false);
        Self { decay, eps, initial_scale, eps_in_sqrt, centered, momentum, nesterov, bias_correction }
    }
}

setters! {
    Rmsprop:
    into decay: Scalar<B>,
    into eps: Scalar<B>,
    plain initial_scale: f64,
    plain eps_in_sqrt: bool,
    plain centered: bool,
    some momentum: Scalar<B>,
    plain nesterov: bool,
    plain bias_correction: bool,
}

/// The chain of [`rmsprop`].
pub type RmspropChain<B> = (RmspropScale<B>, ScaleByLearningRate<B>, Option<Trace<B>>);

/// The RMSProp optimizer. Tieleman and Hinton (2012), and Graves, "Generating Sequences With Recurrent Neural Networks"
/// (2013).
///
/// Momentum is applied after the learning rate, as in optax.
pub fn rmsprop<B: Backend>(learning_rate: impl Into<ScalarOrSchedule<B>>, options: Rmsprop<B>) -> RmspropChain<B> {
    let Rmsprop { decay, eps, initial_scale, eps_in_sqrt, centered, momentum, nesterov, bias_correction } = options;
    let scale = ScaleByRms { decay, eps, initial_scale, eps_in_sqrt, bias_correction };
    let scale = if centered { Either::Right(scale_by_stddev(scale)) } else { Either::Left(scale) };
    (scale, scale_by_learning_rate(learning_rate), momentum.map(|momentum| trace(momentum, nesterov)))
}

/// The scaling of [`rmsprop`]: by the root of the mean square, or by the standard deviation.
pub type RmspropScale<B> = Either<ScaleByRms<B>, ScaleByStddev<B>>;
