//! Products, convolutions, pooling and embeddings.

use grove_compile::primitive::{AvgPool2d, Conv, MaxPool2d, Module, Reduction};

use super::{
    builder::Builder,
    literal::Literal,
    reduce::Window,
    value::{List, Value},
};
use crate::{ArrayType, ElementType};

impl Builder {
    /// Lowers one of Burn's module operations, with outputs of given types.
    pub(super) fn module(&mut self, module: &Module, inputs: &[Value], outputs: &[ArrayType]) -> Vec<Value> {
        let one = match (module, inputs) {
            (Module::Embedding, [weight, positions]) => self.take(weight, positions, 0),
            (Module::EmbeddingGrad, [weight, grad, positions]) => {
                let zeros = self.full_like(weight, 0.0);
                self.take_add(&zeros, positions, grad, 0)
            }
            (Module::Linear, [x, weight, bias @ ..]) => {
                let y = self.contract(x, weight, [&[x.rank() - 1], &[0]], outputs[0].element);
                self.with_bias(y, bias.first(), x.rank() - 1)
            }
            (Module::LinearInputGrad, [weight, grad]) => {
                self.contract(grad, weight, [&[grad.rank() - 1], &[1]], outputs[0].element)
            }
            (Module::LinearWeightGrad, [x, grad]) => {
                let axes: Vec<usize> = (0..x.rank() - 1).collect();
                self.contract(x, grad, [&axes, &axes], outputs[0].element)
            }
            (Module::LinearBiasGrad, [grad]) => {
                let axes: Vec<usize> = (0..grad.rank() - 1).collect();
                self.sum(grad, &axes)
            }
            (Module::Conv(conv), [x, weight, bias @ ..]) => {
                let padding = conv.padding.iter().map(|padding| [*padding as i64; 2]).collect();
                let window =
                    Dilated { stride: &conv.stride, padding, lhs: &vec![1; x.rank() - 2], rhs: &conv.dilation };
                let y = self.convolution([x, weight], ["b, f", "o, i", "b, f"], &window, [1, conv.groups], &outputs[0]);
                self.with_bias(y, bias.first(), 1)
            }
            (Module::ConvInputGrad(conv), [x, weight, grad]) => self.conv_input_grad(conv, x, weight, grad),
            (Module::ConvWeightGrad(conv), [x, weight, grad]) => self.conv_weight_grad(conv, x, weight, grad),
            (Module::ConvBiasGrad(_), [_, _, grad]) => {
                let axes: Vec<usize> = (0..grad.rank()).filter(|axis| *axis != 1).collect();
                self.sum(grad, &axes)
            }
            (Module::AvgPool2d(pool), [x]) => self.avg_pool(pool, x, &outputs[0].dims),
            (Module::AvgPool2dGrad(pool), [x, grad]) => self.avg_pool_grad(pool, x, grad),
            (Module::AdaptiveAvgPool2d(size), [x]) => self.adaptive(x, *size, false),
            (Module::AdaptiveAvgPool2dGrad, [x, grad]) => self.adaptive(grad, [x.dims()[2], x.dims()[3]], true),
            (Module::MaxPool2d(pool), [x]) if outputs.len() == 1 => self.max_pool(pool, x, &outputs[0].dims),
            (Module::MaxPool2d(pool), [x]) => return self.max_pool_with_positions(pool, x, outputs),
            (Module::MaxPool2dGrad(_), [x, positions, grad]) => {
                let [b, c, h, w] = [0, 1, 2, 3].map(|axis| x.dims()[axis]);
                let rows = |x: &Value| [b * c, x.dims()[2] * x.dims()[3]];
                let (of_positions, of_grad) = (rows(positions), rows(grad));
                let (positions, grad) = (self.reshape(positions, &of_positions), self.reshape(grad, &of_grad));
                let zeros = self.full(x.with_dims([b * c, h * w]), 0.0);
                let sums = self.scatter_add(&zeros, &positions, &grad, 1);
                self.reshape(&sums, x.dims())
            }
            _ => unreachable!("{module:?} of {} inputs", inputs.len()),
        };
        vec![one]
    }

    /// A product with pairs of contracted axes, computed in an element type.
    fn contract(&mut self, a: &Value, b: &Value, axes: [&[usize]; 2], element: ElementType) -> Value {
        let (a, b) = (self.convert(a, element), self.convert(b, element));
        self.dot_general(&a, &b, [&[], &[]], axes)
    }

