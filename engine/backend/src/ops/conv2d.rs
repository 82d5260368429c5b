//! Convolutions of images.

use burn::tensor::{
    Shape, Tensor, TensorMetadata,
    ops::{ConvOptions, FloatTensor, ModuleOps},
};

use super::{Backend, Outcome, Residuals, Rules, Shapes, Values, Wanted, float, primitive};

/// 2-D cross-correlation, as PyTorch's `conv2d` (the kernel is not flipped), without a bias.
///
/// # Shapes
/// - inputs: `x` `[b, in, h, w]`; weight `[out, in / groups, kh, kw]`
/// - output `[b, out, h', w']`; see [`output_size`](Self::output_size)
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Conv2dOptions {
    /// Vertical and horizontal stride in pixels.
    pub stride: [usize; 2],
    /// Number of zeros on each side: top and bottom, left and right.
    pub padding: [usize; 2],
    /// Vertical and horizontal distance between kernel elements in pixels; 1 without gaps.
    pub dilation: [usize; 2],
    /// Number of groups of channels, each convolved separately.
    pub groups: usize,
}

impl Default for Conv2dOptions {
    fn default() -> Self {
        Self { stride: [1, 1], padding: [0, 0], dilation: [1, 1], groups: 1 }
    }
}

impl Conv2dOptions {
    /// Returns height and width of the output.
    ///
    /// # Panics
    /// If the kernel is larger than the padded image.
    pub fn output_size(&self, size: [usize; 2], kernel: [usize; 2]) -> [usize; 2] {
        [0, 1].map(|i| {
            let (padded, reach) = (size[i] + 2 * self.padding[i], self.reach(kernel, i));
            assert!(padded >= reach, "a kernel of {reach} pixels does not fit into an image of {padded}");
            (padded - reach) / self.stride[i] + 1
        })
    }

    /// Extent of the dilated kernel along an axis, in pixels.
    pub(super) fn reach(&self, kernel: [usize; 2], axis: usize) -> usize {
        self.dilation[axis] * (kernel[axis] - 1) + 1
    }

    /// Returns true if stride, padding and dilation are equal vertically and horizontally.
    #[cfg(feature = "candle")]
    pub(super) fn is_square(&self) -> bool {
        [self.stride, self.padding, self.dilation].iter().all(|[down, right]| down == right)
    }

    fn burn(&self) -> ConvOptions<2> {
        ConvOptions::new(self.stride, self.padding, self.dilation, self.groups)
    }
}

impl Rules for Conv2dOptions {
    #[track_caller]
    fn shapes(&self, inputs: &Shapes) -> Vec<Shape> {
        let [b, channels, height, width] = inputs.dims("conv2d", 0);
        let [out, each, rows, columns] = inputs.dims("conv2d", 1);
        let fits = each * self.groups == channels && out.is_multiple_of(self.groups) && rows * columns > 0;
        let groups = self.groups;
        inputs.require(fits, "conv2d", &format!("x [b, in, h, w] by weight [out, in / {groups}, kh, kw]"));
        let [height, width] = self.output_size([height, width], [rows, columns]);
        vec![Shape::from([b, out, height, width])]
    }

    fn residuals(&self, _needs: &[bool]) -> Residuals {
        Residuals::default().inputs([0, 1])
    }

    fn compose<B: Backend>(&self, inputs: Values<B>, _needs: &[bool]) -> Outcome<B> {
        let [x, weight] = inputs.take_floats();
        Outcome::new([<B as ModuleOps<B>>::conv2d(x, weight, None, self.burn())])
    }

    fn compose_vjp<B: Backend>(&self, residuals: Values<B>, mut grads: Values<B>, wanted: &Wanted) -> Values<B> {
        let ([x, weight], grad, needs) = (residuals.take_floats(), grads.take_float(0), wanted.needs());
        Values::optional_floats(self.gradients::<B>([x, weight], grad, needs))
    }
}

impl Conv2dOptions {
    fn gradients<B: Backend>(
        &self,
        [x, weight]: [FloatTensor<B>; 2],
        grad: FloatTensor<B>,
        needs: [bool; 2],
    ) -> [Option<FloatTensor<B>>; 2] {
        let dx = needs[0].then(|| self.input_gradient::<B>(x.clone(), weight.clone(), grad.clone()));
        let dw = needs[1].then(|| B::conv2d_weight_backward(x, weight, grad, self.burn()));
        [dx, dw]
    }

