//! Dropout with bits generated from a key on the device.

use burn::tensor::{Shape, Tensor, TensorData, TensorMetadata};
use grove_kernels::Dropout;

use super::{Backend, Outcome, Rules, Shapes, Values, Wanted, precision::cast, primitive};

/// [`Dropout`] of all elements, with the random bits of their row-major indices. Any shape.
///
/// The backward pass generates the same bits again, so no mask is retained.
impl Rules for Dropout {
    #[track_caller]
    fn shapes(&self, inputs: &Shapes) -> Vec<Shape> {
        inputs.given().cloned().collect()
    }

    fn key_mut(&mut self) -> Option<&mut [u32; 2]> {
        Some(&mut self.key)
    }

    /// Multiplies by a mask from the host.
    fn compose<B: Backend>(&self, mut inputs: Values<B>, _needs: &[bool]) -> Outcome<B> {
        let x = inputs.take_float(0);
        let shape = x.shape();
        let count = shape.num_elements();
        let factors = TensorData::new(self.factors(count), [count]);
        let factors = cast::<B>(primitive(Tensor::<B, 1>::from_data(factors, &B::float_device(&x))), x.dtype());
        Outcome::new([B::float_mul(x, B::float_reshape(factors, shape))])
    }

    fn compose_vjp<B: Backend>(&self, _residuals: Values<B>, grads: Values<B>, _wanted: &Wanted) -> Values<B> {
        B::run(&(*self).into(), grads, &[]).outputs
    }
}
