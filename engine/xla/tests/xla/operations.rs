//! Module operations, random numbers, control flow and narrow types, through XLA and on flex.

use crate::graphs::check;
use burn::tensor::{
    Bool, DType, Int, Tensor, TensorData,
    module::{adaptive_avg_pool2d, avg_pool2d, conv1d, conv2d, embedding, max_pool2d, max_pool2d_with_indices},
    ops::{ConvOptions, PaddedConvOptions},
};
use grove_backend::{
    Autodiff, Backend, Flex, InputPrecision, Quantization,
    ops::{self, GruReset, RecurrentInputs, RnnActivation, Steps},
};
use grove_compile::{CustomVjp, Shared, Traced, cond, custom_vjp, jvp, scan, switch, trace, vmap, while_loop};
use grove_layers::{drop_path, dropout};
use grove_transform::grad;
use grove_tree::{Array, Key, Tree};
use grove_xla::ToStableHlo;

type B = Flex;
type A4<B> = Array<B, 4>;

fn normal<const D: usize>(shape: [usize; D], seed: u64) -> Array<B, D> {
    Array::new(Key::new(seed).normal(shape, &Default::default()))
}

/// Returns the gradient of a weighted sum of a function's result, so that every element has a different weight.
fn gradient<T: Tree<Traced>>(args: T, f: impl FnOnce(T::On<Autodiff<Traced>>) -> Tensor<Autodiff<Traced>, 4>) -> T {
    grad(&args, |args| {
        let y = f(args);
        let weights = Tensor::<Autodiff<Traced>, 1, Int>::arange(0..y.shape().num_elements() as i64, &y.device());
        (y.clone() * (weights.float() * 0.1).sin().reshape(y.shape())).sum()
    })
}

#[test]
fn convolutions_and_their_gradients() {
    let cases: [([usize; 4], [usize; 4], ConvOptions<2>); 6] = [
        ([2, 3, 7, 6], [4, 3, 3, 3], ConvOptions::new([1, 1], [0, 0], [1, 1], 1)),
        ([2, 3, 7, 6], [4, 3, 3, 2], ConvOptions::new([2, 1], [1, 1], [1, 1], 1)),
        ([1, 4, 9, 8], [6, 2, 3, 3], ConvOptions::new([2, 2], [1, 1], [1, 1], 2)),
        ([2, 4, 9, 8], [4, 1, 3, 3], ConvOptions::new([1, 2], [1, 0], [2, 1], 4)),
        ([1, 3, 8, 8], [5, 3, 2, 2], ConvOptions::new([3, 3], [0, 0], [1, 1], 1)),
        ([1, 2, 5, 5], [3, 2, 1, 1], ConvOptions::new([2, 2], [0, 0], [1, 1], 1)),
    ];
    for (i, (x, weight, options)) in cases.into_iter().enumerate() {
        let bias = normal([weight[0]], 9);
        let args = (normal(x, 1), normal(weight, 2), bias);
        type Args<B> = (A4<B>, A4<B>, Array<B, 1>);
        let forward = |(x, weight, bias): Args<Traced>| {
            A4::new(conv2d(x.val(), weight.val(), Some(bias.val()), PaddedConvOptions::from(options.clone())))
        };
        check(&format!("convolution {i}"), forward, &args, 1e-5);
        let backward = |args: Args<Traced>| {
            gradient(args, |(x, weight, bias): Args<Autodiff<Traced>>| {
                conv2d(x.val(), weight.val(), Some(bias.val()), PaddedConvOptions::from(options.clone()))
            })
        };
        check(&format!("gradient of convolution {i}"), backward, &args, 1e-5);
    }
    let f = |(x, weight): (Array<Traced, 3>, Array<Traced, 3>)| {
        let options = ConvOptions::new([2], [1], [2], 1);
        Array::<_, 3>::new(conv1d(x.val(), weight.val(), None, PaddedConvOptions::from(options)))
    };
    check("convolution of one dimension", f, &(normal([2, 3, 11], 1), normal([4, 3, 3], 2)), 1e-5);
}

