use burn::tensor::{DType, Tensor};
use grove_backend::Backend;
use grove_tree::{AnyArray, Array, Tree, leaves, map_with_path};
use std::collections::BTreeMap;

use crate::{
    Count, GradientTransformation, OptimError, Scalar, ScalarOrSchedule,
    transformation::{has_no_leaves, increment, zero_count},
};

/// See [`inject_hyperparams`].
#[derive(Clone, Debug)]
pub struct InjectHyperparams<B: Backend, F> {
    initial: BTreeMap<String, ScalarOrSchedule<B>>,
    build: F,
}

/// Makes hyperparameters part of the state, where they can be read ([`hyperparam`]), set during training
/// ([`set_hyperparam`]), saved and loaded. A hyperparameter with a schedule can be read; each step overwrites it.
///
/// `inner_factory` builds the transformation from the values of a step. It is called at each step, so it should only
/// chain transformations, and the structure of the result must not depend on the values.
///
/// ```
/// use grove_optim::{Adamw, GradientTransformation, adamw, hyperparam, inject_hyperparams, set_hyperparam};
/// # use burn::tensor::Tensor;
/// # use grove_tree::Array;
/// # type B = burn_flex::Flex;
/// let optimizer = inject_hyperparams([("learning_rate", 1e-3.into()), ("weight_decay", 0.1.into())], |h| {
///     adamw(h.get("learning_rate"), Adamw::default().weight_decay(h.get("weight_decay")))
/// });
/// # let params = Array::<B, 1>::new(Tensor::from_floats([1.0, 2.0], &Default::default()));
/// let state = optimizer.init(&params);
/// let state = set_hyperparam(state, "learning_rate", 5e-4)?;
/// assert_eq!(hyperparam(&state, "learning_rate")? as f32, 5e-4);
/// # optimizer.update(params.clone(), state, &params);
/// # Ok::<(), grove_optim::OptimError>(())
/// ```
pub fn inject_hyperparams<B: Backend, T, F: Fn(&Hyperparams<B>) -> T>(
    hyperparams: impl IntoIterator<Item = (&'static str, ScalarOrSchedule<B>)>,
    inner_factory: F,
) -> InjectHyperparams<B, F> {
    let initial = hyperparams.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    InjectHyperparams { initial, build: inner_factory }
}

/// The hyperparameters of a step, by name.
#[derive(Clone, Debug)]
pub struct Hyperparams<B: Backend>(BTreeMap<String, Scalar<B>>);

impl<B: Backend> Hyperparams<B> {
    /// Returns a hyperparameter.
    ///
    /// # Panics
    /// If there is no hyperparameter of this name.
    #[track_caller]
    pub fn get(&self, name: &str) -> Scalar<B> {
        self.0.get(name).cloned().unwrap_or_else(|| {
            let names: Vec<&str> = self.0.keys().map(String::as_str).collect();
            panic!("unknown hyperparameter `{name}`; known are: {}", names.join(", "))
        })
    }
}

/// Step count, hyperparameters and the inner state.
#[derive(Tree, Clone, Debug)]
pub struct InjectHyperparamsState<B: Backend, S> {
    /// Number of steps.
    pub count: Count<B>,
    /// Values of the last step, `[1]` each. The next step uses them too, unless they follow a schedule.
    pub hyperparams: BTreeMap<String, Array<B, 1>>,
    /// The state of the inner transformation.
    pub inner_state: S,
}

impl<B, P, T, F> GradientTransformation<B, P> for InjectHyperparams<B, F>
where
    B: Backend,
    P: Tree<B>,
    T: GradientTransformation<B, P>,
    F: Fn(&Hyperparams<B>) -> T,
{
    type State = InjectHyperparamsState<B, T::State>;

    fn init(&self, params: &P) -> Self::State {
        let first = |value: &ScalarOrSchedule<B>| match value {
            ScalarOrSchedule::Scalar(scalar) => scalar.clone(),
            ScalarOrSchedule::Schedule(schedule) => schedule.value(0).into(),
        };
        let values: BTreeMap<_, _> = self.initial.iter().map(|(name, value)| (name.clone(), first(value))).collect();
        InjectHyperparamsState {
            count: zero_count(params),
            hyperparams: values.iter().map(|(name, value)| (name.clone(), value.leaf(params))).collect(),
            inner_state: (self.build)(&Hyperparams(values)).init(params),
        }
    }

    fn update(&self, updates: P, state: Self::State, params: &P) -> (P, Self::State) {
        if has_no_leaves(&updates, &state.count) {
            return (updates, state);
        }
        let InjectHyperparamsState { count, mut hyperparams, inner_state } = state;
        for (name, value) in &self.initial {
            if let ScalarOrSchedule::Schedule(schedule) = value {
                let dtype = hyperparams.get(name).map_or(DType::F32, Array::dtype);
                hyperparams.insert(name.clone(), Array::new(schedule.at_in(count.val(), dtype.into())));
            }
        }
        let values = hyperparams.iter().map(|(name, value)| (name.clone(), Scalar::Array(value.val()))).collect();
        let (updates, inner_state) = (self.build)(&Hyperparams(values)).update(updates, inner_state, params);
        (updates, InjectHyperparamsState { count: increment(count), hyperparams, inner_state })
    }
}

/// Returns the paths and values of all hyperparameters that [`inject_hyperparams`] put into a state, at any depth.
fn paths<B: Backend, S: Tree<B>>(state: &S) -> Vec<(String, AnyArray<B>)> {
    let injected = |path: &str| {
        let mut segments = path.rsplit('.').skip(1);
        segments.next() == Some("hyperparams")
    };
    leaves(state).into_iter().filter(|(path, _)| injected(path)).collect()
}

/// Finds the only hyperparameter with this name or path.
fn find<B: Backend, S: Tree<B>>(state: &S, name: &str) -> Result<(String, AnyArray<B>), OptimError> {
    let all = paths(state);
    let known: Vec<String> = all.iter().map(|(path, _)| path.clone()).collect();
    let means = |path: &str| path == name || path.rsplit('.').next() == Some(name);
    let mut found = all.into_iter().filter(|(path, _)| means(path));
    match (found.next(), found.next()) {
        (Some(one), None) => Ok(one),
        (Some(_), Some(_)) => Err(OptimError::AmbiguousHyperparameter { name: name.to_owned(), known }),
        (None, _) => Err(OptimError::UnknownHyperparameter { name: name.to_owned(), known }),
    }
}

/// Reads a hyperparameter of a state that contains [`inject_hyperparams`] at any depth. `name` is its name, or its path
/// if several have the same name. Synchronises with the device.
///
/// # Errors
/// [`OptimError::UnknownHyperparameter`] or [`OptimError::AmbiguousHyperparameter`] with the paths of all
/// hyperparameters; [`OptimError::AbsentHyperparameter`] if the state is a skeleton, or no parameter uses the value.
pub fn hyperparam<B: Backend, S: Tree<B>>(state: &S, name: &str) -> Result<f64, OptimError> {
    let (path, leaf) = find(state, name)?;
    let data = leaf.into_data().ok_or(OptimError::AbsentHyperparameter { path })?;
    Ok(data.iter::<f64>().next().unwrap_or(f64::NAN))
}

/// Sets a hyperparameter of a state; see [`hyperparam`]. A hyperparameter with a schedule returns to the schedule at
/// the next step.
///
/// # Errors
/// Those of [`hyperparam`]; [`OptimError::Value`] if the value is not finite.
pub fn set_hyperparam<B: Backend, S: Tree<B>>(state: S, name: &str, value: f64) -> Result<S, OptimError> {
    if !value.is_finite() {
        return Err(OptimError::Value { name: name.to_owned(), value: value.to_string(), expected: "a finite number" });
    }
    let (path, leaf) = find(&state, name)?;
    let Some(device) = leaf.device() else {
        return Err(OptimError::AbsentHyperparameter { path });
    };
    let new = Array::<B, 1>::new(Tensor::full([1], value, (&device, leaf.dtype()))).into_any();
    Ok(map_with_path(state, |at, leaf| if at.as_str() == path { new.clone() } else { leaf }))
}
