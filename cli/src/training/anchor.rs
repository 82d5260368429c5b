//! Instantiates each optimizer of `--optimizer` once for each backend, so that programs need not compile them again. The crate
//! `grove` does the same for models. Never called.

use grove::{
    backend::DeviceError,
    optim::{OptimError, OptimizerConfig},
    tree::summary,
};

use crate::prelude::*;

/// A program that uses the optimizers of a configuration.
struct UseOptimizers(OptimizerConfig);

impl Program for UseOptimizers {
    type Output = Result<String, OptimError>;

    fn run<B: Backend>(self, device: B::Device) -> Self::Output {
        let params = Array::<B, 1>::new(Tensor::ones([1], &device));
        let optimizer = self.0.build_for_any_tree::<B>()?;
        let (params, state) = optimizer.step(params.clone(), optimizer.init(&params), params);
        Ok(format!("{params} {}", summary(&state)))
    }
}

/// Runs the optimizer of a configuration on a device.
#[doc(hidden)]
pub fn optimizer_anchors(
    device: DeviceSpec,
    config: OptimizerConfig,
) -> Result<Result<String, OptimError>, DeviceError> {
    grove::run(device, UseOptimizers(config))
}
