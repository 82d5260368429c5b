//! Arrays that an engine computes when they are read.
//!
//! A lazy device records operations as a trace does. When a value is read, what was recorded since the last time becomes one program:
//! its arguments are the arrays that were there before, its results those that are still in use. A loop that reads a loss in each step
//! thus runs one program a step, which is compiled once.

use burn::tensor::{DType, TensorData};
use burn_backend::ExecutionError;
use burn_ir::{OperationIr, TensorId, TensorIr, TensorStatus};
use grove_backend::ops::Spec;
use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
    time::Instant,
};

use super::{
    Caller,
    engine::{DeviceArray, Engine, Executable, TYPES},
    import::import,
    lifted::lifted,
};
use crate::{
    Primitive,
    graph::{Equation, Graph, Identity, Var},
    jit::logs_compiles,
};

/// Programs that are kept.
const CAPACITY: usize = 256;

/// Equations after which a program runs even if nothing is read.
const LONGEST: usize = 50_000;

/// The arrays of a lazy device.
pub(super) struct Lazy {
    /// The upper half of the ids of its tensors.
    pub number: u32,
    engine: Box<dyn Engine>,
    next: u32,
    forgetting: i32,
    /// Arrays that are computed.
    computed: HashMap<u32, DeviceArray>,
    /// Tensors that were not computed, with the error of their program.
    failed: HashMap<u32, Arc<str>>,
    /// Tensors that nothing holds any more; they leave when the program has run.
    dropped: HashSet<u32>,
    segment: Segment,
    programs: VecDeque<Known>,
}

/// A compiled program, with what it was compiled for.
struct Known {
    identity: Identity,
    graph: Graph,
    layouts: Vec<String>,
    donated: Vec<bool>,
    program: Arc<dyn Executable>,
}

/// The operations that were recorded since the last program ran.
#[derive(Default)]
struct Segment {
    variables: Vec<Spec>,
    /// Computed arrays that are used.
    inputs: Vec<(u32, Var)>,
    equations: Vec<Equation>,
    /// Tensors by their variables.
    variable_of: HashMap<u32, Var>,
    /// Results of the equations, in order.
    results: Vec<(u32, Var)>,
}

impl Lazy {
    pub fn new(number: u32, engine: Box<dyn Engine>) -> Self {
        Self {
            number,
            engine,
            next: 0,
            forgetting: 0,
            computed: HashMap::new(),
            failed: HashMap::new(),
            dropped: HashSet::new(),
            segment: Segment::default(),
            programs: VecDeque::new(),
        }
    }

    pub fn supports(&self, dtype: DType) -> bool {
        self.engine.supports(dtype)
    }

    pub fn reduces(&self) -> bool {
        self.engine.reduces()
    }

    /// The id of a new tensor.
    pub fn fresh(&mut self) -> TensorId {
        // After four billion tensors numbers are used again, but for those of tensors that are still there.
        while self.computed.contains_key(&self.next) || self.segment.variable_of.contains_key(&self.next) {
            self.next = self.next.wrapping_add(1);
        }
        let index = self.next;
        self.next = self.next.wrapping_add(1);
        TensorId::new(u64::from(self.number) << 32 | u64::from(index))
    }

    /// The number of a tensor of this device.
    fn index(&self, tensor: &TensorIr) -> u32 {
        let value = tensor.id.value();
        assert!(
            value >> 32 == u64::from(self.number),
            "a tensor {:?} of another device, or of a trace, is used on this one{}",
            &tensor.shape[..],
            Caller::here()
        );
        value as u32
    }

    /// The variable of a tensor that is used, which ends where this is its last use.
    fn used(&mut self, tensor: &TensorIr) -> Var {
        let index = self.index(tensor);
        if tensor.status == TensorStatus::ReadWrite {
            self.dropped.insert(index);
        }
        if let Some(var) = self.segment.variable_of.get(&index) {
            return *var;
        }
        let var = self.segment.variable(index, Spec { shape: tensor.shape.clone(), dtype: tensor.dtype });
        self.segment.inputs.push((index, var));
        var
    }

    /// Notes that nothing holds a tensor any more. A computed array that the program does not need is freed at once.
    fn release(&mut self, index: u32) {
        if self.segment.variable_of.contains_key(&index) {
            self.dropped.insert(index);
        } else {
            self.computed.remove(&index);
            self.failed.remove(&index);
        }
    }

    /// The reason for which an array is missing.
    fn not_computed(&self, index: u32) -> String {
        let reason = self.failed.get(&index).map(|reason| format!(": {reason}")).unwrap_or_default();
        format!("the tensor was not computed, as the program that computes it failed{reason}")
    }

