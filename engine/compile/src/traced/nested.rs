//! Traces of sub-graphs, and the tensors that they capture from enclosing traces.

use burn_ir::{TensorId, TensorIr, TensorStatus};
use burn_router::RouterTensor;
use grove_backend::{AnyTensor, ops::Spec};
use grove_tree::Key;
use std::collections::HashSet;

use super::{
    TraceClient, TraceDevice, Traced,
    recorder::Recorder,
    recording::{Output, Recording, any, tensor_of},
    sink::Sink,
    traces::{with, with_sink},
};
use crate::graph::{Graph, Var};

/// Returns true for a tensor of the innermost active trace of a device, or of a trace that encloses it.
pub(crate) fn is_of_trace(device: TraceDevice, id: TensorId) -> bool {
    let number = (id.value() >> 32) as u32;
    with_sink(device.index, |sink| match sink {
        Sink::Trace(recorder) => number == recorder.number || recorder.enclosing.contains(&number),
        Sink::Lazy(_) => sink.number() == number,
    })
}

impl Recorder {
    /// Returns true for a tensor of this trace or of an enclosing trace.
    fn knows(&self, tensor: &TensorIr) -> bool {
        let number = (tensor.id.value() >> 32) as u32;
        number == self.number || self.enclosing.contains(&number)
    }

    /// Returns the argument that stands for a tensor of an enclosing trace.
    pub(super) fn capture(&mut self, tensor: &TensorIr) -> Var {
        if let Some((known, var)) = self.captured.iter_mut().find(|(known, _)| known.id == tensor.id) {
            if tensor.status == TensorStatus::ReadWrite {
                known.status = TensorStatus::ReadWrite;
            }
            return *var;
        }
        let var = self.add(Spec { shape: tensor.shape.clone(), dtype: tensor.dtype });
        self.captured.push((tensor.clone(), var));
        var
    }
}

impl Recording {
    /// Finishes the graph of a sub-graph. Returns the graph, whose last arguments stand for captured tensors, and those of these
    /// tensors that the graph uses.
    pub(crate) fn finish_nested(self, outputs: impl IntoIterator<Item = Output>) -> (Graph, Vec<AnyTensor<Traced>>) {
        match self.finish_within(outputs, Vec::new()) {
            Ok(finished) => finished,
            Err(_) => unreachable!("the outputs are variables of this trace, or of one around it"),
        }
    }

    /// Like [`finish_nested`](Self::finish_nested), with keys among the results. If an output belongs to an unrelated trace,
    /// returns its path as the error.
    pub(crate) fn finish_within(
        self,
        outputs: impl IntoIterator<Item = Output>,
        keys: Vec<(String, Key)>,
    ) -> Result<(Graph, Vec<AnyTensor<Traced>>), String> {
        let (device, parent) = (self.device, self.parent);
        // Before the recorder is locked, because the iterator may record operations.
        let outputs: Vec<_> = outputs.into_iter().map(|(path, x)| (path, tensor_of(x).into_ir())).collect();
        let (outputs, captured) = with(device.index, |recorder| {
            let place = |(path, x): (String, TensorIr)| {
                if !recorder.knows(&x) {
                    return Err(path);
                }
                let var = recorder.var(&x);
                Ok((path, recorder.id(var.index())))
            };
            let outputs = outputs.into_iter().map(place).collect::<Result<_, _>>()?;
            let captured = std::mem::take(&mut recorder.captured);
            let inputs = captured.iter().enumerate().map(|(i, (_, var))| (format!("captured.{i}"), *var));
            recorder.inputs.extend(inputs);
            Ok::<_, String>((outputs, captured))
        })?;
        let graph = self.finish_with_keys(outputs, keys)?;
        let device = TraceDevice { index: parent.unwrap_or(device.index), ..device };
        let mut borrowed = Vec::new();
        let tensor = |(ir, _): (TensorIr, Var)| {
            // The handle of a tensor that is also held elsewhere must not be the last one: a lazy device would drop the tensor
            // with it.
            let borrows = ir.status != TensorStatus::ReadWrite;
            let tensor = RouterTensor::new(ir.id, ir.shape, ir.dtype, TraceClient { device, borrows });
            if borrows {
                borrowed.push(tensor.clone());
            }
            any(tensor)
        };
        let captured = captured.into_iter().map(tensor).collect();
        if !borrowed.is_empty() {
            with_sink(device.index, |sink| sink.borrowed().append(&mut borrowed));
        }
        Ok(pruned(graph, captured))
    }
}

/// Removes captured tensors that no result depends on from the arguments of a graph and from the list of captured tensors.
fn pruned(mut graph: Graph, mut captured: Vec<AnyTensor<Traced>>) -> (Graph, Vec<AnyTensor<Traced>>) {
    let used = graph.equations.iter().flat_map(|equation| equation.inputs.iter().flatten());
    let used: HashSet<Var> = used.chain(graph.outputs.iter().map(|(_, var)| var)).copied().collect();
    let arguments = graph.inputs.len() - captured.len();
    let keep: Vec<_> = graph.inputs[arguments..].iter().map(|(_, var)| used.contains(var)).collect();
    let mut of_inputs = std::iter::repeat_n(true, arguments).chain(keep.iter().copied());
    graph.inputs.retain(|_| of_inputs.next().unwrap_or(true));
    let mut of_captured = keep.into_iter();
    captured.retain(|_| of_captured.next().unwrap_or(true));
    (graph, captured)
}