    /// Adds a vector along an axis.
    fn with_bias(&mut self, y: Value, bias: Option<&Value>, axis: usize) -> Value {
        let Some(bias) = bias else { return y };
        let bias = self.convert(bias, y.element());
        let bias = self.broadcast(&bias, y.dims(), &[axis]);
        self.binary("add", &y, &bias)
    }

    /// A convolution. The first two axes have names, such as `b, f`; the others are spatial. `groups` are those of the batch and
    /// of the features.
    fn convolution(
        &mut self,
        [x, weight]: [&Value; 2],
        names: [&str; 3],
        window: &Dilated<'_>,
        groups: [usize; 2],
        array: &ArrayType,
    ) -> Value {
        let (x, weight) = (self.convert(x, array.element), self.convert(weight, array.element));
        let spatial: String = (0..window.stride.len()).map(|axis| format!(", {axis}")).collect();
        let [lhs, rhs, out] = names.map(|names| format!("[{names}{spatial}]"));
        let padding: Vec<String> = window.padding.iter().map(|[low, high]| format!("[{low}, {high}]")).collect();
        let text = format!(
            "stablehlo.convolution({x}, {weight}) dim_numbers = {lhs}x{rhs}->{out}, window = {{stride = [{}], pad = [{}], \
             lhs_dilate = [{}], rhs_dilate = [{}]}} {{batch_group_count = {} : i64, feature_group_count = {} : i64}}",
            List(window.stride),
            padding.join(", "),
            List(window.lhs),
            List(window.rhs),
            groups[0],
            groups[1],
        );
        self.emit_typed(text, [&x, &weight], array.clone())
    }

    /// The gradient of the input: a convolution of the gradient, dilated by the stride, with the reversed kernel.
    fn conv_input_grad(&mut self, conv: &Conv, x: &Value, weight: &Value, grad: &Value) -> Value {
        let spatial: Vec<usize> = (2..x.rank()).collect();
        let weight = self.reverse(weight, &spatial);
        // [out, in / groups, ..] as [in, out / groups, ..].
        let (groups, out, each) = (conv.groups, weight.dims()[0], weight.dims()[1]);
        let kernel = weight.dims()[2..].to_vec();
        let grouped = self.reshape(&weight, &[&[groups, out / groups, each], &kernel[..]].concat());
        let order: Vec<usize> = [0, 2, 1].into_iter().chain(3..grouped.rank()).collect();
        let swapped = self.transpose(&grouped, &order);
        let weight = self.reshape(&swapped, &[&[groups * each, out / groups], &kernel[..]].concat());
        let padding = spatial.iter().enumerate().map(|(i, axis)| {
            let reach = (conv.dilation[i] * (kernel[i] - 1)) as i64;
            let steps = (conv.stride[i] * (grad.dims()[*axis] - 1)) as i64;
            let padding = conv.padding[i] as i64;
            [reach - padding, x.dims()[*axis] as i64 - 1 - steps + padding]
        });
        let window = Dilated {
            stride: &vec![1; spatial.len()],
            padding: padding.collect(),
            lhs: &conv.stride,
            rhs: &conv.dilation,
        };
        self.convolution([grad, &weight], ["b, f", "o, i", "b, f"], &window, [1, groups], &x.array)
    }

    /// The gradient of the weight: a convolution of the input with the gradient, over the batch.
    fn conv_weight_grad(&mut self, conv: &Conv, x: &Value, weight: &Value, grad: &Value) -> Value {
        let padding = (2..x.rank()).enumerate().map(|(i, axis)| {
            let reach = (conv.dilation[i] * (weight.dims()[axis] - 1)) as i64;
            let steps = (conv.stride[i] * (grad.dims()[axis] - 1)) as i64;
            let padding = conv.padding[i] as i64;
            [padding, reach + steps + 1 - x.dims()[axis] as i64 - padding]
        });
        let window = Dilated {
            stride: &conv.dilation,
            padding: padding.collect(),
            lhs: &vec![1; x.rank() - 2],
            rhs: &conv.stride,
        };
        self.convolution([x, grad], ["f, b", "i, o", "f, b"], &window, [conv.groups, 1], &weight.array)
    }

    /// Sums over windows of images, in at least f32.
    fn window_sums(&mut self, x: &Value, window: &Window) -> Value {
        let zero = self.scalar(x.element(), 0.0);
        self.reduce_window(x, &zero, "add", window)
    }

