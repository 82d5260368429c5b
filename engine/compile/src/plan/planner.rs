//! The planner: values, their places in memory, and equations as instructions.

use burn::tensor::{Shape, TensorData};
use grove_backend::{
    AnyTensor, Backend,
    ops::{
        Spec,
        loops::{Block, Instruction, Place, Program, Sizes},
    },
};

use super::{Call, MAX_ELEMENTS, MAX_TOGETHER, Plan, Source, Tensor, kind};
use crate::{
    Graph, Primitive,
    eval::apply_one,
    graph::Equation,
    primitive::Binary,
    sub_graph::{HigherOrder, ScanLoop, WhileLoop, stacked},
    target::Target,
};

/// Index of a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Id(usize);

#[derive(Clone)]
struct Value {
    spec: Spec,
    /// `None` for a tensor that no instruction reads.
    place: Option<Place>,
    /// The tensor with the same value, if the value does not depend on the step.
    tensor: Option<Tensor>,
    /// Depth of the block that computes the value. Instructions that only use values of outer blocks are hoisted to the outer
    /// block.
    depth: usize,
}

/// Block that an instruction is added to.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Belongs {
    /// The outermost block in which its operands are available.
    Outermost,
    /// The current block, because the instruction may panic.
    Here,
}

/// A plan under construction.
pub(super) struct Planner<'a, 'd, B: Backend> {
    pub target: &'a Target<'d, B>,
    pub sizes: Sizes,
    /// The blocks under construction, each nested in the previous one.
    pub blocks: Vec<Block>,
    /// Depth of the innermost branch. Nothing is hoisted out of a branch.
    pub branch: usize,
    values: Vec<Value>,
    constants: Vec<TensorData>,
    before: Vec<Call>,
    loads: Vec<(Tensor, Place)>,
    calls: Vec<Call>,
}

impl<'a, 'd, B: Backend> Planner<'a, 'd, B> {
    /// Plans a loop; `None` if its arrays are large or have unsupported dtypes.
    pub fn plan(op: &HigherOrder, target: &'a Target<'d, B>) -> Option<Plan> {
        let mut planner = Self {
            target,
            sizes: Sizes::default(),
            blocks: vec![Vec::new()],
            branch: 0,
            values: Vec::new(),
            constants: Vec::new(),
            before: Vec::new(),
            loads: Vec::new(),
            calls: Vec::new(),
        };
        let inputs = input_specs(op)?;
        let arguments = inputs.iter().enumerate();
        let arguments = arguments.map(|(i, spec)| planner.tensor(spec.clone(), Tensor::Input(i))).collect();
        let results = planner.nested(op, arguments)?;
        let outputs = results.into_iter().map(|id| Some((planner.place(id)?, planner.spec(id).clone())));
        let outputs = outputs.collect::<Option<_>>()?;
        let Self { sizes, mut blocks, constants, before, loads, calls, .. } = planner;
        let program = Program::new(blocks.pop()?);
        (sizes.total() <= MAX_TOGETHER).then_some(Plan {
            inputs,
            constants,
            before,
            sizes,
            loads,
            program,
            calls,
            outputs,
        })
    }

    pub fn spec(&self, id: Id) -> &Spec {
        &self.values[id.0].spec
    }

    /// Returns the depth of the current block.
    pub fn depth(&self) -> usize {
        self.blocks.len() - 1
    }

    fn add(&mut self, value: Value) -> Id {
        self.values.push(value);
        Id(self.values.len() - 1)
    }

    fn tensor(&mut self, spec: Spec, tensor: Tensor) -> Id {
        self.add(Value { spec, place: None, tensor: Some(tensor), depth: 0 })
    }

    /// Adds a value that the block at a depth computes.
    pub fn value(&mut self, spec: Spec, place: Place, depth: usize) -> Id {
        self.add(Value { spec, place: Some(place), tensor: None, depth })
    }

    pub fn constant(&mut self, data: TensorData) -> Id {
        let spec = Spec { shape: data.shape.clone(), dtype: data.dtype };
        self.constants.push(data);
        self.tensor(spec, Tensor::Constant(self.constants.len() - 1))
    }

    /// Allocates a place for an array; `None` if the array is large.
    pub fn new_place(&mut self, spec: &Spec) -> Option<Place> {
        let len = spec.shape.num_elements();
        (len <= MAX_ELEMENTS).then_some(())?;
        Some(self.sizes.place(kind(spec.dtype)?, len))
    }

    /// Returns the place of a value; `None` if the value is large.
    pub fn place(&mut self, id: Id) -> Option<Place> {
        let (len, placed) = (self.spec(id).shape.num_elements(), self.values[id.0].place);
        placed.or_else(|| (len <= MAX_ELEMENTS).then(|| self.place_of_any_size(id))?)
    }

    /// Returns the places of values; `None` if one is large.
    pub fn places(&mut self, ids: &[Id]) -> Option<Vec<Place>> {
        ids.iter().map(|id| self.place(*id)).collect()
    }

