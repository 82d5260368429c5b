//! Kernels of the flex backend for contiguous f32. Of 16-bit floats, linear layers and products have kernels where the CPU
//! multiplies bf16; the other kernels run on copies in f32, whose results are rounded. Other operations are composed.

mod adam_step;
mod attention;
mod batch_norm;
mod caches;
mod conv2d;
mod elementwise;
mod half;
mod linear;
mod matmul;
mod recurrent;
mod rows;

use burn::tensor::{DType, Shape};
use burn_flex::{Flex, FlexTensor, Layout};
use grove_kernels::{
    self as kernels,
    chain::{Input, Output},
};

use super::{
    AnyTensor, Backend, DynamicUpdateSlice, Operation, Outcome, Values, Wanted,
    operation::{run_in_f32, run_vjp_in_f32},
    precision::is_half,
    sum_of_squares,
};

impl Backend for Flex {
    const MIXED_DTYPE_WEIGHTS: bool = true;
    const CHAINS: bool = true;
    const LOOPS: bool = true;

    fn merge_axes(x: FlexTensor) -> FlexTensor {
        let (shape, strides) = (x.layout().shape().clone(), x.layout().strides().to_vec());
        let merged = Shape::from([&[shape[0] * shape[1]], &shape[2..]].concat());
        let stride = match (shape[0], shape[1]) {
            (_, 1) => strides[0],
            (1, _) => strides[1],
            (_, inner) if strides[0] == strides[1] * inner as isize => strides[1],
            _ => return x.reshape(merged),
        };
        let layout = Layout::new(merged, [&[stride], &strides[2..]].concat(), x.layout().start_offset());
        x.with_layout(layout)
    }

    fn run_chain(
        chain: &kernels::chain::Chain,
        inputs: Vec<AnyTensor<Self>>,
        shapes: &[Shape],
    ) -> Vec<AnyTensor<Self>> {
        let floats = inputs.into_iter().map(|x| match x {
            AnyTensor::Float(x) => contiguous(x),
            _ => panic!("a chain takes floating-point tensors"),
        });
        let mut inputs: Vec<_> = floats.collect();
        let given = inputs.iter_mut().enumerate().map(|(i, x)| match chain.can_donate(i) && owns_elements(x) {
            true => Input::Donated(x.try_storage_mut().expect(OWNED)),
            false => Input::Shared(elements(x)),
        });
        let outputs = chain.run(given.collect());
        let mut inputs: Vec<_> = inputs.into_iter().map(Some).collect();
        let outputs = outputs.into_iter().zip(shapes).map(|(output, shape)| match output {
            Output::New(values) => tensor(values, shape.clone()),
            Output::Input(i) => inputs[i].take().expect("an input for each output").reshape(shape.clone()),
        });
        outputs.map(AnyTensor::Float).collect()
    }

    fn cast_float(x: FlexTensor, dtype: DType) -> FlexTensor {
        half::cast(x, dtype)
    }

