use grove_backend::Backend;
use grove_tree::{AnyArray, Tree, map, map_together, zip_map};

/// One step of an exponential moving average of a model: `decay * average + (1 - decay) * model`, leaf by leaf. Leaves
/// that are not floating-point numbers are the model's.
///
/// The average of a leaf of 16 bits is f32, and that of f64 is f64: in bf16 a step of less than a 256th of an average
/// would be lost. [`ema_model`] gives the average in the model's own types.
pub fn ema_step<B: Backend, M: Tree<B>>(average: M, model: &M, decay: f64) -> M {
    let [average, _] = map_together([average, model.clone()], |_, [average, value]: [AnyArray<B>; 2]| {
        if !value.is_present() || !value.dtype().is_float() {
            return [value.clone(), value];
        }
        let (average, wide) = (average.widen(), value.clone().widen());
        let moved = average.mul_scalar(decay).try_add(wide.mul_scalar(1.0 - decay));
        [moved.expect("an average of the model itself"), value]
    })
    .expect("an average of the model itself");
    average
}

/// A moving average of a model as a model like it: each leaf in the type of the model's.
pub fn ema_model<B: Backend, M: Tree<B>>(average: M, model: &M) -> M {
    let typed = zip_map(average, model, |_, average, value| match value.dtype() {
        dtype if dtype.is_float() => average.cast_float(dtype.into()),
        _ => average,
    });
    typed.expect("an average of the model itself")
}

/// The average before the first step.
pub(crate) fn ema_start<B: Backend, M: Tree<B>>(model: M) -> M {
    map(model, AnyArray::widen)
}

/// The decay of a step, counted from 0: less at the start, so that initial weights are soon forgotten.
pub(crate) fn ema_decay(decay: f64, step: u64) -> f64 {
    decay.min((1.0 + step as f64) / (10.0 + step as f64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{DType, Tensor};
    use burn_flex::Flex;
    use grove_tree::Array;

    fn leaf(x: f64, dtype: DType) -> Array<Flex, 1> {
        Array::new(Tensor::from_data([x], (&burn_flex::FlexDevice, dtype)))
    }

    /// After 1,000 steps from 1 towards 2 with a decay of 0.999 an average is `2 - 0.999^1000`.
    #[test]
    fn averages_of_16_bits_move() {
        for (dtype, wide, tolerance) in
            [(DType::BF16, DType::F32, 1e-5), (DType::F16, DType::F32, 1e-5), (DType::F64, DType::F64, 1e-12)]
        {
            let model = leaf(2.0, dtype);
            let mut average = ema_start::<Flex, _>(leaf(1.0, dtype));
            for _ in 0..1_000 {
                average = ema_step(average, &model, 0.999);
            }
            assert_eq!(average.dtype(), wide);
            let found = average.val().into_data().iter::<f64>().next().unwrap();
            assert!((found - (2.0 - 0.999f64.powi(1_000))).abs() < tolerance, "{dtype:?}: {found}");
            assert_eq!(ema_model::<Flex, _>(average, &model).dtype(), dtype);
        }
    }

    #[test]
    fn an_average_that_began_as_the_model_itself() {
        let model = leaf(2.0, DType::BF16);
        let average = ema_step::<Flex, _>(leaf(1.0, DType::BF16), &model, 0.999);
        assert!((average.val().into_scalar() - 1.001).abs() < 1e-6);
    }
}