    pub fn place_of_any_size(&mut self, id: Id) -> Option<Place> {
        let value = &self.values[id.0];
        if value.place.is_some() {
            return value.place;
        }
        let tensor = value.tensor?;
        let place = self.sizes.place(kind(value.spec.dtype)?, value.spec.shape.num_elements());
        self.loads.push((tensor, place));
        self.values[id.0].place = Some(place);
        Some(place)
    }

    /// Returns the same elements with another shape.
    pub fn reshaped(&mut self, id: Id, spec: Spec) -> Option<Id> {
        let place = self.place(id)?;
        Some(self.value(spec, place, self.values[id.0].depth))
    }

    /// Returns a value for a part of a value's place.
    pub fn part(&mut self, id: Id, range: std::ops::Range<usize>, spec: Spec) -> Option<Id> {
        let place = self.place(id)?.part(range);
        Some(self.value(spec, place, self.values[id.0].depth))
    }

    /// Returns the depth of the block to which an instruction with these operands is added.
    pub fn block_for(&self, operands: &[Id], belongs: Belongs) -> usize {
        let of_operands = operands.iter().map(|id| self.values[id.0].depth).max().unwrap_or_default();
        match belongs {
            Belongs::Outermost => of_operands.max(self.branch),
            Belongs::Here => self.depth(),
        }
    }

    /// Adds an instruction with one result.
    pub fn emit<const N: usize>(
        &mut self,
        operands: [Id; N],
        spec: Spec,
        belongs: Belongs,
        instruction: impl FnOnce([Place; N], Place) -> Instruction,
    ) -> Option<Id> {
        let places: [Place; N] = self.places(&operands)?.try_into().ok()?;
        let depth = self.block_for(&operands, belongs);
        let y = self.new_place(&spec)?;
        self.blocks[depth].push(instruction(places, y));
        Some(self.value(spec, y, depth))
    }

    /// Plans a graph inside the current block.
    pub fn graph(&mut self, graph: &Graph, arguments: Vec<Id>) -> Option<Vec<Id>> {
        let mut ids: Vec<Option<Id>> = vec![None; graph.variables.len()];
        for ((_, var), id) in graph.inputs.iter().zip(arguments) {
            ids[var.index()] = Some(id);
        }
        for (var, data) in &graph.constants {
            ids[var.index()] = Some(self.constant(data.clone()));
        }
        for equation in &graph.equations {
            let inputs: Vec<Option<Id>> =
                equation.inputs.iter().map(|var| var.and_then(|var| ids[var.index()])).collect();
            let spec = |var: &Option<crate::Var>| var.map(|var| graph.variables[var.index()].clone());
            let outputs: Vec<Option<Spec>> = equation.outputs.iter().map(spec).collect();
            let results = self.equation(equation, inputs, outputs)?;
            for (var, id) in equation.outputs.iter().zip(results) {
                if let Some(var) = var {
                    ids[var.index()] = id;
                }
            }
        }
        graph.outputs.iter().map(|(_, var)| ids[var.index()]).collect()
    }

    fn equation(
        &mut self,
        equation: &Equation,
        inputs: Vec<Option<Id>>,
        outputs: Vec<Option<Spec>>,
    ) -> Option<Vec<Option<Id>>> {
        let primitive = &equation.primitive;
        let given: Option<Vec<Id>> = inputs.iter().copied().collect();
        if let (Primitive::HigherOrder(op), Some(given)) = (primitive, &given) {
            let results = self.nested(op, given.clone())?;
            return Some(results.into_iter().map(Some).collect());
        }
        if does_not_panic(primitive, &outputs) {
            let tensors: Option<Vec<Tensor>> =
                given.as_ref().and_then(|ids| ids.iter().map(|id| self.values[id.0].tensor).collect());
            if let Some(tensors) = tensors {
                return Some(self.before(primitive, tensors, outputs));
            }
        }
        if let Some(given) = given
            && let Some(ids) = self.instructions(primitive, &given, &outputs)
        {
            return Some(ids.into_iter().map(Some).collect());
        }
        self.call(primitive, inputs, outputs)
    }

    /// Plans an equation as instructions; `None` if there are none for it.
    fn instructions(&mut self, primitive: &Primitive, inputs: &[Id], outputs: &[Option<Spec>]) -> Option<Vec<Id>> {
        if let Primitive::Fused(fused) = primitive {
            return self.chain(fused, inputs);
        }
        let [Some(spec)] = outputs else { return None };
        let id = match primitive {
            Primitive::Take(axis) => self.take(*axis, inputs, spec)?,
            Primitive::Reduce(..) => self.sum(primitive, inputs, spec)?,
            _ => match self.elementwise(primitive, inputs, spec) {
                Some(id) => id,
                None => self.movement(primitive, inputs, spec)?,
            },
        };
        Some(vec![id])
    }

    /// Adds an equation that runs on tensors before the program.
    fn before(&mut self, primitive: &Primitive, inputs: Vec<Tensor>, outputs: Vec<Option<Spec>>) -> Vec<Option<Id>> {
        let inputs = inputs.into_iter().map(|tensor| Some(Source::Tensor(tensor))).collect();
        let (number, places) = (self.before.len(), vec![None; outputs.len()]);
        self.before.push(Call { primitive: primitive.clone(), inputs, outputs: outputs.clone(), places });
        let result = |(i, spec): (usize, Option<Spec>)| Some(self.tensor(spec?, Tensor::Before(number, i)));
        outputs.into_iter().enumerate().map(result).collect()
    }

