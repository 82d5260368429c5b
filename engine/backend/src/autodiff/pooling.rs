//! Average and max pooling, whose derivatives replace Burn's.

use burn::tensor::{
    FloatDType, Shape, TensorData, TensorMetadata,
    ops::{FloatTensor, IntTensor, ModuleOps},
};
use burn_autodiff::{Autodiff as Burn, checkpoint::strategy::CheckpointStrategy};

use super::{
    Autodiff,
    rules::{Rule, slice},
};
use crate::{
    Backend,
    ops::{AnyTensor, Outcome, Values, max_pooling},
};

/// 2-D average pooling.
#[derive(Clone, Copy, Debug)]
pub(super) struct AvgPool {
    pub kernel_size: [usize; 2],
    pub stride: [usize; 2],
    pub padding: [usize; 2],
    pub count_include_pad: bool,
}

impl AvgPool {
    /// In Burn 0.21, the forward pass divides a window that ends beyond the image by its number of pixels, but the backward
    /// pass by the kernel size.
    pub fn pool<B: Backend, C: CheckpointStrategy>(
        self,
        x: FloatTensor<Autodiff<B, C>>,
        ceil_mode: bool,
    ) -> FloatTensor<Autodiff<B, C>> {
        let Self { kernel_size, stride, padding, count_include_pad } = self;
        if !ceil_mode || !x.is_tracked() {
            return Burn::<B, C>::avg_pool2d(x, kernel_size, stride, padding, count_include_pad, ceil_mode);
        }
        Rule::AvgPool(self).of::<Autodiff<B, C>>([x])
    }

    /// Divisors of the windows along an axis, in pixels.
    fn counts(&self, axis: usize, size: usize, windows: usize) -> Vec<usize> {
        let (kernel, padding) = (self.kernel_size[axis], self.padding[axis]);
        let count = |i: usize| {
            // Offsets from the start of the padding.
            let begin = i * self.stride[axis];
            let end = (begin + kernel).min(size + 2 * padding);
            match self.count_include_pad {
                true => end - begin,
                false => end.min(size + padding).saturating_sub(begin.max(padding)),
            }
        };
        (0..windows).map(count).collect()
    }

    /// Averages of windows that may end beyond the image.
    pub fn averages<B: Backend>(&self, x: FloatTensor<B>) -> FloatTensor<B> {
        let Self { kernel_size, stride, padding, count_include_pad } = *self;
        B::avg_pool2d(x, kernel_size, stride, padding, count_include_pad, true)
    }

    /// Gradient of an image of a shape. Rescales the gradient to full windows, then pools backwards as if all windows were
    /// full.
    pub fn vjp<B: Backend>(&self, shape: &Shape, grad: FloatTensor<B>) -> FloatTensor<B> {
        let Self { kernel_size, stride, padding, .. } = *self;
        let (device, dtype) = (B::float_device(&grad), FloatDType::from(grad.dtype()));
        let windows = [grad.shape()[2], grad.shape()[3]];
        let [rows, columns] = [0, 1].map(|i| self.counts(i, shape[2 + i], windows[i]));
        let whole = (kernel_size[0] * kernel_size[1]) as f32;
        let factors = rows.iter().flat_map(|row| columns.iter().map(move |column| whole / (row * column) as f32));
        let factors = TensorData::new(factors.collect::<Vec<_>>(), [1, 1, windows[0], windows[1]]);
        let factors = B::float_cast(B::float_from_data(factors, &device), dtype);
        let grad = B::float_mul(grad, factors);
        let size = |i: usize| shape[2 + i].max((windows[i] - 1) * stride[i] + kernel_size[i] - 2 * padding[i]);
        let larger = B::float_zeros([shape[0], shape[1], size(0), size(1)].into(), &device, dtype);
        let grad = B::avg_pool2d_backward(larger, grad, kernel_size, stride, padding, true, false);
        let grad = slice::<B>(&grad, 2, 0, shape[2]);
        slice::<B>(&grad, 3, 0, shape[3])
    }
}

