//! LSTM and GRU layers in f32: one launch per step, forward and backward. 16-bit layers are composed of Burn's operations.
//!
//! A cube computes some hidden units of some sequences: first the products with the recurrent weights, in tiles, then the
//! cells. A launch starts after the previous one has finished, so the steps need no other synchronisation.

use burn::tensor::{Tensor, TensorMetadata};
use burn_cubecl::{CubeRuntime, kernel::into_contiguous, tensor::CubeTensor};
use cubecl::prelude::*;

use super::{
    Fusing,
    recurrent_step::{HIDDEN, ROWS, SLICES, Step, StepLaunch, backward_kernel, forward_kernel},
    register::{FusedTensor, register},
    tensor::{addresses, array, cubes, empty},
};
use crate::{
    Steps, matmul,
    ops::{Outcome, float, primitive, recurrent as composed},
};

/// Cell of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Cell {
    Lstm,
    /// GRU with the reset gate after the product with the state.
    Gru,
}

impl Cell {
    pub(super) fn gates(self) -> usize {
        match self {
            Self::Lstm => 4,
            Self::Gru => 3,
        }
    }

    /// Number of states: the hidden state, and the cell state of an LSTM.
    fn states(self) -> usize {
        match self {
            Self::Lstm => 2,
            Self::Gru => 1,
        }
    }
}

/// Returns the steps in processing order, each with the previous and the next one.
fn ordered_steps(steps: &Steps) -> Vec<Step> {
    let walk: Vec<_> = steps.walk().into_iter().map(|(_, rows)| rows).collect();
    (0..walk.len())
        .map(|i| {
            let rows = &walk[i];
            let before = i.checked_sub(1).map(|i| &walk[i]);
            let after = walk.get(i + 1);
            Step {
                start: rows.start,
                active: rows.len(),
                before: before.map_or(0, |before| before.start),
                active_before: before.map_or(0, |before| before.len().min(rows.len())),
                after: after.map_or(0, |after| after.start),
                active_after: after.map_or(0, |after| after.len().min(rows.len())),
            }
        })
        .collect()
}

fn launch_args<R: CubeRuntime>(step: &Step) -> StepLaunch<R> {
    StepLaunch::new(step.start, step.active, step.before, step.active_before, step.after, step.active_after)
}

/// Computes all steps from `projected` `[rows, gates n]`, `w_hh` `[gates n, n]`, the state bias of the new gate and the
/// initial states. Returns outputs and states, and, if `keep`, gates and cells.
fn forward_steps<R: CubeRuntime>(
    inputs: [CubeTensor<R>; 5],
    cell: Cell,
    steps: &[Step],
    keep: bool,
) -> [CubeTensor<R>; 3] {
    let [projected, w_hh, bias, h0, c0] = inputs.map(into_contiguous);
    let (b, n) = (h0.meta.shape()[0], h0.meta.shape()[1]);
    let (rows, wide) = (projected.meta.shape()[0], projected.meta.shape()[1]);
    let output = empty(&projected, [rows + cell.states() * b, n], projected.dtype);
    let kept = |columns: usize| empty(&projected, if keep { [rows, columns] } else { [1, 1] }, projected.dtype);
    let (gates, saved) = (kept(wide), kept(n));
    let dtype = projected.dtype.into();
    for step in steps {
        let count = n.div_ceil(HIDDEN) * step.active.div_ceil(ROWS);
        // SAFETY: all tensors are contiguous. The kernel checks row and hidden-unit indices against the sizes of the step
        // and the layer. A cube writes its own elements of this step, and reads those of earlier launches.
        unsafe {
            forward_kernel::launch_unchecked(
                &projected.client,
                cubes(&projected.client, count),
                CubeDim::new_1d((ROWS * HIDDEN * cell.gates()) as u32),
                addresses(&[&projected, &w_hh, &output, &gates]),
                array(&projected),
                array(&w_hh),
                array(&bias),
                array(&h0),
                array(&c0),
                array(&output),
                array(&gates),
                array(&saved),
                launch_args(step),
                n,
                rows,
                b,
                count,
                cell.gates(),
                keep,
                dtype,
            );
        }
    }
    [output, gates, saved]
}

