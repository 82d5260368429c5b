//! Attention on flex, computed in f32, or by products of bf16 where the CPU has tiles for them. Keys and values of 16 bits are
//! converted where they are used, so that decoding reads half as much memory. The output and the gradients are `[b, t, n_head, head_dim]` in memory, so that concatenating the heads
//! costs nothing.

use burn::tensor::{DType, Int, Shape, Tensor};
use burn_flex::{Flex, FlexTensor};
use grove_kernels::{self as kernels, Heads, Hidden, KeyHeads};

use super::{contiguous, half, is_f32, tensor};
use crate::ops::{AnyTensor, Attention, Operation, Outcome, Values, Wanted, operation::run_in_f32, precision::cast};

/// Returns the strides of all axes except the last, if the last axis is contiguous.
fn strides(x: &FlexTensor) -> Option<[usize; 3]> {
    let [a, b, c, 1] = x.layout().strides()[..] else { return None };
    Some([usize::try_from(a).ok()?, usize::try_from(b).ok()?, usize::try_from(c).ok()?])
}

/// Returns a tensor unchanged if its last axis is contiguous, otherwise a copy.
fn plain(x: FlexTensor) -> FlexTensor {
    let size = x.layout().shape()[3];
    match strides(&x) {
        Some([.., stride]) if stride >= size => x,
        _ => contiguous(x),
    }
}

/// Views a result of [`plain`] with these stored elements as heads.
fn heads_of<'a, T>(x: &FlexTensor, data: &'a [T]) -> Heads<'a, T> {
    let strides = strides(x).expect("a contiguous last axis");
    Heads { data: &data[x.layout().start_offset().min(data.len())..], strides }
}

/// Views a result of [`plain`] as heads.
fn heads(x: &FlexTensor) -> Heads<'_> {
    heads_of(x, x.storage::<f32>())
}

/// Views a result of [`plain`] as keys or values.
fn key_heads(x: &FlexTensor) -> KeyHeads<'_> {
    match half::format(x.dtype()) {
        Some(format) => KeyHeads::Half(format, heads_of(x, half::bits(x))),
        None => heads(x).into(),
    }
}

/// Returns `[b, positions, n_head, head_dim]` as `[b, n_head, positions, head_dim]`.
fn transposed(values: Vec<f32>, [b, n_head, positions, head_dim]: [usize; 4]) -> FlexTensor {
    tensor(values, Shape::from([b, positions, n_head, head_dim])).transpose(1, 2)
}

/// Ranges and mask in the layout that the kernel needs.
struct Prepared {
    padding: Option<Vec<usize>>,
    lengths: Option<Vec<usize>>,
    mask: Option<FlexTensor>,
}

/// Reads position counts; negative ones become 0.
fn counts(value: &AnyTensor<Flex>) -> Option<Vec<usize>> {
    let AnyTensor::Int(x) = value else { return None };
    let counts = Tensor::<Flex, 1, Int>::from_primitive(x.clone()).into_data();
    Some(counts.iter::<i64>().map(|count| usize::try_from(count).unwrap_or(0)).collect())
}

/// Returns the kernel's options, or `None` if the kernel does not support them. `values` start with the inputs.
fn prepare(attention: Attention, values: &Values<Flex>) -> Option<Prepared> {
    let [q, k] = [0, 1].map(|i| values.float(i));
    let (t, s) = (q.layout().shape()[2], k.layout().shape()[2]);
    if values.get(6).is_some() || attention.causal && t > s {
        return None;
    }
    let mask = match values.get(5) {
        Some(AnyTensor::Bool(mask)) if mask.dtype().size() == 1 && matches!(mask.dtype(), DType::Bool(_)) => {
            Some(if strides(mask).is_some() { mask.clone() } else { mask.to_contiguous() })
        }
        Some(_) => return None,
        None => None,
    };
    let [padding, lengths] = [3, 4].map(|i| values.get(i).and_then(counts));
    Some(Prepared { padding, lengths, mask })
}

