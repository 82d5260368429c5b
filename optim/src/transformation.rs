use burn::tensor::{FloatDType, Int, Tensor};
use grove_backend::{Backend, ops};
pub use grove_tree::device_of;
use grove_tree::{AnyArray, Array, Filter, Path, Tree};

use crate::leafwise::{precision, takes_part, together, widest};

/// A gradient transformation: a pair of pure functions, `init` and `update`, that map gradients to updates with a
/// state. Every part of an optimizer implements this trait.
///
/// The first part of an optimizer gets the gradients. Each later part gets the output of the part before it.
/// [`apply_updates`] adds the last output to the parameters. The state is a tree, so saving, loading and moving it
/// needs no extra code.
///
/// Updates and states are f32 from the first transformation on, whatever the parameters' dtype; f64 stays f64. Absent
/// updates and leaves that are not floating-point stay unchanged and have absent states. [`init`](Self::init) of a
/// skeleton returns the skeleton of the state.
///
/// A part of an optimizer may have no leaves, because all parameters are matrices or all are frozen. Its device is
/// unknown, so its state is a skeleton, including step counts. `update` then returns the empty updates and the
/// unchanged state.
///
/// # Custom transformations
/// [`stateless`](crate::stateless) makes a transformation from a function of updates and parameters, and
/// [`gradient_transformation`](crate::gradient_transformation) from two functions. [`elementwise`](crate::elementwise)
/// maps over the leaves, and [`zeros_like`](crate::zeros_like), [`zero_count`] and [`increment`] make states. A
/// transformation that reads its count calls [`has_no_leaves`] first. This example returns the sign of the momentum:
///
/// ```
/// use grove_backend::Backend;
/// use grove_optim::{GradientTransformation, chain, elementwise, gradient_transformation, scale, zeros_like};
/// use grove_tree::{Array, Tree};
/// # use burn::tensor::Tensor;
///
/// fn scale_by_signum<B: Backend, P: Tree<B>>(decay: f64) -> impl GradientTransformation<B, P> {
///     gradient_transformation(zeros_like, move |updates: P, mu, _params| {
///         let formula = |[g, mu]: [Tensor<B, 1>; 2]| {
///             let mu = mu * decay + g * (1.0 - decay);
///             [mu.clone().sign(), mu]
///         };
///         elementwise([updates, mu], formula).into()
///     })
/// }
///
/// # type B = burn_flex::Flex;
/// let params = Array::<B, 1>::new(Tensor::from_floats([1.0, 2.0], &Default::default()));
/// let grads = Array::<B, 1>::new(Tensor::from_floats([3.0, -4.0], &Default::default()));
/// let optimizer = chain((scale_by_signum(0.9), scale(-0.1)));
/// let (params, _state) = optimizer.step(grads, optimizer.init(&params), params);
/// params.val().to_data().assert_approx_eq::<f32>(&[0.9f32, 2.1].into(), Default::default());
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a gradient transformation of `{P}`",
    label = "not a gradient transformation",
    note = "a chain is a tuple of at most 8 transformations; for more, nest tuples or collect `boxed` parts in a `Vec`",
    note = "`{P}` must be a tree on the backend `{B}`: `#[derive(Tree)]`"
)]
pub trait GradientTransformation<B: Backend, P: Tree<B>> {
    /// State that is carried from step to step.
    type State: Tree<B>;

    /// Returns the state before the first step.
    fn init(&self, params: &P) -> Self::State;

    /// Returns the new updates and the next state. Takes updates and state by value, so that their memory can be
    /// reused.
    ///
    /// # Panics
    /// If updates, state and parameters do not have the same structure.
    fn update(&self, updates: P, state: Self::State, params: &P) -> (P, Self::State);

    /// Makes one step and returns the new parameters: [`update`](Self::update), then [`apply_updates`]. The last part
    /// of an optimizer may fuse both into one pass over each leaf; results agree within rounding.
    ///
    /// # Panics
    /// As [`update`](Self::update).
    fn step(&self, updates: P, state: Self::State, params: P) -> (P, Self::State) {
        let (updates, state) = self.update(updates, state, &params);
        (apply_updates(params, updates), state)
    }
}

