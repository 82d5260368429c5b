//! Special functions in f32, rounded as by XLA on a CPU.
//!
//! XLA compiles `a * b + c` to a fused multiply-add, with one rounding, wherever the product has no other use. The
//! functions here fuse in the same places, which makes normals equal to jax's in the last bit. Both branches of a
//! condition are computed and one is selected, so that loops over these functions can use vector instructions.

use std::f32::consts::FRAC_1_SQRT_2;

/// A polynomial, highest power first, with one fused multiply-add per term.
#[inline(always)]
fn horner<const N: usize>(x: f32, coefficients: [f32; N]) -> f32 {
    let mut sum = coefficients[0];
    for &coefficient in &coefficients[1..] {
        sum = sum.mul_add(x, coefficient);
    }
    sum
}

/// Natural logarithm of a positive, finite, normal value (the polynomial of Cephes' `logf`).
#[inline(always)]
pub(super) fn log(x: f32) -> f32 {
    // x = (1 + m) * 2^e with 1 + m between sqrt(1/2) and sqrt(2)
    let bits = x.to_bits();
    let half_to_one = f32::from_bits((bits & 0x007f_ffff) | 0x3f00_0000);
    let exponent = ((bits >> 23) as i32 - 126) as f32;
    let below = half_to_one < FRAC_1_SQRT_2;
    let m = (half_to_one - 1.0) + if below { half_to_one } else { 0.0 };
    let e = exponent - if below { 1.0 } else { 0.0 };

    let square = m * m;
    let cube = square * m;
    let high = horner(m, [0.070376836, -0.1151461, 0.116769984]);
    let middle = horner(m, [-0.12420141, 0.14249323, -0.16668057]);
    let low = horner(m, [0.20000714, -0.24999994, 0.3333333]);
    let tail = high.mul_add(cube, middle).mul_add(cube, low);
    // ln 2 is added in two parts, so that e * ln 2 keeps full precision.
    let correction = tail.mul_add(cube, e * -0.00021219444);
    e.mul_add(0.6933594, (m - 0.5 * square) + correction)
}

/// `ln(1 + x)` for `x > -1` (a rational function of Cephes near zero, the logarithm elsewhere).
#[inline(always)]
pub(super) fn log1p(x: f32) -> f32 {
    let far = log(1.0 + x);
    let square = x * x;
    let numerator = horner(x, [4.527e-5, 0.49854103, 6.5787325, 29.911919, 60.94967, 57.112965, 20.039553]);
    let denominator = horner(x, [1.0, 15.062909, 83.04757, 221.7624, 309.09872, 216.42789, 60.11866]);
    let near = x + (x * square * (numerator / denominator) - 0.5 * square);
    if x.abs() < 0.41421357 { near } else { far }
}

/// Error function (a rational function; exactly one in f32 from 3.74 on).
#[expect(clippy::approx_constant, reason = "a fitted coefficient, one step below 2/sqrt(pi)")]
pub(super) fn erf(x: f32) -> f32 {
    if x.abs() >= 3.7439213 {
        return 1.0_f32.copysign(x);
    }
    let square = x * x;
    let numerator = horner(square, [0.00022905065, 0.003408291, 0.050955694, 0.18520832, 1.1283791]);
    let denominator =
        horner(square, [-1.1791603e-7, 2.3547966e-5, 0.0010179626, 0.01407047, 0.11098505, 0.49746925, 1.0]);
    x * numerator / denominator
}

/// Inverse of the error function on [-1, 1].
///
/// Reference: Giles, "Approximating the erfinv function" (2010), single precision.
#[inline(always)]
pub(super) fn erf_inv(x: f32) -> f32 {
    const CENTRAL: [f32; 9] = [
        2.8102264e-8,
        3.4327394e-7,
        -3.5233877e-6,
        -4.3915065e-6,
        0.00021858087,
        -0.001253725,
        -0.0041776816,
        0.24664073,
        1.5014094,
    ];
    const TAIL: [f32; 9] = [
        -0.00020021426,
        0.00010095056,
        0.0013493432,
        -0.0036734284,
        0.0057395077,
        -0.0076224613,
        0.0094388705,
        1.001674,
        2.8329768,
    ];
    let w = -log1p(x * -x);
    let central = w < 5.0;
    let t = if central { w - 2.5 } else { w.sqrt() - 3.0 };
    let mut sum = if central { CENTRAL[0] } else { TAIL[0] };
    for i in 1..CENTRAL.len() {
        sum = sum.mul_add(t, if central { CENTRAL[i] } else { TAIL[i] });
    }
    x * if x.abs() == 1.0 { f32::INFINITY } else { sum }
}

#[cfg(test)]
mod tests {
    use std::f32::consts::FRAC_2_SQRT_PI;

    use super::*;

    // The reference is the same function in f64, from the standard library or by inversion.
    fn close(value: f32, expected: f64, tolerance: f64) {
        let error = (f64::from(value) - expected).abs();
        assert!(error <= tolerance * expected.abs(), "{value} instead of {expected}");
    }

    #[test]
    fn logarithms() {
        for i in 1..2000 {
            let x = i as f32 * 0.37;
            close(log(x), f64::from(x).ln(), 2e-7);
            close(log(1.0 / x), f64::from(1.0 / x).ln(), 2e-7);
            close(log1p(-x / 1000.0), f64::from(-x / 1000.0).ln_1p(), 2e-7);
        }
        close(log(f32::MIN_POSITIVE), f64::from(f32::MIN_POSITIVE).ln(), 2e-7);
    }

    #[test]
    fn erf_inv_inverts_erf() {
        for i in -280..280 {
            let x = i as f32 * 0.01;
            let back = erf_inv(erf(x));
            // Away from zero, a rounding error of erf(x) is divided by the slope in its inverse.
            let slope = FRAC_2_SQRT_PI * (-x * x).exp();
            assert!((back - x).abs() <= 2e-7 * (x.abs() + 1.0 / slope), "{back} instead of {x}");
        }
    }

    #[test]
    fn ends_of_the_range() {
        assert_eq!(erf(f32::INFINITY), 1.0);
        assert_eq!(erf(-4.0), -1.0);
        assert!(erf(f32::NAN).is_nan());
        assert_eq!(erf_inv(1.0), f32::INFINITY);
        assert_eq!(erf_inv(-1.0), f32::NEG_INFINITY);
        assert_eq!(erf_inv(0.0), 0.0);
        assert!(erf_inv(f32::NAN).is_nan());
    }
}