    fn avg_pool(&mut self, pool: &AvgPool2d, x: &Value, dims: &[usize]) -> Value {
        let wide = self.at_least_f32(x);
        let window = images(pool.kernel_size, pool.stride, [1; 2], pool.padding, x.dims(), dims);
        let sums = self.window_sums(&wide, &window);
        let counts = self.counts(pool, x.dims(), &sums);
        let means = self.binary("divide", &sums, &counts);
        self.convert(&means, x.element())
    }

    fn avg_pool_grad(&mut self, pool: &AvgPool2d, x: &Value, grad: &Value) -> Value {
        let wide = self.at_least_f32(grad);
        let counts = self.counts(pool, x.dims(), &wide);
        let shares = self.binary("divide", &wide, &counts);
        // Each element gets the sum of the shares of its windows.
        let zero = self.scalar(shares.element(), 0.0);
        let (mut low, mut high, mut interior) = (vec![0; 2], vec![0; 2], vec![0; 2]);
        for i in 0..2 {
            let reach = pool.kernel_size[i] as i64 - 1;
            let steps = (pool.stride[i] * (grad.dims()[i + 2] - 1)) as i64;
            low.push(reach - pool.padding[i] as i64);
            high.push(x.dims()[i + 2] as i64 - 1 - steps + pool.padding[i] as i64);
            interior.push(pool.stride[i] as i64 - 1);
        }
        let spread = self.pad(&shares, &zero, [&low, &high, &interior]);
        let [h, w] = pool.kernel_size;
        let window =
            Window { size: vec![1, 1, h, w], strides: vec![1; 4], dilation: vec![1; 4], padding: vec![[0; 2]; 4] };
        let sums = self.window_sums(&spread, &window);
        self.convert(&sums, x.element())
    }

    /// Returns the number of elements that each window of an average counts, broadcast like another array.
    fn counts(&mut self, pool: &AvgPool2d, dims: &[usize], like: &Value) -> Value {
        let along = |i: usize| -> Vec<usize> {
            let (size, padding) = (dims[i + 2], pool.padding[i]);
            // Range of the counted elements, in the coordinates of the padded image.
            let [first, last] =
                if pool.count_include_pad { [0, size + 2 * padding] } else { [padding, size + padding] };
            let window = |at: usize| {
                let start = at * pool.stride[i];
                (start + pool.kernel_size[i]).min(last).saturating_sub(start.max(first))
            };
            (0..like.dims()[i + 2]).map(window).collect()
        };
        let rows = along(1);
        let values = along(0).into_iter().flat_map(|column| rows.iter().map(move |row| (column * row) as f64));
        let counts = self.values(like.with_dims(&like.dims()[2..]), values);
        self.broadcast(&counts, like.dims(), &[2, 3])
    }

    /// Averages over `size` parts of each axis, or, transposed, distributes a gradient over the averaged elements. No element is
    /// multiplied by 0, so NaN and infinity stay in their parts.
    fn adaptive(&mut self, x: &Value, size: [usize; 2], transposed: bool) -> Value {
        let mut y = self.at_least_f32(x);
        for (axis, size) in [2, 3].into_iter().zip(size) {
            y = if transposed { self.shares_of_parts(&y, axis, size) } else { self.averages_of_parts(&y, axis, size) };
        }
        self.convert(&y, x.element())
    }

    fn averages_of_parts(&mut self, x: &Value, axis: usize, count: usize) -> Value {
        let averages: Vec<Value> = parts(x.dims()[axis], count)
            .map(|part| {
                let part = self.slice_axis(x, axis, part);
                self.reduction(Reduction::Mean, &part, Some(axis))
            })
            .collect();
        self.concatenate(&averages, axis)
    }

    fn shares_of_parts(&mut self, grad: &Value, axis: usize, size: usize) -> Value {
        let zero = self.scalar(grad.element(), 0.0);
        let none = vec![0; grad.rank()];
        let mut sum: Option<Value> = None;
        for (i, [start, end]) in parts(size, grad.dims()[axis]).enumerate() {
            let average = self.slice_axis(grad, axis, [i, i + 1]);
            let count = self.full_like(&average, end - start);
            let share = self.binary("divide", &average, &count);
            let mut dims = share.dims().to_vec();
            dims[axis] = end - start;
            let share = self.broadcast_to(&share, &dims);
            let (mut low, mut high) = (none.clone(), none.clone());
            (low[axis], high[axis]) = (start as i64, (size - end) as i64);
            let share = self.pad(&share, &zero, [&low, &high, &none]);
            sum = Some(match sum {
                Some(sum) => self.binary("add", &sum, &share),
                None => share,
            });
        }
        sum.unwrap_or_else(|| {
            let mut dims = grad.dims().to_vec();
            dims[axis] = size;
            self.full(grad.with_dims(dims), 0.0)
        })
    }

