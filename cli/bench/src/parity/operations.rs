//! Cases of grove's own operations, with their inputs.

use grove::{
    backend::{
        AnyTensor, Conv2dOptions, Dropout, GeluApproximation, GruReset, InputPrecision, Pool2dOptions, Quantization,
        RnnActivation, Steps,
        ops::{
            AdamStep, Argsort, Attention, BatchNorm, Chunk, Concat, Conv2dFused, Dequantize, Differentiation,
            DynamicUpdateSlice, Embedding, Gelu, Gru, Linear, Lstm, MaskedSoftmax, Matmul, Nll, Operation,
            QuantizedLinear, RandomBits, RandomFoldIn, RandomKeyData, RandomSamples, Rnn, Rope, RowNorm, Scale, Selu,
            SumOfSquares, SwiGlu, UpdateCache, Values, apply,
        },
        random::Distribution,
    },
    prelude::*,
    tensor::{DType, FloatDType, TensorData, backend::AutodiffBackend},
    tree::AnyArray,
};

use super::Output;

/// Operation and its inputs.
pub struct OperationCase {
    pub name: String,
    pub operation: Operation,
    inputs: Vec<Input>,
    /// Positions of inputs whose gradients are compared.
    gradients: Vec<usize>,
}

/// Input of an operation.
#[derive(Clone)]
enum Input {
    /// Standard normal values.
    Normal(Vec<usize>),
    /// Weights of a layer: normal values divided by the square root of the fan-in, the product of all axes except the first.
    Weights(Vec<usize>),
    /// Squares of normal values.
    Square(Vec<usize>),
    /// Values that alternate around a number and its negative, with a standard deviation of a tenth of the number.
    Signs(Vec<usize>, f32),
    /// Given values, in f32 for every dtype.
    Values(Vec<f32>, Vec<usize>),
    /// Random integers below a bound.
    Integers(Vec<usize>, i32),
    /// Given integers.
    Given(Vec<i32>),
    /// Booleans that are true with probability 0.5; the first value of each row is false.
    Booleans(Vec<usize>),
    /// Quantized blocks: format, number of rows, and values per row.
    Blocks(Quantization, usize, usize),
    /// Absent optional input.
    Absent,
}

/// Hyperparameters of the first AdamW step, in the order of [`AdamStep`].
const ADAM: [f32; 10] = [0.9, 0.1, 0.999, 0.001, 1e-8, 0.0, 0.1, 0.001, 1e-3, 0.01];

use Input::{Absent, Blocks, Booleans, Given, Integers, Normal, Signs, Square, Weights};

fn normal<const D: usize>(shape: [usize; D]) -> Input {
    Normal(shape.to_vec())
}

impl Input {
    /// Returns the values of the input at `position`, rounded to `rounding`; `None` if absent.
    fn data(&self, position: usize, rounding: DType) -> Option<TensorData> {
        let key = Key::new(7).fold_in(position as u32);
        let count = |shape: &[usize]| shape.iter().product::<usize>();
        // A function of the index and of a standard normal value.
        let normal = |shape: &[usize], f: &dyn Fn(usize, f32) -> f32| {
            let values = key.normal_vec(count(shape)).into_iter().enumerate().map(|(i, x)| f(i, x));
            TensorData::new(values.collect::<Vec<f32>>(), shape).convert_dtype(rounding)
        };
        Some(match self {
            Normal(shape) => normal(shape, &|_, x| x),
            Weights(shape) => normal(shape, &|_, x| x * (count(&shape[1..]) as f32).powf(-0.5)),
            Square(shape) => normal(shape, &|_, x| x * x),
            Signs(shape, size) => normal(shape, &|i, x| [*size, -size][i % 2] * (1.0 + 0.1 * x)),
            Self::Values(values, shape) => TensorData::new(values.clone(), shape.clone()),
            Integers(shape, bound) => TensorData::new(key.randint_vec(count(shape), 0, *bound), shape.clone()),
            Given(values) => TensorData::new(values.clone(), [values.len()]),
            Booleans(shape) => {
                let mut values = key.bernoulli_vec(count(shape), 0.5);
                let width = shape.last().copied().unwrap_or(1);
                values.iter_mut().step_by(width).for_each(|first| *first = false);
                TensorData::new(values, shape.clone())
            }
            Blocks(format, rows, columns) => blocks(*format, *rows, *columns, key),
            Absent => return None,
        })
    }
}

