//! Attention on flex, for f32. The output and the gradients are `[b, t, n_head, head_dim]` in memory, so that
//! concatenating the heads costs nothing.

use burn::tensor::{DType, Int, Shape, Tensor};
use burn_flex::{Flex, FlexTensor};
use grove_kernels::{self as kernels, Heads, Hidden};

use super::{contiguous, is_f32, tensor};
use crate::ops::{AnyTensor, Attention, Operation, Outcome, Values, Wanted};

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

/// Views a result of [`plain`] as heads.
fn heads(x: &FlexTensor) -> Heads<'_> {
    let data = x.storage::<f32>();
    let strides = strides(x).expect("a contiguous last axis");
    Heads { data: &data[x.layout().start_offset().min(data.len())..], strides }
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
    let [q, k, v] = [0, 1, 2].map(|i| values.float(i));
    let (t, s) = (q.layout().shape()[2], k.layout().shape()[2]);
    if values.get(6).is_some() || ![q, k, v].into_iter().all(is_f32) || attention.causal && t > s {
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

/// Saves nothing, because the derivative recomputes the weights.
pub(super) fn forward(attention: Attention, mut inputs: Values<Flex>, needs: &[bool]) -> Outcome<Flex> {
    let Some(prepared) = prepare(attention, &inputs) else {
        return Operation::from(attention).compose(inputs, needs);
    };
    let [q, k, v] = [0, 1, 2].map(|i| plain(inputs.take_float(i)));
    let kernel = prepared.kernel(&q, &k, attention);
    let mut output = vec![0.0; q.layout().num_elements()];
    kernel.forward(heads(&q), heads(&k), heads(&v), &mut output);
    Outcome::new([transposed(output, [kernel.b, kernel.n_head, kernel.t, kernel.head_dim])])
}

pub(super) fn vjp(
    attention: Attention,
    mut residuals: Values<Flex>,
    mut grads: Values<Flex>,
    wanted: &Wanted,
) -> Values<Flex> {
    let Some(prepared) = prepare(attention, &residuals).filter(|_| residuals.get(7).is_none()) else {
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
