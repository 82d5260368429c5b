//! Traces of sub-graphs: what they use of the traces around them.

use burn_ir::{TensorIr, TensorStatus};
use burn_router::RouterTensor;
use grove_backend::ops::Spec;

use super::{
    TraceClient, TraceDevice,
    recorder::{Recorder, Recording, with},
};
use crate::graph::{Graph, Var};

impl Recorder {
    /// The argument that stands for a tensor of a trace around this one.
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
    /// The graph of a sub-graph, whose last arguments stand for tensors of the trace around it, and these tensors.
    pub(crate) fn finish_nested(
        self,
        outputs: Vec<(String, RouterTensor<TraceClient>)>,
    ) -> (Graph, Vec<RouterTensor<TraceClient>>) {
        let (device, parent) = (self.device, self.parent);
        let (outputs, captured) = with(device.index, |recorder| {
            let place = |(path, x): (String, RouterTensor<TraceClient>)| {
                let var = recorder.var(&x.into_ir());
                (path, recorder.id(var.index()))
            };
            let outputs = outputs.into_iter().map(place).collect();
            let captured = std::mem::take(&mut recorder.captured);
            let inputs = captured.iter().enumerate().map(|(i, (_, var))| (format!("captured.{i}"), *var));
            recorder.inputs.extend(inputs);
            (outputs, captured)
        });
        let Ok(graph) = self.finish(outputs) else { unreachable!("the outputs are variables of this trace") };
        let client = TraceClient { device: TraceDevice { index: parent.unwrap_or(device.index), ..device } };
        let tensor = |(ir, _): (TensorIr, Var)| {
            let tensor = RouterTensor::new(ir.id, ir.shape, ir.dtype, client);
            // One that others hold is not the last of its kind, which a lazy device would take for the end of the tensor.
            if ir.status != TensorStatus::ReadWrite {
                std::mem::forget(tensor.clone());
            }
            tensor
        };
        (graph, captured.into_iter().map(tensor).collect())
    }
}
