//! A step of AdamW: one launch for a leaf.

use burn::tensor::TensorMetadata;
use burn_cubecl::{CubeRuntime, kernel::into_contiguous, tensor::CubeTensor};
use cubecl::prelude::*;

use super::{
    register::{Lazy, register},
    tensor::{addresses, array, cubes, empty},
};

const UNITS: usize = 256;

/// The numbers are those of [`Backend::adam_step`](crate::Backend::adam_step).
#[cube(launch_unchecked, address_type = "dynamic")]
fn adam_kernel(
    params: &Array<f32>,
    grad: &Array<f32>,
    first: &Array<f32>,
    second: &Array<f32>,
    numbers: &Array<f32>,
    new_params: &mut Array<f32>,
    new_first: &mut Array<f32>,
    new_second: &mut Array<f32>,
    count: usize,
) {
    let i = ABSOLUTE_POS;
    if i >= count {
        terminate!();
    }
    let (p, g) = (params[i], grad[i]);
    let mu = first[i] * numbers[0] + g * numbers[1];
    let nu = second[i] * numbers[2] + g * g * numbers[3];
    let root = f32::sqrt(nu / numbers[7] + numbers[5]) + numbers[4];
    let update = mu / numbers[6] / root + p * numbers[9];
    new_params[i] = p - update * numbers[8];
    new_first[i] = mu;
    new_second[i] = nu;
}

fn launch<R: CubeRuntime>(inputs: [CubeTensor<R>; 5]) -> [CubeTensor<R>; 3] {
    let [params, grad, first, second, numbers] = inputs.map(into_contiguous);
    let (shape, dtype) = (params.shape(), params.dtype);
    let count = shape.num_elements();
    let new = [(); 3].map(|()| empty(&params, shape.clone(), dtype));
    // SAFETY: all but the numbers have `count` elements, and are contiguous; there are ten numbers.
    unsafe {
        adam_kernel::launch_unchecked(
            &params.client,
            cubes(&params.client, count.div_ceil(UNITS)),
            CubeDim::new_1d(UNITS as u32),
            addresses(&[&params, &grad]),
            array(&params),
            array(&grad),
            array(&first),
            array(&second),
            array(&numbers),
            array(&new[0]),
            array(&new[1]),
            array(&new[2]),
            count,
        );
    }
    new
}

/// See [`Backend::adam_step`](crate::Backend::adam_step).
pub(super) fn adam_step<R: CubeRuntime>([params, grad, first, second]: [Lazy<R>; 4], numbers: Lazy<R>) -> [Lazy<R>; 3] {
    let outputs = [(); 3].map(|()| (params.shape(), params.dtype()));
    register("grove_adam_step", [params, grad, first, second, numbers], outputs, launch)
}
