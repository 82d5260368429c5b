//! Sums over the ranks of a job.

use burn::tensor::{DType, Element, Shape, TensorData};
use grove_communicator::{Communicator, Number, PendingReduce, Wire};
use std::sync::{Mutex, PoisonError};

use super::{AnyTensor, Backend, Differentiation, Outcome, Rules, Shapes, Spec, Values, Wanted};

/// The sums of some arrays over all ranks. Those of f16 and bf16 are added in f32, but by NCCL in their own type.
///
/// All ranks run the same ones in the same order. A collective that fails ends the job, with a sentence: no rank can go on
/// without the others. The derivative is the sum of all ranks' gradients, of which every rank must use
/// one.
///
/// # Shapes
/// - inputs: any number of arrays of any shapes, the same on all ranks, of floating-point numbers
/// - outputs: as the inputs
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct AllReduce {
    /// The ranks.
    pub ranks: Ranks,
    /// The thing that is summed, in an error's sentence.
    pub what: String,
    /// If true, f32 is added in f64, and the sum rounded once, where the host adds.
    pub wide: bool,
}

/// The ranks of a job, as an operation has them: a number in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Ranks(u32);

/// A communicator for each number, and the one that operations use: programs run on threads of their own.
static RANKS: Mutex<Vec<(Communicator, Communicator)>> = Mutex::new(Vec::new());

impl Ranks {
    /// Those of a communicator. Every rank asks for those of the same communicators in the same order.
    ///
    /// A communicator without a [duplicate](Communicator::duplicate) left ends the job.
    pub fn of(comm: &Communicator) -> Self {
        let mut all = RANKS.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.iter().position(|(other, _)| other == comm);
        Self(known.unwrap_or_else(|| {
            let own = comm.duplicate().unwrap_or_else(|error| comm.end_job(&error));
            all.push((comm.clone(), own));
            all.len() - 1
        }) as u32)
    }

    /// The communicator that operations use.
    ///
    /// # Panics
    /// If the process has none of this number, as where a graph comes from another one.
    #[track_caller]
    pub fn communicator(self) -> Communicator {
        let all = RANKS.lock().unwrap_or_else(PoisonError::into_inner);
        match all.get(self.0 as usize) {
            Some((_, own)) => own.clone(),
            None => {
                panic!("all_reduce over the ranks of another process: number {}, and here are {}", self.0, all.len())
            }
        }
    }

    /// The communicator that they were made of, if it is of this process.
    pub fn origin(self) -> Option<Communicator> {
        let all = RANKS.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(self.0 as usize).map(|(origin, _)| origin.clone())
    }

    /// Their number in this process.
    pub fn number(self) -> u32 {
        self.0
    }

    /// Those of a [number](Self::number).
    pub fn numbered(number: u32) -> Self {
        Self(number)
    }
}

/// A bug.
const FEWER: &str = "fewer sums than there are elements";

impl AllReduce {
    /// The sums of arrays of the host.
    pub fn on_host(&self, arrays: Vec<TensorData>) -> Vec<TensorData> {
        let comm = self.ranks.communicator();
        let is_wide = |array: &TensorData| array.dtype == DType::F64 || self.wide;
        let narrow = self.start::<f32>(&comm, arrays.iter().filter(|array| !is_wide(array)));
        let wide = self.start::<f64>(&comm, arrays.iter().filter(|array| is_wide(array)));
        let (narrow, wide) = (finish(&comm, narrow), finish(&comm, wide));
        let (mut narrow, mut wide) = (narrow.as_slice(), wide.as_slice());
        let sum = |array: TensorData| {
            let (count, shape, dtype) = (array.num_elements(), array.shape.clone(), array.dtype);
            let sums = match is_wide(&array) {
                true => TensorData::new(wide.split_off(..count).expect(FEWER).to_vec(), shape),
                false => TensorData::new(narrow.split_off(..count).expect(FEWER).to_vec(), shape),
            };
            sums.convert_dtype(dtype)
        };
        arrays.into_iter().map(sum).collect()
    }

    /// Starts the sums of arrays, one after the other.
    fn start<'a, T: Number + Element>(
        &self,
        comm: &Communicator,
        arrays: impl Iterator<Item = &'a TensorData>,
    ) -> Option<PendingReduce<T>> {
        let mut values = Vec::new();
        for array in arrays {
            match array.as_slice::<T>() {
                Ok(slice) => values.extend_from_slice(slice),
                Err(_) => values.extend(array.iter::<T>()),
            }
        }
        let start = |values| comm.start_all_reduce(&self.what, values, Wire::Full);
        (!values.is_empty()).then(|| start(values).unwrap_or_else(|error| comm.end_job(&error)))
    }
}

fn finish<T: Number>(comm: &Communicator, pending: Option<PendingReduce<T>>) -> Vec<T> {
    pending.map_or_else(Vec::new, |sums| sums.wait().unwrap_or_else(|error| comm.end_job(&error)))
}

impl Rules for AllReduce {
    const DIFFERENTIATION: Differentiation = Differentiation::AllOutputs;

    fn shapes(&self, inputs: &Shapes) -> Vec<Shape> {
        inputs.require(inputs.given().count() == inputs.len(), "all_reduce", "arrays in all places");
        inputs.given().cloned().collect()
    }

    fn compose<B: Backend>(&self, inputs: Values<B>, _needs: &[bool]) -> Outcome<B> {
        let inputs: Vec<AnyTensor<B>> = inputs.into_floats().into_iter().map(AnyTensor::Float).collect();
        let devices: Vec<B::Device> = inputs.iter().map(AnyTensor::device).collect();
        let sums = self.on_host(inputs.into_iter().map(AnyTensor::into_data).collect());
        let sums = sums.into_iter().zip(&devices).map(|(sum, device)| Some(AnyTensor::from_data(sum, device)));
        sums.collect::<Values<B>>().into()
    }

    /// Sums that this rank does not use have zeros: other ranks may use them.
    fn compose_vjp<B: Backend>(&self, _residuals: Values<B>, mut grads: Values<B>, wanted: &Wanted) -> Values<B> {
        let wanted: Vec<Option<&Spec>> = (0..wanted.all_needs().len()).map(|i| wanted.get(i)).collect();
        let given: Vec<_> = (0..wanted.len()).map(|i| grads.take_optional_float(i)).collect();
        // Other ranks wait for the sum even where this one uses none of them.
        let device = given.iter().flatten().next().map(B::float_device).unwrap_or_default();
        let zeros = |spec: &Spec| B::float_zeros(spec.shape.clone(), &device, spec.dtype.into());
        // What is not wanted is not sent, by any rank.
        let pairs = wanted.iter().zip(given).filter_map(|(spec, grad)| Some((spec.as_ref()?, grad)));
        let sent: Vec<_> = pairs.map(|(spec, grad)| grad.unwrap_or_else(|| zeros(spec))).collect();
        let mut sums = B::run(&self.clone().into(), Values::floats(sent), &[]).outputs.into_floats().into_iter();
        Values::optional_floats(wanted.into_iter().map(|spec| spec.and_then(|_| sums.next())))
    }
}
