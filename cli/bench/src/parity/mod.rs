//! Comparison of a device's results with the CPU's.
//!
//! Each case is computed by flex in f32 and by the device. Both use the same weights and inputs, which are first rounded to the
//! device's dtype.

mod compare;
mod operations;

use clap::Parser;
use grove::{
    backend::{DeviceError, panic_hook},
    prelude::*,
    tensor::{FloatDType, TensorData},
};
use serde::Serialize;
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::Instant,
};

use crate::{
    compute::{Place, prepare},
    only::Only,
    rows::{self, Group},
    work::Work,
};
use compare::compare;
use grove_terminal::{DeviceArgs, Dtype, Exit, Precision, failure, usage, write_json, write_line};
use operations::OperationCase;

/// Compares a device's results with the CPU's: operations and their gradients, layers, and forward passes and training steps of
/// all models.
///
/// flex computes each case in f32, the device in --dtype; weights and inputs are the same, rounded to --dtype. The error of a
/// case is the norm of the difference divided by the norm of flex's result. The exit status is 1 if the error of a case exceeds
/// the tolerance for rounding.
#[derive(Parser, Debug)]
#[command(name = "parity", version)]
pub struct Options {
    /// Device, dtype and precision.
    #[command(flatten)]
    device: DeviceArgs,

    /// Only these kinds of cases
    #[arg(long, value_enum, value_name = "NAMES", value_delimiter = ',')]
    kind: Vec<Kind>,

    /// Cases by name.
    #[command(flatten)]
    only: Only,

    /// Print one JSON object per case as soon as it is computed, and a summary object at the end
    #[arg(long)]
    json: bool,
}

/// A kind of case.
#[derive(clap::ValueEnum, Serialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// grove's own operations and their gradients
    Operations,
    /// Operations and layers of the benchmark, including recurrent layers
    Layers,
    /// Forward passes of models
    Models,
    /// Training steps: the losses of the first and second step, and the moments of the gradients
    Training,
}

/// Computation whose results are compared.
struct Case {
    name: String,
    kind: Kind,
    work: CaseWork,
}

enum CaseWork {
    Operation(OperationCase),
    Row(Work),
}

/// Returns all cases.
fn cases() -> Vec<Case> {
    let operation = |case: OperationCase| {
        let name = case.name.clone();
        Case { name, kind: Kind::Operations, work: CaseWork::Operation(case) }
    };
    let operations = operations::all().into_iter().map(operation);
    let tiny = rows::all(true).into_iter().map(|row| rows::Row { name: format!("{}, tiny", row.name), ..row });
    let real = rows::all(false).into_iter().filter(|row| !row.needs_gpu && !row.work.is_loop());
    let real = real.map(|row| match row.group {
        Group::Operations | Group::Recurrent => row,
        _ => rows::Row { name: format!("{}, shallow", row.name), work: row.work.shallow(), ..row },
    });
    let kind = |row: &rows::Row| match row.group {
        _ if matches!(row.work, Work::Optimizer { .. }) => Some(Kind::Training),
        Group::Operations | Group::Recurrent => Some(Kind::Layers),
        Group::Models => Some(Kind::Models),
        Group::Training => Some(Kind::Training),
        Group::Rest => None,
    };
    let rows = tiny.chain(real);
    let rows = rows.filter_map(|row| Some(Case { kind: kind(&row)?, name: row.name, work: CaseWork::Row(row.work) }));
    operations.chain(rows).collect()
}

/// Result of a case: its path and values.
pub type Output = (String, TensorData);

/// Path of the loss in the outputs of a training step, computed before the update.
const LOSS: &str = "0";

/// Program that computes a case on the chosen backend.
pub struct Compute<'a> {
    case: &'a Case,
    dtype: FloatDType,
    rounding: FloatDType,
}

impl Program for Compute<'_> {
    type Output = Result<Vec<Output>, String>;

    fn run<B: Backend>(self, device: B::Device) -> Self::Output {
        match &self.case.work {
            CaseWork::Operation(case) => Ok(case.compute::<B>(&device, self.dtype, self.rounding)),
            CaseWork::Row(work) => {
                let place = Place::<B> { device, dtype: self.dtype, rounding: Some(self.rounding) };
                let mut run = prepare(work, place)?;
                let mut outputs = run()?.read();
                if self.case.kind == Kind::Training {
                    // The loss of the second step depends on the weights after the first.
                    let loss = run()?.read().into_iter().find(|(path, _)| path == LOSS);
                    outputs.extend(loss.map(|(_, data)| ("second loss".to_owned(), data)));
                }
                Ok(outputs)
            }
        }
    }
}