/// Returns blocks of random bytes with scales of about 1e-3.
fn blocks(format: Quantization, rows: usize, columns: usize, key: Key) -> TensorData {
    let bytes = columns / format.block_len() * format.block_bytes();
    let mut data: Vec<u8> = key.bits(rows * bytes).into_iter().map(|bits| bits as u8).collect();
    // Scales are f16, one or two at the start of a block, or one at the end for Q6_K.
    let scales: &[usize] = match format {
        Quantization::Q6K => &[208],
        Quantization::Q4_0 | Quantization::Q5_0 | Quantization::Q8_0 => &[0],
        _ => &[0, 2],
    };
    for block in data.chunks_exact_mut(format.block_bytes()) {
        for &at in scales {
            block[at + 1] = 0x14 | block[at + 1] & 0x83;
        }
    }
    TensorData::new(data, [rows, bytes])
}

/// All cases.
pub fn all() -> Vec<OperationCase> {
    let mut cases = Vec::new();
    let mut add = |name: &str, operation: Operation, inputs: &[Input]| {
        let is_float = |input: &Input| matches!(input, Normal(_) | Weights(_) | Square(_) | Signs(..));
        let gradients = match operation.differentiation() {
            Differentiation::None => vec![],
            _ => (0..inputs.len()).filter(|&i| is_float(&inputs[i])).collect(),
        };
        cases.push(OperationCase { name: name.to_owned(), operation, inputs: inputs.to_vec(), gradients });
    };
    // Cases that compile more kernels come later.
    rows(&mut add);
    random(&mut add);
    attention(&mut add);
    images(&mut add);
    recurrent(&mut add);
    products(&mut add);
    // Optimizer steps and caches are not differentiated.
    for case in &mut cases {
        if matches!(case.operation, Operation::AdamStep(_) | Operation::UpdateCache(_)) {
            case.gradients.clear();
        }
    }
    cases
}

type Add<'a> = dyn FnMut(&str, Operation, &[Input]) + 'a;

fn products(add: &mut Add<'_>) {
    for [m, k, n] in
        [[1, 1, 1], [17, 19, 23], [64, 96, 40], [128, 768, 768], [512, 768, 3072], [1, 768, 5000], [300, 1056, 64]]
    {
        add(&format!("matmul {m}x{k}x{n}"), Matmul.into(), &[normal([m, k]), normal([k, n])]);
        add(&format!("linear {m}x{k}x{n}"), Linear.into(), &[normal([m, k]), normal([k, n]), normal([n])]);
    }
    add("matmul 3x4 of 33x65x17", Matmul.into(), &[normal([3, 4, 33, 65]), normal([3, 4, 65, 17])]);
    add("matmul 3x4 of 64x128x64, broadcast", Matmul.into(), &[normal([3, 4, 64, 128]), normal([3, 1, 128, 64])]);
    let axes = [normal([2, 1, 3, 5, 4]), normal([2, 2, 1, 4, 7])];
    add("matmul 2x1x3 by 2x2x1 of 5x4x7, broadcast", Matmul.into(), &axes);
    for format in Quantization::ALL {
        let columns = 2 * format.block_len();
        for rows in [1, 33] {
            let inputs = [normal([rows, columns]), Blocks(format, 50, columns)];
            for precision in [InputPrecision::F32, InputPrecision::Int8] {
                let name = format!("quantized linear {rows}x{columns}x50 {format}, {precision:?}");
                add(&name, QuantizedLinear { format, precision }.into(), &inputs);
            }
        }
        add(&format!("dequantize {format}"), Dequantize { format }.into(), &[Blocks(format, 5, columns)]);
    }
    add("swiglu", SwiGlu.into(), &[normal([2, 17, 96]), normal([2, 17, 96])]);
    for (name, approximate) in [("gelu", GeluApproximation::None), ("gelu tanh", GeluApproximation::Tanh)] {
        add(name, Gelu { approximate }.into(), &[normal([129, 257])]);
    }
    add("selu", Selu.into(), &[normal([129, 257])]);
}

