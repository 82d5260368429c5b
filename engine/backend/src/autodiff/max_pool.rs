//! Max pooling, in which Burn 0.21 drops NaN.

use burn::tensor::ops::{FloatTensor, IntTensor};

use crate::{
    Backend,
    ops::{AnyTensor, Function, FunctionVjp, Outcome, Values, Wanted, max_pooling},
};

/// Max pooling of sequences (`N` = 1) or images (`N` = 2). NaN propagates. Of equal maxima in a window, the first gets the
/// gradient.
#[derive(Clone, Copy, Debug)]
pub(super) struct MaxPool<const N: usize> {
    pub kernel_size: [usize; N],
    pub stride: [usize; N],
    pub padding: [usize; N],
    pub dilation: [usize; N],
    pub ceil_mode: bool,
}

/// [`MaxPool`] with the indices of the maxima as the second output.
#[derive(Clone, Copy, Debug)]
struct WithIndices<const N: usize>(MaxPool<N>);

impl<const N: usize> MaxPool<N> {
    /// Returns the maxima.
    pub fn pool<B: Backend>(self, x: FloatTensor<B>) -> FloatTensor<B> {
        B::run_function(&self, Values::floats([x])).take_float(0)
    }

    /// Returns the maxima and their indices.
    pub fn pool_with_indices<B: Backend>(self, x: FloatTensor<B>) -> (FloatTensor<B>, IntTensor<B>) {
        let mut outputs = B::run_function(&WithIndices(self), Values::floats([x]));
        (outputs.take_float(0), outputs.take_int(1))
    }

    /// Returns kernel size, stride, padding and dilation, twice for a sequence.
    fn pairs(&self) -> [[usize; 2]; 4] {
        [self.kernel_size, self.stride, self.padding, self.dilation].map(|sizes| [sizes[0], sizes[N - 1]])
    }

    fn maxima<B: Backend>(&self, x: FloatTensor<B>) -> FloatTensor<B> {
        let ([size, stride, padding, dilation], ceil) = (self.pairs(), self.ceil_mode);
        max_pooling::maxima::<B>(x, |x| match N {
            1 => B::max_pool1d(x, size[0], stride[0], padding[0], dilation[0], ceil),
            _ => B::max_pool2d(x, size, stride, padding, dilation, ceil),
        })
    }

    fn maxima_with_indices<B: Backend>(&self, x: FloatTensor<B>) -> (FloatTensor<B>, IntTensor<B>) {
        let ([size, stride, padding, dilation], ceil) = (self.pairs(), self.ceil_mode);
        max_pooling::maxima_with_indices::<B>(x, |x| match N {
            1 => {
                let y = B::max_pool1d_with_indices(x, size[0], stride[0], padding[0], dilation[0], ceil);
                (y.output, y.indices)
            }
            _ => {
                let y = B::max_pool2d_with_indices(x, size, stride, padding, dilation, ceil);
                (y.output, y.indices)
            }
        })
    }
}

impl<const N: usize> Function for MaxPool<N> {
    type Vjp = Self;

    fn run<B: Backend>(&self, mut inputs: Values<B>) -> Values<B> {
        Values::floats([self.maxima::<B>(inputs.take_float(0))])
    }

    fn forward<B: Backend>(&self, mut inputs: Values<B>, _: &Wanted) -> (Outcome<B>, Self) {
        let x = inputs.take_float(0);
        let (y, indices) = self.maxima_with_indices::<B>(x.clone());
        let saved = Values::floats([x]).with(AnyTensor::Int(indices));
        (Outcome { outputs: Values::floats([y]), saved }, *self)
    }
}

impl<const N: usize> FunctionVjp for MaxPool<N> {
    fn vjp<B: Backend>(&self, mut saved: Values<B>, mut grads: Values<B>, _: &Wanted) -> Values<B> {
        let (x, indices, grad) = (saved.take_float(0), saved.take_int(1), grads.take_float(0));
        let ([size, stride, padding, dilation], ceil) = (self.pairs(), self.ceil_mode);
        let dx = match N {
            1 => {
                let (size, stride, padding, dilation) = (size[0], stride[0], padding[0], dilation[0]);
                B::max_pool1d_with_indices_backward(x, size, stride, padding, dilation, ceil, grad, indices).x_grad
            }
            _ => B::max_pool2d_with_indices_backward(x, size, stride, padding, dilation, ceil, grad, indices).x_grad,
        };
        Values::floats([dx])
    }
}

impl<const N: usize> Function for WithIndices<N> {
    type Vjp = MaxPool<N>;

    fn run<B: Backend>(&self, mut inputs: Values<B>) -> Values<B> {
        let (y, indices) = self.0.maxima_with_indices::<B>(inputs.take_float(0));
        Values::floats([y]).with(AnyTensor::Int(indices))
    }

    fn forward<B: Backend>(&self, inputs: Values<B>, _: &Wanted) -> (Outcome<B>, MaxPool<N>) {
        let x = inputs.float(0).clone();
        let outputs = self.run(inputs);
        let saved = Values::floats([x]).with_optional(outputs.get(1).cloned());
        (Outcome { outputs, saved }, self.0)
    }
}
