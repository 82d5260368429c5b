use burn::tensor::Tensor;
use grove_backend::{Autodiff, Backend};
use grove_tree::{Tree, skeleton};

use super::{
    Scan,
    replay::{Replay, Step},
};
use crate::{
    grad::one_number,
    stack::{Stack, Unstack},
    tape::{Tape, check_cotangent, column, from_inner, lower, track, track_params},
};

/// A tree lifted to the autodiff backend.
type Lifted<B, T> = <T as Tree<B>>::On<Autodiff<B>>;
/// A tree of the autodiff backend moved back to the inner backend.
type Lowered<B, T> = <T as Tree<Autodiff<B>>>::On<B>;

/// A [`Scan`] whose backward pass stores few carries and recomputes the steps, as `jax.checkpoint` inside
/// `jax.lax.scan`.
///
/// The steps are divided into segments. The forward pass stores only the carry at the start of each segment. The
/// backward pass runs each segment again, from the last to the first, and differentiates it. With `t` steps in segments
/// of `k`, memory holds `t / k` carries plus the residuals of `k` steps, instead of the residuals of `t` steps, and `f`
/// is called `2 t` times. Measured on flex, in addition to parameters and `xs`, for `tanh(h W + x)` with `h` `[32,
/// 256]` and 2000 steps: 145 MB for [`scan`](crate::scan()) under `value_and_grad`, 7 MB for a scan with `remat`, which
/// takes about twice the time.
///
/// `f` receives the parameters, the carry and one step of `xs`, all on the autodiff backend. A second call of `f` must
/// compute the same result: take randomness from keys. Captured values are constants and must not be on a tape.
///
/// # Why this is not an option of `value_and_grad`
/// Running a segment again needs a backward pass within the backward pass, which deadlocks in Burn 0.21: a backward
/// pass holds the lock of its graph and ends by taking the lock of every graph. A scan with `remat` can therefore not
/// be a node of Burn's graph, and must be the outermost differentiated function. Put computations after the scan into
/// the `loss` of [`value_and_grad`](Self::value_and_grad). Put computations before the scan into a
/// [`vjp`](crate::vjp()), whose pullback receives the gradients of `init` and `xs`.
#[derive(Clone, Copy, Debug)]
pub struct RematScan {
    pub(super) scan: Scan,
    pub(super) every: Option<usize>,
    pub(super) constant_xs: bool,
}

impl RematScan {
    pub(super) fn new(scan: Scan) -> Self {
        Self { scan, every: None, constant_xs: false }
    }

    /// Sets the number of steps per segment. Default: the square root of the number of steps, rounded up.
    ///
    /// # Panics
    /// If `steps` is zero.
    pub fn every(self, steps: usize) -> Self {
        assert!(steps > 0, "a segment has at least one step");
        Self { every: Some(steps), ..self }
    }

    /// Treats `xs` as constants: their gradients are absent and not computed.
    pub fn constant_xs(self) -> Self {
        Self { constant_xs: true, ..self }
    }

    /// Returns the last carry and the `ys`, and a pullback from their gradients to the gradients of `params`, `init`
    /// and `xs`. As in [`vjp`](crate::vjp()), gradients of integers and absent leaves are absent, and an absent
    /// gradient as input counts as zero.
    ///
    /// # Panics
    /// Same as [`Scan::run`]. The pullback panics if the leaves and shapes of its arguments differ from the carry and the
    /// `ys`.
    ///
    /// ```
    /// use burn::tensor::Tensor;
    /// use grove_transform::Scan;
    /// use grove_tree::Array;
    /// # type B = burn_flex::Flex;
    /// # let array = |x: f32| Array::<B, 1>::new(Tensor::from_floats([x], &Default::default()));
    /// // x -> a x, five times
    /// let ((carry, ()), pullback) = Scan::new().length(5).remat().vjp(
    ///     &array(2.0),
    ///     array(3.0),
    ///     (),
    ///     |a, x, ()| (Array::new(a.val() * x.val()), ()),
    /// );
    /// assert_eq!(carry.val().into_scalar(), 96.0);
    /// let (da, dx, ()) = pullback(array(1.0), ());
    /// assert_eq!((da.val().into_scalar(), dx.val().into_scalar()), (240.0, 32.0));
    /// ```
    #[track_caller]
    #[allow(clippy::type_complexity)]
    pub fn vjp<B, P, C, X, Y, F>(
        self,
        params: &P,
        init: C,
        xs: X,
        f: F,
    ) -> (
        (Lowered<B, Lifted<B, C>>, Lowered<B, Y::Stacked>),
        impl FnOnce(Lowered<B, Lifted<B, C>>, Lowered<B, Y::Stacked>) -> (P, C, X) + use<B, P, C, X, Y, F>,
    )
    where
        B: Backend,
        P: Tree<B>,
        C: Tree<B>,
        X: Tree<B>,
        X::On<Autodiff<B>>: Unstack<Autodiff<B>>,
        Y: Stack<Autodiff<B>>,
        F: Fn(&P::On<Autodiff<B>>, C::On<Autodiff<B>>, Step<B, X>) -> (C::On<Autodiff<B>>, Y),
    {
        let (carry, ys, replay) = Replay::forward(self, params.clone(), init, xs, f);
        let (carry, ys) = (lower(carry), lower(ys));
        let shapes = (skeleton(carry.clone()), skeleton(ys.clone()));
        let pullback = move |carry_grad, ys_grad| {
            check_cotangent("the carry", &shapes.0, &carry_grad);
            check_cotangent("the ys", &shapes.1, &ys_grad);
            replay.backward(Vec::new(), column(&carry_grad), column(&ys_grad))
        };
        ((carry, ys), pullback)
    }