fn attention(add: &mut Add<'_>) {
    let dropout = Dropout::new([1, 2], 0.1);
    // Batch, query heads, key-value heads, query length, key length, head size.
    for [b, heads, kv_heads, t, s, size] in
        [[1, 1, 1, 1, 1, 4], [2, 3, 3, 7, 7, 5], [2, 12, 12, 128, 128, 64], [1, 8, 2, 65, 65, 64], [2, 4, 2, 1, 77, 64]]
    {
        let qkv = [normal([b, heads, t, size]), normal([b, kv_heads, s, size]), normal([b, kv_heads, s, size])];
        let scale = (size as f64).powf(-0.5);
        let plain = Attention { scale, causal: false, window: None, dropout: None };
        let with = |added: &[Input]| [&qkv[..], added].concat();
        let name = |what: &str| format!("attention {b}x{heads}/{kv_heads}x{t}x{s}x{size}{what}");
        add(&name(""), plain.into(), &qkv);
        add(&name(", causal"), Attention { causal: true, ..plain }.into(), &qkv);
        let windowed = Attention { causal: true, window: Some(5), ..plain };
        add(&name(", window"), windowed.into(), &qkv);
        let padding = Given((0..b).map(|row| (row * s / 3) as i32).collect());
        add(&name(", padding"), Attention { causal: true, ..plain }.into(), &with(&[padding]));
        let lengths = Given((0..b).map(|row| (s - row * s / 3) as i32).collect());
        add(&name(", lengths"), plain.into(), &with(&[Absent, lengths]));
        add(&name(", mask"), plain.into(), &with(&[Absent, Absent, Booleans(vec![b, 1, t, s])]));
        add(&name(", bias"), plain.into(), &with(&[Absent, Absent, Absent, normal([1, heads, t, s])]));
        add(&name(", dropout"), Attention { causal: true, dropout, ..plain }.into(), &qkv);
        let softmax = MaskedSoftmax { scale, causal: true, window: None };
        add(&format!("masked softmax {b}x{heads}x{t}x{s}"), softmax.into(), &[normal([b, heads, t, s])]);
    }
    for interleaved in [false, true] {
        let angles = || normal([1, 17, 32]);
        let name = if interleaved { "rope, interleaved" } else { "rope" };
        add(name, Rope { interleaved }.into(), &[normal([2, 17, 3, 64]), angles(), angles()]);
    }
    let cache = [normal([2, 3, 40, 64]), normal([2, 3, 40, 64]), normal([2, 3, 5, 64]), normal([2, 3, 5, 64])];
    add("update cache", UpdateCache { at: 11, seen: 0..16 }.into(), &cache);
    add(
        "dynamic update slice",
        DynamicUpdateSlice { axis: 1 }.into(),
        &[normal([3, 20, 7]), normal([3, 4, 7]), Given(vec![9])],
    );
}

fn images(add: &mut Add<'_>) {
    // Batch, input and output channels, image size, kernel, stride, padding, dilation, groups.
    for [b, inputs, outputs, size, kernel, stride, padding, dilation, groups] in [
        [2, 3, 5, 9, 3, 1, 1, 1, 1],
        [2, 16, 32, 14, 1, 1, 0, 1, 1],
        [1, 64, 64, 28, 3, 1, 1, 1, 1],
        [1, 512, 16, 7, 3, 1, 1, 1, 1],
        [2, 3, 64, 56, 7, 2, 3, 1, 1],
        [2, 8, 12, 15, 3, 2, 2, 2, 4],
        [1, 32, 32, 14, 3, 1, 1, 1, 32],
    ] {
        let conv = Conv2dOptions { stride: [stride; 2], padding: [padding; 2], dilation: [dilation; 2], groups };
        let xw = [normal([b, inputs, size, size]), normal([outputs, inputs / groups, kernel, kernel])];
        let name =
            format!("conv2d {b}x{inputs}x{size}x{size} to {outputs}, {kernel}x{kernel} by {stride}, groups {groups}");
        add(&name, conv.into(), &xw);
        // The inputs of the ReLU are about 4 or -4, so that rounding cannot switch its gradient.
        let weight = Weights(vec![outputs, inputs / groups, kernel, kernel]);
        let fused = Conv2dFused { conv, relu: true };
        let inputs = [xw[0].clone(), weight, Signs(vec![outputs], 1.0), Signs(vec![outputs], 4.0)];
        add(&format!("fused {name}"), fused.into(), &inputs);
    }
    for relu in [false, true] {
        let x = || normal([4, 13, 7, 9]);
        let norm = BatchNorm { relu, eps: 1e-5 };
        add(&format!("batch norm, relu {relu}"), norm.into(), &[x(), normal([13]), normal([13])]);
        add(&format!("batch norm, residual, relu {relu}"), norm.into(), &[x(), normal([13]), normal([13]), x()]);
    }
    let pool = Pool2dOptions { kernel: [3, 3], stride: [2, 2], padding: [1, 1] };
    add("max pool2d", pool.into(), &[normal([2, 5, 15, 17])]);
}