#[test]
fn pools_and_their_gradients() {
    let x = normal([2, 3, 7, 9], 5);
    type Pool<B> = fn(Tensor<B, 4>) -> Tensor<B, 4>;
    fn pools<B: Backend>() -> Vec<(&'static str, Pool<B>)> {
        vec![
            ("average", |x| avg_pool2d(x, [2, 3], [2, 2], [0, 0], true, false)),
            ("average with padding", |x| avg_pool2d(x, [3, 3], [2, 2], [1, 1], true, false)),
            ("average without padding", |x| avg_pool2d(x, [3, 3], [2, 2], [1, 1], false, false)),
            ("adaptive average to one", |x| adaptive_avg_pool2d(x, [1, 1])),
            ("adaptive average", |x| adaptive_avg_pool2d(x, [3, 4])),
            ("maximum", |x| max_pool2d(x, [2, 2], [2, 2], [0, 0], [1, 1], false)),
            ("maximum with padding", |x| max_pool2d(x, [3, 3], [2, 2], [1, 1], [1, 1], false)),
            ("maximum with dilation", |x| max_pool2d(x, [2, 3], [1, 2], [1, 1], [2, 2], false)),
            ("maximum, rounded up", |x| max_pool2d(x, [2, 2], [2, 2], [0, 0], [1, 1], true)),
        ]
    }
    for ((name, forward), (_, backward)) in pools::<Traced>().into_iter().zip(pools::<Autodiff<Traced>>()) {
        check(name, |x: A4<Traced>| A4::<Traced>::new(forward(x.val())), &x, 1e-5);
        let backward = |x: A4<Traced>| gradient(x, |x: A4<Autodiff<Traced>>| backward(x.val()));
        check(&format!("gradient of {name}"), backward, &x, 1e-5);
    }
    let positions = |x: A4<Traced>| {
        let (values, positions) = max_pool2d_with_indices(x.val(), [3, 3], [2, 2], [1, 1], [1, 1], false);
        (A4::<Traced>::new(values), Array::<Traced, 4, Int>::new(positions))
    };
    check("positions of maxima", positions, &x, 0.0);
}

/// Windows with one, several and no NaN: the first NaN is the maximum.
#[test]
fn maxima_of_nan() {
    let x = normal([2, 3, 7, 9], 5).val();
    let x = A4::<B>::new(x.clone().mask_fill(x.greater_elem(1.0), f32::NAN));
    fn pool<B: Backend>(x: Tensor<B, 4>) -> (Tensor<B, 4>, Tensor<B, 4, Int>) {
        max_pool2d_with_indices(x, [3, 3], [2, 2], [1, 1], [1, 1], false)
    }
    let forward = |x: A4<Traced>| {
        let alone = max_pool2d(x.val(), [3, 3], [2, 2], [1, 1], [1, 1], false);
        let (values, positions) = pool(x.val());
        (A4::<Traced>::new(alone), A4::<Traced>::new(values), Array::<Traced, 4, Int>::new(positions))
    };
    check("maxima of NaN", forward, &x, 0.0);
    let backward = |x: A4<Traced>| gradient(x, |x: A4<Autodiff<Traced>>| pool(x.val()).0);
    check("gradient of maxima of NaN", backward, &x, 1e-5);
}

#[test]
fn embeddings() {
    let table = normal([7, 4], 1);
    let ids = Array::<B, 2, Int>::new(Tensor::from_ints([[1, 6, 1], [0, 2, 2]], &Default::default()));
    let f = |(table, ids): (Array<Traced, 2>, Array<Traced, 2, Int>)| {
        let forward = Array::<_, 3>::new(embedding(table.val(), ids.val()));
        let gradient = grad(&table, |table: Array<Autodiff<Traced>, 2>| {
            embedding(table.val(), Tensor::from_primitive(ids.val().into_primitive())).powi_scalar(3).sum()
        });
        (forward, gradient)
    };
    check("embedding", f, &(table, ids), 1e-5);
}

/// f16 and bf16, including sums and products.
#[test]
fn narrow_types() {
    for (dtype, tolerance) in [(DType::F16, 3e-3), (DType::BF16, 3e-2)] {
        let x = Array::<B, 2>::new(normal([8, 16], 3).val().cast(dtype));
        let f = |x: Array<Traced, 2>| {
            let x = x.val();
            let y = x.clone().matmul(x.clone().transpose()).tanh() + 0.1;
            let z = x.clone().exp().sum_dim(1) / x.clone().max_dim(1) + x.mean_dim(1);
            Array::<_, 2>::new(y + z)
        };
        check(&format!("{dtype:?}"), f, &x, tolerance);
    }
    let x = Array::<B, 2>::new(normal([8, 16], 3).val().cast(DType::F64));
    let f = |x: Array<Traced, 2>| Array::<_, 2>::new(x.val().matmul(x.val().transpose()).exp().log() * 0.1);
    check("f64", f, &x, 1e-14);
}