    /// Returns a loss of the parameters, the last carry and the `ys`, and its gradients with respect to `params`,
    /// `init` and `xs`. The gradients of the parameters include the steps and the loss. Buffers have no gradients.
    ///
    /// # Panics
    /// Same as [`Scan::run`], and if the loss does not have exactly one value.
    ///
    /// ```
    /// use burn::tensor::Tensor;
    /// use grove_transform::Scan;
    /// use grove_tree::Array;
    /// # type B = burn_flex::Flex;
    /// # let array = |x: f32| Array::<B, 1>::new(Tensor::from_floats([x], &Default::default()));
    /// let xs = Array::<B, 2>::new(Tensor::from_floats([[1.0], [2.0], [3.0]], &Default::default()));
    /// // A leaky sum: ((1 a + 2) a + 3), and a itself as a penalty.
    /// let (loss, (da, _, dxs)) = Scan::new().remat().value_and_grad(
    ///     &array(0.5),
    ///     array(0.0),
    ///     xs,
    ///     |a, sum, x| (Array::new(a.val() * sum.val() + x.val()), ()),
    ///     |a, sum, ()| sum.val() + a.val(),
    /// );
    /// assert_eq!(loss.into_scalar(), 4.75);
    /// assert_eq!(da.val().into_scalar(), 4.0);
    /// assert_eq!(dxs.val().to_data().to_vec::<f32>().unwrap(), [0.25, 0.5, 1.0]);
    /// ```
    #[track_caller]
    pub fn value_and_grad<B, P, C, X, Y, F>(
        self,
        params: &P,
        init: C,
        xs: X,
        f: F,
        loss: impl FnOnce(&P::On<Autodiff<B>>, C::On<Autodiff<B>>, Y::Stacked) -> Tensor<Autodiff<B>, 1>,
    ) -> (Tensor<B, 1>, (P, C, X))
    where
        B: Backend,
        P: Tree<B>,
        C: Tree<B>,
        X: Tree<B>,
        X::On<Autodiff<B>>: Unstack<Autodiff<B>>,
        Y: Stack<Autodiff<B>>,
        F: Fn(&P::On<Autodiff<B>>, C::On<Autodiff<B>>, Step<B, X>) -> (C::On<Autodiff<B>>, Y),
    {
        let loss = |params: &_, carry, ys| (loss(params, carry, ys), ());
        let (value, grads, ()) = self.value_and_grad_aux(params, init, xs, f, loss);
        (value, grads)
    }

    /// Like [`value_and_grad`](Self::value_and_grad), for a loss that also returns an auxiliary tree, such as metrics or
    /// the last carry, from which the next batch continues.
    ///
    /// # Panics
    /// Same as [`Scan::run`].
    #[track_caller]
    pub fn value_and_grad_aux<B, P, C, X, Y, F, O>(
        self,
        params: &P,
        init: C,
        xs: X,
        f: F,
        loss: impl FnOnce(&P::On<Autodiff<B>>, C::On<Autodiff<B>>, Y::Stacked) -> (Tensor<Autodiff<B>, 1>, O),
    ) -> (Tensor<B, 1>, (P, C, X), O::On<B>)
    where
        B: Backend,
        P: Tree<B>,
        C: Tree<B>,
        X: Tree<B>,
        X::On<Autodiff<B>>: Unstack<Autodiff<B>>,
        Y: Stack<Autodiff<B>>,
        F: Fn(&P::On<Autodiff<B>>, C::On<Autodiff<B>>, Step<B, X>) -> (C::On<Autodiff<B>>, Y),
        O: Tree<Autodiff<B>>,
    {
        let (carry, ys, replay) = Replay::forward(self, params.clone(), init, xs, f);
        let mut tape = Tape::new();
        let (params, tracked_params) = track_params(from_inner(params.clone()), &mut tape);
        let (carry, tracked_carry) = track(carry, &mut tape);
        let (ys, tracked_ys) = track(ys, &mut tape);
        let (loss, aux) = loss(&params, carry, ys);
        one_number(&loss);
        drop(params);
        let (value, aux) = (loss.clone().inner(), lower(aux));
        tape.on(Some(value.device()));
        let leaves = vec![tracked_params, tracked_carry, tracked_ys];
        let mut grads = tape.gradients(Some(loss.into()), leaves).into_iter();
        let [params, carry, ys] = std::array::from_fn(|_| grads.next().unwrap_or_default());
        (value, replay.backward(params, carry, ys), aux)
    }
}