/// Applies transformations in sequence. A tuple already is a chain; this function returns it unchanged.
///
/// ```
/// use grove_optim::{GradientTransformation, apply_updates, chain, clip_by_global_norm, scale};
/// use grove_tree::Array;
/// use burn::tensor::Tensor;
/// # type B = burn_flex::Flex;
/// let params = Array::<B, 1>::new(Tensor::from_floats([1.0, 2.0], &Default::default()));
/// let grads = Array::<B, 1>::new(Tensor::from_floats([3.0, 4.0], &Default::default()));
/// let optimizer = chain((clip_by_global_norm(1.0), scale(-0.5)));
/// let state = optimizer.init(&params);
/// let (updates, _state) = optimizer.update(grads, state, &params);
/// let params = apply_updates(params, updates);
/// params.val().to_data().assert_approx_eq::<f32>(&[0.7f32, 1.6].into(), Default::default());
/// ```
pub fn chain<T>(transformations: T) -> T {
    transformations
}

/// Adds updates to parameters. A parameter whose update is absent stays unchanged. Parameters keep their dtype.
///
/// ```
/// use burn::tensor::Tensor;
/// use grove_optim::apply_updates;
/// use grove_tree::Array;
/// # type B = burn_flex::Flex;
/// let params = Array::<B, 1>::new(Tensor::from_floats([1.0, 2.0], &Default::default()));
/// let updates = Array::<B, 1>::new(Tensor::from_floats([0.5, -1.0], &Default::default()));
/// assert_eq!(apply_updates(params, updates).val().to_data().to_vec::<f32>().unwrap(), [1.5, 1.0]);
/// ```
///
/// # Panics
/// If parameters and updates do not have the same structure.
pub fn apply_updates<B: Backend, P: Tree<B>>(params: P, updates: P) -> P {
    let [params, _] = together([params, updates], |_, [param, update]| {
        let dtype = param.dtype();
        let absent = update.clone().into_absent();
        if !dtype.is_float() || !param.is_present() || !update.is_present() {
            return [param, absent];
        }
        let wide = widest([dtype, update.dtype()]);
        let sum = param.cast_float(wide).try_add(update.cast_float(wide));
        [sum.expect("both are present and float").cast_float(dtype.into()), absent]
    });
    end_step(&params);
    params
}

/// Marks the end of the train step that computed these parameters, on lazy backends.
pub(crate) fn end_step<B: Backend, P: Tree<B>>(params: &P) {
    if B::LAZY
        && let Some(device) = device_of(params)
    {
        B::end_step(&device, 0);
    }
}

/// Panics if a path pattern of a mask matches no parameter.
#[track_caller]
pub(crate) fn check_mask<B: Backend, P: Tree<B>>(mask: &Filter<B>, params: &P) {
    if let Err(error) = mask.check(params) {
        panic!("a mask of an optimizer: {error} (`Filter::optional` allows it)");
    }
}

/// A step count: an integer `[1]` on the device of the parameters.
pub type Count<B> = Array<B, 1, Int>;

/// Returns the count before the first step, 0. It is absent for a skeleton and for a tree without leaves.
pub fn zero_count<B: Backend, P: Tree<B>>(params: &P) -> Count<B> {
    match device_of(params) {
        Some(device) => Array::new(Tensor::zeros([1], &device)),
        None => Array::absent([1]),
    }
}

/// Increments a count. An absent count stays absent.
pub fn increment<B: Backend>(count: Count<B>) -> Count<B> {
    if count.is_present() { Array::new(count.val().add_scalar(1)) } else { count }
}

/// Returns true if the count of the state is absent, so that it cannot be read, and there is nothing to update: this
/// part of the optimizer has no leaves.
///
/// # Panics
/// If the count is absent and there is a gradient.
#[track_caller]
pub fn has_no_leaves<B: Backend, P: Tree<B>>(updates: &P, count: &Count<B>) -> bool {
    if count.is_present() {
        return false;
    }
    updates.visit(&mut Path::root(), &mut |path: &Path, leaf: &AnyArray<B>| {
        assert!(
            !takes_part(leaf),
            "`{path}` has a gradient, but the optimizer's state is empty or a skeleton: create the state with \
             `init` from the parameters that are trained"
        );
    });
    true
}

