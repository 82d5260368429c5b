use burn::tensor::Tensor;
use grove_backend::Backend;

/// Splits the last axis into attention heads.
///
/// # Shapes
/// - input `[b, t, n_head * head_dim]`
/// - output `[b, n_head, t, head_dim]`
///
/// # Panics
/// If the number of heads does not divide the last axis.
#[track_caller]
pub fn to_heads<B: Backend>(x: Tensor<B, 3>, n_head: usize) -> Tensor<B, 4> {
    let [b, t, size] = x.dims();
    assert!(
        n_head > 0 && size.is_multiple_of(n_head),
        "{size} values per position are not divisible by {n_head} heads"
    );
    x.reshape([b, t, n_head, size / n_head]).swap_dims(1, 2)
}

/// Concatenates attention heads; the inverse of [`to_heads`].
///
/// # Shapes
/// - input `[b, n_head, t, head_dim]`
/// - output `[b, t, n_head * head_dim]`
#[track_caller]
pub fn join_heads<B: Backend>(x: Tensor<B, 4>) -> Tensor<B, 3> {
    let [b, n_head, t, head_dim] = x.dims();
    x.swap_dims(1, 2).reshape([b, t, n_head * head_dim])
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn_flex::Flex;

    #[test]
    fn heads_are_consecutive_values_of_a_position() {
        let x = Tensor::<Flex, 3>::from_data([[[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]]], &Default::default());
        let heads = to_heads(x.clone(), 2);
        let expected = [[[[1.0, 2.0], [5.0, 6.0]], [[3.0, 4.0], [7.0, 8.0]]]];
        assert_eq!(heads.to_data(), Tensor::<Flex, 4>::from_data(expected, &Default::default()).to_data());
        assert_eq!(join_heads(heads).to_data(), x.to_data());
    }

    #[test]
    #[should_panic(expected = "4 values per position are not divisible by 3 heads")]
    fn refuses_heads_of_unequal_sizes() {
        to_heads(Tensor::<Flex, 3>::zeros([1, 2, 4], &Default::default()), 3);
    }
}
