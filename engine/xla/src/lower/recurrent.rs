//! Recurrent layers as loops: each step is the layer over one step, decomposed.
//!
//! Sequences of different lengths are padded with rows of zeros in the loop; their states stay constant in the padding.

use grove_backend::{
    AnyTensor, Backend,
    ops::{Call, Operation, Outcome, Spec, Values, Wanted},
};
use grove_compile::{Graph, Traced, trace_skeleton};
use grove_tree::AnyArray;

use super::{Lowering, Result, builder::Builder, is_lowered_directly, value::Value};
use crate::{ArrayType, ElementType};

/// A recurrent layer over several steps.
struct Layer {
    /// The layer over one step.
    step: Operation,
    /// Number of arrays in a state.
    states: usize,
    /// Number of steps and number of sequences.
    time: usize,
    batch: usize,
    reverse: bool,
    /// Number of sequences in each step.
    sizes: Vec<usize>,
}

/// Returns true for recurrent layers that are lowered as loops: those with several steps.
pub(super) fn is_loop(operation: &Operation) -> bool {
    operation.first_step().is_some()
}

impl Layer {
    fn of(operation: &Operation) -> Option<Self> {
        let (step, steps) = operation.first_step()?;
        let states = if matches!(operation, Operation::Lstm(_)) { 2 } else { 1 };
        let sizes = steps.sizes().to_vec();
        Some(Self { step, states, time: sizes.len(), batch: steps.batch(), reverse: steps.is_reverse(), sizes })
    }

    fn rows(&self) -> usize {
        self.sizes.iter().sum()
    }

    /// Returns true if some sequence is shorter than others.
    fn is_ragged(&self) -> bool {
        self.sizes.iter().any(|size| *size != self.batch)
    }

    /// Unpacks rows into steps, with zeros after the ends of sequences.
    fn by_steps(&self, lines: &mut Builder, x: &Value) -> Value {
        let dims = [self.time, self.batch, x.dims()[1]];
        if !self.is_ragged() {
            return lines.reshape(x, &dims);
        }
        let zeros = lines.full(x.with_dims([1, x.dims()[1]]), 0_usize);
        let rows = lines.concatenate(&[x.clone(), zeros], 0);
        let (mut first, mut positions) = (0, Vec::new());
        for size in &self.sizes {
            positions.extend((0..self.batch).map(|i| if i < *size { first + i } else { self.rows() }));
            first += size;
        }
        let positions = lines.values(ArrayType::new(ElementType::I32, [self.time, self.batch]), positions);
        lines.take(&rows, &positions, 0)
    }

    /// The inverse of [`by_steps`](Self::by_steps).
    fn packed(&self, lines: &mut Builder, x: &Value) -> Value {
        let all = lines.reshape(x, &[self.time * self.batch, x.dims()[2]]);
        if !self.is_ragged() {
            return all;
        }
        let rows = self.sizes.iter().enumerate().flat_map(|(step, size)| (0..*size).map(move |i| (step, i)));
        let positions: Vec<usize> = rows.map(|(step, i)| step * self.batch + i).collect();
        let positions = lines.values(ArrayType::new(ElementType::I32, [self.rows()]), positions);
        lines.take(&all, &positions, 0)
    }

    /// Returns a mask of the active sequences in each step, `[time, batch, 1]`; `None` if all sequences have the same length.
    fn active(&self, lines: &mut Builder) -> Option<Value> {
        if !self.is_ragged() {
            return None;
        }
        let steps = lines.iota(ArrayType::new(ElementType::I32, [self.time, self.batch, 1]), 0);
        let lengths = (0..self.batch).map(|i| self.sizes.iter().filter(|size| i < **size).count());
        let lengths = lines.values(ArrayType::new(ElementType::I32, [1, self.batch, 1]), lengths.collect::<Vec<_>>());
        let lengths = lines.broadcast_to(&lengths, steps.dims());
        Some(lines.compare("LT", &steps, &lengths))
    }

    /// Returns the states before each step, from the initial state and the states after each step.
    fn before_steps(&self, lines: &mut Builder, state: &Value, all: &Value, active: Option<&Value>) -> Value {
        let first = lines.reshape(state, &[&[1], state.dims()].concat());
        // In reverse, a sequence starts at its end, so its state in the padding is the initial state.
        let all = match active {
            Some(active) => {
                let first = lines.broadcast_to(&first, all.dims());
                lines.where_active(Some(active), all.clone(), &first)
            }
            None => all.clone(),
        };
        let (range, order) = if self.reverse { ([1, self.time], [1, 0]) } else { ([0, self.time - 1], [0, 1]) };
        let parts = [first, lines.slice_axis(&all, 0, range)];
        lines.concatenate(&order.map(|i| parts[i].clone()), 0)
    }
}