/// Compares the cases. `compute` runs a case on a device. The caller passes it, so that this crate is compiled for every backend
/// only in executables that run the comparison.
///
/// # Errors
/// The device is missing, or the error of a case exceeds its tolerance.
pub fn run(
    options: &Options,
    compute: impl Fn(DeviceSpec, Compute<'_>) -> Result<Result<Vec<Output>, String>, DeviceError>,
) -> Result<(), Exit> {
    let device = options.device.spec()?;
    device.probe()?;
    let mut chosen = cases();
    options.only.keep(&mut chosen, |case| &case.name, "case has that in its name")?;
    chosen.retain(|case| options.kind.is_empty() || options.kind.contains(&case.kind));
    if chosen.is_empty() {
        return Err(usage("--only and --kind have no case in common"));
    }
    let dtype = options.device.dtype;
    let rounds_products = options.device.kernels.precision == Some(Precision::High);
    let mut rows = Vec::new();
    for case in &chosen {
        let at = |device, dtype| {
            let program = Compute { case, dtype, rounding: options.device.dtype.into() };
            caught(|| compute(device, program).unwrap_or_else(|error| Err(error.to_string())))
        };
        let reference = at(DeviceSpec::default(), FloatDType::F32)
            .map_err(|error| failure(format!("{}: flex does not compute it: {error}", case.name)))?;
        let begun = Instant::now();
        let computed = at(device, dtype.into());
        let tolerance = tolerance(case, dtype, rounds_products);
        let row = compare(case, tolerance, reference, computed, begun.elapsed().as_secs_f64());
        match options.json {
            true => write_json(&serde_json::to_value(&row).map_err(failure)?)?,
            false => write_line(&row.to_string())?,
        }
        rows.push(row);
    }
    let failed: Vec<&str> = rows.iter().filter(|row| row.failed()).map(|row| &*row.name).collect();
    if options.json {
        write_json(&serde_json::json!({
            "backend": options.device.backend, "dtype": dtype.name(), "rounds_products": rounds_products,
            "cases": rows.len(), "failed": failed,
        }))?;
    }
    match failed.is_empty() {
        true => Ok(()),
        false => Err(failure(format!(
            "{} of {} cases differ from flex by more than rounding: {}",
            failed.len(),
            rows.len(),
            failed.join("; ")
        ))),
    }
}

/// Returns the maximum distance explained by rounding. TF32 and f16 have 10 bits of mantissa, bf16 has 7. Rounding errors
/// accumulate in models, and a ReLU whose input is near zero can switch the gradient of a value on or off.
fn tolerance(case: &Case, dtype: Dtype, rounds_products: bool) -> f64 {
    let of_an_operation = match dtype {
        Dtype::F16 => 4e-3,
        Dtype::Bf16 => 2e-2,
        _ if rounds_products => 4e-3,
        _ => 5e-5,
    };
    match (case.kind, &case.work) {
        (Kind::Operations | Kind::Layers, _) => of_an_operation,
        // PyTorch's gradients of such a ResNet differ from f32 by as much: the squares of gradients by 0.13 to 0.17 in f16 and by
        // 0.37 to 0.49 in bf16 (torchvision's bottlenecks, one in each of four stages).
        (Kind::Training, CaseWork::Row(Work::Resnet { .. })) => match dtype {
            Dtype::Bf16 => 0.6,
            Dtype::F16 => 0.25,
            _ if rounds_products => 0.25,
            _ => 1e-2,
        },
        (Kind::Models | Kind::Training, _) => 5.0 * of_an_operation,
    }
}

/// Computes a case. A panic is an error with its message.
fn caught<T>(compute: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(compute))
        .unwrap_or_else(|panic| Err(format!("panic: {}", panic_hook::message(&*panic).unwrap_or_default())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use grove::backend::ops::Operation;

    #[test]
    fn a_panic_is_an_error_with_its_message() {
        assert_eq!(caught(|| Ok(3)), Ok(3));
        assert_eq!(caught::<u8>(|| panic!("a row of {}", 7)), Err("panic: a row of 7".into()));
        assert_eq!(caught::<u8>(|| panic!("no shape")), Err("panic: no shape".into()));
    }

    #[test]
    fn every_operation_is_compared() {
        // These operations only move data between devices, and the test has one device.
        let elsewhere = ["ShardingConstraint", "AllReduce"];
        for name in Operation::NAMES.iter().filter(|name| !elsewhere.contains(name)) {
            assert!(operations::all().iter().any(|case| case.operation.name() == *name), "{name} has no case");
        }
    }
}
