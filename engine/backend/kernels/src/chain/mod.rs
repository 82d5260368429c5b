//! Chains of elementwise functions in one pass over memory.

mod functions;
mod plan;
mod run;
mod several;
mod source;
#[cfg(test)]
mod tests;

pub(crate) use functions::sum as sum_of_row;
pub use functions::{Map, Pair};
use plan::Plan;
pub use run::{Input, Output};
pub(crate) use run::{apply as apply_step, as_uninit};
pub use source::Access;

/// A step of a chain. Values are numbered: first the inputs, then the results of the steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// A function of a value.
    Map(Map, usize),
    /// A function of two values.
    Pair(Pair, usize, usize),
    /// A function of a value and a constant.
    Number(Pair, usize, f32),
    /// A value raised to an integer power.
    Power(usize, i32),
    /// A value clamped between two constants.
    Clamp(usize, f32, f32),
    /// The second value if the first is true, else the third.
    Select(usize, usize, usize),
    /// The constant if the first value is true, else the second value.
    Fill(usize, usize, f32),
}

impl Step {
    fn operands(self) -> impl Iterator<Item = usize> {
        let operands = match self {
            Self::Map(_, x) | Self::Number(_, x, _) | Self::Power(x, _) | Self::Clamp(x, ..) => [Some(x), None, None],
            Self::Pair(_, a, b) | Self::Fill(a, b, _) => [Some(a), Some(b), None],
            Self::Select(mask, a, b) => [Some(mask), Some(a), Some(b)],
        };
        operands.into_iter().flatten()
    }
}

/// Sums of consecutive elements of a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sum {
    /// Index of the value, a step's result.
    pub value: usize,
    /// Number of elements per sum.
    pub row: usize,
    /// Divisor of the sums.
    pub divisor: f32,
}

/// A sequence of elementwise functions of inputs and earlier results, computed in one pass over memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Chain {
    inputs: Vec<Access>,
    steps: Vec<Step>,
    /// Indices of the values that are outputs.
    outputs: Vec<usize>,
    len: usize,
    sums: Vec<Sum>,
    plan: Plan,
}

impl Chain {
    /// Creates a chain whose outputs have `len` elements each. `outputs` are indices of steps' results, without repetitions.
    ///
    /// # Panics
    /// If a step uses a later value, an output is not a step's result, or an input's length does not match `len`.
    pub fn new(inputs: Vec<Access>, steps: Vec<Step>, outputs: &[usize], len: usize) -> Self {
        let count = inputs.len();
        for access in &inputs {
            let Access { repeat, len: size } = *access;
            assert!(
                repeat > 0 && size > 0 && len.is_multiple_of(repeat * size),
                "{access:?} does not fit {len} elements"
            );
        }
        for (i, step) in steps.iter().enumerate() {
            for x in step.operands() {
                assert!(x < count + i, "step {i} uses value {x}, which comes after it");
            }
        }
        for (i, output) in outputs.iter().enumerate() {
            let result = (count..count + steps.len()).contains(output);
            assert!(result && !outputs[..i].contains(output), "each output must be the result of a step, listed once");
        }
        let plan = Plan::new(count, &steps, outputs, &[]);
        Self { inputs, steps, outputs: outputs.to_vec(), len, sums: Vec::new(), plan }
    }

    /// Adds sums as further outputs. The summation order does not depend on the number of threads.
    ///
    /// # Panics
    /// If the row lengths differ or do not divide the length, or a value is not a step's result.
    pub fn with_sums(self, sums: Vec<Sum>) -> Self {
        let count = self.inputs.len();
        for Sum { value, row, .. } in &sums {
            assert!(*row == sums[0].row && *row > 0 && self.len.is_multiple_of(*row), "rows of {row} elements");
            assert!((count..count + self.steps.len()).contains(value), "value {value} is not the result of a step");
        }
        let plan = Plan::new(count, &self.steps, &self.outputs, &sums);
        Self { sums, plan, ..self }
    }

    /// Returns the mapping from output elements to elements of each input.
    pub fn inputs(&self) -> &[Access] {
        &self.inputs
    }

    /// Returns the steps.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Returns the indices of the steps' results that are outputs.
    pub fn outputs(&self) -> &[usize] {
        &self.outputs
    }

    /// Returns the sums, which follow the other outputs.
    pub fn sums(&self) -> &[Sum] {
        &self.sums
    }

    /// Returns true if each sum is computed in one piece, as `sum_of_row` of the whole row.
    pub fn sums_whole_rows(&self) -> bool {
        self.len <= run::TILE && self.period() >= self.len
    }

    /// Number of elements of each output, except sums.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if the outputs have no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}
