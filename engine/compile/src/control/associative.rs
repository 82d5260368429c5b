//! Parallel scans with associative functions.

use grove_backend::{AnyTensor, Backend};
use grove_tree::Tree;

use super::nested::{arrays_of, filled, leaves_of};

/// Computes the prefixes of an associative function: `jax.lax.associative_scan`. The function is called at most `2 log2(n)`
/// times, each time on many rows.
///
/// The function receives two trees with the same number of rows and combines them row by row; the rows of the first tree come
/// before the corresponding rows of the second. It combines the same rows as JAX, so results agree up to the rounding of the
/// function. For a reverse scan, [`flip`](burn::tensor::Tensor::flip) the arguments and results. For a function that is not
/// associative, use [`scan`](crate::scan()).
///
/// # Shapes
/// - leaf of `xs` and of the result `[n, ...]`
///
/// # Panics
/// If the leaves differ in `n`, or the function changes the structure or the shape of a row.
///
/// ```
/// use burn::tensor::Tensor;
/// use grove_compile::associative_scan;
/// use grove_tree::Array;
/// # type B = burn_flex::Flex;
/// // x -> a x + b, one after the other.
/// type Affine = (Array<B, 1>, Array<B, 1>);
/// let then = |(a, b): Affine, (c, d): Affine| -> Affine {
///     ((a.val() * c.val()).into(), (b.val() * c.val() + d.val()).into())
/// };
/// let array = |x: [f32; 3]| Array::<B, 1>::new(Tensor::from_floats(x, &Default::default()));
/// let (a, b) = associative_scan(then, (array([1.0, 2.0, 3.0]), array([1.0, 1.0, 1.0])));
/// assert_eq!(a.val().to_data().to_vec::<f32>().unwrap(), [1.0, 2.0, 6.0]);
/// assert_eq!(b.val().to_data().to_vec::<f32>().unwrap(), [1.0, 3.0, 10.0]);
/// ```
#[track_caller]
pub fn associative_scan<B: Backend, T: Tree<B>>(f: impl Fn(T, T) -> T, xs: T) -> T {
    let leaves = leaves_of(&xs);
    let arrays = arrays_of(&xs);
    let mut rows = arrays.iter().map(|x| x.shape().first().copied());
    let Some(Some(first)) = rows.next() else { return xs };
    if let Some(other) = rows.find(|rows| *rows != Some(first)) {
        panic!(
            "the leaves of `associative_scan` have {first} and {} rows: give all leaves the same number of rows",
            other.unwrap_or_default()
        );
    }
    let combine = |before: Vec<AnyTensor<B>>, after: Vec<AnyTensor<B>>| {
        let shapes: Vec<_> = after.iter().map(AnyTensor::shape).collect();
        let [before, after] = [before, after].map(|arrays| filled(xs.clone(), &leaves, arrays));
        let combined = arrays_of(&f(before, after));
        let same = combined.len() == shapes.len() && combined.iter().zip(&shapes).all(|(x, shape)| x.shape() == *shape);
        assert!(same, "the function of `associative_scan` must keep the structure and the shapes of its arguments");
        combined
    };
    let combined = associative(&combine, arrays);
    filled(xs.clone(), &leaves, combined)
}

/// Rows of several arrays.
type Rows<B> = Vec<AnyTensor<B>>;

/// Combines rows with the rows that follow them.
type Combine<'a, B> = &'a dyn Fn(Rows<B>, Rows<B>) -> Rows<B>;

/// [`associative_scan`] over the first axis of arrays.
pub(crate) fn associative<B: Backend>(combine: Combine<'_, B>, xs: Rows<B>) -> Rows<B> {
    let Some(n) = xs.first().map(|x| x.shape()[0]) else { return xs };
    if n < 2 {
        return xs;
    }
    let (even, odd): (Vec<_>, Vec<_>) = xs.into_iter().map(apart).unzip();
    let part = |xs: &[AnyTensor<B>], range: std::ops::Range<usize>| -> Vec<_> {
        xs.iter().map(|x| x.clone().rows(range.clone())).collect()
    };
    // The odd prefixes: combine each pair, then scan over the pairs.
    let odd = associative(combine, combine(part(&even, 0..n / 2), odd));
    // Each even prefix after the first: the prefix of the pairs before it, combined with the even row.
    let rest = n.div_ceil(2) - 1;
    let after = match rest {
        0 => None,
        _ => Some(combine(part(&odd, 0..rest), part(&even, 1..rest + 1))),
    };
    let even: Vec<_> = match after {
        Some(after) => {
            part(&even, 0..1).into_iter().zip(after).map(|(first, x)| AnyTensor::cat(vec![first, x], 0)).collect()
        }
        None => even,
    };
    even.into_iter().zip(odd).map(|(even, odd)| interleaved(even, odd)).collect()
}

/// Splits into the even rows 0, 2, … and the odd rows 1, 3, …
fn apart<B: Backend>(x: AnyTensor<B>) -> (AnyTensor<B>, AnyTensor<B>) {
    let shape = x.shape();
    let (n, pairs, row) = (shape[0], shape[0] / 2, &shape[1..]);
    let both = x.clone().rows(0..2 * pairs).reshape([pairs, 2, row.iter().product()]).permute(&[1, 0, 2]);
    let [even, odd] = [0, 1].map(|i| both.clone().row(i).reshape([&[pairs], row].concat()));
    let even = if n % 2 == 0 { even } else { AnyTensor::cat(vec![even, x.rows(n - 1..n)], 0) };
    (even, odd)
}

/// Interleaves the rows of two arrays. The first array may have one more row.
fn interleaved<B: Backend>(even: AnyTensor<B>, odd: AnyTensor<B>) -> AnyTensor<B> {
    let shape = odd.shape();
    let (pairs, row) = (shape[0], shape[1..].to_vec());
    let count: usize = row.iter().product();
    let [first, last] = [0..pairs, pairs..even.shape()[0]].map(|range| even.clone().rows(range));
    let flat = |x: AnyTensor<B>| x.reshape([pairs, count]);
    let both = AnyTensor::cat(vec![flat(first), flat(odd)], 1).reshape([&[2 * pairs], &row[..]].concat());
    if last.shape()[0] == 0 { both } else { AnyTensor::cat(vec![both, last], 0) }
}