/// Traces the graph of one step for arguments of these types. Its results are the present arrays.
fn graph_of(
    arrays: &[&ArrayType],
    step: impl FnOnce(Vec<AnyTensor<Traced>>) -> Vec<Option<AnyTensor<Traced>>>,
) -> Graph {
    let absent = |array: &&ArrayType| AnyArray::<Traced>::absent(array.dims.clone(), array.element.dtype());
    let args: Vec<AnyArray<Traced>> = arrays.iter().map(absent).collect();
    let traced = |args: Vec<AnyArray<Traced>>| -> Vec<AnyArray<Traced>> {
        let results = step(args.into_iter().filter_map(AnyArray::into_value).collect());
        results.into_iter().flatten().map(AnyArray::present).collect()
    };
    trace_skeleton(traced, &args).decomposed_except(is_lowered_directly)
}

fn values(list: impl IntoIterator<Item = AnyTensor<Traced>>) -> Values<Traced> {
    list.into_iter().map(Some).collect()
}

impl Lowering<'_> {
    /// Lowers a recurrent layer, or its derivative, to a loop over its steps; `None` for other operations.
    pub(super) fn recurrent(&mut self, call: &Call, inputs: &[Option<Value>]) -> Result<Option<Vec<Option<Value>>>> {
        let (Call::Run(operation, _) | Call::Vjp(operation, ..)) = call;
        let Some(layer) = Layer::of(operation) else { return Ok(None) };
        let inputs: Vec<Value> = inputs.iter().flatten().cloned().collect();
        Ok(Some(match call {
            Call::Run(_, needs) => self.layer(&layer, needs, &inputs)?,
            Call::Vjp(_, _, wanted) => self.layer_vjp(&layer, wanted, &inputs)?,
        }))
    }

    /// Lowers the layer. The inputs are `x`, two weights, the bias and the states.
    fn layer(&mut self, layer: &Layer, needs: &[bool], inputs: &[Value]) -> Result<Vec<Option<Value>>> {
        let Layer { step, states, time, batch, reverse, .. } = layer;
        let lines = &mut self.lines;
        let (x, active) = (layer.by_steps(lines, &inputs[0]), layer.active(lines));
        let (weights, state) = (&inputs[1..4], &inputs[4..4 + states]);
        let row = ArrayType::new(x.element(), &x.dims()[1..]);
        let arrays: Vec<&ArrayType> = [&row].into_iter().chain(inputs[1..].iter().map(|value| &value.array)).collect();
        let graph = graph_of(&arrays, |arguments| {
            let Outcome { outputs, saved } = Traced::run(step, values(arguments), needs);
            outputs.into_values().into_iter().chain(saved.into_values()).collect()
        });
        // Output rows and residuals of all steps.
        let results = self.outputs(&graph)?;
        let stacked = |array: &ArrayType| ArrayType::new(array.element, [*time, *batch, array.dims[1]]);
        let mut init = state.to_vec();
        init.extend(results.iter().map(|array| self.lines.full(stacked(array), 0_usize)).collect::<Vec<_>>());
        let mut final_values = self.counted(&init, *time, false, |lowering, count, current| {
            let at = lowering.lines.at(count, *time, *reverse);
            let x = lowering.lines.row(&x, &at);
            let (state, ys) = current.split_at(*states);
            let mut results = lowering.graph(&graph, [&[x], weights, state].concat())?;
            let whole = results.remove(0);
            let lines = &mut lowering.lines;
            let active = active.as_ref().map(|active| lines.row(active, &at));
            let mut parts = (0..=*states).map(|i| lines.slice_axis(&whole, 0, [i * batch, (i + 1) * batch]));
            let output = parts.next();
            let new: Vec<Value> = parts.collect();
            let mut next: Vec<Value> =
                new.into_iter().zip(state).map(|(new, old)| lines.where_active(active.as_ref(), new, old)).collect();
            for (all, step) in ys.iter().zip(output.into_iter().chain(results)) {
                next.push(lines.with_row(all, &step, &at));
            }
            Ok(next)
        })?;
        let lines = &mut self.lines;
        let ys: Vec<Value> = final_values.split_off(*states);
        let mut ys = ys.into_iter().map(|y| layer.packed(lines, &y)).collect::<Vec<_>>();
        let output = lines.concatenate(&[vec![ys.remove(0)], final_values].concat(), 0);
        Ok([output].into_iter().chain(ys).map(Some).collect())
    }

    /// Lowers the derivative. The inputs are those of the layer, its output, its residuals, and the gradient of the output.
    fn layer_vjp(&mut self, layer: &Layer, wanted: &Wanted, inputs: &[Value]) -> Result<Vec<Option<Value>>> {
        let Layer { step, states, time, batch, reverse, .. } = layer;
        let rows = layer.rows();
        let (layer_inputs, rest) = inputs.split_at(4 + states);
        let Some((grad, [output, saved @ ..])) = rest.split_last() else { return Ok(vec![]) };
        let lines = &mut self.lines;
        let active = layer.active(lines);
        // Outputs of the steps, and below the states before each step.
        let output = lines.slice_axis(output, 0, [0, rows]);
        let step_grads = lines.slice_axis(grad, 0, [0, rows]);
        let [x, output, step_grads] = [&layer_inputs[0], &output, &step_grads].map(|x| layer.by_steps(lines, x));
        let saved: Vec<Value> = saved.iter().map(|x| layer.by_steps(lines, x)).collect();
        // The cell state of an LSTM is not an output, but its last residual.
        let states_of_steps = layer_inputs[4..].iter().zip([&output].into_iter().chain(saved.last()));
        let before: Vec<Value> =
            states_of_steps.map(|(state, all)| layer.before_steps(lines, state, all, active.as_ref())).collect();
        // All gradients of a step, because those of the states are needed for the next step.
        let row = |x: &Value| ArrayType::new(x.element(), &x.dims()[1..]);
        let whole = ArrayType::new(output.element(), [(1 + states) * batch, output.dims()[2]]);
        let step_types: Vec<ArrayType> = [row(&x)]
            .into_iter()
            .chain(layer_inputs[1..].iter().map(|value| value.array.clone()))
            .chain([whole.clone()])
            .chain(saved.iter().map(row))
            .chain([whole])
            .collect();
        let residuals = step_types.len() - 1;
        let spec = |array: &ArrayType| Some(Spec { shape: array.dims.clone().into(), dtype: array.element.dtype() });
        let all = Wanted::new(step_types[..layer_inputs.len()].iter().map(spec).collect());
        let arrays: Vec<&ArrayType> = step_types.iter().collect();
        let graph = graph_of(&arrays, |mut arguments| {
            let grads = arguments.split_off(residuals);
            Traced::run_vjp(step, values(arguments), values(grads), &all).into_values()
        });
        // The gradients of the states, the sums of those of the weights, and those of `x`.
        let wanted: Vec<bool> = (0..4).map(|i| wanted.get(i).is_some()).collect();
        let weight_indices: Vec<usize> = (1..4).filter(|i| wanted[*i]).collect();
        let mut init = Vec::new();
        for i in 1..=*states {
            init.push(self.lines.slice_axis(grad, 0, [rows + (i - 1) * batch, rows + i * batch]));
        }
        for i in &weight_indices {
            init.push(self.lines.full(layer_inputs[*i].array.clone(), 0_usize));
        }
        if wanted[0] {
            init.push(self.lines.full_like(&x, 0_usize));
        }
        let final_values = self.counted(&init, *time, false, |lowering, count, current| {
            let lines = &mut lowering.lines;
            let at = lines.at(count, *time, !*reverse);
            let active = active.as_ref().map(|active| lines.row(active, &at));
            let (d_states, sums) = current.split_at(*states);
            let step_output = lines.row(&output, &at);
            // Only the rows of the output are read.
            let whole = lines.concatenate(&vec![step_output; 1 + states], 0);
            // A sequence that has ended does not contribute to this step's gradients.
            let mut parts = vec![lines.row(&step_grads, &at)];
            for d_state in d_states {
                let zero = lines.full_like(d_state, 0_usize);
                parts.push(lines.where_active(active.as_ref(), d_state.clone(), &zero));
            }
            let d_output = lines.concatenate(&parts, 0);
            let x_row = lines.row(&x, &at);
            let before: Vec<Value> = before.iter().map(|all| lines.row(all, &at)).collect();
            let saved: Vec<Value> = saved.iter().map(|all| lines.row(all, &at)).collect();
            let arguments = [&[x_row], &layer_inputs[1..4], &before, &[whole], &saved, &[d_output]].concat();
            let grads = lowering.graph(&graph, arguments)?;
            let lines = &mut lowering.lines;
            let mut next: Vec<Value> = grads[4..]
                .iter()
                .zip(d_states)
                .map(|(new, old)| lines.where_active(active.as_ref(), new.clone(), old))
                .collect();
            for (sum, i) in sums.iter().zip(&weight_indices) {
                let grad = lines.convert(&grads[*i], sum.element());
                next.push(lines.binary("add", sum, &grad));
            }
            if wanted[0] {
                let all = &sums[weight_indices.len()];
                next.push(lines.with_row(all, &grads[0], &at));
            }
            Ok(next)
        })?;
        let lines = &mut self.lines;
        let (state_grads, sums) = final_values.split_at(*states);
        let mut sums = sums.iter().cloned();
        let mut weight_grad = |i: usize| if wanted[i] { sums.next() } else { None };
        let [w_ih, w_hh, bias] = [1, 2, 3].map(&mut weight_grad);
        let dx = weight_grad(0).map(|dx| layer.packed(lines, &dx));
        Ok([dx, w_ih, w_hh, bias].into_iter().chain(state_grads.iter().cloned().map(Some)).collect())
    }
}

impl Builder {
    /// Selects the new array for active sequences, and the old one for others.
    fn where_active(&mut self, active: Option<&Value>, new: Value, old: &Value) -> Value {
        match active {
            Some(active) => self.choose(old, active, &new),
            None => new,
        }
    }
}