    fn run(operation: &Operation, inputs: Values<Self>, needs: &[bool]) -> Outcome<Self> {
        let f32 = inputs.all_f32();
        match operation {
            Operation::Linear(_) if f32 => linear::forward(inputs),
            Operation::Linear(_) if linear::has_half_weight(&inputs) => linear::forward_half(inputs),
            Operation::Linear(_) if inputs.is_half() => linear::forward_in_16_bits(inputs),
            Operation::Matmul(_) if f32 => matmul::forward(inputs),
            Operation::Matmul(_) if inputs.is_half() => {
                matmul::forward_bf16(&inputs).unwrap_or_else(|| run_in_f32(operation, inputs, needs))
            }
            Operation::QuantizedLinear(op) if f32 && inputs.dtype(1) == DType::U8 => linear::quantized(*op, inputs),
            Operation::Dequantize(op) if inputs.dtype(0) == DType::U8 => linear::dequantize(*op, inputs),
            Operation::Rope(rope) if f32 => elementwise::rope(*rope, inputs),
            Operation::Rope(_)
            | Operation::MaxPool2d(_)
            | Operation::Lstm(_)
            | Operation::Gru(_)
            | Operation::Rnn(_)
                if inputs.is_half() =>
            {
                run_in_f32(operation, inputs, needs)
            }
            Operation::SwiGlu(_) if f32 => elementwise::swiglu(inputs),
            Operation::Gelu(gelu) if f32 => elementwise::gelu(*gelu, inputs),
            Operation::Selu(_) if f32 => elementwise::map(inputs, kernels::selu_in_place, kernels::selu),
            Operation::Dropout(dropout) if f32 => elementwise::dropout(*dropout, inputs),
            Operation::RandomBits(op) => {
                let bits = kernels::random_bits(op.key, op.shape.num_elements());
                let layout = Layout::contiguous(op.shape.clone());
                let bits = FlexTensor::new(burn::tensor::Bytes::from_elems(bits), layout, DType::U32);
                Values::default().with(AnyTensor::Int(bits)).into()
            }
            Operation::UpdateCache(op) => caches::update_cache(op, inputs),
            Operation::DynamicUpdateSlice(op) => caches::dynamic_update_slice(*op, inputs),
            Operation::Attention(op) => attention::forward(*op, inputs, needs),
            Operation::Conv2d(options) if inputs.is_half() => {
                conv2d::forward_in_16_bits(*options, &inputs).unwrap_or_else(|| run_in_f32(operation, inputs, needs))
            }
            Operation::Conv2dFused(fused) if inputs.is_half() => {
                conv2d::fused_in_16_bits(*fused, &inputs).unwrap_or_else(|| run_in_f32(operation, inputs, needs))
            }
            Operation::Conv2d(options) if f32 => conv2d::forward(*options, inputs),
            Operation::Conv2dFused(fused) if f32 => conv2d::fused(*fused, inputs),
            Operation::BatchNorm(norm) if f32 => batch_norm::forward(*norm, inputs),
            Operation::MaxPool2d(options) if f32 => conv2d::max_pool(*options, inputs),
            Operation::MaskedSoftmax(softmax) if f32 && rows::takes(softmax, &inputs) => {
                rows::softmax(*softmax, inputs)
            }
            Operation::RowNorm(norm) if f32 => rows::row_norm(*norm, inputs),
            Operation::RowNorm(norm) if inputs.is_half() && !norm.centred && inputs.get(2).is_none() => {
                rows::rms_norm_of_16_bits(*norm, inputs)
            }
            Operation::Nll(_) if f32 && inputs.dtype(1) == DType::I64 => rows::nll(inputs),
            Operation::AdamStep(_) if inputs.dtype(inputs.len() - 1) == DType::F32 => adam_step::forward(inputs),
            Operation::SumOfSquares(_) => sum_of_squares::sum(inputs, |x| match is_f32(&x) {
                true => tensor(vec![kernels::sum_of_squares(elements(&contiguous(x)))], Shape::from([1])),
                false => sum_of_squares::sum_of_one::<Self>(x),
            }),
            Operation::Lstm(lstm) if f32 => recurrent::lstm(lstm, inputs, needs),
            Operation::Gru(gru) if f32 => recurrent::gru(gru, inputs, needs),
            Operation::Rnn(rnn) if f32 => recurrent::rnn(rnn, inputs),
            _ => operation.compose(inputs, needs),
        }
    }