/// Converts a count to f32 or f64, whatever the device's default dtype. f32 is exact up to 2^24.
pub(crate) fn steps<B: Backend>(count: &Count<B>, dtype: FloatDType) -> Tensor<B, 1> {
    ops::int_into_float(count.val(), dtype)
}

/// Increments a count. Also returns it as [`steps`], in the precision of the updates.
pub(crate) fn next_step<B: Backend, P: Tree<B>>(count: Count<B>, updates: &P) -> (Count<B>, Tensor<B, 1>) {
    let count = increment(count);
    let steps = steps(&count, precision(updates));
    (count, steps)
}

/// Clamps a number of steps to compare counts with: not every device has integers of more than 32 bits.
pub(crate) fn bound(steps: u64) -> i64 {
    steps.min(i32::MAX as u64) as i64
}

macro_rules! chains {
    ($($T:ident $i:tt,)* > $L:ident $l:tt) => {
        impl<B, P, $($T,)* $L> GradientTransformation<B, P> for ($($T,)* $L,)
        where
            B: Backend,
            P: Tree<B>,
            $($T: GradientTransformation<B, P>,)*
            $L: GradientTransformation<B, P>,
        {
            type State = ($($T::State,)* $L::State,);

            fn init(&self, params: &P) -> Self::State {
                ($(self.$i.init(params),)* self.$l.init(params),)
            }

            fn update(&self, updates: P, state: Self::State, params: &P) -> (P, Self::State) {
                $(let (updates, $T) = self.$i.update(updates, state.$i, params);)*
                let (updates, $L) = self.$l.update(updates, state.$l, params);
                (updates, ($($T,)* $L,))
            }

            fn step(&self, updates: P, state: Self::State, params: P) -> (P, Self::State) {
                $(let (updates, $T) = self.$i.update(updates, state.$i, &params);)*
                let (params, $L) = self.$l.step(updates, state.$l, params);
                (params, ($($T,)* $L,))
            }
        }
    };
}
#[allow(non_snake_case)]
mod chains {
    use super::*;
    chains!(> T0 0);
    chains!(T0 0, > T1 1);
    chains!(T0 0, T1 1, > T2 2);
    chains!(T0 0, T1 1, T2 2, > T3 3);
    chains!(T0 0, T1 1, T2 2, T3 3, > T4 4);
    chains!(T0 0, T1 1, T2 2, T3 3, T4 4, > T5 5);
    chains!(T0 0, T1 1, T2 2, T3 3, T4 4, T5 5, > T6 6);
    chains!(T0 0, T1 1, T2 2, T3 3, T4 4, T5 5, T6 6, > T7 7);
}

/// `None` returns updates unchanged.
impl<B: Backend, P: Tree<B>, T: GradientTransformation<B, P>> GradientTransformation<B, P> for Option<T> {
    type State = Option<T::State>;

    fn init(&self, params: &P) -> Self::State {
        self.as_ref().map(|inner| inner.init(params))
    }

    fn update(&self, updates: P, state: Self::State, params: &P) -> (P, Self::State) {
        match (self, state) {
            (Some(inner), Some(state)) => {
                let (updates, state) = inner.update(updates, state, params);
                (updates, Some(state))
            }
            (None, None) => (updates, None),
            _ => panic!("the state does not belong to this chain: an optional transformation came or went"),
        }
    }

    fn step(&self, updates: P, state: Self::State, params: P) -> (P, Self::State) {
        match (self, state) {
            (Some(inner), Some(state)) => {
                let (params, state) = inner.step(updates, state, params);
                (params, Some(state))
            }
            (None, None) => (apply_updates(params, updates), None),
            _ => panic!("the state does not belong to this chain: an optional transformation came or went"),
        }
    }
}

impl<B: Backend, P: Tree<B>, T: GradientTransformation<B, P> + ?Sized> GradientTransformation<B, P> for &T {
    type State = T::State;

    fn init(&self, params: &P) -> Self::State {
        (**self).init(params)
    }

    fn update(&self, updates: P, state: Self::State, params: &P) -> (P, Self::State) {
        (**self).update(updates, state, params)
    }

    fn step(&self, updates: P, state: Self::State, params: P) -> (P, Self::State) {
        (**self).step(updates, state, params)
    }
}
