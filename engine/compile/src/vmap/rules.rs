//! Batching rules: operations on values with a batch axis.

use burn::tensor::{DType, Slice, TensorData};
use burn_ir::ScalarIr;
use grove_backend::{
    AnyTensor, Backend,
    ops::{Argsort, Call, Matmul, Operation, Values},
};

use super::whole;
use crate::{
    Primitive, control,
    eval::{Program, apply, apply_one, as_recorded},
    primitive::Binary,
    target::{Target, missing},
};

/// A value, and true if its first axis is the batch axis. A value without a batch axis is shared by all examples.
#[derive(Clone, Debug)]
pub(crate) struct Batched<B: Backend> {
    pub tensor: AnyTensor<B>,
    pub batched: bool,
}

/// Runs a program for a batch of examples. Its operations are decomposed, except those that [`whole`] keeps. All results have a batch
/// axis.
pub(crate) fn run<B: Backend>(
    program: &Program,
    arguments: Vec<Batched<B>>,
    examples: usize,
    device: &B::Device,
) -> Vec<AnyTensor<B>> {
    let target = Target::<B>::new(device);
    let results = run_batched(program, arguments, examples, device);
    results.into_iter().map(|x| expanded(x, examples, &target)).collect()
}

/// Like [`run`], but results that are the same for every example have no batch axis.
pub(crate) fn run_batched<B: Backend>(
    program: &Program,
    arguments: Vec<Batched<B>>,
    examples: usize,
    device: &B::Device,
) -> Vec<Batched<B>> {
    let target = Target::<B>::new(device);
    let rules = BatchingRules { examples, target: &target };
    let constants = program.constants(&target).into_iter();
    let constants = constants.map(|tensor| Batched { tensor, batched: false });
    program.walk(arguments, constants, |equation, inputs| {
        let batched = inputs.iter().flatten().any(|x| x.batched);
        let (primitive, outputs) = (&equation.primitive, equation.outputs.len());
        if let (Primitive::HigherOrder(op), true) = (primitive, batched) {
            return control::batched(op, inputs.into_iter().flatten().collect(), examples, &target);
        }
        let results = match (batched, whole::roles(primitive, inputs.len())) {
            (true, Some(roles)) => rules.whole(primitive, &roles, inputs, outputs),
            (true, None) => rules.apply(primitive, inputs.into_iter().flatten().collect(), outputs),
            (false, _) => apply(primitive, inputs.into_iter().map(|x| x.map(|x| x.tensor)).collect(), outputs, &target),
        };
        let dtypes = equation.outputs.iter().map(|var| var.map(|var| program.graph().dtype(var)));
        let results = as_recorded(primitive, results, dtypes, &target);
        results.into_iter().map(|x| x.map(|tensor| Batched { tensor, batched })).collect()
    })
}

/// Broadcasts a value to the batch.
pub(crate) fn expanded<B: Backend>(x: Batched<B>, examples: usize, target: &Target<'_, B>) -> AnyTensor<B> {
    BatchingRules { examples, target }.expanded(x)
}

/// Batching rules for a number of examples.
pub(super) struct BatchingRules<'a, B: Backend> {
    pub examples: usize,
    pub target: &'a Target<'a, B>,
}

pub(super) type Inputs<B> = std::vec::IntoIter<Batched<B>>;

