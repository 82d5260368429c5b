//! Elementary functions that the compiler can vectorise, and reductions in a fixed order.

/// Number of independent sums or maxima that are accumulated at once: two AVX2 registers.
pub(crate) const LANES: usize = 16;

/// `x * y + z`, in one instruction if available.
#[inline(always)]
pub(crate) fn fma<const FUSED: bool>(x: f32, y: f32, z: f32) -> f32 {
    if FUSED { x.mul_add(y, z) } else { x * y + z }
}

/// `e^x` with a relative error below 3e-7 for `x >= -87.3`; 0 for smaller `x`, infinity if the result exceeds f32.
#[inline(always)]
pub(crate) fn exp<const FUSED: bool>(x: f32) -> f32 {
    // Near the largest f32, the power of 2 itself would overflow.
    let (x, factor) = if x > 88.0 { (x - 1.0, std::f32::consts::E) } else { (x, 1.0) };
    exp_below_88::<FUSED>(x) * factor
}

/// Like [`exp`], but infinity from 88.3 on, with fewer instructions.
#[inline(always)]
pub(crate) fn exp_below_88<const FUSED: bool>(x: f32) -> f32 {
    let (low, high) = (x < -87.3, x > 88.3);
    let (p, power) = exp_parts::<FUSED>(x);
    let value = (p + 1.0) * power;
    let value = if low { 0.0 } else { value };
    if high { f32::INFINITY } else { value }
}

/// `e^x - 1` for `x <= 88`, accurate near 0.
#[inline(always)]
pub(crate) fn exp_m1<const FUSED: bool>(x: f32) -> f32 {
    // Below -20, -1 is the nearest f32. NaN propagates.
    let x = if x < -20.0 { -20.0 } else { x };
    let (p, power) = exp_parts::<FUSED>(x);
    fma::<FUSED>(p, power, power - 1.0)
}

