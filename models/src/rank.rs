//! Top-k selection.

/// Returns the indices of the `k` largest values in descending order. Ties are broken by the smaller index.
pub fn largest(values: &[f32], k: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    let by_value = |a: &usize, b: &usize| values[*b].total_cmp(&values[*a]).then(a.cmp(b));
    let k = k.min(order.len());
    if k > 0 && k < order.len() {
        order.select_nth_unstable_by(k - 1, by_value);
    }
    order.truncate(k);
    order.sort_by(by_value);
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_come_first() {
        assert_eq!(largest(&[0.1, 0.7, 0.2, 0.7], 3), [1, 3, 2]);
        assert_eq!(largest(&[0.1, 0.7], 5), [1, 0]);
        assert!(largest(&[0.1], 0).is_empty());
    }
}
