//! Running a plan on tensors.

use burn::tensor::{Shape, TensorData};
use grove_backend::{
    AnyTensor, Backend,
    ops::{
        Spec,
        loops::{Kind, Memory, Place},
    },
};
use std::{cell::RefCell, rc::Rc};

use super::{Call, Plan, Source, Tensor};
use crate::{
    eval::apply_recorded,
    graph::KeyMap,
    target::{Target, missing},
};

/// Tensors of a run.
struct Tensors<B: Backend> {
    inputs: Vec<AnyTensor<B>>,
    /// Constants used by calls.
    constants: Vec<Option<AnyTensor<B>>>,
    before: Vec<Vec<Option<AnyTensor<B>>>>,
}

impl Plan {
    /// Returns true if the plan was made for inputs of these types.
    pub(crate) fn takes<B: Backend>(&self, inputs: &[AnyTensor<B>]) -> bool {
        let fits = |(x, spec): (&AnyTensor<B>, &Spec)| x.dtype() == spec.dtype && x.shape() == spec.shape;
        inputs.len() == self.inputs.len() && inputs.iter().zip(&self.inputs).all(fits)
    }

    /// Runs the loop and returns its results.
    pub(crate) fn run<B: Backend>(
        &self,
        inputs: Vec<AnyTensor<B>>,
        keys: Option<&Rc<KeyMap>>,
        target: &Target<'_, B>,
    ) -> Vec<AnyTensor<B>> {
        let mut tensors = Tensors { inputs, constants: vec![None; self.constants.len()], before: Vec::new() };
        let used = self.before.iter().chain(&self.calls).flat_map(|call| call.inputs.iter().flatten());
        for source in used {
            if let Source::Tensor(Tensor::Constant(i)) = source {
                tensors.constants[*i].get_or_insert_with(|| target.constant(&self.constants[*i]));
            }
        }
        for call in &self.before {
            let outputs = call.apply(None, &tensors, keys, target);
            tensors.before.push(outputs);
        }
        let mut memory = Memory::new(&self.sizes);
        for (tensor, place) in &self.loads {
            match tensor {
                Tensor::Constant(i) => write(&mut memory, *place, &self.constants[*i]),
                tensor => write(&mut memory, *place, &tensors.get(*tensor).into_data()),
            }
        }
        let tensors = RefCell::new(tensors);
        self.program.run(&mut memory, &mut |number, memory| {
            let call = &self.calls[number];
            let outputs = call.apply(Some(memory), &tensors.borrow(), keys, target);
            for (output, place) in outputs.into_iter().zip(&call.places) {
                if let Some((output, place)) = output.zip(*place) {
                    write(memory, place, &output.into_data());
                }
            }
        });
        self.outputs.iter().map(|(place, spec)| read(&memory, *place, spec.shape.clone(), target)).collect()
    }
}

impl<B: Backend> Tensors<B> {
    fn get(&self, tensor: Tensor) -> AnyTensor<B> {
        let found = match tensor {
            Tensor::Input(i) => Some(&self.inputs[i]),
            Tensor::Constant(i) => self.constants[i].as_ref(),
            Tensor::Before(call, output) => self.before[call][output].as_ref(),
        };
        found.cloned().unwrap_or_else(|| missing())
    }
}

impl Call {
    fn apply<B: Backend>(
        &self,
        memory: Option<&Memory>,
        tensors: &Tensors<B>,
        keys: Option<&Rc<KeyMap>>,
        target: &Target<'_, B>,
    ) -> Vec<Option<AnyTensor<B>>> {
        let input = |source: &Source| match (source, memory) {
            (Source::Tensor(tensor), _) => tensors.get(*tensor),
            (Source::Place(place, spec), Some(memory)) => read(memory, *place, spec.shape.clone(), target),
            (Source::Place(..), None) => missing(),
        };
        let inputs = self.inputs.iter().map(|source| source.as_ref().map(input)).collect();
        let dtypes = self.outputs.iter().map(|spec| spec.as_ref().map(|spec| spec.dtype));
        apply_recorded(&self.primitive, inputs, dtypes, keys, target)
    }
}

/// Copies the elements of an array to its place.
fn write(memory: &mut Memory, place: Place, data: &TensorData) {
    macro_rules! write {
        ($type:ident) => {
            match data.as_slice::<$type>() {
                Ok(elements) => memory.get_mut::<$type>(place).copy_from_slice(elements),
                Err(error) => unreachable!("an array has the type of its place: {error:?}"),
            }
        };
    }
    match place.kind {
        Kind::F32 => write!(f32),
        Kind::F64 => write!(f64),
        Kind::I32 => write!(i32),
        Kind::I64 => write!(i64),
        Kind::Bool => write!(bool),
    }
}

/// Creates a tensor from the elements of a place.
fn read<B: Backend>(memory: &Memory, place: Place, shape: Shape, target: &Target<'_, B>) -> AnyTensor<B> {
    macro_rules! data {
        ($type:ident) => {
            TensorData::new(memory.get::<$type>(place).to_vec(), shape)
        };
    }
    let device = target.device;
    match place.kind {
        Kind::F32 => AnyTensor::Float(B::float_from_data(data!(f32), device)),
        Kind::F64 => AnyTensor::Float(B::float_from_data(data!(f64), device)),
        Kind::I32 => AnyTensor::Int(B::int_from_data(data!(i32), device)),
        Kind::I64 => AnyTensor::Int(B::int_from_data(data!(i64), device)),
        Kind::Bool => AnyTensor::Bool(B::bool_from_data(data!(bool), device)),
    }
}
