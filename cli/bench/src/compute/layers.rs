//! Operations and layers.

use grove::{
    backend::{Conv2dOptions, matmul},
    layers::{
        AttentionMask, Conv2d, LayerNorm, Linear,
        activation::{gelu, selu, softmax},
        attend,
        rnn::{Cell as RnnCell, Gru, Lstm, Recurrent, RnnOptions},
        split_heads,
    },
    prelude::*,
};

use super::{Place, Run};
use crate::work::{Cell, Function, Work};

/// Computes `f(x * scale + shift) + x`.
fn chain<B: Backend>(function: Function, (x, scale, shift): (Array<B, 2>, Array<B, 1>, Array<B, 1>)) -> Array<B, 2> {
    let y = x.val() * scale.val().unsqueeze() + shift.val().unsqueeze();
    Array::new(apply(function, y) + x.val())
}

fn ffn<B: Backend>((up, down, x): (Linear<B>, Linear<B>, Array<B, 2>)) -> Array<B, 2> {
    Array::new(down.forward(gelu(up.forward(x.val()))))
}

pub fn prepare<B: Backend>(work: &Work, place: Place<B>) -> Run {
    let at = place.clone();
    match *work {
        Work::Gemm { m, k, n } => {
            let (a, b) = (at.normal(0, [m, k]), at.normal(1, [k, n]));
            place.run_tensor(move || matmul::<B, 2>(a.clone(), b.clone()))
        }
        Work::Activation { function, rows, columns } => {
            let x = at.normal::<2>(0, [rows, columns]);
            place.run_tensor(move || apply(function, x.clone()))
        }
        Work::Chain { function, rows, columns, jit: as_program } => {
            let x = Array::new(at.normal::<2>(0, [rows, columns]));
            let [scale, shift] = [1, 2].map(|number| Array::new(at.normal::<1>(number, [columns])));
            let args = (x, scale, shift);
            if !as_program {
                return place.run(move || chain(function, args.clone()));
            }
            let jitted = jit(move |args| chain::<Traced>(function, args));
            place.run(move || jitted.call::<B>(args.clone()))
        }
        Work::Softmax { rows, columns } => {
            let x = at.normal::<2>(0, [rows, columns]);
            place.run_tensor(move || softmax(x.clone()))
        }
        Work::LayerNorm { rows, columns } => {
            let x = at.normal::<2>(0, [rows, columns]);
            let [weight, bias] = [1, 2].map(|number| Array::new(at.normal::<1>(number, [columns])));
            let norm = LayerNorm { weight, bias: Some(bias), eps: 1e-5 };
            place.run_tensor(move || norm.forward(x.clone()))
        }
        Work::Ffn { rows, width, hidden, jit: as_program } => {
            let x = Array::new(at.normal::<2>(0, [rows, width]));
            let [up, down] = [(1, width, hidden), (2, hidden, width)]
                .map(|(number, inputs, outputs)| at.cast(Linear::new(inputs, outputs, at.init(number))));
            let args = (up, down, x);
            if !as_program {
                return place.run(move || ffn(args.clone()));
            }
            let jitted = jit(ffn::<Traced>);
            place.run(move || jitted.call::<B>(args.clone()))
        }
        Work::Attention { batch, heads, tokens, head_dim, causal } => {
            let [q, k, v] = [0, 1, 2].map(|number| at.normal::<4>(number, [batch, heads, tokens, head_dim]));
            let (mask, scale) = (mask(causal), (head_dim as f64).powf(-0.5));
            place.run_tensor(move || attend(q.clone(), k.clone(), v.clone(), &mask, scale, None))
        }
        Work::Mha { batch, tokens, width, heads, causal } => {
            let x = at.normal::<3>(0, [batch, tokens, width]);
            let [qkv, out] = [(1, 3 * width), (2, width)]
                .map(|(number, outputs)| at.cast(Linear::new(width, outputs, at.init(number))));
            let head_dim = width / heads;
            let (mask, scale) = (mask(causal), (head_dim as f64).powf(-0.5));
            place.run_tensor(move || {
                let [q, k, v] = split_heads(qkv.forward(x.clone()), heads);
                let y = attend(q, k, v, &mask, scale, None);
                out.forward(y.swap_dims(1, 2).reshape([batch, tokens, width]))
            })
        }
        Work::Conv { batch, inputs, outputs, size, kernel, stride, padding } => {
            let x = at.normal::<4>(0, [batch, inputs, size, size]);
            let options = Conv2dOptions { stride: [stride; 2], padding: [padding; 2], ..Default::default() };
            let conv = Conv2d::kaiming(inputs, outputs, [kernel; 2], options, at.init(1));
            let conv: Conv2d<B> = at.cast(conv);
            place.run_tensor(move || conv.forward(x.clone()))
        }
        Work::Rnn { cell: Cell::Lstm, inputs, hidden, .. } => {
            let layer = Lstm::new(inputs, hidden, &RnnOptions::default(), at.init(0));
            recurrent(work, layer, place)
        }
        Work::Rnn { cell: Cell::Gru, inputs, hidden, .. } => {
            let layer = Gru::new(inputs, hidden, &RnnOptions::default(), at.init(0));
            recurrent(work, layer, place)
        }
        _ => unreachable!("`prepare` above sends other work elsewhere"),
    }
}

fn apply<B: Backend>(function: Function, x: Tensor<B, 2>) -> Tensor<B, 2> {
    match function {
        Function::Gelu => gelu(x),
        Function::Selu => selu(x),
    }
}

fn mask<B: Backend>(causal: bool) -> AttentionMask<B> {
    if causal { AttentionMask::Causal } else { AttentionMask::Full }
}

fn recurrent<B: Backend, C, const S: usize>(work: &Work, layer: Recurrent<C>, place: Place<B>) -> Run
where
    C: RnnCell<B, S> + 'static,
    C::On<Autodiff<B>>: RnnCell<Autodiff<B>, S>,
{
    let Work::Rnn { batch, steps, inputs, hidden, ref lengths, train, .. } = *work else {
        unreachable!("only recurrent layers come here")
    };
    let lengths = lengths.clone();
    let layer: Recurrent<C> = place.cast(layer);
    let x = place.normal::<3>(1, [steps, batch, inputs]);
    if !train {
        return place.run_tensor(move || forward(&layer, x.clone(), lengths.as_deref()));
    }
    let dy = place.normal::<3>(2, [steps, batch, hidden]);
    place.run(move || {
        let (_, grads) = value_and_grad(&layer, |layer| {
            let y = forward(&layer, Tensor::from_inner(x.clone()), lengths.as_deref());
            (y * Tensor::from_inner(dy.clone())).sum()
        });
        grads
    })
}

/// Runs a recurrent layer. With lengths, the time includes packing and padding.
fn forward<B: Backend, C: RnnCell<B, S>, const S: usize>(
    layer: &Recurrent<C>,
    x: Tensor<B, 3>,
    lengths: Option<&[usize]>,
) -> Tensor<B, 3> {
    match lengths {
        None => layer.forward(x, None, None).0,
        Some(lengths) => layer.forward_lengths(x, lengths, None, None).expect("the row's own lengths").0,
    }
}
