//! Shape and dtype rules of Burn's module operations.

use grove_backend::ops::Spec;

use super::expected::{Expected, Type, require, take};
use crate::primitive::{Conv, Module};

/// Returns the types of the outputs. `outputs` is their number.
pub(super) fn expected(module: &Module, inputs: &[&Spec], outputs: usize) -> Result<Vec<Expected>, String> {
    let as_input = |x: &Spec| vec![(x.shape.to_vec(), Type::Exactly(x.dtype))];
    let ints = |x: &Spec| require(x.dtype.is_int() || x.dtype.is_uint(), "indices must be integers");
    let one = |shape: Vec<usize>, like: &Spec| vec![(shape, Type::Exactly(like.dtype))];
    Ok(match module {
        Module::Embedding => {
            let [weight, indices] = take(inputs)?;
            require_floats(&[weight])?;
            ints(indices)?;
            let ([_, size], [b, t]) = (sizes(weight)?, sizes(indices)?);
            one(vec![b, t, size], weight)
        }
        Module::EmbeddingGrad => {
            let [weight, grad, indices] = take(inputs)?;
            require_floats(&[weight, grad])?;
            ints(indices)?;
            let ([_, size], [b, t]) = (sizes(weight)?, sizes(indices)?);
            require(sizes(grad)? == [b, t, size], "the gradient must have shape [b, t, size]")?;
            as_input(weight)
        }
        Module::Linear => {
            let (x, weight, bias) = layer(inputs)?;
            let [rows, columns] = sizes(weight)?;
            let bias = bias.is_none_or(|bias| bias.shape[..] == [columns]);
            require(
                x.shape.last() == Some(&rows) && bias,
                "the shapes must be x [.., in], weight [in, out] and bias [out]",
            )?;
            one(with_last(x, columns), x)
        }
        Module::LinearInputGrad => {
            let [weight, grad] = floats(inputs)?;
            let [rows, columns] = sizes(weight)?;
            require(grad.shape.last() == Some(&columns), "the shapes must be weight [in, out] and gradient [.., out]")?;
            one(with_last(grad, rows), grad)
        }
        Module::LinearWeightGrad => {
            let [x, grad] = floats(inputs)?;
            let (rank, other) = (x.shape.num_dims(), grad.shape.num_dims());
            let fits = rank > 0 && rank == other && x.shape[..rank - 1] == grad.shape[..rank - 1];
            require(fits, "the shapes must be x [.., in] and gradient [.., out]")?;
            one(vec![x.shape[rank - 1], grad.shape[rank - 1]], x)
        }
        Module::LinearBiasGrad => {
            let [grad] = floats(inputs)?;
            let last = grad.shape.last().ok_or("the gradient must have shape [.., out]")?;
            one(vec![*last], grad)
        }
        Module::Conv(conv) => {
            let (x, weight, bias) = layer(inputs)?;
            let shape = convolved(conv, x, weight)?;
            let bias = bias.is_none_or(|bias| bias.shape[..] == [shape[1]]);
            require(bias, "the bias must have shape [out]")?;
            one(shape, x)
        }
        Module::ConvInputGrad(conv) | Module::ConvWeightGrad(conv) => {
            let [x, weight, grad] = floats(inputs)?;
            let shape = convolved(conv, x, weight)?;
            require(grad.shape[..] == shape, format!("the gradient must have shape {shape:?}"))?;
            as_input(if matches!(module, Module::ConvInputGrad(_)) { x } else { weight })
        }
        Module::ConvBiasGrad(dimensions) => {
            let [x, bias, grad] = floats(inputs)?;
            let rank = dimensions + 2;
            let fits = (3..=4).contains(&rank) && x.shape.num_dims() == rank && grad.shape.num_dims() == rank;
            require(
                fits && bias.shape[..] == [grad.shape[1]],
                "the bias must have shape [out], and the gradient the same number of channels",
            )?;
            as_input(bias)
        }
        Module::AvgPool2d(p) => {
            let [x] = floats(inputs)?;
            one(pooled(x, p.kernel_size, p.stride, p.padding, [1; 2], p.ceil_mode)?, x)
        }
        Module::AvgPool2dGrad(p) => {
            let [x, grad] = floats(inputs)?;
            let shape = pooled(x, p.kernel_size, p.stride, p.padding, [1; 2], p.ceil_mode)?;
            require(grad.shape[..] == shape, format!("the gradient must have shape {shape:?}"))?;
            as_input(x)
        }
        Module::AdaptiveAvgPool2d([height, width]) => {
            let [x] = floats(inputs)?;
            let [b, c, ..]: [usize; 4] = sizes(x)?;
            require(*height > 0 && *width > 0, "the output must have at least one pixel")?;
            one(vec![b, c, *height, *width], x)
        }
        Module::AdaptiveAvgPool2dGrad => {
            let [x, grad] = floats(inputs)?;
            let ([b, c, ..], [batch, channels, ..]): ([usize; 4], [usize; 4]) = (sizes(x)?, sizes(grad)?);
            require([b, c] == [batch, channels], "the gradient must have the same numbers of images and channels")?;
            as_input(x)
        }
        Module::MaxPool2d(p) => {
            let [x] = floats(inputs)?;
            let shape = pooled(x, p.kernel_size, p.stride, p.padding, p.dilation, p.ceil_mode)?;
            let mut expected = one(shape.clone(), x);
            if outputs == 2 {
                expected.push((shape, Type::Int));
            }
            expected
        }
        Module::MaxPool2dGrad(p) => {
            let [x, indices, grad] = take(inputs)?;
            require_floats(&[x, grad])?;
            ints(indices)?;
            let shape = pooled(x, p.kernel_size, p.stride, p.padding, p.dilation, p.ceil_mode)?;
            let fits = grad.shape[..] == shape && indices.shape[..] == shape;
            require(fits, format!("indices and gradient must have shape {shape:?}"))?;
            as_input(x)
        }
    })
}

