//! Attention on flex, for f32. The output and the gradients are `[b, t, n_head, head_dim]` in memory, so that
//! concatenating the heads costs nothing.

use burn::tensor::{DType, Int, Shape, Tensor, ops::IntTensor};
use burn_flex::{Flex, FlexTensor};
use grove_kernels::{Attention, Heads, Hidden};

use super::{contiguous, is_f32, tensor};
use crate::ops::{AttendOptions, attend, precision::is_half};

/// Returns the strides of all axes but the last, if that is contiguous.
fn strides(x: &FlexTensor) -> Option<[usize; 3]> {
    let [a, b, c, 1] = x.layout().strides()[..] else { return None };
    Some([usize::try_from(a).ok()?, usize::try_from(b).ok()?, usize::try_from(c).ok()?])
}

/// Returns a tensor itself if its last axis is contiguous, otherwise a copy.
fn plain(x: FlexTensor) -> FlexTensor {
    let size = x.layout().shape()[3];
    match strides(&x) {
        Some([.., stride]) if stride >= size => x,
        _ => contiguous(x),
    }
}

/// Views a result of [`plain`] as heads.
fn heads(x: &FlexTensor) -> Heads<'_> {
    let data = x.storage::<f32>();
    let strides = strides(x).expect("a contiguous last axis");
    Heads { data: &data[x.layout().start_offset().min(data.len())..], strides }
}

/// Returns `[b, positions, n_head, head_dim]` as `[b, n_head, positions, head_dim]`.
fn turned(values: Vec<f32>, [b, n_head, positions, head_dim]: [usize; 4]) -> FlexTensor {
    tensor(values, Shape::from([b, positions, n_head, head_dim])).transpose(1, 2)
}

/// Options in the layout that the kernel needs; `None` if that is impossible, or the kernel does not support them.
struct Prepared {
    padding: Option<Vec<usize>>,
    lengths: Option<Vec<usize>>,
    hidden: Option<FlexTensor>,
}

/// Reads numbers of positions; negative ones become 0.
fn counts(x: &IntTensor<Flex>) -> Vec<usize> {
    let counts = Tensor::<Flex, 1, Int>::from_primitive(x.clone()).into_data();
    counts.iter::<i64>().map(|count| usize::try_from(count).unwrap_or(0)).collect()
}

fn prepare(inputs: &[FlexTensor; 3], options: &AttendOptions<Flex>) -> Option<Prepared> {
    let [q, k, v] = inputs.each_ref().map(|x| x.layout().shape());
    let fits = q.num_dims() == 4
        && k == v
        && (q[0], q[3]) == (k[0], k[3])
        && k[1] > 0
        && q[1].is_multiple_of(k[1])
        && (!options.visible.causal || q[2] <= k[2]);
    let hidden = options.hidden.as_ref();
    let bytes = hidden.is_none_or(|hidden| matches!(hidden.dtype(), DType::Bool(_)) && hidden.dtype().size() == 1);
    if !fits || !bytes || !inputs.iter().all(is_f32) {
        return None;
    }
    let wanted = [q[0], q[1], q[2], k[2]];
    let hidden = hidden.map(|hidden| if strides(hidden).is_some() { hidden.clone() } else { hidden.to_contiguous() });
    let fits = |hidden: &FlexTensor| {
        (0..4).all(|i| [wanted[i], if i < 3 { 1 } else { wanted[i] }].contains(&hidden.layout().shape()[i]))
    };
    hidden.as_ref().is_none_or(fits).then(|| {
        options.visible.check(q[0]);
        let [padding, lengths] = [&options.visible.padding, &options.visible.lengths].map(|x| x.as_ref().map(counts));
        Prepared { padding, lengths, hidden }
    })
}

impl Prepared {
    fn kernel(&self, q: &FlexTensor, k: &FlexTensor, options: &AttendOptions<Flex>) -> Attention<'_> {
        let (shape, [_, n_kv_head, s, _]) = (q.layout().shape(), [0, 1, 2, 3].map(|i| k.layout().shape()[i]));
        let hidden = self.hidden.as_ref().map(|hidden| {
            let data = hidden.storage::<u8>();
            let mut strides = strides(hidden).expect("a contiguous last axis");
            for (stride, &size) in strides.iter_mut().zip(&hidden.layout().shape()[..]) {
                *stride = if size == 1 { 0 } else { *stride };
            }
            Hidden { data: &data[hidden.layout().start_offset().min(data.len())..], strides }
        });
        Attention {
            b: shape[0],
            n_head: shape[1],
            n_kv_head,
            t: shape[2],
            s,
            head_dim: shape[3],
            scale: options.scale as f32,
            causal: options.visible.causal,
            window: options.visible.window,
            padding: self.padding.as_deref(),
            lengths: self.lengths.as_deref(),
            hidden,
            dropout: options.dropout,
        }
    }
}

pub(super) fn forward(
    inputs: [FlexTensor; 3],
    options: AttendOptions<Flex>,
    keep: bool,
) -> (FlexTensor, Option<FlexTensor>) {
    if is_half(inputs[0].dtype()) {
        return attend::forward_in_f32::<Flex>(inputs, options, keep);
    }
    let Some(prepared) = prepare(&inputs, &options) else {
        return attend::forward::<Flex>(inputs, options, keep);
    };
    let [q, k, v] = inputs.map(plain);
    let kernel = prepared.kernel(&q, &k, &options);
    let mut output = vec![0.0; q.layout().num_elements()];
    kernel.forward(heads(&q), heads(&k), heads(&v), &mut output);
    (turned(output, [kernel.b, kernel.n_head, kernel.t, kernel.head_dim]), None)
}

pub(super) fn backward(
    inputs: [FlexTensor; 3],
    options: AttendOptions<Flex>,
    kept: Option<FlexTensor>,
    grad: FlexTensor,
    needs: [bool; 3],
) -> [Option<FlexTensor>; 3] {
    if is_half(grad.dtype()) {
        return attend::backward_in_f32::<Flex>(inputs, options, kept, grad, needs);
    }
    let Some(prepared) = prepare(&inputs, &options).filter(|_| is_f32(&grad) && kept.is_none()) else {
        return attend::backward::<Flex>(inputs, options, kept, grad, needs);
    };
    let ([q, k, v], grad) = (inputs.map(plain), plain(grad));
    let kernel = prepared.kernel(&q, &k, &options);
    let Attention { b, n_head, n_kv_head, t, s, head_dim, .. } = kernel;
    let room = |i: usize, rows: usize| needs[i].then(|| vec![0.0; b * rows * head_dim]);
    let mut grads = [room(0, n_head * t), room(1, n_kv_head * s), room(2, n_kv_head * s)];
    let rooms = grads.each_mut().map(|grad| grad.as_deref_mut());
    kernel.backward(heads(&q), heads(&k), heads(&v), heads(&grad), rooms);
    let [dq, dk, dv] = grads;
    let of_keys = |x: Option<Vec<f32>>| x.map(|x| turned(x, [b, n_kv_head, s, head_dim]));
    [dq.map(|x| turned(x, [b, n_head, t, head_dim])), of_keys(dk), of_keys(dv)]
}