    fn max_pool(&mut self, pool: &MaxPool2d, x: &Value, dims: &[usize]) -> Value {
        let lowest = self.scalar(x.element(), Literal::Lowest);
        let window = images(pool.kernel_size, pool.stride, pool.dilation, pool.padding, x.dims(), dims);
        self.reduce_window(x, &lowest, "maximum", &window)
    }

    /// Maxima of windows, and the position of the first maximum, or of the first NaN, of each window in the image.
    fn max_pool_with_positions(&mut self, pool: &MaxPool2d, x: &Value, outputs: &[ArrayType]) -> Vec<Value> {
        let (dims, element) = (&outputs[0].dims, outputs[1].element);
        let window = images(pool.kernel_size, pool.stride, pool.dilation, pool.padding, x.dims(), dims);
        let lowest = self.scalar(x.element(), Literal::Lowest);
        let low: Vec<i64> = window.padding.iter().map(|[low, _]| *low as i64).collect();
        let high: Vec<i64> = window.padding.iter().map(|[_, high]| *high as i64).collect();
        let padded = self.pad(x, &lowest, [&low, &high, &[0; 4]]);
        let positions = self.iota(ArrayType::new(element, [x.dims()[2] * x.dims()[3]]), 0);
        let positions = self.reshape(&positions, &x.dims()[2..]);
        let none = self.scalar(element, 0_i64);
        let positions = self.pad(&positions, &none, [&low[2..], &high[2..], &[0; 2]]);
        let mut best: Option<(Value, Value)> = None;
        for i in 0..pool.kernel_size[0] {
            for j in 0..pool.kernel_size[1] {
                let range = |axis: usize, at: usize| {
                    let (start, stride) = (at * pool.dilation[axis], pool.stride[axis]);
                    [start, start + (dims[axis + 2] - 1) * stride + 1, stride]
                };
                let spatial = [range(0, i), range(1, j)];
                let whole = [0, 1].map(|axis| [0, x.dims()[axis], 1]);
                let values = self.slice(&padded, &[whole, spatial].concat());
                let places = self.slice(&positions, &spatial);
                let places = self.broadcast(&places, dims, &[2, 3]);
                best = Some(match best {
                    None => (values, places),
                    Some((most, at)) => {
                        let (greater, nan) = (self.compare("GT", &values, &most), self.compare("NE", &values, &values));
                        let no_nan_before = self.compare("EQ", &most, &most);
                        let first_nan = self.binary("and", &nan, &no_nan_before);
                        let replaces = self.binary("or", &greater, &first_nan);
                        (self.select(&replaces, &values, &most), self.select(&replaces, &places, &at))
                    }
                });
            }
        }
        best.map_or_else(Vec::new, |(most, at)| vec![most, at])
    }
}

/// Returns starts and ends of the parts of an axis in adaptive pooling, rounded outwards.
fn parts(size: usize, count: usize) -> impl Iterator<Item = [usize; 2]> {
    (0..count).map(move |part| [part * size / count, ((part + 1) * size).div_ceil(count)])
}

/// Windows of a convolution: strides, padding at both ends, and dilations.
struct Dilated<'a> {
    stride: &'a [usize],
    padding: Vec<[i64; 2]>,
    lhs: &'a [usize],
    rhs: &'a [usize],
}

/// Windows over the last two axes of four, as many as the result has; padding is added at the end if they extend beyond it.
fn images(
    size: [usize; 2],
    stride: [usize; 2],
    dilation: [usize; 2],
    padding: [usize; 2],
    dims: &[usize],
    result: &[usize],
) -> Window {
    let all = |two: [usize; 2]| vec![1, 1, two[0], two[1]];
    let at = |i: usize| {
        let reach = (result[i + 2] - 1) * stride[i] + dilation[i] * (size[i] - 1) + 1;
        [padding[i], reach.saturating_sub(dims[i + 2] + padding[i])]
    };
    Window {
        size: all(size),
        strides: all(stride),
        dilation: all(dilation),
        padding: vec![[0; 2], [0; 2], at(0), at(1)],
    }
}