#[derive(Tree, Clone)]
struct Drawn<B: Backend> {
    uniform: Array<B, 2>,
    normal: Array<B, 1>,
    truncated: Array<B, 1>,
    gumbel: Array<B, 3>,
    dropped: Array<B, 2>,
    path: Array<B, 2>,
    bernoulli: Array<B, 1, Bool>,
    integers: Array<B, 2, Int>,
    bits: Array<B, 1, Int>,
    next: Key,
}

#[test]
fn draws_match_the_host() {
    let f = |(x, key): (Array<Traced, 2>, Key)| {
        let (x, device) = (x.val(), x.val().device());
        let (next, key) = key.split();
        let keys = key.split_n(4);
        Drawn {
            uniform: Array::new(key.uniform([20, 30], -2.0, 5.0, &device)),
            normal: Array::new(keys[0].normal([700], &device)),
            truncated: Array::new(keys[1].truncated_normal([500], -1.0, 2.0, &device)),
            gumbel: Array::new(keys[2].gumbel([10, 2, 3], &device)),
            dropped: Array::new(dropout(x.clone(), 0.5, Some(key.fold_in(11)))),
            path: Array::new(drop_path(x, 0.5, Some(key.fold_in(12)))),
            bernoulli: Array::new(keys[3].bernoulli([900], 0.4, &device)),
            integers: Array::new(key.fold_in(9).randint([20, 20], -5, 50_000, &device)),
            bits: Array::new(key.fold_in(10).random_bits([600], &device)),
            next,
        }
    };
    for seed in 0..3 {
        check("draws", f, &(normal([16, 32], 4), Key::new(seed)), 1e-6);
    }
    let f = |(x, key): (Array<Traced, 2>, Key)| {
        grad(&x, |x: Array<Autodiff<Traced>, 2>| dropout(x.val().powi_scalar(2), 0.3, Some(key)).sum())
    };
    check("gradient of dropout", f, &(normal([16, 32], 4), Key::new(9)), 1e-6);
}

/// Arguments of a recurrent layer: `x`, both weights, the bias and two states.
type Recurrent<B> = (Array<B, 2>, Array<B, 2>, Array<B, 2>, Array<B, 1>, Array<B, 2>, Array<B, 2>);

fn recurrent<B: Backend>(kind: usize, (x, w_ih, w_hh, bias, h, c): Recurrent<B>, steps: &Steps) -> Tensor<B, 2> {
    let inputs = RecurrentInputs { x: x.val(), w_ih: w_ih.val(), w_hh: w_hh.val(), bias: bias.val() };
    match kind {
        0 => ops::lstm(inputs, [h.val(), c.val()], steps),
        1 => ops::gru(inputs, h.val(), GruReset::After, steps),
        2 => ops::gru(inputs, h.val(), GruReset::Before, steps),
        3 => ops::rnn(inputs, h.val(), RnnActivation::Tanh, steps),
        _ => ops::rnn(inputs, h.val(), RnnActivation::Relu, steps),
    }
}

/// Recurrent layers as loops, for sequences of equal and of different lengths, forwards and backwards, with all gradients.
#[test]
fn recurrent_layers() {
    for (kind, gates, of_bias) in [(0, 4, 4), (1, 3, 4), (2, 3, 4), (3, 1, 1), (4, 1, 1)] {
        for sizes in [vec![3; 5], vec![3, 3, 2, 1], vec![4, 1, 1], vec![2]] {
            for reverse in [false, true] {
                let (steps, n, b) = (Steps::new(sizes.clone(), reverse), 4, sizes[0]);
                let small = |x: Array<B, 2>| Array::new(x.val() * 0.5);
                let args = (
                    normal([steps.rows(), 3], 1),
                    small(normal([gates * n, 3], 2)),
                    small(normal([gates * n, n], 3)),
                    normal([of_bias * n], 4),
                    normal([b, n], 5),
                    normal([b, n], 6),
                );
                let f = |args: Recurrent<Traced>| {
                    let forward = Array::<_, 2>::new(recurrent(kind, args.clone(), &steps));
                    let loss = |args: Recurrent<Autodiff<Traced>>| {
                        // In the GRU and the plain RNN, the second state is not an argument.
                        let unused = args.5.val().sum() * 0.0;
                        recurrent(kind, args, &steps).powi_scalar(2).sum() + unused
                    };
                    (forward, grad(&args, loss))
                };
                check(&format!("layer {kind} of {sizes:?}, reverse {reverse}"), f, &args, 1e-5);
            }
        }
    }
}