impl<B: Backend> BatchingRules<'_, B> {
    pub(super) fn one(&self, primitive: Primitive, inputs: impl IntoIterator<Item = AnyTensor<B>>) -> AnyTensor<B> {
        apply_one(&primitive, inputs, self.target)
    }

    /// Adds a batch axis of size 1 to a value without a batch axis.
    fn aligned(x: Batched<B>) -> AnyTensor<B> {
        let shape = x.tensor.shape();
        match x.batched {
            true => x.tensor,
            false => x.tensor.reshape([&[1], &shape[..]].concat()),
        }
    }

    /// Broadcasts a value to the batch.
    pub fn expanded(&self, x: Batched<B>) -> AnyTensor<B> {
        if x.batched {
            return x.tensor;
        }
        let shape = [&[self.examples], &x.tensor.shape()[..]].concat();
        self.one(Primitive::BroadcastTo(shape), [Self::aligned(x)])
    }

    /// Reshapes `[examples, n, ...]` to `[examples * n, ...]`.
    pub(super) fn folded(&self, x: Batched<B>) -> AnyTensor<B> {
        let x = self.expanded(x);
        let shape = x.shape();
        x.reshape([&[shape[0] * shape[1]], &shape[2..]].concat())
    }

    /// Reverses [`folded`](Self::folded).
    pub(super) fn unfolded(&self, x: AnyTensor<B>) -> AnyTensor<B> {
        let shape = x.shape();
        x.reshape([&[self.examples, shape[0] / self.examples], &shape[1..]].concat())
    }

    /// Reshapes `[examples, b, c, ...]` to `[b, examples * c, ...]`: the examples become groups of channels.
    pub(super) fn as_channels(&self, x: Batched<B>) -> AnyTensor<B> {
        let x = move_axis(self.expanded(x), 0, 1);
        let shape = x.shape();
        x.reshape([&[shape[0], shape[1] * shape[2]], &shape[3..]].concat())
    }

    /// Reverses [`as_channels`](Self::as_channels).
    pub(super) fn out_of_channels(&self, x: AnyTensor<B>) -> AnyTensor<B> {
        let shape = x.shape();
        let x = x.reshape([&[shape[0], self.examples, shape[1] / self.examples], &shape[2..]].concat());
        move_axis(x, 1, 0)
    }

    /// Converts indices below `size` for each example, `[examples, ...]`, to indices into the concatenation of all examples.
    ///
    /// An index out of range would refer to another example. Each index is therefore first looked up in the list of valid
    /// indices, so that the backend handles out-of-range indices as usual.
    pub(super) fn flat_positions(&self, positions: AnyTensor<B>, size: usize) -> AnyTensor<B> {
        let shape = positions.shape();
        let all = self.integers((0..size).collect(), vec![size], positions.dtype());
        let positions = self.one(Primitive::Take(0), [all, positions.reshape([shape.num_elements()])]);
        self.plus_starts(positions.reshape(shape.to_vec()), size)
    }

    /// Like [`flat_positions`](Self::flat_positions), for updates, which XLA ignores out of range. An index out of range of its
    /// example becomes one that is out of range of all examples.
    pub(super) fn flat_positions_of_updates(&self, positions: AnyTensor<B>, size: usize) -> AnyTensor<B> {
        let number = |x: usize| ScalarIr::Int(x as i64);
        let is = |op, x: usize| self.one(Primitive::BinaryScalar(op, number(x)), [positions.clone()]);
        let is_outside = self.one(Primitive::Binary(Binary::Or), [is(Binary::Lt, 0), is(Binary::Ge, size)]);
        let flat = self.plus_starts(positions, size);
        self.one(Primitive::MaskFill(number(self.examples * size)), [flat, is_outside])
    }

    /// Adds the index of the first element of each example.
    fn plus_starts(&self, positions: AnyTensor<B>, size: usize) -> AnyTensor<B> {
        let mut column = vec![1; positions.shape().num_dims()];
        column[0] = self.examples;
        let starts = (0..self.examples).map(|example| example * size).collect();
        let starts = self.integers(starts, column, positions.dtype());
        self.one(Primitive::Binary(Binary::Add), [positions, starts])
    }

    /// Returns an array of integers of a dtype, or of the device's default if the device does not support the dtype.
    fn integers(&self, values: Vec<usize>, shape: Vec<usize>, dtype: DType) -> AnyTensor<B> {
        let values: Vec<i64> = values.into_iter().map(|value| value as i64).collect();
        let data = TensorData::new(values, shape).convert_dtype(self.target.int(dtype).into());
        AnyTensor::from_data(data, self.target.device)
    }

    /// Applies an operation. At least one input has a batch axis.
    pub fn apply(&self, primitive: &Primitive, inputs: Vec<Batched<B>>, outputs: usize) -> Vec<Option<AnyTensor<B>>> {
        let mut inputs = inputs.into_iter();
        let y = match primitive {
            Primitive::MaxWithIndices(axis) => return self.same(Primitive::MaxWithIndices(axis + 1), inputs, outputs),
            Primitive::MinWithIndices(axis) => return self.same(Primitive::MinWithIndices(axis + 1), inputs, outputs),
            Primitive::Module(module) => return self.module(module, inputs, outputs),
            Primitive::Grove(Call::Run(Operation::AllReduce(_), _)) => {
                return self.same(primitive.clone(), inputs, outputs);
            }
            Primitive::Unary(_)
            | Primitive::BinaryScalar(..)
            | Primitive::Clamp(..)
            | Primitive::Convert(_)
            | Primitive::Binary(_) => {
                let inputs: Vec<_> = inputs.map(Self::aligned).collect();
                self.one(primitive.clone(), inputs)
            }
            Primitive::Where | Primitive::MaskFill(_) => {
                let inputs: Vec<_> = inputs.map(|x| self.expanded(x)).collect();
                self.one(primitive.clone(), inputs)
            }
            Primitive::Reduce(op, None) => {
                let x = next(&mut inputs).tensor;
                let count = x.shape().num_elements() / self.examples.max(1);
                self.one(Primitive::Reduce(*op, Some(1)), [x.reshape([self.examples, count])])
            }
            Primitive::Reduce(op, Some(axis)) => self.each(Primitive::Reduce(*op, Some(axis + 1)), inputs),
            Primitive::Argmax(axis) => self.each(Primitive::Argmax(axis + 1), inputs),
            Primitive::Argmin(axis) => self.each(Primitive::Argmin(axis + 1), inputs),
            Primitive::TopK(axis, k) => self.each(Primitive::TopK(axis + 1, *k), inputs),
            Primitive::ArgTopK(axis, k) => self.each(Primitive::ArgTopK(axis + 1, *k), inputs),
            Primitive::Cumulative(op, axis) => self.each(Primitive::Cumulative(*op, axis + 1), inputs),
            Primitive::Reshape(shape) => self.each(Primitive::Reshape([&[self.examples], &shape[..]].concat()), inputs),
            Primitive::SwapAxes(a, b) => self.each(Primitive::SwapAxes(a + 1, b + 1), inputs),
            Primitive::Transpose(axes) => {
                let axes = std::iter::once(0).chain(axes.iter().map(|axis| axis + 1)).collect();
                self.each(Primitive::Transpose(axes), inputs)
            }
            Primitive::StopGradient | Primitive::DebugPrint(_) => self.each(primitive.clone(), inputs),
            Primitive::Flip(axes) => self.each(Primitive::Flip(axes.iter().map(|axis| axis + 1).collect()), inputs),
            Primitive::BroadcastTo(shape) => {
                // New axes of an example come after the batch axis.
                let x = next(&mut inputs).tensor;
                let old = x.shape();
                let new = vec![1; shape.len() + 1 - old.num_dims()];
                let x = x.reshape([&[self.examples], &new[..], &old[1..]].concat());
                self.one(Primitive::BroadcastTo([&[self.examples], &shape[..]].concat()), [x])
            }
            Primitive::Unfold(axis, size, step) => self.each(Primitive::Unfold(axis + 1, *size, *step), inputs),
            Primitive::Slice(ranges) => self.each(Primitive::Slice(with_full(ranges)), inputs),
            Primitive::UpdateSlice(ranges) => self.each(Primitive::UpdateSlice(with_full(ranges)), inputs),
            Primitive::Gather(axis) => self.each(Primitive::Gather(axis + 1), inputs),
            Primitive::ScatterAdd(axis) => self.each(Primitive::ScatterAdd(axis + 1), inputs),
            Primitive::Repeat(axis, times) => self.each(Primitive::Repeat(axis + 1, *times), inputs),
            Primitive::Concatenate(axis) => self.each(Primitive::Concatenate(axis + 1), inputs),
            Primitive::Take(axis) => self.take(next(&mut inputs), next(&mut inputs), *axis),
            Primitive::TakeAdd(axis) => self.take_add(next(&mut inputs), next(&mut inputs), next(&mut inputs), *axis),
            Primitive::MatMul => self.matmul(next(&mut inputs), next(&mut inputs)),
            Primitive::WithKey(_) if inputs.as_slice()[0].batched => {
                return self.one_by_one(primitive, inputs, outputs);
            }
            Primitive::Grove(Call::Run(Operation::Argsort(Argsort { axis, descending }), needs)) => {
                let argsort = Argsort { axis: axis + 1, descending: *descending };
                self.each(Primitive::Grove(Call::Run(argsort.into(), needs.clone())), inputs)
            }
            Primitive::Grove(Call::Run(Operation::RandomFoldIn(_), _)) => {
                self.fold_in(next(&mut inputs), next(&mut inputs))
            }
            Primitive::Grove(Call::Run(Operation::Dropout(_), _) | Call::Vjp(Operation::Dropout(_), ..))
            | Primitive::WithKey(Call::Run(Operation::Dropout(_), _) | Call::Vjp(Operation::Dropout(_), ..)) => {
                // Each example gets the same dropout mask, as it would alone with the same key.
                let mut given: Vec<_> = inputs.map(|x| x.tensor).collect();
                let x = given.pop().unwrap_or_else(|| missing());
                let ones = Primitive::Full(x.shape()[1..].to_vec(), x.dtype(), ScalarIr::Float(1.0));
                given.push(self.one(ones, []));
                let factors = self.one(primitive.clone(), given);
                let factors = Self::aligned(Batched { tensor: factors, batched: false });
                self.one(Primitive::Binary(Binary::Mul), [x, factors])
            }
            Primitive::Grove(Call::Run(Operation::Dequantize(_), _)) => {
                let blocks = self.folded(next(&mut inputs));
                self.unfolded(self.one(primitive.clone(), [blocks]))
            }
            Primitive::Full(..)
            | Primitive::Grove(_)
            | Primitive::WithKey(_)
            | Primitive::Fused(_)
            | Primitive::HigherOrder(_) => {
                unreachable!("`{}` takes no arrays, or is not in a graph that is transformed", primitive.name())
            }
        };
        vec![Some(y)]
    }

    /// Applies an operation after broadcasting all inputs to the batch.
    fn each(&self, primitive: Primitive, inputs: Inputs<B>) -> AnyTensor<B> {
        let inputs: Vec<_> = inputs.map(|x| self.expanded(x)).collect();
        self.one(primitive, inputs)
    }

    /// Like [`each`](Self::each), for several outputs.
    pub(super) fn same(&self, primitive: Primitive, inputs: Inputs<B>, outputs: usize) -> Vec<Option<AnyTensor<B>>> {
        apply(&primitive, inputs.map(|x| Some(self.expanded(x))).collect(), outputs, self.target)
    }

    fn take(&self, x: Batched<B>, positions: Batched<B>, axis: usize) -> AnyTensor<B> {
        if !positions.batched {
            return self.one(Primitive::Take(axis + 1), [x.tensor, positions.tensor]);
        }
        let count = positions.tensor.shape()[1];
        let flat = [self.examples * count];
        if !x.batched {
            let y = self.one(Primitive::Take(axis), [x.tensor, positions.tensor.reshape(flat)]);
            let shape = y.shape();
            let y = y.reshape([&shape[..axis], &[self.examples, count], &shape[axis + 1..]].concat());
            return move_axis(y, axis, 0);
        }
        let (rows, size) = rows_of(x.tensor, axis);
        let y = self.one(Primitive::Take(0), [rows, self.flat_positions(positions.tensor, size).reshape(flat)]);
        move_axis(self.unfolded(y), 1, axis + 1)
    }

    fn take_add(&self, x: Batched<B>, positions: Batched<B>, part: Batched<B>, axis: usize) -> AnyTensor<B> {
        let (x, part) = (self.expanded(x), self.expanded(part));
        if !positions.batched {
            return self.one(Primitive::TakeAdd(axis + 1), [x, positions.tensor, part]);
        }
        let (rows, size) = rows_of(x, axis);
        let (parts, count) = rows_of(part, axis);
        let positions = self.flat_positions_of_updates(positions.tensor, size).reshape([self.examples * count]);
        let y = self.one(Primitive::TakeAdd(0), [rows, positions, parts]);
        move_axis(self.unfolded(y), 1, axis + 1)
    }

    fn matmul(&self, a: Batched<B>, b: Batched<B>) -> AnyTensor<B> {
        let shape = b.tensor.shape();
        let [.., k, n] = shape[..] else { missing() };
        // One large product instead of many small ones.
        if !b.batched && shape[..shape.num_dims() - 2].iter().all(|size| *size == 1) {
            let rows = a.tensor.shape();
            let left = a.tensor.reshape([rows[..rows.num_dims() - 1].iter().product(), k]);
            let y = self.product(left, b.tensor.reshape([k, n]));
            return y.reshape([&rows[..rows.num_dims() - 1], &[n]].concat());
        }
        self.product(Self::aligned(a), Self::aligned(b))
    }

    /// Multiplies matrices `[..., m, k]` by `[..., k, n]`. Floating-point products use grove's operation, which has kernels for
    /// batches of small matrices.
    pub(super) fn product(&self, a: AnyTensor<B>, b: AnyTensor<B>) -> AnyTensor<B> {
        match (a, b) {
            (AnyTensor::Float(a), AnyTensor::Float(b)) => {
                AnyTensor::Float(B::run(&Matmul.into(), Values::floats([a, b]), &[]).outputs.take_float(0))
            }
            (a, b) => self.one(Primitive::MatMul, [a, b]),
        }
    }
}