    /// Adds an equation that runs on tensors within the program.
    fn call(
        &mut self,
        primitive: &Primitive,
        inputs: Vec<Option<Id>>,
        outputs: Vec<Option<Spec>>,
    ) -> Option<Vec<Option<Id>>> {
        let mut sources = Vec::with_capacity(inputs.len());
        for id in inputs {
            sources.push(match id {
                None => None,
                Some(id) => Some(self.source(id)?),
            });
        }
        let (mut places, mut ids) = (Vec::with_capacity(outputs.len()), Vec::with_capacity(outputs.len()));
        let depth = self.depth();
        for spec in &outputs {
            let place = match spec {
                Some(spec) => Some(self.new_place(spec)?),
                None => None,
            };
            places.push(place);
            ids.push(spec.as_ref().zip(place).map(|(spec, place)| self.value(spec.clone(), place, depth)));
        }
        self.blocks[depth].push(Instruction::Call(self.calls.len()));
        self.calls.push(Call { primitive: primitive.clone(), inputs: sources, outputs, places });
        Some(ids)
    }

    fn source(&mut self, id: Id) -> Option<Source> {
        Some(match self.values[id.0].tensor {
            Some(tensor) => Source::Tensor(tensor),
            None => Source::Place(self.place(id)?, self.spec(id).clone()),
        })
    }

    /// Adds a call made by an instruction. Returns the index of the call.
    pub fn add_call(&mut self, primitive: &Primitive, inputs: &[Id], spec: Spec, place: Place) -> Option<usize> {
        let sources = inputs.iter().map(|id| self.source(*id).map(Some)).collect::<Option<_>>()?;
        let (outputs, places) = (vec![Some(spec)], vec![Some(place)]);
        self.calls.push(Call { primitive: primitive.clone(), inputs: sources, outputs, places });
        Some(self.calls.len() - 1)
    }

    /// Returns the source position of each element after a movement.
    pub fn positions(&self, primitive: &Primitive, shape: &Shape) -> Vec<u32> {
        let numbers = TensorData::new((0..shape.num_elements() as i64).collect(), shape.clone());
        let numbers = AnyTensor::from_data(numbers, self.target.device);
        let moved = apply_one(primitive, [numbers], self.target).into_data();
        moved.iter::<i64>().map(|position| position as u32).collect()
    }

    /// Adds a number as an array `[1]`.
    pub fn number(&mut self, value: Number) -> Id {
        self.constant(match value {
            Number::F32(x) => TensorData::new(vec![x], [1]),
            Number::F64(x) => TensorData::new(vec![x], [1]),
            Number::I32(x) => TensorData::new(vec![x], [1]),
            Number::I64(x) => TensorData::new(vec![x], [1]),
            Number::Bool(x) => TensorData::new(vec![x], [1]),
        })
    }
}

/// Returns the types of a loop's inputs.
fn input_specs(op: &HigherOrder) -> Option<Vec<Spec>> {
    Some(match op {
        HigherOrder::While(WhileLoop { body, .. }) => body.input_specs(),
        HigherOrder::Scan(ScanLoop { body, length, consts, carries, .. }) => {
            let specs = body.input_specs().into_iter().enumerate();
            specs.map(|(i, spec)| if i < consts + carries { spec } else { stacked(&spec, *length) }).collect()
        }
        _ => return None,
    })
}

/// Returns true for equations that cannot panic, so that they may run before the loop even if the loop has no steps.
fn does_not_panic(primitive: &Primitive, outputs: &[Option<Spec>]) -> bool {
    let is_int =
        |spec: &Option<Spec>| spec.as_ref().is_some_and(|spec| !spec.dtype.is_float() && !spec.dtype.is_bool());
    match primitive {
        Primitive::Binary(op) | Primitive::BinaryScalar(op, _) => {
            !(matches!(op, Binary::Pow | Binary::IntegerPow) && outputs.iter().any(is_int))
        }
        Primitive::Unary(_)
        | Primitive::Where
        | Primitive::MaskFill(_)
        | Primitive::Reshape(_)
        | Primitive::SwapAxes(..)
        | Primitive::Transpose(_)
        | Primitive::Flip(_)
        | Primitive::BroadcastTo(_)
        | Primitive::Unfold(..)
        | Primitive::Slice(_)
        | Primitive::Repeat(..)
        | Primitive::Concatenate(_)
        | Primitive::Convert(_)
        | Primitive::Full(..)
        | Primitive::MatMul
        | Primitive::StopGradient
        | Primitive::Fused(_) => true,
        _ => false,
    }
}

/// A number of one of the element types in memory.
#[derive(Clone, Copy, Debug)]
pub(super) enum Number {
    F32(f32),
    F64(f64),
    I32(i32),
    I64(i64),
    Bool(bool),
}