/// Returns `e^r - 1` and `2^n`, where `x = n ln 2 + r` with `|r| <= ln 2 / 2`, so that `e^x = 2^n e^r`. `e^r` is a
/// polynomial, and `2^n` is assembled from its bits (Cody and Waite, "Software Manual for the Elementary Functions", 1980).
#[inline(always)]
fn exp_parts<const FUSED: bool>(x: f32) -> (f32, f32) {
    /// 1.5 * 2^23. Adding it rounds to an integer, which then occupies the low bits.
    const ROUND: f32 = 12_582_912.0;
    /// ln 2 in two parts. The first has so few digits that its multiples are exact.
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    let shifted = fma::<FUSED>(x, std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = fma::<FUSED>(n, -LN_2_LOW, fma::<FUSED>(n, -LN_2_HIGH, x));
    // Taylor series, which is sufficient on this interval: the first omitted term is below 6e-9.
    let p = 1.0 / 5040.0;
    let p = fma::<FUSED>(p, r, 1.0 / 720.0);
    let p = fma::<FUSED>(p, r, 1.0 / 120.0);
    let p = fma::<FUSED>(p, r, 1.0 / 24.0);
    let p = fma::<FUSED>(p, r, 1.0 / 6.0);
    let p = fma::<FUSED>(p, r, 0.5);
    let power = (shifted.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32).wrapping_add(127);
    (fma::<FUSED>(p * r, r, r), f32::from_bits((power << 23) as u32))
}

/// `1 / (1 + e^-x)`.
#[inline(always)]
pub(crate) fn sigmoid<const FUSED: bool>(x: f32) -> f32 {
    1.0 / (1.0 + exp_below_88::<FUSED>(-x))
}

/// Hyperbolic tangent, with an error below 5e-7.
///
/// Uses Eigen's rational approximation.
#[inline(always)]
pub(crate) fn tanh<const FUSED: bool>(x: f32) -> f32 {
    /// The argument at which the approximation is nearest to 1.
    const CLAMP: f32 = 7.905_311;
    /// From this argument on, 1 is the nearest f32.
    const ONE: f32 = 9.010_914;
    const ODD: [f32; 7] = [
        4.893_524_6e-3,
        6.372_619_3e-4,
        1.485_722_4e-5,
        5.122_297_1e-8,
        -8.604_672e-11,
        2.000_188e-13,
        -2.760_768_5e-16,
    ];
    const EVEN: [f32; 4] = [4.893_525e-3, 2.268_434_6e-3, 1.185_347_1e-4, 1.198_258_4e-6];
    let (low, high) = (x <= -ONE, x >= ONE);
    // The comparisons are false for NaN, so that NaN propagates.
    let x = if x > CLAMP { CLAMP } else { x };
    let x = if x < -CLAMP { -CLAMP } else { x };
    let square = x * x;
    let p = fma::<FUSED>(square, ODD[6], ODD[5]);
    let p = fma::<FUSED>(square, p, ODD[4]);
    let p = fma::<FUSED>(square, p, ODD[3]);
    let p = fma::<FUSED>(square, p, ODD[2]);
    let p = fma::<FUSED>(square, p, ODD[1]);
    let p = fma::<FUSED>(square, p, ODD[0]);
    let q = fma::<FUSED>(square, EVEN[3], EVEN[2]);
    let q = fma::<FUSED>(square, q, EVEN[1]);
    let q = fma::<FUSED>(square, q, EVEN[0]);
    let value = x * p / q;
    let value = if low { -1.0 } else { value };
    if high { 1.0 } else { value }
}

/// Error function, with an error below 4e-7.
///
/// Uses XLA's rational approximation. Beyond the clamp the result rounds to 1.
#[inline(always)]
pub(crate) fn erf<const FUSED: bool>(x: f32) -> f32 {
    /// From this argument on, 1 is the nearest f32.
    const CLAMP: f32 = 3.743_921_2;
    const ODD: [f32; 5] =
        [std::f32::consts::FRAC_2_SQRT_PI, 0.185_208_32, 5.095_569_5e-2, 3.408_291e-3, 2.290_506_6e-4];
    const EVEN: [f32; 7] =
        [1.0, 0.497_469_25, 0.110_985_05, 1.407_047e-2, 1.017_962_5e-3, 2.354_796_6e-5, -1.179_160_3e-7];
    let (low, high) = (x < -CLAMP, x > CLAMP);
    let square = x * x;
    let p = fma::<FUSED>(square, ODD[4], ODD[3]);
    let p = fma::<FUSED>(square, p, ODD[2]);
    let p = fma::<FUSED>(square, p, ODD[1]);
    let p = fma::<FUSED>(square, p, ODD[0]);
    let q = fma::<FUSED>(square, EVEN[6], EVEN[5]);
    let q = fma::<FUSED>(square, q, EVEN[4]);
    let q = fma::<FUSED>(square, q, EVEN[3]);
    let q = fma::<FUSED>(square, q, EVEN[2]);
    let q = fma::<FUSED>(square, q, EVEN[1]);
    let q = fma::<FUSED>(square, q, EVEN[0]);
    let value = x * p / q;
    let value = if low { -1.0 } else { value };
    if high { 1.0 } else { value }
}

/// Returns the sum of `f` over a row.
#[inline(always)]
pub(crate) fn sum(x: &[f32], f: impl Fn(f32) -> f32) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let (chunks, rest) = x.as_chunks::<LANES>();
    for chunk in chunks {
        for i in 0..LANES {
            lanes[i] += f(chunk[i]);
        }
    }
    let mut total = 0.0;
    for lane in lanes {
        total += lane;
    }
    for &x in rest {
        total += f(x);
    }
    total
}

/// Returns the dot product of two rows of equal length.
#[inline(always)]
pub(crate) fn dot(x: &[f32], y: &[f32]) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let ((xs, x_rest), (ys, y_rest)) = (x.as_chunks::<LANES>(), y.as_chunks::<LANES>());
    for (x, y) in xs.iter().zip(ys) {
        for i in 0..LANES {
            lanes[i] += x[i] * y[i];
        }
    }
    let mut total = 0.0;
    for lane in lanes {
        total += lane;
    }
    for (x, y) in x_rest.iter().zip(y_rest) {
        total += x * y;
    }
    total
}

/// Adds the products of two rows of lanes to `sum`.
///
/// This and [`total_of_products`] are written so that the sums stay in registers however the compiler unrolls and inlines:
/// they are indexed only by constants, and no call takes their address.
#[inline(always)]
pub(crate) fn add_products<const FUSED: bool, const N: usize>(sum: [f32; N], x: &[f32; N], y: &[f32; N]) -> [f32; N] {
    let mut next = [0.0; N];
    for j in 0..N {
        next[j] = fma::<FUSED>(x[j], y[j], sum[j]);
    }
    next
}

/// Returns the sum of lanes and of the products of the last elements, which do not fill all lanes.
#[inline(always)]
#[allow(clippy::needless_range_loop)]
pub(crate) fn total_of_products<const FUSED: bool, const N: usize>(sum: [f32; N], x: &[f32], y: &[f32]) -> f32 {
    let mut total = 0.0;
    for j in 0..y.len() {
        total = fma::<FUSED>(x[j], y[j], total);
    }
    for j in 0..N {
        total += sum[j];
    }
    total
}

