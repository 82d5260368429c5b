use grove_backend::Backend;
use grove_tree::{AnyArray, Tree, map_together};

/// One step of an exponential moving average of a model: `decay * average + (1 - decay) * model`, leaf by leaf. Leaves
/// that are not floating-point numbers are the model's.
pub fn ema_step<B: Backend, M: Tree<B>>(average: M, model: &M, decay: f64) -> M {
    let [average, _] = map_together([average, model.clone()], |_, [average, value]: [AnyArray<B>; 2]| {
        if !value.is_present() || !value.dtype().is_float() {
            return [value.clone(), value];
        }
        let moved = average.mul_scalar(decay).try_add(value.clone().mul_scalar(1.0 - decay));
        [moved.expect("an average of the model itself"), value]
    })
    .expect("an average of the model itself");
    average
}

/// The decay of a step, counted from 0: less at the begin, so that initial weights are soon forgotten.
pub(crate) fn ema_decay(decay: f64, step: u64) -> f64 {
    decay.min((1.0 + step as f64) / (10.0 + step as f64))
}
