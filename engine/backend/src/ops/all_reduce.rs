//! Sums over the ranks of a job.

use burn::tensor::{DType, Element, Shape, TensorData};
use grove_communicator::{Communicator, Number, PendingReduce, Wire};
use std::sync::{Mutex, PoisonError};

use super::{AnyTensor, Backend, Differentiation, Outcome, Rules, Shapes, Spec, Values, Wanted};

/// All-reduce: the sum of each array over all ranks. f16 and bf16 are summed in f32, except by NCCL, which sums in the
/// input dtype.
///
/// All ranks run the same all-reduces in the same order. A failed collective ends the job with an error message, because no
/// rank can continue without the others. The derivative is the sum of all ranks' gradients, so every rank must run the
/// backward pass.
///
/// # Shapes
/// - inputs: any number of floating-point arrays of any shapes, equal on all ranks
/// - outputs: the shapes of the inputs
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct AllReduce {
    /// The ranks.
    pub ranks: Ranks,
    /// Description of the summed arrays, for error messages.
    pub what: String,
    /// If true, sums of f32 on the host are accumulated in f64 and rounded once.
    pub wide: bool,
}

/// The ranks of a job, as a parameter of an operation: an index into this process's communicators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Ranks(u32);

/// For each index the communicator and its duplicate for operations, because programs run on threads of their own.
static RANKS: Mutex<Vec<(Communicator, Communicator)>> = Mutex::new(Vec::new());

impl Ranks {
    /// Returns the ranks of a communicator. Every rank must request the same communicators in the same order.
    ///
    /// Ends the job if the communicator cannot be [duplicated](Communicator::duplicate).
    pub fn of(comm: &Communicator) -> Self {
        let mut all = RANKS.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.iter().position(|(other, _)| other == comm);
        Self(known.unwrap_or_else(|| {
            let own = comm.duplicate().unwrap_or_else(|error| comm.end_job(&error));
            all.push((comm.clone(), own));
            all.len() - 1
        }) as u32)
    }

    /// Returns the communicator that operations use.
    ///
    /// # Panics
    /// If this process has no communicator with this index, for example because a graph was built by another process.
    #[track_caller]
    pub fn communicator(self) -> Communicator {
        let all = RANKS.lock().unwrap_or_else(PoisonError::into_inner);
        match all.get(self.0 as usize) {
            Some((_, own)) => own.clone(),
            None => {
                panic!("all_reduce over ranks that this process does not have: number {}, of {}", self.0, all.len())
            }
        }
    }

    /// Returns the communicator that the ranks were created from, if it belongs to this process.
    pub fn origin(self) -> Option<Communicator> {
        let all = RANKS.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(self.0 as usize).map(|(origin, _)| origin.clone())
    }

    /// Returns the index in this process.
    pub fn number(self) -> u32 {
        self.0
    }

    /// Creates ranks from an [index](Self::number).
    pub fn numbered(number: u32) -> Self {
        Self(number)
    }
}

/// Panic message for an internal error.
const FEWER: &str = "fewer sums than there are elements";

impl AllReduce {
    /// Sums arrays in host memory.
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

    /// Starts the sum of the concatenated arrays.
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

    #[track_caller]
    fn shapes(&self, inputs: &Shapes) -> Vec<Shape> {
        inputs.require(inputs.given().count() == inputs.len(), "all_reduce", "no missing array");
        inputs.given().cloned().collect()
    }

    fn compose<B: Backend>(&self, inputs: Values<B>, _needs: &[bool]) -> Outcome<B> {
        let inputs: Vec<AnyTensor<B>> = inputs.into_floats().into_iter().map(AnyTensor::Float).collect();
        let devices: Vec<B::Device> = inputs.iter().map(AnyTensor::device).collect();
        let sums = self.on_host(inputs.into_iter().map(AnyTensor::into_data).collect());
        let sums = sums.into_iter().zip(&devices).map(|(sum, device)| Some(AnyTensor::from_data(sum, device)));
        sums.collect::<Values<B>>().into()
    }

    /// Outputs without a gradient on this rank contribute zeros, because other ranks may have one.
    fn compose_vjp<B: Backend>(&self, _residuals: Values<B>, mut grads: Values<B>, wanted: &Wanted) -> Values<B> {
        let wanted: Vec<Option<&Spec>> = (0..wanted.all_needs().len()).map(|i| wanted.get(i)).collect();
        let given: Vec<_> = (0..wanted.len()).map(|i| grads.take_optional_float(i)).collect();
        // Other ranks wait for the sum even if this rank uses none of the outputs.
        let device = given.iter().flatten().next().map(B::float_device).unwrap_or_default();
        let zeros = |spec: &Spec| B::float_zeros(spec.shape.clone(), &device, spec.dtype.into());
        // Gradients of unwanted inputs are sent by no rank.
        let pairs = wanted.iter().zip(given).filter_map(|(spec, grad)| Some((spec.as_ref()?, grad)));
        let sent: Vec<_> = pairs.map(|(spec, grad)| grad.unwrap_or_else(|| zeros(spec))).collect();
        let mut sums = B::run(&self.clone().into(), Values::floats(sent), &[]).outputs.into_floats().into_iter();
        Values::optional_floats(wanted.into_iter().map(|spec| spec.and_then(|_| sums.next())))
    }
}