/// Applies `f` to each element in place. Returns the sum of the results, as [`sum`] does.
#[inline(always)]
pub(crate) fn change_and_sum(x: &mut [f32], f: impl Fn(f32) -> f32) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let (chunks, rest) = x.as_chunks_mut::<LANES>();
    for chunk in chunks {
        for i in 0..LANES {
            chunk[i] = f(chunk[i]);
            lanes[i] += chunk[i];
        }
    }
    let mut total = 0.0;
    for lane in lanes {
        total += lane;
    }
    for x in rest {
        *x = f(*x);
        total += *x;
    }
    total
}

/// Returns the maximum; minus infinity if there are no elements. The result is unspecified if an element is NaN.
#[inline(always)]
pub(crate) fn max(values: &[f32]) -> f32 {
    max_of(values, |x| x)
}

/// Returns the maximum of `f` over the elements, like [`max`].
#[inline(always)]
pub(crate) fn max_of(values: &[f32], f: impl Fn(f32) -> f32) -> f32 {
    let larger = |a: f32, b: f32| if a > b { a } else { b };
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let (chunks, rest) = values.as_chunks::<LANES>();
    for chunk in chunks {
        for i in 0..LANES {
            lanes[i] = larger(lanes[i], f(chunk[i]));
        }
    }
    let largest = lanes.into_iter().fold(f32::NEG_INFINITY, larger);
    rest.iter().fold(largest, |largest, &value| larger(largest, f(value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<const FUSED: bool>() {
        let (mut worst_exp, mut worst_bounded) = (0.0f64, 0.0f64);
        assert!(
            (exp_below_88::<FUSED>(88.2) / exp::<FUSED>(88.2) - 1.0).abs() < 1e-6
                && exp_below_88::<FUSED>(88.4) == f32::INFINITY
        );
        assert!(exp_below_88::<FUSED>(f32::NAN).is_nan() && exp_below_88::<FUSED>(f32::NEG_INFINITY) == 0.0);
        for x in (-870_000..887_228).map(|i| i as f32 * 1e-4) {
            let wide = f64::from(x);
            worst_exp = worst_exp.max(((f64::from(exp::<FUSED>(x)) - wide.exp()) / wide.exp()).abs());
            let sigmoid = f64::from(sigmoid::<FUSED>(x)) - 1.0 / (1.0 + (-wide).exp());
            let tanh = f64::from(tanh::<FUSED>(x)) - wide.tanh();
            worst_bounded = worst_bounded.max(sigmoid.abs()).max(tanh.abs());
        }
        let erf_off = |x: f32| (f64::from(erf::<FUSED>(x)) - libm::erf(f64::from(x))).abs();
        let worst_erf = (-600_000..600_000).map(|i| erf_off(i as f32 * 1e-5)).fold(0.0, f64::max);
        assert!(worst_erf < 4e-7, "{worst_erf}");
        assert!(erf::<FUSED>(f32::NAN).is_nan());
        assert!(erf::<FUSED>(f32::INFINITY) == 1.0 && erf::<FUSED>(f32::NEG_INFINITY) == -1.0);
        assert!(worst_exp < 3e-7 && worst_bounded < 5e-7, "{worst_exp} {worst_bounded}");
        assert!(exp::<FUSED>(f32::NAN).is_nan() && tanh::<FUSED>(f32::NAN).is_nan());
        assert!(sigmoid::<FUSED>(f32::NAN).is_nan());
        assert!(exp::<FUSED>(f32::NEG_INFINITY) == 0.0 && exp::<FUSED>(f32::INFINITY) == f32::INFINITY);
        assert!(sigmoid::<FUSED>(f32::NEG_INFINITY) == 0.0 && sigmoid::<FUSED>(f32::INFINITY) == 1.0);
        assert!(exp::<FUSED>(88.73) == f32::INFINITY && exp::<FUSED>(f32::MAX) == f32::INFINITY);
        assert!([f32::INFINITY, 20.0].into_iter().all(|x| tanh::<FUSED>(x) == 1.0 && tanh::<FUSED>(-x) == -1.0));
    }

    #[test]
    fn functions_match_the_library() {
        check::<false>();
        check::<true>();
    }

    #[test]
    fn reductions_of_every_length() {
        for len in 0..70 {
            let values: Vec<f32> = (0..len).map(|i| ((i * 37) % 19) as f32 - 9.0).collect();
            assert_eq!(sum(&values, |x| 2.0 * x), 2.0 * values.iter().sum::<f32>());
            assert_eq!(dot(&values, &values), values.iter().map(|x| x * x).sum::<f32>());
            assert_eq!(max(&values), values.iter().copied().fold(f32::NEG_INFINITY, f32::max));
        }
    }
}