fn rows(add: &mut Add<'_>) {
    // Sizes of at least 3: the gradient of the norm of a single value is only rounding error.
    for [rows, size] in [[1, 3], [7, 17], [65, 768], [3, 4096]] {
        for (name, centred) in [("layer norm", true), ("rms norm", false)] {
            let x = [normal([rows, size]), normal([size]), normal([size])];
            add(&format!("{name} {rows}x{size}"), RowNorm { centred, eps: 1e-5 }.into(), &x);
        }
        add(&format!("nll {rows}x{size}"), Nll.into(), &[normal([rows, size]), Integers(vec![rows], size as i32)]);
    }
    add("embedding", Embedding.into(), &[normal([97, 24]), Integers(vec![3, 40], 97)]);
    add("chunk", Chunk { count: 3, axis: 2 }.into(), &[normal([2, 17, 96])]);
    add("concat", Concat { axis: 1 }.into(), &[normal([2, 5, 7]), normal([2, 5, 7]), normal([2, 5, 7])]);
    add("sum of squares", SumOfSquares.into(), &[normal([1000, 33]), normal([17])]);
    add("scale", Scale.into(), &[normal([1]), normal([100, 33]), normal([17])]);
    let leaf = |shape: [usize; 2]| [normal(shape), normal(shape), normal(shape), Square(shape.to_vec())];
    let hyperparameters = Input::Values(ADAM.to_vec(), vec![ADAM.len()]);
    let leaves = [&leaf([100, 33])[..], &leaf([1, 17]), &[hyperparameters]].concat();
    add("adam step", AdamStep.into(), &leaves);
}

fn recurrent(add: &mut Add<'_>) {
    let sizes: Vec<usize> = vec![5, 5, 4, 2, 2, 1];
    for (inputs, n) in [(3, 4), (64, 128)] {
        for reverse in [false, true] {
            let steps = Steps::new(sizes.clone(), reverse);
            let (count, b) = (sizes.iter().sum::<usize>(), sizes[0]);
            let layer = |gates: usize, bias: usize, states: usize| {
                let weights = [
                    normal([count, inputs]),
                    Weights(vec![gates * n, inputs]),
                    Weights(vec![gates * n, n]),
                    normal([bias * n]),
                ];
                [&weights[..], &vec![normal([b, n]); states]].concat()
            };
            let name = |cell: &str| format!("{cell} {inputs} to {n}{}", if reverse { ", reversed" } else { "" });
            add(&name("lstm"), Lstm { steps: steps.clone() }.into(), &layer(4, 4, 2));
            for reset in [GruReset::After, GruReset::Before] {
                add(&name(&format!("gru {reset:?}")), Gru { reset, steps: steps.clone() }.into(), &layer(3, 4, 1));
            }
            for activation in [RnnActivation::Tanh, RnnActivation::Relu] {
                let mut inputs = layer(1, 1, 1);
                if activation == RnnActivation::Relu {
                    // The inputs of the ReLU stay far from zero, for the same reason as in fused convolutions.
                    inputs[2] = Signs(vec![n, n], 0.005);
                    inputs[3] = Signs(vec![n], 10.0);
                }
                add(&name(&format!("rnn {activation:?}")), Rnn { activation, steps: steps.clone() }.into(), &inputs);
            }
        }
    }
}

fn random(add: &mut Add<'_>) {
    let (key, shape) = ([3, 4], [33, 65]);
    add("random bits", RandomBits { key, shape: shape.into() }.into(), &[]);
    add("random key", RandomKeyData { key }.into(), &[]);
    add("random fold in", RandomFoldIn.into(), &[Integers(vec![2], 1000), Integers(vec![9], 1000)]);
    for descending in [false, true] {
        add(&format!("argsort, descending {descending}"), Argsort { axis: 0, descending }.into(), &[normal(shape)]);
    }
    for (name, distribution) in [
        ("uniform", Distribution::Uniform { low: -1.0, high: 2.0 }),
        ("normal", Distribution::Normal),
        ("truncated normal", Distribution::TruncatedNormal { lower: -2.0, upper: 2.0 }),
        ("gumbel", Distribution::Gumbel),
    ] {
        add(&format!("random {name}"), RandomSamples { key, distribution, shape: shape.into() }.into(), &[]);
    }
    if let Some(dropout) = Dropout::new(key, 0.3) {
        add("dropout", dropout.into(), &[normal([33, 65])]);
    }
}

