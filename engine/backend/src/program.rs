//! Programs that run on any backend.

use crate::Backend;

/// A computation for a backend that is chosen at run time; see [`DeviceSpec::run`](crate::DeviceSpec::run).
///
/// ```
/// use burn::tensor::Tensor;
/// use grove_backend::{Backend, BackendName, DeviceSpec, Program};
///
/// struct Sum(Vec<f32>);
///
/// impl Program for Sum {
///     type Output = f64;
///
///     fn run<B: Backend>(self, device: B::Device) -> f64 {
///         let values = Tensor::<B, 1>::from_floats(&self.0[..], &device);
///         values.sum().into_data().iter::<f64>().next().unwrap_or(f64::NAN)
///     }
/// }
///
/// assert_eq!(DeviceSpec::new(BackendName::Flex, 0).run(Sum(vec![1.0, 2.0]))?, 3.0);
/// # Ok::<(), grove_backend::DeviceError>(())
/// ```
pub trait Program: Send {
    /// Result of the program.
    type Output: Send;

    /// Runs on a device of the backend `B`.
    fn run<B: Backend>(self, device: B::Device) -> Self::Output;
}