/// Max pooling. NaN propagates. Of equal maxima in a window, the first gets the gradient.
#[derive(Clone, Copy, Debug)]
pub(super) struct MaxPool {
    /// True for sequences, false for images.
    pub sequences: bool,
    /// Sizes of rows and columns; those of a sequence twice.
    pub kernel_size: [usize; 2],
    pub stride: [usize; 2],
    pub padding: [usize; 2],
    pub dilation: [usize; 2],
    pub ceil_mode: bool,
}

impl MaxPool {
    /// Max pooling of sequences.
    pub fn of_sequences(kernel_size: usize, stride: usize, padding: usize, dilation: usize, ceil_mode: bool) -> Self {
        let [kernel_size, stride, padding, dilation] = [kernel_size, stride, padding, dilation].map(|size| [size; 2]);
        Self { sequences: true, kernel_size, stride, padding, dilation, ceil_mode }
    }

    /// Returns the maxima.
    pub fn maxima<B: Backend>(self, x: FloatTensor<B>) -> FloatTensor<B> {
        Rule::MaxPool { pool: self, with_indices: false }.of::<B>([x])
    }

    /// Returns the maxima and their indices.
    pub fn maxima_with_indices<B: Backend>(self, x: FloatTensor<B>) -> (FloatTensor<B>, IntTensor<B>) {
        let rule = Rule::MaxPool { pool: self, with_indices: true };
        let mut outputs = B::run_function(&rule, Values::floats([x]));
        (outputs.take_float(0), outputs.take_int(1))
    }

    /// Returns the maxima, and their indices if requested.
    pub fn run<B: Backend>(self, x: FloatTensor<B>, with_indices: bool) -> Values<B> {
        if with_indices {
            let (y, indices) = self.run_with_indices::<B>(x);
            return Values::floats([y]).with(AnyTensor::Int(indices));
        }
        let Self { sequences, kernel_size, stride, padding, dilation, ceil_mode } = self;
        let pool = |x| match sequences {
            true => B::max_pool1d(x, kernel_size[0], stride[0], padding[0], dilation[0], ceil_mode),
            false => B::max_pool2d(x, kernel_size, stride, padding, dilation, ceil_mode),
        };
        Values::floats([max_pooling::maxima::<B>(x, pool)])
    }

    /// Returns the same, with the input and the indices as residuals.
    pub fn forward<B: Backend>(self, x: FloatTensor<B>, with_indices: bool) -> Outcome<B> {
        let (y, indices) = self.run_with_indices::<B>(x.clone());
        let indices = AnyTensor::Int(indices);
        let outputs = Values::floats([y]).with_optional(with_indices.then(|| indices.clone()));
        Outcome { outputs, saved: Values::floats([x]).with(indices) }
    }

    fn run_with_indices<B: Backend>(self, x: FloatTensor<B>) -> (FloatTensor<B>, IntTensor<B>) {
        let Self { sequences, kernel_size: size, stride, padding, dilation, ceil_mode } = self;
        max_pooling::maxima_with_indices::<B>(x, |x| match sequences {
            true => {
                let y = B::max_pool1d_with_indices(x, size[0], stride[0], padding[0], dilation[0], ceil_mode);
                (y.output, y.indices)
            }
            false => {
                let y = B::max_pool2d_with_indices(x, size, stride, padding, dilation, ceil_mode);
                (y.output, y.indices)
            }
        })
    }

    /// Gives each maximum's gradient to its element.
    pub fn vjp<B: Backend>(self, x: FloatTensor<B>, indices: IntTensor<B>, grad: FloatTensor<B>) -> FloatTensor<B> {
        let Self { sequences, kernel_size: size, stride, padding, dilation, ceil_mode: ceil } = self;
        if sequences {
            let (size, stride, padding, dilation) = (size[0], stride[0], padding[0], dilation[0]);
            return B::max_pool1d_with_indices_backward(x, size, stride, padding, dilation, ceil, grad, indices).x_grad;
        }
        B::max_pool2d_with_indices_backward(x, size, stride, padding, dilation, ceil, grad, indices).x_grad
    }
}