    fn result(&mut self, id: TensorId, spec: Spec) -> Var {
        let index = id.value() as u32;
        let var = self.segment.variable(index, spec);
        self.segment.results.push((index, var));
        var
    }

    pub fn constant(&mut self, data: TensorData) -> TensorId {
        let id = self.fresh();
        if self.forgetting == 0 {
            match self.engine.upload(data) {
                Ok(array) => drop(self.computed.insert(id.value() as u32, array)),
                Err(error) => panic!("{error}{}", Caller::here()),
            }
        }
        id
    }

    /// The id of an array that is there already.
    pub fn adopt(&mut self, array: DeviceArray) -> TensorId {
        let id = self.fresh();
        self.computed.insert(id.value() as u32, array);
        id
    }

    /// The array of a tensor, after what was recorded has run.
    pub fn array(&mut self, tensor: &TensorIr) -> Result<DeviceArray, String> {
        let index = self.index(tensor);
        if !self.computed.contains_key(&index) {
            self.run()?;
        }
        self.computed.get(&index).cloned().ok_or_else(|| self.not_computed(index))
    }

    pub fn operation(&mut self, operation: OperationIr) {
        match operation {
            OperationIr::Init(_) => {}
            OperationIr::Drop(tensor) => {
                let index = self.index(&tensor);
                self.release(index);
            }
            _ if self.forgetting > 0 => {}
            operation => {
                let inputs = operation.inputs().map(|x| Some(self.used(x))).collect();
                let results: Vec<TensorIr> = operation.outputs().cloned().collect();
                let primitive = import(operation);
                let of_result = |x: TensorIr| Some(self.result(x.id, Spec { shape: x.shape, dtype: x.dtype }));
                let outputs = results.into_iter().map(of_result).collect();
                self.push(Equation { primitive, inputs, outputs });
            }
        }
    }

    /// Records a primitive with outputs of given shapes and types.
    pub fn primitive(
        &mut self,
        primitive: Primitive,
        inputs: &[Option<TensorIr>],
        outputs: Vec<Option<Spec>>,
    ) -> Vec<Option<(TensorId, Spec)>> {
        let results: Vec<_> = outputs.into_iter().map(|spec| spec.map(|spec| (self.fresh(), spec))).collect();
        if self.forgetting == 0 {
            let inputs = inputs.iter().map(|x| x.as_ref().map(|x| self.used(x))).collect();
            let of_result = |result: &Option<(TensorId, Spec)>| {
                let (id, spec) = result.as_ref()?;
                Some(self.result(*id, spec.clone()))
            };
            let outputs = results.iter().map(of_result).collect();
            self.push(Equation { primitive, inputs, outputs });
        }
        results
    }

    fn push(&mut self, equation: Equation) {
        self.segment.equations.push(equation);
        if self.segment.equations.len() >= LONGEST
            && let Err(error) = self.run()
        {
            panic!("{error}");
        }
    }

    /// Begins or ends a time in which nothing is recorded but shapes and types.
    pub fn forget(&mut self, change: i32) {
        self.forgetting += change;
    }

    /// The values of a tensor, after what was recorded has run.
    pub fn read(&mut self, tensor: &TensorIr) -> Result<TensorData, ExecutionError> {
        let failed = |reason: String| ExecutionError::WithContext { reason };
        let index = self.index(tensor);
        if tensor.status == TensorStatus::ReadWrite
            && let Some(array) = self.reshaped(index)
        {
            let mut data = self.engine.download(&array).map_err(failed)?;
            data.shape = tensor.shape.clone();
            return Ok(data);
        }
        if !self.computed.contains_key(&index) {
            self.run().map_err(failed)?;
        }
        let array = self.computed.get(&index).cloned().ok_or_else(|| failed(self.not_computed(index)));
        if tensor.status == TensorStatus::ReadWrite {
            self.release(index);
        }
        let array = array?;
        self.engine.download(&array).map_err(failed)
    }

    /// Runs what was recorded, and waits until all arrays are computed.
    pub fn sync(&mut self) -> Result<(), String> {
        self.run()?;
        self.computed.values().try_for_each(|array| self.engine.wait(array))
    }

    /// Runs what was recorded if it has sums over ranks.
    pub fn run_sums(&mut self) -> Result<(), String> {
        if self.segment.equations.iter().any(|equation| equation.primitive.meets_ranks()) { self.run() } else { Ok(()) }
    }