/// Computes the backward pass. Returns the gradients of the products with the state `[rows, gates n]` and of a GRU's new
/// gate `[rows, n]`, the states before each row `[rows, n]`, the direct part of the gradient of the initial states
/// `[b, n]`, and the gradients of the products with the state at each sequence's first step `[b, gates n]`.
fn backward_steps<R: CubeRuntime>(inputs: [CubeTensor<R>; 7], cell: Cell, steps: &[Step]) -> [CubeTensor<R>; 5] {
    let [w_hh, gates, saved, output, h0, c0, grad] = inputs.map(into_contiguous);
    let (b, n) = (h0.meta.shape()[0], h0.meta.shape()[1]);
    let (rows, wide) = (gates.meta.shape()[0], gates.meta.shape()[1]);
    let new = |shape: [usize; 2]| empty(&gates, shape, gates.dtype);
    let (d_state, before, direct, d_first) = (new([rows, wide]), new([rows, n]), new([b, n]), new([b, wide]));
    let d_new = if cell == Cell::Gru { new([rows, n]) } else { new([1, 1]) };
    let dtype = gates.dtype.into();
    for step in steps.iter().rev() {
        let count = n.div_ceil(HIDDEN) * step.active.div_ceil(ROWS);
        // SAFETY: as in the forward pass.
        unsafe {
            backward_kernel::launch_unchecked(
                &gates.client,
                cubes(&gates.client, count),
                CubeDim::new_1d((ROWS * HIDDEN * SLICES) as u32),
                addresses(&[&w_hh, &gates, &output, &grad, &d_first]),
                array(&w_hh),
                array(&gates),
                array(&saved),
                array(&output),
                array(&h0),
                array(&c0),
                array(&grad),
                array(&d_state),
                array(&d_new),
                array(&before),
                array(&direct),
                array(&d_first),
                launch_args(step),
                n,
                rows,
                b,
                count,
                cell.gates(),
                dtype,
            );
        }
    }
    [d_state, d_new, before, direct, d_first]
}

/// Computes a layer; see [`Lstm`](crate::ops::Lstm) and [`Gru`](crate::ops::Gru). `bias` is the operation's bias input.
pub(super) fn forward<B: Fusing<R>, R: CubeRuntime>(
    cell: Cell,
    inputs: [FusedTensor<R>; 6],
    steps: &Steps,
    keep: bool,
) -> Outcome<B> {
    let [x, w_ih, w_hh, bias, h0, c0] = inputs;
    let (b, n, dtype) = (h0.shape()[0], h0.shape()[1], h0.dtype());
    let (rows, wide) = (steps.rows(), cell.gates() * n);
    let bias = float::<B, 1>(bias);
    let of_inputs = bias.clone().narrow(0, 0, wide);
    let projected = primitive(composed::project::<B>(float(x), float(w_ih), of_inputs));
    let kept = |columns: usize| if keep { [rows, columns] } else { [1, 1] };
    let shapes = [[rows + cell.states() * b, n], kept(wide), kept(n)];
    let ordered = ordered_steps(steps);
    let [output, gates, saved] = register(
        "grove_recurrent",
        [projected, w_hh, primitive(bias), h0, c0],
        shapes.map(|shape| (shape.into(), dtype)),
        move |inputs| forward_steps(inputs, cell, &ordered, keep),
    );
    Outcome::new([output]).saving(keep.then_some([gates, saved]).into_iter().flatten())
}

/// Returns the gradients of `x`, `w_ih`, `w_hh`, the bias, `h` and `c`; see [`forward`].
pub(super) fn backward<B: Fusing<R>, R: CubeRuntime>(
    cell: Cell,
    inputs: [FusedTensor<R>; 6],
    kept: [FusedTensor<R>; 2],
    output: FusedTensor<R>,
    grad: FusedTensor<R>,
    steps: &Steps,
    needs: [bool; 6],
) -> [Option<FusedTensor<R>>; 6] {
    let [x, w_ih, w_hh, _, h0, c0] = inputs;
    let [gates, saved] = kept;
    let (b, n, dtype) = (h0.shape()[0], h0.shape()[1], h0.dtype());
    let (rows, wide) = (steps.rows(), cell.gates() * n);
    let shapes = [[rows, wide], if cell == Cell::Gru { [rows, n] } else { [1, 1] }, [rows, n], [b, n], [b, wide]];
    let ordered = ordered_steps(steps);
    let transposed = primitive(float::<B, 2>(w_hh.clone()).transpose());
    let results = register(
        "grove_recurrent_grad",
        [transposed, gates, saved, output, h0, c0, grad],
        shapes.map(|shape| (shape.into(), dtype)),
        move |inputs| backward_steps(inputs, cell, &ordered),
    );
    let [d_state, d_new, before, direct, d_first] = results.map(float::<B, 2>);
    let dw_hh = needs[2].then(|| primitive(matmul(d_state.clone().transpose(), before)));
    let through = |w_hh: FusedTensor<R>| matmul(d_first, float(w_hh));
    let (dh, dc) = match cell {
        Cell::Lstm => (needs[4].then(|| through(w_hh)), needs[5].then_some(direct)),
        Cell::Gru => (needs[4].then(|| through(w_hh) + direct), None),
    };
    let d_inputs = match cell {
        Cell::Lstm => d_state.clone(),
        Cell::Gru => Tensor::cat(vec![d_state.clone().narrow(1, 0, 2 * n), d_new], 1),
    };
    let needs_inputs = [needs[0], needs[1], needs[3]];
    let [dx, dw_ih, db] = composed::project_backward(float(x), float(w_ih), d_inputs, needs_inputs);
    let db = db.map(|db| match cell {
        Cell::Lstm => db.reshape([wide]),
        Cell::Gru => Tensor::cat(vec![db, composed::sum_rows(d_state.narrow(1, 2 * n, n))], 1).reshape([4 * n]),
    });
    [dx.map(primitive), dw_ih.map(primitive), dw_hh, db.map(primitive), dh.map(primitive), dc.map(primitive)]
}
