//! Sums over the ranks of a job, through which a gradient flows.

use burn::tensor::{Tensor, TensorData};
use grove_backend::{
    AnyTensor, Backend,
    ops::{Function, FunctionVjp, Outcome, Values, Wanted},
};
use grove_communicator::Communicator;

/// The sum of an array over all ranks. Its derivative is the sum of all ranks' gradients.
///
/// A collective that fails ends the job, with a sentence: neither a forward nor a backward pass can go on without the other
/// ranks.
///
/// # Shapes
/// - input and output `[n]`, the same n on all ranks
pub(crate) fn all_reduce<B: Backend>(x: Tensor<B, 1>, comm: &Communicator) -> Tensor<B, 1> {
    let outputs = B::run_function(&Sum(comm.clone()), Values::default().with(AnyTensor::from(x)));
    let sum = outputs.into_values().into_iter().next().flatten().and_then(AnyTensor::into_float);
    sum.expect("one output, of the rank of the input")
}

#[derive(Clone, Debug)]
struct Sum(Communicator);

impl Sum {
    fn of<B: Backend>(&self, values: Values<B>) -> Values<B> {
        let sum = |value: AnyTensor<B>| {
            let (device, data) = (value.device(), value.into_data());
            let (shape, dtype) = (data.shape.clone(), data.dtype);
            // In f64, so that the statistics of n parts of a batch are those of the whole within rounding of f32.
            let values: Vec<f64> = data.iter::<f64>().collect();
            match self.0.all_reduce("batch statistics", values) {
                Ok(sums) => AnyTensor::from_data(TensorData::new(sums, shape).convert_dtype(dtype), &device),
                Err(error) => self.0.end_job(&error),
            }
        };
        values.into_values().into_iter().map(|value| value.map(sum)).collect()
    }
}

impl Function for Sum {
    type Vjp = Self;

    fn run<B: Backend>(&self, inputs: Values<B>) -> Values<B> {
        self.of(inputs)
    }

    fn forward<B: Backend>(&self, inputs: Values<B>, _wanted: &Wanted) -> (Outcome<B>, Self) {
        (self.of(inputs).into(), self.clone())
    }
}

impl FunctionVjp for Sum {
    fn vjp<B: Backend>(&self, _saved: Values<B>, grads: Values<B>, _wanted: &Wanted) -> Values<B> {
        self.of(grads)
    }
}