/// The program of a layer and its gradients does not grow with the number of steps.
#[test]
fn a_packed_recurrent_layer_is_one_loop() {
    let lines = |sizes: Vec<usize>| {
        let steps = Steps::new(sizes, true);
        let args = (
            normal([steps.rows(), 3], 1),
            normal([16, 3], 2),
            normal([16, 4], 3),
            normal([16], 4),
            normal([3, 4], 5),
            normal([3, 4], 6),
        );
        let f = |args: Recurrent<Traced>| {
            grad(&args, |args: Recurrent<Autodiff<Traced>>| recurrent(0, args, &steps).powi_scalar(2).sum())
        };
        trace(f, &args).to_stablehlo().unwrap().lines().count()
    };
    assert_eq!(lines([vec![3; 60], vec![2; 30], vec![1; 10]].concat()), lines(vec![3, 3, 2, 1]));
}

#[test]
fn recurrent_layers_in_forward_mode_and_under_vmap() {
    let steps = Steps::new(vec![3, 3, 2, 1], false);
    let of = |rows: Array<B, 3>| {
        let small = |x: Array<B, 2>| Array::<B, 2>::new(x.val() * 0.5);
        let (w_ih, w_hh) = (small(normal([16, 3], 2)), small(normal([16, 4], 3)));
        (rows, w_ih, w_hh, normal([16], 4), normal([3, 4], 5), normal([3, 4], 6))
    };
    type Args<B> = (Array<B, 3>, Array<B, 2>, Array<B, 2>, Array<B, 1>, Array<B, 2>, Array<B, 2>);
    type Rest<B> = (Array<B, 2>, Array<B, 2>, Array<B, 1>, Array<B, 2>, Array<B, 2>);
    let layer = |(x, (w_ih, w_hh, bias, h, c)): (Array<Traced, 2>, Rest<Traced>)| {
        Array::<_, 2>::new(recurrent(0, (x, w_ih, w_hh, bias, h, c), &steps))
    };
    let f = |(xs, w_ih, w_hh, bias, h, c): Args<Traced>| {
        let x = Array::new(xs.val().narrow(0, 0, 1).squeeze_dim::<2>(0));
        let args = (x, (w_ih, w_hh, bias, h, c));
        let (value, tangent) = jvp(layer, &args, &args);
        let mapped = vmap(layer).call::<Traced, _>((xs, Shared(args.1)));
        (value, tangent, mapped)
    };
    check("LSTM, its tangent and mapped", f, &of(normal([2, 9, 3], 1)), 1e-5);
}

/// Returns blocks of a format, `[rows, bytes per row]`, with scales of moderate size.
fn blocks(format: Quantization, rows: usize, columns: usize) -> Array<B, 2, Int> {
    let (bytes, count) = (format.block_bytes(), rows * columns / format.block_len());
    let mut data: Vec<u8> = (0..count * bytes).map(|i| ((i * 37 + i / 7 * 91) % 256) as u8).collect();
    let halves: &[usize] = match format {
        Quantization::Q6K => &[208],
        Quantization::Q4_0 | Quantization::Q5_0 | Quantization::Q8_0 => &[0],
        _ => &[0, 2],
    };
    for (i, block) in data.chunks_mut(bytes).enumerate() {
        // The upper byte of an f16 of some hundredths, of either sign.
        halves.iter().for_each(|half| block[half + 1] = [0x24, 0x29, 0xA6, 0x2C][(i + half) % 4]);
    }
    let data = TensorData::new(data, [rows, count * bytes / rows]);
    Array::new(Tensor::from_data(data, (&Default::default(), DType::U8)))
}

