use burn::tensor::{DType, Tensor, TensorData};
use grove_backend::Backend;
use grove_tree::Key;

/// Sets elements to 0 with probability `rate` and divides the others by `1 - rate`, so that the mean stays
/// (Srivastava et al., 2014). Without a key, or with rate 0, nothing happens. Any shape.
pub fn dropout<B: Backend, const D: usize>(x: Tensor<B, D>, rate: f64, key: Option<Key>) -> Tensor<B, D> {
    match key.and_then(|key| dropout_factors(x.dims(), rate, key, x.dtype(), &x.device())) {
        Some(factors) => x * factors,
        None => x,
    }
}

/// What [`dropout`] multiplies by; `None` with rate 0.
pub(crate) fn dropout_factors<B: Backend, const D: usize>(
    shape: [usize; D],
    rate: f64,
    key: Key,
    dtype: DType,
    device: &B::Device,
) -> Option<Tensor<B, D>> {
    if rate <= 0.0 {
        return None;
    }
    let keep = 1.0 - rate;
    let scale = if keep > 0.0 { (1.0 / keep) as f32 } else { 0.0 };
    let kept = key.bernoulli_vec(shape.iter().product(), keep as f32);
    let factors = kept.into_iter().map(|kept| if kept { scale } else { 0.0 }).collect();
    Some(Tensor::<B, D>::from_data(TensorData::new(factors, shape), device).cast(dtype))
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn_flex::Flex;

    #[test]
    fn keeps_the_mean_and_follows_the_key() {
        let ones = || Tensor::<Flex, 2>::ones([200, 50], &Default::default());
        let dropped = dropout(ones(), 0.25, Some(Key::new(1)));
        let values: Vec<f32> = dropped.to_data().to_vec().unwrap();
        let zeros = values.iter().filter(|&&x| x == 0.0).count();
        assert!((2300..2700).contains(&zeros), "{zeros} of 10000 dropped");
        assert!(values.iter().all(|&x| x == 0.0 || x == 1.0 / 0.75));
        assert_eq!(dropped.to_data(), dropout(ones(), 0.25, Some(Key::new(1))).to_data());
        assert_ne!(dropped.to_data(), dropout(ones(), 0.25, Some(Key::new(2))).to_data());
        assert_eq!(dropout(ones(), 0.25, None).to_data(), ones().to_data());
    }
}
