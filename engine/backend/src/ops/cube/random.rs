//! Random bits and dropout: one unit per element, whose index is the Threefry counter.

use burn::tensor::{DType, Shape, TensorMetadata};
use burn_cubecl::{CubeRuntime, kernel::into_contiguous, tensor::CubeTensor};
use cubecl::prelude::*;

use super::{
    register::{FusedTensor, register_one, register_source},
    tensor::{addresses, array, cubes, empty},
};
use crate::ops::Dropout;

const UNITS: usize = 256;

#[cube]
fn round(a: u32, b: u32, #[comptime] rotation: u32) -> (u32, u32) {
    let a = a + b;
    let rotated = (b << rotation) | (b >> comptime!(32u32 - rotation));
    (a, rotated ^ a)
}

#[cube]
fn four_rounds(a: u32, b: u32, #[comptime] odd: bool) -> (u32, u32) {
    let (a, b) = round(a, b, comptime!(if odd { 17u32 } else { 13u32 }));
    let (a, b) = round(a, b, comptime!(if odd { 29u32 } else { 15u32 }));
    let (a, b) = round(a, b, comptime!(if odd { 16u32 } else { 26u32 }));
    round(a, b, comptime!(if odd { 24u32 } else { 6u32 }))
}

/// Computes a block of Threefry-2x32. The host's counterpart is [`threefry2x32`](grove_kernels::threefry::threefry2x32).
#[cube]
fn threefry(high: u32, low: u32, k0: u32, k1: u32) -> (u32, u32) {
    let k2 = k0 ^ k1 ^ 0x1BD11BDAu32;
    let (a, b) = four_rounds(high + k0, low + k1, false);
    let (a, b) = four_rounds(a + k1, b + k2 + 1u32, true);
    let (a, b) = four_rounds(a + k2, b + k0 + 2u32, false);
    let (a, b) = four_rounds(a + k0, b + k1 + 3u32, true);
    let (a, b) = four_rounds(a + k1, b + k2 + 4u32, false);
    (a + k2, b + k0 + 5u32)
}

/// Returns the random bits of an element: both words of a block, combined as in JAX.
#[cube]
pub(super) fn bits_of(index: usize, k0: u32, k1: u32) -> u32 {
    // Two divisions, because an index may have only 32 bits, so that a shift by 32 is not possible.
    let high = u32::cast_from(index / 65536 / 65536);
    let (a, b) = threefry(high, u32::cast_from(index), k0, k1);
    a ^ b
}

/// Natural logarithm of a positive, finite, normal number, with the same polynomial and roundings as the host's keys, which
/// are JAX's.
#[cube]
fn log(x: f32) -> f32 {
    // x = (1 + m) * 2^e with 1 + m between sqrt(1/2) and sqrt(2)
    let bits = u32::reinterpret(x);
    let half_to_one = f32::reinterpret((bits & 0x007fffffu32) | 0x3f000000u32);
    let exponent = f32::cast_from(bits >> 23u32) - 126.0f32;
    let below = half_to_one < 0.70710677f32;
    let m = (half_to_one - 1.0f32) + select(below, half_to_one, 0.0f32);
    let e = exponent - select(below, 1.0f32, 0.0f32);
    let square = m * m;
    let cubed = square * m;
    let high = fma(fma(0.070376836f32, m, -0.1151461f32), m, 0.116769984f32);
    let middle = fma(fma(-0.12420141f32, m, 0.14249323f32), m, -0.16668057f32);
    let low = fma(fma(0.20000714f32, m, -0.24999994f32), m, 0.3333333f32);
    let tail = fma(fma(high, cubed, middle), cubed, low);
    // ln 2 is added in two parts, so that e * ln 2 loses no digits.
    let correction = fma(tail, cubed, e * -0.00021219444f32);
    fma(e, 0.6933594f32, (m - 0.5f32 * square) + correction)
}

/// Returns a sample of the standard Gumbel distribution. The host's counterpart is an element of `Key::gumbel_vec`.
#[cube]
pub(super) fn gumbel_of(index: usize, k0: u32, k1: u32) -> f32 {
    let fraction = bits_of(index, k0, k1) >> 9u32;
    // Zero, whose logarithm is infinite, is replaced by the smallest normal number.
    let uniform = f32::reinterpret(fraction | 0x3f800000u32) - 1.0f32;
    let uniform = select(fraction == 0u32, f32::reinterpret(0x00800000u32 + fraction), uniform);
    -log(-log(uniform))
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn bits_kernel(values: &mut Array<u32>, count: usize, k0: u32, k1: u32) {
    let i = ABSOLUTE_POS;
    if i >= count {
        terminate!();
    }
    values[i] = bits_of(i, k0, k1);
}

fn launch_bits<R: CubeRuntime>([k0, k1]: [u32; 2], shape: Shape, device: &R::Device) -> CubeTensor<R> {
    let client = R::client(device);
    let count = shape.num_elements();
    let handle = client.empty(count * DType::U32.size());
    let values = CubeTensor::new_contiguous(client, device.clone(), shape, handle, DType::U32);
    if count > 0 {
        // SAFETY: `values` has `count` elements, and each is written by one unit.
        unsafe {
            bits_kernel::launch_unchecked(
                &values.client,
                cubes(&values.client, count.div_ceil(UNITS)),
                CubeDim::new_1d(UNITS as u32),
                addresses(&[&values]),
                array(&values),
                count,
                k0,
                k1,
            );
        }
    }
    values
}

/// See [`RandomBits`](crate::ops::RandomBits).
pub(super) fn random_bits<R: CubeRuntime>(key: [u32; 2], shape: Shape, device: &R::Device) -> FusedTensor<R> {
    let (output, own_device) = ((shape.clone(), DType::U32), device.clone());
    register_source("grove_random_bits", device, output, move || launch_bits::<R>(key, shape.clone(), &own_device))
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn dropout_kernel<X: Float>(
    x: &Array<X>,
    y: &mut Array<X>,
    count: usize,
    k0: u32,
    k1: u32,
    threshold: u32,
    scale: f32,
    #[define(X)] _dtype: StorageType,
) {
    let i = ABSOLUTE_POS;
    if i >= count {
        terminate!();
    }
    let factor = select(bits_of(i, k0, k1) >> 9u32 < threshold, scale, 0.0f32);
    // Multiplied, not selected, so that NaN propagates.
    y[i] = x[i] * X::cast_from(factor);
}

fn launch_dropout<R: CubeRuntime>(x: CubeTensor<R>, dropout: Dropout) -> CubeTensor<R> {
    let x = into_contiguous(x);
    let (shape, dtype) = (x.shape(), x.dtype);
    let count = shape.num_elements();
    let y = empty(&x, shape, dtype);
    if count > 0 {
        let Dropout { key: [k0, k1], threshold, scale } = dropout;
        // SAFETY: both tensors are contiguous, with `count` elements.
        unsafe {
            dropout_kernel::launch_unchecked(
                &x.client,
                cubes(&x.client, count.div_ceil(UNITS)),
                CubeDim::new_1d(UNITS as u32),
                addresses(&[&x]),
                array(&x),
                array(&y),
                count,
                k0,
                k1,
                threshold,
                scale,
                dtype.into(),
            );
        }
    }
    y
}

/// See [`Dropout`].
pub(super) fn dropout<R: CubeRuntime>(x: FusedTensor<R>, dropout: Dropout) -> FusedTensor<R> {
    let output = (x.shape(), x.dtype());
    register_one("grove_dropout", [x], output, move |[x]| launch_dropout(x, dropout))
}