    /// Computes the gradients group by group.
    #[cfg(feature = "candle")]
    pub(super) fn gradients_by_groups<B: Backend>(
        &self,
        residuals: Values<B>,
        mut grads: Values<B>,
        wanted: &Wanted,
    ) -> Values<B> {
        let groups = self.groups;
        if groups == 1 {
            return self.compose_vjp(residuals, grads, wanted);
        }
        let part = |x: &Tensor<B, 4>, axis: usize, group: usize| {
            let size = x.dims()[axis] / groups;
            primitive(x.clone().narrow(axis, group * size, size))
        };
        let ([x, weight], grad) = (residuals.take_floats().map(float::<B, 4>), grads.take_tensor::<4>(0));
        let one = Self { groups: 1, ..*self };
        let (mut dx, mut dw) = (Vec::new(), Vec::new());
        for group in 0..groups {
            let [x, weight, grad] = [part(&x, 1, group), part(&weight, 0, group), part(&grad, 1, group)];
            let [of_x, of_weight] = one.gradients::<B>([x, weight], grad, wanted.needs());
            dx.extend(of_x.map(float::<B, 4>));
            dw.extend(of_weight.map(float::<B, 4>));
        }
        let join = |(parts, axis): (Vec<_>, usize)| (!parts.is_empty()).then(|| primitive(Tensor::cat(parts, axis)));
        Values::optional_floats([(dx, 1), (dw, 0)].map(join))
    }

    fn input_gradient<B: Backend>(
        &self,
        x: FloatTensor<B>,
        weight: FloatTensor<B>,
        grad: FloatTensor<B>,
    ) -> FloatTensor<B> {
        let (size, kernel, out) = (x.shape(), weight.shape(), grad.shape());
        let reach = [0, 1].map(|i| self.reach([kernel[2], kernel[3]], i));
        // Number of pixels at the end that no window reaches.
        let beyond = [0, 1].map(|i| size[2 + i] + 2 * self.padding[i] - ((out[2 + i] - 1) * self.stride[i] + reach[i]));
        // If the stride exceeds the kernel's extent, Burn 0.21's backward pass gives zeros on GPUs.
        if (0..2).any(|i| reach[i] < self.stride[i]) {
            let lengths = [0, 1].map(|i| (out[2 + i] - 1) * self.stride[i] + 1 + beyond[i]);
            let grad = spread(float::<B, 4>(grad), self.stride, lengths);
            let dense = Self { stride: [1, 1], ..*self };
            return B::conv2d_x_backward(x, weight, primitive(grad), dense.burn());
        }
        if beyond[0] == beyond[1] {
            return B::conv2d_x_backward(x, weight, grad, self.burn());
        }
        // candle has one output padding for both axes, so the input is enlarged to equal paddings. Only its shape matters;
        // the gradient is cropped.
        let most = beyond[0].max(beyond[1]);
        let larger = [size[0], size[1], size[2] + most - beyond[0], size[3] + most - beyond[1]];
        let x = B::float_zeros(larger.into(), &B::float_device(&x), x.dtype().into());
        let dx = float::<B, 4>(B::conv2d_x_backward(x, weight, grad, self.burn()));
        primitive(dx.narrow(2, 0, size[2]).narrow(3, 0, size[3]))
    }
}

/// Dilates an image: moves its pixels `stride` apart, with zeros between and after them.
fn spread<B: Backend>(x: Tensor<B, 4>, [down, right]: [usize; 2], [rows, columns]: [usize; 2]) -> Tensor<B, 4> {
    let [b, c, h, w] = x.dims();
    let zeros = Tensor::<B, 6>::zeros([b, c, h, down, w, right], &x.device()).cast(x.dtype());
    let spread = zeros.slice_assign([0..b, 0..c, 0..h, 0..1, 0..w, 0..1], x.reshape([b, c, h, 1, w, 1]));
    spread.reshape([b, c, h * down, w * right]).narrow(2, 0, rows).narrow(3, 0, columns)
}