/// Returns the next input, which must exist.
pub(super) fn next<B: Backend>(inputs: &mut Inputs<B>) -> Batched<B> {
    inputs.next().unwrap_or_else(|| missing())
}

/// Adds the full range of the batch axis to the ranges of an example.
fn with_full(ranges: &[Slice]) -> Vec<Slice> {
    [&[Slice::full()], ranges].concat()
}

/// Moves an axis to another position and keeps the order of the others (`jnp.moveaxis`).
pub(crate) fn move_axis<B: Backend>(x: AnyTensor<B>, from: usize, to: usize) -> AnyTensor<B> {
    if from == to {
        return x;
    }
    let mut order: Vec<usize> = (0..x.shape().num_dims()).filter(|axis| *axis != from).collect();
    order.insert(to, from);
    x.permute(&order)
}

/// Moves an axis of the examples next to the batch axis and merges both: `[examples, ..., size, ...]` becomes rows `[examples *
/// size, ...]`. Also returns the size of the axis.
fn rows_of<B: Backend>(x: AnyTensor<B>, axis: usize) -> (AnyTensor<B>, usize) {
    let x = move_axis(x, axis + 1, 1);
    let shape = x.shape();
    (x.reshape([&[shape[0] * shape[1]], &shape[2..]].concat()), shape[1])
}
