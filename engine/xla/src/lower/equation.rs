//! Lowering of single operations.

use grove_backend::ops::{Call, Operation};
use grove_compile::{Equation, Primitive, primitive::Reduction};

use super::{LowerError, Lowering, Result, Value};
use crate::{ArrayType, ElementType, PartitionSpec};

impl Lowering<'_> {
    /// Lowers an operation other than an all-reduce or a recurrent layer, whose outputs may be missing.
    pub(super) fn equation(
        &mut self,
        equation: &Equation,
        inputs: Vec<Option<Value>>,
        arrays: &[Option<ArrayType>],
    ) -> Result<Vec<Value>> {
        let refused = |reason: &str| LowerError { operation: equation.primitive.name(), reason: reason.into() };
        if let Primitive::Grove(
            Call::Run(Operation::ShardingConstraint(constraint), _)
            | Call::Vjp(Operation::ShardingConstraint(constraint), ..),
        ) = &equation.primitive
        {
            // Without residuals; the last input is the gradient.
            let x = inputs.into_iter().flatten().next_back().ok_or_else(|| refused("it has no input"))?;
            let spec = PartitionSpec::from(constraint.clone());
            return Ok(vec![match self.mesh {
                Some(mesh) => {
                    mesh.part_dims(&spec, &x.array.dims).map_err(|reason| refused(&reason))?;
                    self.lines.constrained(&x, &mesh.sharding(&spec, x.rank()))
                }
                None => x,
            }]);
        }
        if let Primitive::Grove(call) | Primitive::WithKey(call) = &equation.primitive {
            let with_key = matches!(equation.primitive, Primitive::WithKey(_));
            let found = self.grove(call, with_key, inputs, arrays);
            return found.map(|value| vec![value]).ok_or_else(|| refused("it is neither composed nor known"));
        }
        let inputs: Vec<Value> = inputs.into_iter().flatten().collect();
        let given: Vec<ArrayType> = arrays.iter().flatten().cloned().collect();
        let Some(array) = given.first() else { return Err(refused("it has no results")) };
        let element = array.element;
        let lines = &mut self.lines;
        let one = match (&equation.primitive, &inputs[..]) {
            (Primitive::Unary(op), [x]) => lines.elementwise(*op, x),
            (Primitive::Binary(op), [a, b]) => lines.pairwise(*op, a, b),
            (Primitive::BinaryScalar(op, number), [x]) => lines.with_number(*op, x, (*number).into()),
            (Primitive::Reduce(op, axis), [x]) => lines.reduction(*op, x, *axis),
            (Primitive::Argmax(axis), [x]) => lines.arg_extreme(x, *axis, Reduction::Max, element),
            (Primitive::Argmin(axis), [x]) => lines.arg_extreme(x, *axis, Reduction::Min, element),
            (Primitive::TopK(axis, k), [x]) => {
                let [values, _] = lines.largest(x, *axis, *k, ElementType::I32);
                values
            }
            (Primitive::ArgTopK(axis, k), [x]) => {
                let [_, positions] = lines.largest(x, *axis, *k, element);
                positions
            }
            (Primitive::MaxWithIndices(axis) | Primitive::MinWithIndices(axis), [x]) => {
                let least = matches!(equation.primitive, Primitive::MinWithIndices(_));
                let op = if least { Reduction::Min } else { Reduction::Max };
                let values = lines.reduction(op, x, Some(*axis));
                return Ok(vec![values, lines.arg_extreme(x, *axis, op, given[1].element)]);
            }
            (Primitive::Cumulative(op, axis), [x]) => lines.cumulative(*op, x, *axis),
            (Primitive::Clamp(min, max), [x]) => lines.clamp(x, (*min).into(), (*max).into()),
            (Primitive::Where, [x, mask, y]) => lines.choose(x, mask, y),
            (Primitive::MaskFill(value), [x, mask]) => {
                let value = lines.full(x.with_dims(vec![1; x.rank()]), *value);
                lines.choose(x, mask, &value)
            }
            (Primitive::Reshape(shape), [x]) => lines.reshape(x, shape),
            (Primitive::SwapAxes(a, b), [x]) => {
                let mut axes: Vec<usize> = (0..x.rank()).collect();
                axes.swap(*a, *b);
                lines.transpose(x, &axes)
            }
            (Primitive::Transpose(axes), [x]) => lines.transpose(x, axes),
            (Primitive::Flip(axes), [x]) => lines.reverse(x, axes),
            (Primitive::StopGradient, [x]) => x.clone(),
            (Primitive::DebugPrint(name), [x]) if self.prints => {
                self.printed = true;
                lines.printed(name, x.clone())
            }
            (Primitive::DebugPrint(name), [x]) => {
                eprintln!(
                    "the debug print of `{name}` was left out of the program: programs of XLA print only on the CPU"
                );
                x.clone()
            }
            (Primitive::BroadcastTo(shape), [x]) => lines.broadcast_to(x, shape),
            (Primitive::Unfold(axis, size, step), [x]) => lines.unfold(x, *axis, *size, *step),
            (Primitive::Slice(ranges), [x]) => lines.part(x, ranges),
            (Primitive::UpdateSlice(ranges), [x, part]) => lines.with_part(x, part, ranges),
            (Primitive::Take(axis), [x, positions]) => lines.take(x, positions, *axis),
            (Primitive::TakeAdd(axis), [x, positions, part]) => lines.take_add(x, positions, part, *axis),
            (Primitive::Gather(axis), [x, positions]) => lines.gather(x, positions, *axis),
            (Primitive::ScatterAdd(axis), [x, positions, part]) => lines.scatter_add(x, positions, part, *axis),
            (Primitive::Repeat(axis, times), [x]) => lines.repeat(x, *axis, *times),
            (Primitive::Concatenate(axis), parts) => lines.concatenate(parts, *axis),
            (Primitive::Convert(_), [x]) => lines.convert(x, element),
            (Primitive::Full(_, _, value), []) => lines.full(array.clone(), *value),
            (Primitive::MatMul, [a, b]) => lines.matmul(a, b, element),
            (Primitive::Module(module), inputs) => return Ok(lines.module(module, inputs, &given)),
            (Primitive::HigherOrder(op), _) => return self.higher_order(op, inputs),
            _ => return Err(refused(&format!("it has {} inputs", inputs.len()))),
        };
        Ok(vec![one])
    }

    /// Lowers one of grove's operations for which [stays](stays) returns true. Its key is its first input or a static parameter.
    /// `None` for other operations.
    fn grove(
        &mut self,
        call: &Call,
        with_key: bool,
        inputs: Vec<Option<Value>>,
        arrays: &[Option<ArrayType>],
    ) -> Option<Value> {
        let array = arrays.first()?.as_ref()?;
        let mut inputs: Vec<Value> = inputs.into_iter().flatten().collect();
        let key = match with_key {
            true => Some(inputs.remove(0)),
            false => call.clone().key_mut().copied().map(|words| self.key(words)),
        };
        let lines = &mut self.lines;
        match (call, key, &inputs[..]) {
            (Call::Run(Operation::Dropout(dropout), _), Some(key), [x]) => Some(lines.dropout(dropout, &key, x)),
            // Without residuals; the last input is the gradient.
            (Call::Vjp(Operation::Dropout(dropout), ..), Some(key), [.., grad]) => {
                Some(lines.dropout(dropout, &key, grad))
            }
            (Call::Run(Operation::RandomBits(bits), _), Some(key), _) => Some(lines.random_bits(bits, &key, array)),
            (Call::Run(Operation::RandomSamples(samples), _), Some(key), _) => {
                Some(lines.random_samples(samples, &key, array))
            }
            (Call::Run(Operation::Argsort(argsort), _), _, [x]) => Some(lines.argsort(argsort, x, array.element)),
            (Call::Run(Operation::RandomKeyData(_), _), key, _) => key,
            (Call::Run(Operation::RandomFoldIn(_), _), _, [key, data]) => Some(lines.child_keys(key, data)),
            (Call::Run(Operation::Dequantize(matrix), _), _, [blocks]) => {
                Some(lines.dequantized(matrix.format, blocks))
            }
            (Call::Run(Operation::DynamicUpdateSlice(update), _), _, [whole, part, position]) => {
                let (at, zero) = (lines.reshape(position, &[]), lines.scalar(position.element(), 0_usize));
                let starts: Vec<Value> =
                    (0..whole.rank()).map(|axis| if axis == update.axis { at.clone() } else { zero.clone() }).collect();
                Some(lines.dynamic_update_slice(whole, part, &starts))
            }
            _ => None,
        }
    }
}