impl OperationCase {
    /// Computes the outputs, and the gradients of a weighted sum of all floating-point outputs.
    pub fn compute<B: Backend>(&self, device: &B::Device, dtype: FloatDType, rounding: FloatDType) -> Vec<Output> {
        // The optimizer step is in f32 for every dtype of the model.
        let dtype = if matches!(self.operation, Operation::AdamStep(_)) { FloatDType::F32 } else { dtype };
        let given = |(position, input): (usize, &Input)| {
            let data = input.data(position, rounding.into())?;
            let is_narrow = data.dtype.is_float() && !matches!(input, Input::Values(..));
            let data = if is_narrow { data.convert_dtype(dtype.into()) } else { data };
            Some(match input {
                Integers(..) | Given(_) => {
                    let shape = data.shape.clone();
                    let flat = TensorData::new(data.to_vec::<i32>().unwrap_or_default(), [shape.num_elements()]);
                    AnyTensor::from(Tensor::<B, 1, Int>::from_data(flat, device)).reshape(shape)
                }
                _ => AnyTensor::from_data(data, device),
            })
        };
        let inputs: Vec<Option<AnyTensor<B>>> = self.inputs.iter().enumerate().map(given).collect();
        let operation = &self.operation;
        let mut outputs: Vec<Output> = Vec::new();
        let list = match inputs.is_empty() {
            true => Values::on(device),
            false => inputs.clone().into_iter().collect(),
        };
        for (i, output) in apply(operation.clone(), list).into_values().into_iter().flatten().enumerate() {
            outputs.push((format!("output {i}"), output.into_data()));
        }
        if self.gradients.is_empty() {
            return outputs;
        }
        let leaves: Vec<AnyArray<B>> =
            self.gradients.iter().filter_map(|&i| Some(AnyArray::present(inputs[i].clone()?))).collect();
        let (_, grads) = value_and_grad(&leaves, |leaves: Vec<AnyArray<Autodiff<B>>>| {
            let mut all: Vec<Option<AnyTensor<Autodiff<B>>>> =
                inputs.iter().map(|input| Some(constant(input.clone()?))).collect();
            for (&i, leaf) in self.gradients.iter().zip(leaves) {
                all[i] = leaf.into_value();
            }
            let outputs = apply(operation.clone(), all.into_iter().collect()).into_values();
            let sums = outputs.into_iter().flatten().enumerate().filter_map(|(i, output)| weighted_sum(i, output));
            sums.reduce(|a, b| a + b).expect("a floating-point output")
        });
        let read = |(&i, grad): (&usize, AnyArray<B>)| Some((format!("gradient {i}"), grad.into_data()?));
        outputs.extend(self.gradients.iter().zip(grads).filter_map(read));
        outputs
    }
}

/// Converts a tensor to the autodiff backend as a constant, without a gradient.
fn constant<B: Backend>(x: AnyTensor<B>) -> AnyTensor<Autodiff<B>> {
    match x {
        AnyTensor::Float(x) => AnyTensor::Float(Autodiff::<B>::from_inner(x)),
        AnyTensor::Int(x) => AnyTensor::Int(x),
        AnyTensor::Bool(x) => AnyTensor::Bool(x),
    }
}

/// Returns the sum of the values times weights between 0.5 and 1.5, in f32, or `None` for tensors that are not floating-point.
fn weighted_sum<B: Backend>(position: usize, x: AnyTensor<B>) -> Option<Tensor<B, 1>> {
    let count = x.shape().num_elements();
    let x = x.reshape([count]).into_float::<1>()?.cast(FloatDType::F32);
    let weights = Key::new(8).fold_in(position as u32).uniform_vec(count, 0.5, 1.5);
    let weights = Tensor::from_data(TensorData::new(weights, [count]), &x.device());
    Some((x * weights).sum())
}
