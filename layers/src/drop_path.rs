use burn::tensor::Tensor;
use grove_backend::Backend;
use grove_tree::Key;

use crate::dropout;

/// Applies stochastic depth to a residual branch (Huang et al., "Deep Networks with Stochastic Depth", 2016,
/// <https://arxiv.org/abs/1603.09382>): sets each example of the batch (first axis) to 0 with probability `rate` and
/// divides the others by `1 - rate`. Returns the input without a key, or with rate 0.
#[track_caller]
pub fn drop_path<B: Backend, const D: usize>(x: Tensor<B, D>, rate: f64, key: Option<Key>) -> Tensor<B, D> {
    let Some(key) = key.filter(|_| rate > 0.0) else { return x };
    let shape = x.dims();
    let size: usize = shape[1..].iter().product();
    let factors = dropout(Tensor::<B, 2>::ones([shape[0], 1], (&x.device(), x.dtype())), rate, Some(key));
    (x.reshape([shape[0], size]) * factors).reshape(shape)
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn_flex::Flex;

    #[test]
    fn drops_whole_examples_and_keeps_the_mean() {
        let ones = || Tensor::<Flex, 3>::ones([4000, 2, 3], &Default::default());
        let values: Vec<f32> = drop_path(ones(), 0.2, Some(Key::new(1))).to_data().to_vec().unwrap();
        let rows: Vec<&[f32]> = values.chunks(6).collect();
        assert!(rows.iter().all(|row| row.iter().all(|&x| x == row[0] && (x == 0.0 || x == 1.25))));
        let dropped = rows.iter().filter(|row| row[0] == 0.0).count();
        assert!((700..900).contains(&dropped), "{dropped} of 4000 dropped");
        assert_eq!(drop_path(ones(), 0.2, None).to_data(), ones().to_data());
        assert_eq!(drop_path(ones(), 0.0, Some(Key::new(1))).to_data(), ones().to_data());
    }
}
