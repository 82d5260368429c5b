//! Arrays that an engine computes when they are read.
//!
//! A lazy device records operations, like a trace. When a value is read, the operations since the last program become one
//! program: its arguments are the existing arrays that it uses, and its results are the arrays that are still referenced. A
//! loop that reads the loss in each step thus runs one program per step, which is compiled once.
//!
//! A loop that reads rarely runs one program per step too: optimizers and jitted functions mark the [end](LazyArrays::end_step) of a
//! step, and a step runs when the next one has ended. Without such marks, the device searches for a period in the operations.
//!
//! A jitted function is a program of its own, which runs when the function is called.

pub mod call;
mod run;

use burn::tensor::{DType, TensorData};
use burn_backend::ExecutionError;
use burn_ir::{OperationIr, TensorId, TensorIr, TensorStatus};
use burn_router::RouterTensor;
use grove_backend::ops::Spec;
use std::{
    collections::{HashMap, HashSet},
    thread::{self, ThreadId},
};

use super::{
    Caller, TraceClient,
    engine::{DeviceArray, Engine},
    import::import,
    programs::Programs,
    segment::Segment,
};
use crate::{
    Primitive,
    graph::{Equation, Var},
};

/// Number of equations after which the device searches for a period; the search repeats each time the number doubles.
const SHORTEST: usize = 8_192;

/// Approximate number of equations in a program of several steps, once a period is known.
const CHUNK: usize = 2_000;

/// Number of equations after which a program runs in any case.
const LONGEST: usize = 50_000;

/// The arrays of a lazy device.
pub(super) struct LazyArrays {
    /// Upper half of the ids of the device's tensors.
    pub number: u32,
    engine: Box<dyn Engine>,
    next: u32,
    /// Threads whose operations are not recorded; a thread can occur several times.
    forgetting: Vec<ThreadId>,
    /// Computed arrays.
    computed: HashMap<u32, DeviceArray>,
    /// Results of calls that failed, with the errors.
    lost: HashMap<u32, String>,
    /// Tensors of the segment that are no longer referenced. They are freed after the program has run.
    dropped: HashSet<u32>,
    /// Operations recorded since the last program.
    segment: Segment,
    /// Error of the segment's program. The segment is kept: some of its tensors may be computable without the others.
    failure: Option<String>,
    /// Number of equations in a whole number of steps, and their hash, for a loop without marked ends.
    period: Option<(usize, u64)>,
    programs: Programs,
    /// Additional handles of tensors that sub-graphs use.
    pub borrowed: Vec<RouterTensor<TraceClient>>,
}

impl LazyArrays {
    pub fn new(number: u32, engine: Box<dyn Engine>) -> Self {
        Self {
            number,
            engine,
            next: 0,
            forgetting: Vec::new(),
            computed: HashMap::new(),
            lost: HashMap::new(),
            dropped: HashSet::new(),
            segment: Segment::default(),
            failure: None,
            period: None,
            programs: Programs::default(),
            borrowed: Vec::new(),
        }
    }

    pub fn supports(&self, dtype: DType) -> bool {
        self.engine.supports(dtype)
    }

    pub fn reduces(&self) -> bool {
        self.engine.reduces()
    }

    /// Returns the id of a new tensor.
    pub fn fresh(&mut self) -> TensorId {
        // After 2^32 tensors the counter wraps around and skips the numbers of tensors that still exist.
        while self.computed.contains_key(&self.next)
            || self.lost.contains_key(&self.next)
            || self.segment.contains(self.next)
        {
            self.next = self.next.wrapping_add(1);
        }
        let index = self.next;
        self.next = self.next.wrapping_add(1);
        TensorId::new(u64::from(self.number) << 32 | u64::from(index))
    }

    /// Returns the index of a tensor of this device.
    fn index(&self, tensor: &TensorIr) -> u32 {
        let value = tensor.id.value();
        assert!(
            value >> 32 == u64::from(self.number),
            "a tensor {:?} of another device, or of a trace, is used on this device{}",
            &tensor.shape[..],
            Caller::here()
        );
        value as u32
    }

    /// Returns the variable of a tensor that an operation uses. Marks the tensor as dropped if this is its last use.
    fn used(&mut self, tensor: &TensorIr) -> Var {
        let index = self.index(tensor);
        if tensor.status == TensorStatus::ReadWrite {
            self.dropped.insert(index);
        }
        self.segment.used(index, || Spec { shape: tensor.shape.clone(), dtype: tensor.dtype })
    }

    /// Marks a tensor as no longer referenced. A computed array that the segment does not need is freed immediately.
    fn release(&mut self, index: u32) {
        if self.segment.contains(index) {
            self.dropped.insert(index);
        } else {
            self.computed.remove(&index);
            self.lost.remove(&index);
        }
    }

    fn result(&mut self, id: TensorId, spec: Spec) -> Var {
        self.segment.result(id.value() as u32, spec)
    }

