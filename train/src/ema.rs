use grove_backend::Backend;
use grove_tree::{AnyArray, Tree, map, zip_map};

/// Updates an exponential moving average of a model: `decay * average + (1 - decay) * model`, leaf by leaf. Leaves that
/// are not floating point are copied from the model.
///
/// The average of a 16-bit leaf is f32, and that of an f64 leaf is f64: in bf16, an update of less than a 256th of the
/// average would be lost. [`ema_model`] casts the average to the model's dtypes.
pub fn ema_step<B: Backend, M: Tree<B>>(average: M, model: &M, decay: f64) -> M {
    let moved = zip_map(average, model, |_, average, value| {
        if !value.is_present() || !value.dtype().is_float() {
            return value;
        }
        let moved = average.widen().mul_scalar(decay).try_add(value.widen().mul_scalar(1.0 - decay));
        moved.expect("an average of the model itself")
    });
    moved.expect("an average of the model itself")
}

/// Casts a moving average of a model to the dtypes of the model, leaf by leaf.
pub fn ema_model<B: Backend, M: Tree<B>>(average: M, model: &M) -> M {
    let typed = zip_map(average, model, |_, average, value| match value.dtype() {
        dtype if dtype.is_float() => average.cast_float(dtype.into()),
        _ => average,
    });
    typed.expect("an average of the model itself")
}

/// Returns the initial average: the model, with 16-bit leaves as f32.
pub(crate) fn ema_start<B: Backend, M: Tree<B>>(model: M) -> M {
    map(model, AnyArray::widen)
}

/// Returns the decay of a 0-based step. It is smaller at the start, so that the initial weights are forgotten quickly.
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

    /// After 1,000 steps from 1 towards 2 with a decay of 0.999, the average is `2 - 0.999^1000`.
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