/// Dequantized, multiplied, differentiated in both modes and mapped.
#[test]
fn quantized_matrices() {
    type Args<B> = (Array<B, 2>, Array<B, 2, Int>);
    for format in Quantization::ALL {
        let f = |(x, blocks): Args<Traced>| {
            let product = |(x, blocks): Args<Traced>| {
                Array::<Traced, 2>::new(ops::quantized_linear(x.val(), blocks.val(), format, InputPrecision::F32))
            };
            let rounded = ops::quantized_linear(x.val(), blocks.val(), format, InputPrecision::Int8);
            let gradient = grad(&x, |x: Array<Autodiff<Traced>, 2>| {
                let blocks = Tensor::from_inner(blocks.val());
                ops::quantized_linear(x.val(), blocks, format, InputPrecision::F32).powi_scalar(2).sum()
            });
            let none = Array::absent(blocks.val().dims());
            let (value, tangent) = jvp(product, &(x.clone(), blocks.clone()), &(x.clone(), none));
            let xs = Array::<Traced, 3>::new(Tensor::stack(vec![x.val(), x.val() * 2.0], 0));
            let mapped = vmap(product).call::<Traced, _>((xs, Shared(blocks.clone())));
            let matrix = Array::<Traced, 2>::new(ops::dequantize(blocks.val(), format));
            (value, tangent, gradient, mapped, matrix, Array::<Traced, 2>::new(rounded))
        };
        check(format.name(), f, &(normal([3, 512], 1), blocks(format, 5, 512)), 3e-5);
    }
}

/// `2 x`, with a custom derivative.
#[derive(Clone, Debug)]
struct Doubled;

impl CustomVjp for Doubled {
    type Args<B: Backend> = Array<B, 1>;
    type Output<B: Backend> = Array<B, 1>;
    type Residuals<B: Backend> = ();

    fn forward<B: Backend>(&self, x: Array<B, 1>) -> (Array<B, 1>, ()) {
        (Array::new(x.val() * 2.0), ())
    }

    fn backward<B: Backend>(&self, (): (), grad: Array<B, 1>) -> Array<B, 1> {
        Array::new(grad.val().clamp(-0.1, 0.1))
    }
}

#[test]
fn branches_and_loops() {
    type A1<B> = Array<B, 1>;
    let x = normal([3], 1);
    let truth = |value: bool| Array::<B, 1, Bool>::new(Tensor::from_data([value], &Default::default()));
    let int = |value: i32| Array::<B, 1, Int>::new(Tensor::from_ints([value], &Default::default()));
    for value in [false, true] {
        let f = |(which, x): (Array<Traced, 1, Bool>, A1<Traced>)| {
            let captured = x.val() * 3.0;
            cond(
                which.val(),
                |x: A1<Traced>| A1::new(x.val().sin() + captured.clone()),
                |x: A1<Traced>| A1::new(x.val() * 2.0),
                x,
            )
        };
        check(&format!("cond of {value}"), f, &(truth(value), x.clone()), 1e-5);
    }
    for index in [-3, 0, 1, 2, 7] {
        let f = |(index, x): (Array<Traced, 1, Int>, A1<Traced>)| {
            let [one, two, three] = [1, 2, 3].map(|n| move |x: A1<Traced>| A1::<Traced>::new(x.val().powi_scalar(n)));
            switch(index.val(), &[&one, &two, &three], x)
        };
        check(&format!("switch of {index}"), f, &(int(index), x.clone()), 1e-5);
    }
    let f = |(x, y): (A1<Traced>, A1<Traced>)| {
        while_loop(
            |(x, _): (A1<Traced>, A1<Traced>)| x.val().sum().lower_elem(100.0),
            |(x, z): (A1<Traced>, A1<Traced>)| (A1::new(x.val().abs() * 1.5 + 1.0), A1::new(z.val() + y.val())),
            (x, y.clone()),
        )
    };
    check("while", f, &(x.clone(), normal([3], 2)), 1e-5);
    let f = |(x, xs): (A1<Traced>, Array<Traced, 2>)| {
        let scale = x.val();
        scan(
            |carry: A1<Traced>, row: A1<Traced>| {
                let next = carry.val() * 0.5 + row.val() * scale.clone();
                (A1::new(next.clone()), A1::new(next.sin()))
            },
            x,
            xs,
        )
    };
    check("scan", f, &(x.clone(), normal([5, 3], 2)), 1e-5);
    let f = |(x, xs): (A1<Traced>, Array<Traced, 2>)| {
        grad(&(x, xs), |(x, xs): (A1<Autodiff<Traced>>, Array<Autodiff<Traced>, 2>)| {
            let step = |carry: A1<Autodiff<Traced>>, row: A1<Autodiff<Traced>>| {
                (A1::new((carry.val() * row.val()).sin()), A1::new(carry.val() + row.val()))
            };
            let (last, all) = scan(step, x, xs);
            last.val().sum() + all.val().powi_scalar(2).sum()
        })
    };
    check("gradient of scan", f, &(x.clone(), normal([5, 3], 2)), 1e-5);
    let f = |x: A1<Traced>| custom_vjp(&Doubled, x);
    check("custom derivative", f, &x, 1e-5);
}