    /// The array that a tensor is another shape of, where that was the last that was recorded; it is taken back. Reading an array in one
    /// row, as files are written, thus needs no program.
    fn reshaped(&mut self, index: u32) -> Option<DeviceArray> {
        let segment = &mut self.segment;
        let output = *segment.variable_of.get(&index)?;
        let Equation { primitive: Primitive::Reshape(_), inputs, outputs } = segment.equations.last()? else {
            return None;
        };
        let (&[Some(input)], true) = (&inputs[..], *outputs == [Some(output)]) else { return None };
        let (source, _) = *segment.inputs.iter().find(|(_, var)| *var == input)?;
        let array = self.computed.get(&source)?.clone();
        segment.equations.pop();
        segment.results.pop();
        segment.variables.pop();
        segment.variable_of.remove(&index);
        // An argument that was used for the first time is none any more.
        if input.index() + 1 == segment.variables.len() {
            segment.inputs.pop();
            segment.variables.pop();
            segment.variable_of.remove(&source);
            if self.dropped.remove(&source) {
                self.computed.remove(&source);
            }
        }
        Some(array)
    }

    /// Runs what was recorded.
    pub fn run(&mut self) -> Result<(), String> {
        let Segment { variables, inputs, equations, results, .. } = std::mem::take(&mut self.segment);
        let dropped = std::mem::take(&mut self.dropped);
        let results: Vec<_> = results.into_iter().filter(|(index, _)| !dropped.contains(index)).collect();
        let named = |prefix: &str, list: &[(u32, Var)]| {
            list.iter().enumerate().map(|(i, (_, var))| (format!("{prefix}{i}"), *var)).collect()
        };
        let graph = Graph {
            inputs: named("", &inputs),
            outputs: named("", &results),
            variables,
            equations,
            constants: Vec::new(),
            keys: Default::default(),
            types: TYPES,
        };
        let mut arrays: Vec<DeviceArray> = Vec::with_capacity(inputs.len());
        let mut donated = Vec::with_capacity(inputs.len());
        for (index, _) in &inputs {
            let given_up = dropped.contains(index);
            let array = if given_up { self.computed.remove(index) } else { self.computed.get(index).cloned() };
            let missing = array.is_none().then(|| self.not_computed(*index));
            if given_up {
                self.failed.remove(index);
            }
            if let Some(error) = missing {
                return Err(self.fail(&results, error));
            }
            arrays.extend(array);
            donated.push(given_up);
        }
        // What nobody wants is not computed; but other ranks wait for this one.
        if results.is_empty() && !graph.meets_ranks() {
            return Ok(());
        }
        match self.run_graph(graph, arrays, donated) {
            Ok(found) => {
                self.computed.extend(results.into_iter().map(|(index, _)| index).zip(found));
                Ok(())
            }
            Err(error) => Err(self.fail(&results, error)),
        }
    }

    /// Notes that results are not computed.
    fn fail(&mut self, results: &[(u32, Var)], error: String) -> String {
        let reason: Arc<str> = error.as_str().into();
        self.failed.extend(results.iter().map(|(index, _)| (*index, reason.clone())));
        error
    }

    fn run_graph(
        &mut self,
        graph: Graph,
        mut arrays: Vec<DeviceArray>,
        mut donated: Vec<bool>,
    ) -> Result<Vec<DeviceArray>, String> {
        let lifted = lifted(graph);
        for data in lifted.numbers {
            arrays.push(self.engine.upload(data)?);
            donated.push(false);
        }
        self.program(lifted.graph, &arrays, donated)?.run(arrays, &lifted.keys)
    }

    /// The program of a graph, compiled where it is new.
    fn program(
        &mut self,
        graph: Graph,
        inputs: &[DeviceArray],
        donated: Vec<bool>,
    ) -> Result<Arc<dyn Executable>, String> {
        let layouts: Vec<String> = inputs.iter().map(|array| self.engine.layout(array)).collect();
        let identity = graph.identity();
        let is_same = |known: &Known| {
            (&known.identity, &known.layouts, &known.donated) == (&identity, &layouts, &donated)
                && known.graph.has_same_parts(&graph)
        };
        let found = self.programs.iter().position(is_same);
        if let Some(known) = found.and_then(|i| self.programs.remove(i)) {
            let program = known.program.clone();
            self.programs.push_front(known);
            return Ok(program);
        }
        let start = Instant::now();
        let program = self.engine.compile(&graph, inputs, &donated)?;
        if logs_compiles() {
            let (equations, time) = (graph.equations().len(), start.elapsed());
            eprintln!(
                "xla: a program of {equations} equations, {} arguments and {} results compiled in {time:.1?}",
                graph.inputs().len(),
                graph.outputs().len()
            );
        }
        self.programs.push_front(Known { identity, graph, layouts, donated, program: program.clone() });
        self.programs.truncate(CAPACITY);
        Ok(program)
    }
}

impl Segment {
    fn variable(&mut self, index: u32, spec: Spec) -> Var {
        let var = Var(self.variables.len() as u32);
        self.variables.push(spec);
        self.variable_of.insert(index, var);
        var
    }
}