fn require_floats(inputs: &[&Spec]) -> Result<(), String> {
    require(inputs.iter().all(|x| x.dtype.is_float()), "the inputs must be floating-point arrays")
}

/// Returns the inputs as an array; an error unless there are `N` and all are floating-point.
fn floats<'a, const N: usize>(inputs: &[&'a Spec]) -> Result<[&'a Spec; N], String> {
    let taken = take(inputs)?;
    require_floats(inputs)?;
    Ok(taken)
}

/// Returns the input, the weight and the optional bias of a layer.
fn layer<'a>(inputs: &[&'a Spec]) -> Result<(&'a Spec, &'a Spec, Option<&'a Spec>), String> {
    let &[x, weight, ref rest @ ..] = inputs else { return Err("it must have 2 or 3 inputs".into()) };
    require(rest.len() <= 1, "it must have 2 or 3 inputs")?;
    require_floats(inputs)?;
    Ok((x, weight, rest.first().copied()))
}

/// Returns the sizes of an array with `N` axes.
fn sizes<const N: usize>(x: &Spec) -> Result<[usize; N], String> {
    x.shape[..].try_into().map_err(|_| format!("the array must have {N} axes"))
}

fn with_last(x: &Spec, size: usize) -> Vec<usize> {
    let mut shape = x.shape.to_vec();
    shape.pop();
    shape.push(size);
    shape
}

/// Returns the number of positions of a window of `kernel` elements along an axis.
fn windows(size: usize, [kernel, stride, padding, dilation]: [usize; 4], ceil: bool) -> Option<usize> {
    let reach = dilation.checked_mul(kernel.checked_sub(1)?)?.checked_add(1)?;
    let rest = size.checked_add(padding.checked_mul(2)?)?.checked_sub(reach)?;
    let steps = if ceil { rest.div_ceil(stride.max(1)) } else { rest.checked_div(stride)? };
    (stride > 0 && dilation > 0).then_some(steps + 1)
}

fn convolved(conv: &Conv, x: &Spec, weight: &Spec) -> Result<Vec<usize>, String> {
    let count = conv.stride.len();
    let lists = [&conv.padding, &conv.dilation].iter().all(|list| list.len() == count);
    let ranks = x.shape.num_dims() == count + 2 && weight.shape.num_dims() == count + 2;
    require((1..=2).contains(&count) && lists && ranks, "image and weight must have one or two spatial axes")?;
    let (channels, out, each, groups) = (x.shape[1], weight.shape[0], weight.shape[1], conv.groups);
    let fits = groups > 0 && each.checked_mul(groups) == Some(channels) && out.is_multiple_of(groups);
    require(fits, format!("the shapes must be x [b, in, ..] and weight [out, in / {groups}, ..]"))?;
    let mut shape = vec![x.shape[0], out];
    for i in 0..count {
        let window = [weight.shape[i + 2], conv.stride[i], conv.padding[i], conv.dilation[i]];
        shape.push(windows(x.shape[i + 2], window, false).ok_or("the kernel must fit into the padded image")?);
    }
    Ok(shape)
}

fn pooled(
    x: &Spec,
    kernel: [usize; 2],
    stride: [usize; 2],
    padding: [usize; 2],
    dilation: [usize; 2],
    ceil: bool,
) -> Result<Vec<usize>, String> {
    let [b, c, height, width] = sizes(x)?;
    let mut shape = vec![b, c];
    for (i, size) in [height, width].into_iter().enumerate() {
        let window = [kernel[i], stride[i], padding[i], dilation[i]];
        shape.push(windows(size, window, ceil).ok_or("the window must fit into the padded image")?);
    }
    Ok(shape)
}