impl Prepared {
    fn kernel(&self, q: &FlexTensor, k: &FlexTensor, attention: Attention) -> kernels::Attention<'_> {
        let ([b, n_head, t, head_dim], [_, n_kv_head, s, _]) = (q.layout().shape().dims(), k.layout().shape().dims());
        let hidden = self.mask.as_ref().map(|mask| {
            let data = mask.storage::<u8>();
            let mut strides = strides(mask).expect("a contiguous last axis");
            for (stride, &size) in strides.iter_mut().zip(&mask.layout().shape()[..]) {
                *stride = if size == 1 { 0 } else { *stride };
            }
            Hidden { data: &data[mask.layout().start_offset().min(data.len())..], strides }
        });
        kernels::Attention {
            b,
            n_head,
            n_kv_head,
            t,
            s,
            head_dim,
            scale: attention.scale as f32,
            causal: attention.causal,
            window: attention.window,
            padding: self.padding.as_deref(),
            lengths: self.lengths.as_deref(),
            hidden,
            dropout: attention.dropout,
        }
    }
}

/// Returns true for the dtypes of keys and values that the kernel reads.
fn is_read(x: &FlexTensor) -> bool {
    is_f32(x) || half::format(x.dtype()).is_some()
}

/// Saves nothing, because the derivative recomputes the weights. The output has the queries' dtype.
pub(super) fn forward(attention: Attention, mut inputs: Values<Flex>, needs: &[bool]) -> Outcome<Flex> {
    let dtype = inputs.dtype(0);
    let read = [0, 1, 2].into_iter().all(|i| is_read(inputs.float(i)));
    let Some(prepared) = prepare(attention, &inputs).filter(|_| read) else {
        return match inputs.is_half() {
            true => run_in_f32(&attention.for_f32(dtype).into(), inputs, needs),
            false => Operation::from(attention).compose(inputs, needs),
        };
    };
    let is_bf16 = [0, 1, 2].into_iter().all(|i| inputs.dtype(i) == DType::BF16);
    let attention = if inputs.is_half() { attention.for_f32(dtype) } else { attention };
    let [q, k, v] = [0, 1, 2].map(|i| inputs.take_float(i));
    if is_bf16 {
        let [q, k, v] = [&q, &k, &v].map(|x| plain(x.clone()));
        let kernel = prepared.kernel(&q, &k, attention);
        let [queries, keys, values] = [&q, &k, &v].map(|x| heads_of(x, half::bits(x)));
        if let Some(bits) = kernel.forward_bf16(queries, keys, values) {
            let shape = Shape::from([kernel.b, kernel.t, kernel.n_head, kernel.head_dim]);
            return Outcome::new([half::tensor(bits, shape, DType::BF16).transpose(1, 2)]);
        }
    }
    let [q, k, v] = [cast::<Flex>(q, DType::F32), k, v].map(plain);
    let kernel = prepared.kernel(&q, &k, attention);
    let mut output = vec![0.0; q.layout().num_elements()];
    kernel.forward(heads(&q), key_heads(&k), key_heads(&v), &mut output);
    let output = transposed(output, [kernel.b, kernel.n_head, kernel.t, kernel.head_dim]);
    Outcome::new([cast::<Flex>(output, dtype)])
}

pub(super) fn vjp(
    attention: Attention,
    mut residuals: Values<Flex>,
    mut grads: Values<Flex>,
    wanted: &Wanted,
) -> Values<Flex> {
    let f32 = [0, 1, 2].into_iter().all(|i| is_f32(residuals.float(i)));
    let Some(prepared) = prepare(attention, &residuals).filter(|_| f32 && residuals.get(7).is_none()) else {
        return Operation::from(attention).compose_vjp(residuals, grads, wanted);
    };
    let ([q, k, v], grad) = ([0, 1, 2].map(|i| plain(residuals.take_float(i))), plain(grads.take_float(0)));
    let (kernel, needs) = (prepared.kernel(&q, &k, attention), wanted.needs::<3>());
    let kernels::Attention { b, n_head, n_kv_head, t, s, head_dim, .. } = kernel;
    let room = |i: usize, rows: usize| needs[i].then(|| vec![0.0; b * rows * head_dim]);
    let mut grads = [room(0, n_head * t), room(1, n_kv_head * s), room(2, n_kv_head * s)];
    let rooms = grads.each_mut().map(|grad| grad.as_deref_mut());
    kernel.backward(heads(&q), heads(&k), heads(&v), heads(&grad), rooms);
    let [dq, dk, dv] = grads;
    let of_keys = |x: Option<Vec<f32>>| x.map(|x| transposed(x, [b, n_kv_head, s, head_dim]));
    Values::optional_floats([dq.map(|x| transposed(x, [b, n_head, t, head_dim])), of_keys(dk), of_keys(dv)])
}