    pub fn constant(&mut self, data: TensorData) -> TensorId {
        let id = self.fresh();
        if !self.forgets() {
            match self.engine.upload(data) {
                Ok(array) => drop(self.computed.insert(id.value() as u32, array)),
                Err(error) => panic!("{error}{}", Caller::here()),
            }
        }
        id
    }

    /// Returns the id of a new tensor for an existing array.
    pub fn adopt(&mut self, array: DeviceArray) -> TensorId {
        let id = self.fresh();
        self.computed.insert(id.value() as u32, array);
        id
    }

    /// Returns the array of a tensor after running the recorded operations.
    pub fn array(&mut self, tensor: &TensorIr) -> Result<DeviceArray, String> {
        let index = self.index(tensor);
        self.compute(index)
    }

    pub fn operation(&mut self, operation: OperationIr) {
        match operation {
            OperationIr::Init(_) => {}
            OperationIr::Drop(tensor) => {
                let index = self.index(&tensor);
                self.release(index);
            }
            _ if self.forgets() => {}
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

    /// Records a primitive with outputs of the given types.
    pub fn primitive(
        &mut self,
        primitive: Primitive,
        inputs: &[Option<TensorIr>],
        outputs: Vec<Option<Spec>>,
    ) -> Vec<Option<(TensorId, Spec)>> {
        let results: Vec<_> = outputs.into_iter().map(|spec| spec.map(|spec| (self.fresh(), spec))).collect();
        if !self.forgets() {
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
        self.segment.push(equation);
        let count = self.segment.len();
        if self.failure.is_some() {
            return;
        }
        match self.period {
            Some((period, hash)) if count == period => match self.segment.hash() == hash {
                true => self.run_first(count),
                false => self.period = None,
            },
            _ if count >= SHORTEST && count.is_power_of_two() || count >= LONGEST => self.find_period(),
            _ => {}
        }
    }

    /// If the recorded operations are steps of a loop, runs them in programs of whole steps. If they are not and there are too
    /// many, runs all of them.
    fn find_period(&mut self) {
        let Some(period) = self.segment.period() else {
            if self.segment.len() >= LONGEST {
                self.run_first(self.segment.len());
            }
            return;
        };
        let chunk = period * CHUNK.div_ceil(period);
        // The first equations may be the prologue of the loop.
        self.run_first(self.segment.len() % chunk);
        while self.segment.len() >= chunk && self.failure.is_none() {
            self.period = Some((chunk, self.segment.split(chunk)[0].hash()));
            self.run_first(chunk);
        }
    }

    /// Marks the end of a step of a loop, identified by a label. The previous step runs now, up to its end: the loop is cut at
    /// the same place each time, and a loop that has read a value in this step runs nothing twice.
    pub fn end_step(&mut self, label: u64) {
        if !self.forgets()
            && let Some(end) = self.segment.end_step(label).filter(|_| self.failure.is_none())
        {
            self.run_first(end);
        }
    }

    /// Starts or ends a period in which this thread computes only shapes and dtypes, and nothing of it is recorded.
    pub fn forget(&mut self, change: i32) {
        let this = thread::current().id();
        if change > 0 {
            self.forgetting.push(this);
        } else if let Some(i) = self.forgetting.iter().position(|thread| *thread == this) {
            self.forgetting.swap_remove(i);
        }
    }

    fn forgets(&self) -> bool {
        !self.forgetting.is_empty() && self.forgetting.contains(&thread::current().id())
    }

    /// Reads the values of a tensor after running the recorded operations.
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
        let array = self.compute(index);
        if tensor.status == TensorStatus::ReadWrite {
            self.release(index);
        }
        let array = array.map_err(failed)?;
        self.engine.download(&array).map_err(failed)
    }

    /// Runs the recorded operations and waits until all arrays are computed.
    pub fn sync(&mut self) -> Result<(), String> {
        self.run()?;
        self.lost.values().next().cloned().map_or(Ok(()), Err)?;
        self.computed.values().try_for_each(|array| self.engine.wait(array))
    }

    /// Runs the recorded operations if they contain an all-reduce.
    pub fn run_sums(&mut self) -> Result<(), String> {
        if self.segment.meets_ranks() { self.run() } else { Ok(()) }
    }

    /// If the last recorded operation is a reshape whose result is this tensor, removes it and returns its input. Reading a
    /// flattened array, as file writers do, thus needs no program.
    fn reshaped(&mut self, index: u32) -> Option<DeviceArray> {
        let (source, is_unused) = self.segment.take_reshape(index)?;
        let array = self.computed.get(&source)?.clone();
        if is_unused && self.dropped.remove(&source) {
            self.computed.remove(&source);
        }
        Some(array)
    }
}

fn failed(reason: String) -> String {
    format!("the tensor was not computed, because its program failed: {reason}")
}