    fn run_vjp(operation: &Operation, residuals: Values<Self>, grads: Values<Self>, wanted: &Wanted) -> Values<Self> {
        let f32 = residuals.all_f32() && grads.all_f32();
        match operation {
            Operation::Linear(_) if f32 => linear::vjp(residuals, grads, wanted),
            Operation::Linear(_) if grads.is_half() => linear::vjp_bf16(&residuals, &grads, wanted)
                .unwrap_or_else(|| run_vjp_in_f32(operation, residuals, grads, wanted)),
            Operation::SwiGlu(_) if f32 => elementwise::swiglu_vjp(residuals, grads),
            Operation::Gelu(gelu) if f32 => elementwise::gelu_vjp(*gelu, residuals, grads),
            Operation::Selu(_) if f32 => elementwise::map_vjp(residuals, grads, kernels::selu_backward),
            Operation::Attention(op) if grads.is_half() || residuals.any_float(is_half) => {
                run_vjp_in_f32(&op.for_f32(grads.dtype(0)).into(), residuals, grads, wanted)
            }
            Operation::Attention(op) if f32 => attention::vjp(*op, residuals, grads, wanted),
            Operation::Conv2d(options) if grads.is_half() => conv2d::vjp_bf16(*options, &residuals, &grads, wanted)
                .unwrap_or_else(|| run_vjp_in_f32(operation, residuals, grads, wanted)),
            Operation::Conv2d(options) if f32 => conv2d::vjp(*options, residuals, grads, wanted),
            Operation::BatchNorm(norm) if f32 => batch_norm::vjp(*norm, residuals, grads),
            Operation::MaxPool2d(options) if f32 => conv2d::max_pool_vjp(*options, residuals, grads),
            Operation::MaxPool2d(_) if grads.is_half() => run_vjp_in_f32(operation, residuals, grads, wanted),
            Operation::MaskedSoftmax(softmax) if f32 => rows::softmax_vjp(*softmax, residuals, grads),
            Operation::RowNorm(norm) if f32 => rows::row_norm_vjp(*norm, residuals, grads, wanted),
            Operation::Nll(_) if f32 && residuals.dtype(1) == DType::I64 => rows::nll_vjp(residuals, grads),
            Operation::Embedding(_) if f32 && residuals.dtype(0) == DType::I64 => {
                rows::embedding_vjp(residuals, grads, wanted)
            }
            Operation::Lstm(lstm) if f32 => recurrent::lstm_vjp(lstm, residuals, grads, wanted),
            Operation::Gru(gru) if f32 => recurrent::gru_vjp(gru, residuals, grads, wanted),
            Operation::Rnn(rnn) if f32 => recurrent::rnn_vjp(rnn, residuals, grads, wanted),
            Operation::Lstm(_) | Operation::Gru(_) | Operation::Rnn(_)
                if residuals.any_float(is_half) || grads.any_float(is_half) =>
            {
                run_vjp_in_f32(operation, residuals, grads, wanted)
            }
            _ => operation.compose_vjp(residuals, grads, wanted),
        }
    }
}

/// Returns an f32 tensor of a shape.
fn tensor(values: Vec<f32>, shape: Shape) -> FlexTensor {
    FlexTensor::new(burn::tensor::Bytes::from_elems(values), Layout::contiguous(shape), DType::F32)
}

fn is_f32(x: &FlexTensor) -> bool {
    x.dtype() == DType::F32
}

/// Returns the tensor itself if it is contiguous, otherwise a copy.
fn contiguous(x: FlexTensor) -> FlexTensor {
    // The input handle is dropped, so that the output handle may be the only one.
    let y = x.to_contiguous();
    drop(x);
    y
}

/// Returns the elements of a contiguous f32 tensor.
fn elements(x: &FlexTensor) -> &[f32] {
    x.as_slice::<f32>().expect("a contiguous tensor of f32")
}

/// Returns the shape of a tensor.
fn shape(x: &FlexTensor) -> Shape {
    x.layout().shape().clone()
}

/// Panic message: a tensor that [owns its elements](owns_elements) can be written to.
const OWNED: &str = "the only handle of its memory";

/// Returns true if a contiguous f32 tensor is the only handle of its memory, and its elements fill that memory.
fn owns_elements(x: &mut FlexTensor) -> bool {
    let count = x.layout().shape().num_elements();
    let whole = x.layout().contiguous_offsets() == Some((0, count));
    whole && x.try_storage_mut::<f32>().is_some_and(|values| values.len() == count)
}

/// Modifies the elements in place, or in a copy if the tensor is shared or not contiguous.
fn map_in_place(x: FlexTensor, f: impl FnOnce(&mut [f32])) -> FlexTensor {
    let mut x = contiguous(x);
    let shape = shape(&x);
    if owns_elements(&mut x) {
        f(x.try_storage_mut().expect(OWNED));
        return x;
    }
    let mut values = elements(&x).to_vec();
    f(&mut values);
    tensor(values, shape)
}
