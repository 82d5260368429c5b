use burn::tensor::{FloatDType, Tensor};
use grove_backend::{AnyTensor, Backend, ops};
use grove_tree::{AnyArray, Filter, Path, Tree};

use crate::{
    Scalar, ScaleByAdam, ScaleByAdamState,
    leafwise::{Row, all_at_once, by_kind, check_shape, float, takes_part, widest},
    transformation::{end_step, has_no_leaves, next_step},
    transforms::bias_correction,
};

/// Fused Adam step: rescaling, weight decay, learning rate and addition to the parameters are one operation for each
/// leaf.
pub(super) struct Fused<'a, B: Backend> {
    /// Hyperparameters of Adam. `nesterov` is false.
    pub adam: &'a ScaleByAdam<B>,
    /// Factor of the updates: minus the learning rate.
    pub factor: Scalar<B>,
    /// Weight decay: the fraction of a parameter that is added to its update.
    pub weight_decay: Scalar<B>,
    /// Mask of the parameters that decay; `None` for all.
    pub mask: Option<&'a Filter<B>>,
}

impl<B: Backend> Fused<'_, B> {
    /// Returns the parameters and the state after the step.
    pub fn step<P: Tree<B>>(
        &self,
        updates: P,
        state: ScaleByAdamState<B, P>,
        params: P,
    ) -> (P, ScaleByAdamState<B, P>) {
        if has_no_leaves(&updates, &state.count) {
            return (params, state);
        }
        let (count, steps) = next_step(state.count, &updates);
        let decaying = self.numbers(self.weight_decay.clone(), &steps);
        let others = self.mask.map(|_| self.numbers(0.0.into(), &steps));
        let take = |path: &Path, [g, p, mu, nu]: [AnyArray<B>; 4]| {
            if !takes_part(&g) || !takes_part(&p) {
                return Row::Stays([g, p, mu, nu]);
            }
            if !mu.is_present() || !nu.is_present() {
                panic!(
                    "`{path}` has a gradient, but the optimizer's state has nothing for it: create the state with \
                     `init` from the parameters that are trained"
                );
            }
            for state in [&mu, &nu] {
                check_shape(path, g.shape(), state.shape());
            }
            let decays = self.mask.is_none_or(|mask| mask.passes(path, &p));
            let row = [p, g, mu, nu];
            let wide = widest(row.iter().map(AnyArray::dtype));
            Row::Changes(((wide, decays), row))
        };
        let step = |(wide, decays): (FloatDType, bool), rows: Vec<[AnyArray<B>; 4]>| {
            let numbers = others.as_ref().filter(|_| !decays).unwrap_or(&decaying).clone();
            let numbers = Scalar::Array(numbers).array(&steps.device(), wide);
            // Gradients become absent leaves.
            let absent: Vec<_> = rows.iter().map(|[_, g, ..]| g.clone().into_absent()).collect();
            let rows =
                rows.into_iter().map(|[p, g, mu, nu]| [p, g, mu.cast_float(wide), nu.cast_float(wide)].map(float));
            let after = |(absent, new): (AnyArray<B>, [AnyTensor<B>; 3])| {
                let [p, mu, nu] = new.map(AnyArray::present);
                [absent, p, mu, nu]
            };
            absent.into_iter().zip(ops::adam_step(rows.collect(), numbers)).map(after).collect()
        };
        let [_, params, mu, nu] = all_at_once([updates, params, state.mu, state.nu], take, |rows| by_kind(rows, step));
        end_step(&params);
        (params, ScaleByAdamState { count, mu, nu })
    }

    /// Returns the hyperparameters and bias corrections of [`ops::AdamStep`] as one tensor.
    fn numbers(&self, weight_decay: Scalar<B>, steps: &Tensor<B, 1>) -> Tensor<B, 1> {
        let ScaleByAdam { b1, b2, eps, eps_root, .. } = self.adam;
        let [first, second] = [b1, b2].map(|decay| Scalar::Array(bias_correction(decay, steps.clone())));
        let [b1, b2] = [b1, b2].map(|decay| [decay.clone(), decay.complement()]);
        let rest = [eps.clone(), eps_root.clone(), first, second, self.factor.negated(), weight_decay];
        let all = b1.into_iter().chain(b2).chain(rest);
        Tensor::cat(all.map(|number| number.array_like(steps)).collect(), 0)
    }
}
