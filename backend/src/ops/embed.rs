//! Looking up rows of a table, whose gradient is added where the table's other uses have left theirs.

use burn::tensor::{
    Shape, TensorMetadata,
    ops::{FloatTensor, IntTensor},
};
use burn_autodiff::{
    Autodiff,
    checkpoint::{base::Checkpointer, strategy::CheckpointStrategy},
    grads::Gradients,
    ops::{Backward, Ops, OpsKind},
};
use std::sync::Arc;

use super::{
    Backend,
    custom::alive,
    precision::{cast, widened},
};

/// Adds a row of `grad`, `[b, t, size]`, to a row of `sum`, `[symbols, size]`, for each symbol of `[b, t]`. One symbol may
/// be in thousands of places.
pub(super) fn add<B: Backend>(sum: FloatTensor<B>, symbols: IntTensor<B>, grad: FloatTensor<B>) -> FloatTensor<B> {
    let (count, size) = (symbols.shape().num_elements(), sum.shape()[1]);
    let symbols = B::int_reshape(symbols, Shape::from([count]));
    let rows = B::float_reshape(grad, Shape::from([count, size]));
    let dtype = sum.dtype();
    cast::<B>(B::float_select_add(widened::<B>(sum), 0, symbols, widened::<B>(rows)), dtype)
}

/// A tensor in the graph.
type Tracked<B> = FloatTensor<Autodiff<B>>;

#[derive(Debug)]
struct Embed;

impl<B: Backend> Backward<B, 1> for Embed {
    /// The table's shape, and the symbols.
    type State = (Shape, IntTensor<B>);

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _checkpointer: &mut Checkpointer) {
        let grad = grads.consume::<B>(&ops.node);
        let ([Some(parent)], (shape, symbols)) = (ops.parents, ops.state) else { return };
        // An output layer that is tied to the table has left a gradient already. To add some rows to that takes no time; to
        // make another table for them, and to add the two, would be three passes over all symbols.
        let place = Tracked::<B> { primitive: grad.clone(), node: parent.clone(), rc: Arc::new(parent.id) };
        let before = grads.remove::<B>(&place);
        drop(place);
        let zeros = || B::float_zeros(shape, &B::float_device(&grad), grad.dtype().into());
        let sum = before.unwrap_or_else(zeros);
        grads.register::<B>(parent.id, B::embed_backward(sum, symbols, grad));
    }
}

pub(super) fn differentiable<B: Backend, C: CheckpointStrategy>(
    table: FloatTensor<Autodiff<B, C>>,
    symbols: IntTensor<B>,
) -> FloatTensor<Autodiff<B, C>> {
    let inputs = [table];
    let _alive = alive::<B, C, 1>(&inputs);
    let [table] = inputs;
    let shape = table.primitive.shape();
    let rows = B::embed(table.primitive, symbols.clone());
    match Embed.prepare::<C>([table.node]).compute_bound().stateful() {
        OpsKind::Tracked(step) => step.finish((shape, symbols), rows),
        OpsKind::UnTracked(step) => step.finish(rows),
    }
}
