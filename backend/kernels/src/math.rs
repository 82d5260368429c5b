//! Elementary functions that the compiler can vectorise, and reductions in a fixed order.

/// Independent sums or maxima that are held at once: two registers of AVX2.
pub(crate) const LANES: usize = 16;

/// `e^x` with a relative error below 2e-7 between -87.3 and 88.3; 0 below that, infinity above.
///
/// `x = n ln 2 + r` with `|r| <= ln 2 / 2`; `e^r` is a polynomial and `2^n` is put together from its bits. (Cody and
/// Waite, "Software Manual for the Elementary Functions", 1980.)
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    /// 1.5 * 2^23: added, it rounds to a whole number, which is then in the low bits.
    const ROUND: f32 = 12_582_912.0;
    /// ln 2 in two parts, of which the first has so few digits that its multiples are exact.
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    let (low, high) = (x < -87.3, x > 88.3);
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = x - n * LN_2_HIGH - n * LN_2_LOW;
    // Taylor's, which on this interval is as good as any: the first term left out is below 6e-9.
    let p = 1.0 / 5040.0;
    let p = p * r + 1.0 / 720.0;
    let p = p * r + 1.0 / 120.0;
    let p = p * r + 1.0 / 24.0;
    let p = p * r + 1.0 / 6.0;
    let p = p * r + 0.5;
    let p = p * r * r + r + 1.0;
    let power = (shifted.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32).wrapping_add(127);
    let value = p * f32::from_bits((power << 23) as u32);
    let value = if low { 0.0 } else { value };
    if high { f32::INFINITY } else { value }
}

/// `1 / (1 + e^-x)`
#[inline(always)]
pub(crate) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// The sum of `f` over a row.
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

/// The sum of the products of two rows of one length.
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

/// The largest element; minus infinity where there are no elements. What it is where there is a NaN is not said.
#[inline(always)]
pub(crate) fn max(values: &[f32]) -> f32 {
    let larger = |a: f32, b: f32| if a > b { a } else { b };
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let (chunks, rest) = values.as_chunks::<LANES>();
    for chunk in chunks {
        for i in 0..LANES {
            lanes[i] = larger(lanes[i], chunk[i]);
        }
    }
    lanes.iter().chain(rest).fold(f32::NEG_INFINITY, |largest, &value| larger(largest, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponentials_are_those_of_the_library() {
        let worst = (-870_000..883_000)
            .map(|i| i as f32 * 1e-4)
            .map(|x| ((f64::from(exp(x)) - f64::from(x).exp()) / f64::from(x).exp()).abs())
            .fold(0.0, f64::max);
        assert!(worst < 2e-7, "{worst}");
        assert!(exp(f32::NAN).is_nan());
        assert!(exp(f32::NEG_INFINITY) == 0.0 && exp(f32::INFINITY) == f32::INFINITY);
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
