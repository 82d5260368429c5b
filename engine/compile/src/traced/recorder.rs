//! Recorders, which store the equations of a trace.

use burn::tensor::TensorData;
use burn_ir::{OperationIr, TensorId, TensorIr};
use burn_router::RouterTensor;
use grove_backend::ops::Spec;

use super::{Caller, TraceClient, import::import};
use crate::{
    Primitive,
    graph::{Equation, Var},
    words::leaf_name,
};

/// The equations of a trace.
pub(crate) struct Recorder {
    pub(super) number: u32,
    /// Types of the variables; `None` until the equation of a variable is recorded.
    pub(super) variables: Vec<Option<Spec>>,
    pub(super) inputs: Vec<(String, Var)>,
    pub(super) constants: Vec<(Var, TensorData)>,
    pub(super) equations: Vec<Equation>,
    /// Number of callers that need only shapes and dtypes.
    pub(super) forgetting: i32,
    /// For a sub-graph: the numbers of the enclosing traces, and the captured tensors with their variables.
    pub(super) enclosing: Vec<u32>,
    pub(super) captured: Vec<(TensorIr, Var)>,
    /// Additional handles of tensors that sub-graphs use.
    pub(super) borrowed: Vec<RouterTensor<TraceClient>>,
}

impl Recorder {
    /// Creates a recorder with a number and the numbers of the enclosing traces.
    pub(super) fn new(number: u32, enclosing: Vec<u32>) -> Self {
        Self {
            number,
            variables: Vec::new(),
            inputs: Vec::new(),
            constants: Vec::new(),
            equations: Vec::new(),
            forgetting: 0,
            enclosing,
            captured: Vec::new(),
            borrowed: Vec::new(),
        }
    }

    /// Returns the id of a new variable.
    pub(super) fn fresh(&mut self) -> TensorId {
        self.variables.push(None);
        self.id(self.variables.len() - 1)
    }

    pub(super) fn id(&self, index: usize) -> TensorId {
        TensorId::new(u64::from(self.number) << 32 | index as u64)
    }

    pub(super) fn add(&mut self, spec: Spec) -> Var {
        self.variables.push(Some(spec));
        Var(self.variables.len() as u32 - 1)
    }

    /// Returns the variable of a tensor of this trace. A tensor of an enclosing trace becomes an argument.
    pub(super) fn var(&mut self, tensor: &TensorIr) -> Var {
        let value = tensor.id.value();
        if self.enclosing.contains(&((value >> 32) as u32)) {
            return self.capture(tensor);
        }
        assert!(
            value >> 32 == u64::from(self.number),
            "a tensor {:?} of another trace is used in this one: pass it as an argument of the traced function{}",
            &tensor.shape[..],
            Caller::here()
        );
        Var(value as u32)
    }

    pub(super) fn constant(&mut self, data: TensorData) -> TensorId {
        let var = self.add(Spec { shape: data.shape.clone(), dtype: data.dtype });
        if self.forgetting == 0 {
            self.constants.push((var, data));
        }
        self.id(var.index())
    }

    pub(super) fn operation(&mut self, operation: OperationIr) {
        // Constants are recorded when their data are registered.
        if matches!(operation, OperationIr::Init(_)) {
            return;
        }
        let inputs = operation.inputs().map(|x| Some(self.var(x))).collect();
        let outputs: Vec<_> = operation.outputs().cloned().collect();
        let primitive = (self.forgetting == 0).then(|| import(operation));
        let outputs = outputs
            .into_iter()
            .map(|output| {
                let var = self.var(&output);
                self.variables[var.index()] = Some(Spec { shape: output.shape, dtype: output.dtype });
                Some(var)
            })
            .collect();
        if let Some(primitive) = primitive {
            self.equations.push(Equation { primitive, inputs, outputs });
        }
    }

    /// Records a primitive with outputs of the given types.
    pub(super) fn primitive(
        &mut self,
        primitive: Primitive,
        inputs: &[Option<TensorIr>],
        outputs: Vec<Option<Spec>>,
    ) -> Vec<Option<(TensorId, Spec)>> {
        let inputs = inputs.iter().map(|x| x.as_ref().map(|x| self.var(x))).collect();
        let results: Vec<_> = outputs.into_iter().map(|spec| spec.map(|spec| (self.add(spec.clone()), spec))).collect();
        let outputs = results.iter().map(|result| result.as_ref().map(|(var, _)| *var)).collect();
        if self.forgetting == 0 {
            self.equations.push(Equation { primitive, inputs, outputs });
        }
        results.into_iter().map(|result| result.map(|(var, spec)| (self.id(var.index()), spec))).collect()
    }

    /// Starts or ends a period in which only shapes and dtypes are computed and no equations are recorded.
    pub(super) fn forget(&mut self, change: i32) {
        self.forgetting += change;
    }

    /// Describes a tensor for a message: its type, and the operation that computed it.
    pub(super) fn describe(&mut self, tensor: &TensorIr) -> String {
        let var = self.var(tensor);
        let shape = &tensor.shape[..];
        let dtype = crate::words::dtype_name(tensor.dtype);
        let equation = self.equations.iter().find(|equation| equation.outputs.contains(&Some(var)));
        let input = self.inputs.iter().find(|(_, input)| *input == var);
        match (equation, input) {
            (Some(equation), _) => format!("it is {dtype}{shape:?}, the result of `{}`", equation.primitive.name()),
            (None, Some((path, _))) => format!("it is {dtype}{shape:?}, the {}", leaf_name("argument", path)),
            (None, None) => format!("it is {dtype}{shape:?}, a constant"),
        }
    }
}
