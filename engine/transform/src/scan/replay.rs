use grove_backend::{Autodiff, Backend};
use grove_tree::{Path, Tree, device_of, skeleton};

use super::{RematScan, no_steps};
use crate::{
    stack::{Stack, Unstack, rows, stack, stack_rows},
    tape::{Column, Seeds, Tape, accumulate, clear_tape, column, from_inner, lift_leaf, track, track_params, typed},
};

/// One step of a stacked tree, on the autodiff backend.
pub(super) type Step<B, X> = <<X as Tree<B>>::On<Autodiff<B>> as Unstack<Autodiff<B>>>::Step;

/// State of a scan after its forward pass, from which its segments can be run again.
pub(super) struct Replay<B: Backend, P: Tree<B>, C: Tree<B>, X: Tree<B>, F> {
    options: RematScan,
    steps: usize,
    every: usize,
    params: P,
    init: C,
    xs: X,
    /// Carries at the starts of the segments.
    starts: Vec<C::On<Autodiff<B>>>,
    f: F,
}

impl<B, P, C, X, Y, F> Replay<B, P, C, X, F>
where
    B: Backend,
    P: Tree<B>,
    C: Tree<B>,
    X: Tree<B>,
    X::On<Autodiff<B>>: Unstack<Autodiff<B>>,
    Y: Stack<Autodiff<B>>,
    F: Fn(&P::On<Autodiff<B>>, C::On<Autodiff<B>>, Step<B, X>) -> (C::On<Autodiff<B>>, Y),
{
    /// Runs the forward pass. It runs on the autodiff backend too, so that `f` has one type for both passes. Nothing is
    /// tracked, so no residuals are stored. Returns the last carry and the `ys`.
    #[track_caller]
    pub(super) fn forward(
        options: RematScan,
        params: P,
        init: C,
        xs: X,
        f: F,
    ) -> (C::On<Autodiff<B>>, Y::Stacked, Self) {
        let steps = options.scan.steps(&xs);
        let every = options.every.unwrap_or_else(|| steps.isqrt() + usize::from(steps.isqrt().pow(2) < steps)).max(1);
        let device = device_of(&params).or_else(|| device_of(&init)).or_else(|| device_of(&xs));
        let constant = from_inner(params.clone());
        let mut carry = from_inner(init.clone());
        let mut replay = Self { options, steps, every, params, init, xs, starts: Vec::new(), f };
        if steps == 0 {
            let y = |x| (replay.f)(&constant, carry.clone(), x).1;
            let ys = no_steps(y, from_inner(replay.xs.clone()));
            return (carry, ys, replay);
        }
        let mut ys = Vec::with_capacity(steps);
        for from in (0..steps).step_by(every) {
            replay.starts.push(carry.clone());
            for (_, x) in replay.segment(from) {
                let (next, y) = (replay.f)(&constant, carry, x);
                carry = next;
                ys.push(y);
            }
            if let Some(device) = &device {
                clear_tape::<B>(device);
            }
        }
        (carry, stack(options.scan.in_order(ys)), replay)
    }

    /// Returns the steps of `xs` in the segment that starts at `from`, a multiple of `every`, in order of execution,
    /// each with its row in `xs`.
    fn segment(&self, from: usize) -> Vec<(usize, Step<B, X>)> {
        let to = (from + self.every).min(self.steps);
        let range = if self.options.scan.reverse { self.steps - to..self.steps - from } else { from..to };
        let part = self.xs.clone().lift(&mut Path::root(), &mut |_, leaf| lift_leaf(rows(leaf, range.clone()), None));
        let steps = range.clone().zip(part.unstack(range.len()));
        self.options.scan.in_order(steps.collect())
    }

    /// Propagates the gradients of the carry and the `ys` back, and adds the gradients of the parameters to `params`,
    /// which may be empty.
    pub(super) fn backward(mut self, mut params: Column<B>, mut carry: Column<B>, ys: Column<B>) -> (P, C, X) {
        let mut row_grads: Vec<Column<B>> = vec![Vec::new(); self.steps];
        while let Some(start) = self.starts.pop() {
            let mut tape = Tape::new();
            let (constant, tracked_params) = track_params(from_inner(self.params.clone()), &mut tape);
            let (mut state, tracked_start) = track(start, &mut tape);
            // Columns for the parameters, the carry at the start, and each step.
            let mut leaves = vec![tracked_params, tracked_start];
            let mut tracked_rows = Vec::new();
            let mut seeds = Seeds::new();
            for (i, x) in self.segment(self.starts.len() * self.every) {
                let x = if self.options.constant_xs {
                    x
                } else {
                    let (x, tracked) = track(x, &mut tape);
                    tracked_rows.push(i);
                    leaves.push(tracked);
                    x
                };
                let (next, y) = (self.f)(&constant, state, x);
                state = next;
                for (y, ys) in column(&y).into_iter().zip(&ys) {
                    seeds.add(y, ys.as_ref().map(|ys| ys.clone().row(i)));
                }
            }
            for (state, grad) in column(&state).into_iter().zip(carry) {
                seeds.add(state, grad);
            }
            // Everything except the seeds must release the nodes recorded on the tape.
            drop((constant, state));
            let mut grads = tape.gradients(seeds.into_root(), leaves).into_iter();
            let segment = grads.next().unwrap_or_default();
            params.resize(segment.len(), None);
            accumulate::<B>(&mut params, segment);
            carry = grads.next().unwrap_or_default();
            for (i, row) in tracked_rows.into_iter().zip(grads) {
                row_grads[i] = row;
            }
        }
        let xs = if self.options.constant_xs {
            skeleton(self.xs)
        } else {
            let grads = stack_rows(&self.xs, row_grads);
            typed(self.xs, grads)
        };
        (typed(self.params, params), typed(self.init, carry), xs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Scan, value_and_grad, vjp};
    use burn::tensor::{Int, Tensor};
    use burn_flex::Flex;
    use grove_tree::{Array, Key, all_close, eq};
    use std::cell::Cell;

    type B = Flex;
    type A = Autodiff<Flex>;

    /// Recurrent and input weights, and an absent leaf.
    type Params<B> = (Array<B, 2>, Array<B, 2>, Array<B, 1>);
    /// Inputs, and the index of each step.
    type Inputs<B> = (Array<B, 3>, Array<B, 2, Int>);

    fn normal<const D: usize>(seed: u64, shape: [usize; D]) -> Array<B, D> {
        Array::new(Key::new(seed).normal(shape, &Default::default()) * 0.5)
    }

    fn inputs(steps: usize) -> (Params<B>, (Array<B, 2>, ()), Inputs<B>) {
        let ints = Tensor::<B, 1, Int>::arange(0..steps as i64, &Default::default()).reshape([steps, 1]);
        let params = (normal(0, [4, 4]), normal(1, [3, 4]), Array::absent([7]));
        (params, (normal(2, [2, 4]), ()), (normal(3, [steps, 2, 3]), Array::new(ints)))
    }

    /// `tanh(h W + x U)`. The output is multiplied by the step's index plus one.
    fn step(
        (w, u, _): &Params<A>,
        (h, ()): (Array<A, 2>, ()),
        (x, i): (Array<A, 2>, Array<A, 1, Int>),
    ) -> ((Array<A, 2>, ()), Vec<Array<A, 2>>) {
        let h = (h.val().matmul(w.val()) + x.val().matmul(u.val())).tanh();
        let y = h.clone() * (i.val().float() + 1.0).unsqueeze();
        ((Array::new(h), ()), vec![Array::new(y)])
    }

    fn loss((w, _, _): &Params<A>, (h, ()): (Array<A, 2>, ()), ys: Vec<Array<A, 3>>) -> Tensor<A, 1> {
        h.val().sum() * 3.0 + (ys[0].val() * ys[0].val()).sum() + w.val().powf_scalar(2.0).sum()
    }

    #[test]
    fn gradients_match_the_tape() {
        for (steps, every, reverse) in [
            (1, None, false),
            (2, None, false),
            (7, Some(1), false),
            (7, Some(3), true),
            (9, None, true),
            (7, Some(20), false),
        ] {
            let (params, init, xs) = inputs(steps);
            let scan = if reverse { Scan::new().reverse() } else { Scan::new() };
            let (value, grads) = value_and_grad(&(params.clone(), init.clone(), xs.clone()), |(params, init, xs)| {
                let (h, ys) = scan.run(|h, x| step(&params, h, x), init, xs);
                loss(&params, h, ys)
            });
            let calls = Cell::new(0);
            let counted = |params: &_, h, x| {
                calls.set(calls.get() + 1);
                step(params, h, x)
            };
            let remat = scan.remat();
            let remat = every.map_or(remat, |every| remat.every(every));
            let (again, replayed) = remat.value_and_grad(&params, init.clone(), xs.clone(), counted, loss);
            assert_eq!(again.into_scalar(), value.into_scalar());
            assert!(all_close(&replayed, &grads, 1e-5, 1e-6));
            assert_eq!(calls.get(), 2 * steps);
            assert!(!replayed.0.2.is_present() && !replayed.2.1.is_present());

            let (_, data) = remat.constant_xs().value_and_grad(&params, init, xs, step, loss);
            assert!(all_close(&(data.0, data.1), &(replayed.0, replayed.1), 1e-5, 1e-6) && !data.2.0.is_present());
        }
    }

    #[test]
    fn gradients_match_finite_differences() {
        let (params, init, xs) = inputs(6);
        let direction = normal(9, [4, 4]);
        let scan = Scan::new().remat();
        let value = |sign: f64| {
            let moved = Array::new(params.0.val() + direction.val() * (sign * 1e-2));
            let moved = (moved, params.1.clone(), params.2.clone());
            scan.value_and_grad(&moved, init.clone(), xs.clone(), step, loss).0.into_scalar()
        };
        let (_, (grads, _, _)) = scan.value_and_grad(&params, init.clone(), xs.clone(), step, loss);
        let slope = (grads.0.val() * direction.val()).sum().into_scalar();
        let measured = (value(1.0) - value(-1.0)) / 2e-2;
        assert!((slope - measured).abs() < 2e-3 * slope.abs().max(1.0), "{slope} and {measured}");
    }

    #[test]
    fn a_pullback_takes_gradients_further() {
        let (params, init, xs) = inputs(5);
        // The inputs are a function of a parameter: `vjp` on both sides of the scan.
        let scale = normal(5, [1, 1, 1]);
        let scaled = |scale: Array<A, 3>| Array::<A, 3>::new(Tensor::from_inner(xs.0.val()) * scale.val());
        let (seen, pull_scale) = vjp(&scale, scaled);
        let ((h, ys), pull) = Scan::new().remat().vjp(&params, init.clone(), (seen, xs.1.clone()), step);
        let ones = |x: Tensor<B, 2>| Array::<B, 2>::new(x.ones_like());
        let (dparams, dinit, dxs) =
            pull((ones(h.0.val()), ()), ys.into_iter().map(|_| Array::absent([5, 2, 4])).collect());
        let grads = (pull_scale(dxs.0), dparams, dinit);

        let (_, tape) = value_and_grad(&(scale.clone(), params, init), |(scale, params, init)| {
            let i = Array::new(Tensor::from_inner(xs.1.val()));
            let ((h, ()), _) = Scan::new().run(|h, x| step(&params, h, x), init, (scaled(scale), i));
            h.val().sum()
        });
        assert!(all_close(&grads, &tape, 1e-5, 1e-6));
    }

    #[test]
    fn no_steps() {
        let (params, init, xs) = inputs(0);
        let (value, aux) = (normal(2, [2, 4]).val().sum() * 3.0, params.0.val().powf_scalar(2.0).sum());
        let with_carry = |params: &_, h: (Array<A, 2>, ()), ys: Vec<Array<A, 3>>| {
            assert_eq!(ys[0].shape(), [0, 2, 4]);
            (loss(params, h.clone(), ys), h)
        };
        let (found, (dparams, dinit, dxs), last) =
            Scan::new().remat().value_and_grad_aux(&params, init.clone(), xs, step, with_carry);
        assert_eq!(found.into_scalar(), (value + aux).into_scalar());
        assert!(eq(&last, &init) && eq(&dinit.0, &Array::new(init.0.val().ones_like() * 3.0)));
        assert!(eq(&dparams.0, &Array::new(params.0.val() * 2.0)));
        assert_eq!((dparams.1.val().sum().into_scalar(), dxs.0.shape()), (0.0, [0, 2, 3]));
    }
}
