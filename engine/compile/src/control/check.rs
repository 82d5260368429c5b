//! Checks of higher-order operations loaded from files.

use burn::tensor::DType;
use grove_backend::ops::Spec;

use crate::{
    graph::require,
    sub_graph::{HigherOrder, ScanLoop, SubGraph, WhileLoop, is_float, stacked},
};

/// Returns the type of one step of a stacked array; `None` for a scalar.
fn step_of(spec: &Spec) -> Option<Spec> {
    let sizes = spec.shape.get(1..)?;
    Some(Spec { shape: sizes.to_vec().into(), dtype: spec.dtype })
}

fn floats(specs: &[Spec]) -> impl Iterator<Item = Spec> + '_ {
    specs.iter().filter(|spec| is_float(spec)).cloned()
}

fn is_number_of_one(spec: &Spec) -> bool {
    spec.shape[..] == [1]
}

impl HigherOrder {
    /// Returns an error unless the types of the sub-graphs match each other and the inputs and outputs of the operation.
    pub(crate) fn check(&self, inputs: &[Option<&Spec>], outputs: &[Option<&Spec>]) -> Result<(), String> {
        let inputs: Vec<Spec> = inputs.iter().flatten().map(|spec| (*spec).clone()).collect();
        self.check_graphs(&inputs)?;
        let expected = self.output_specs();
        require(
            expected.len() == outputs.len(),
            format!("it has {} outputs instead of {}", outputs.len(), expected.len()),
        )?;
        let fits = |(found, expected): (&Option<&Spec>, &Spec)| found.is_none_or(|found| found == expected);
        require(outputs.iter().zip(&expected).all(fits), "the types of the outputs differ from those of its sub-graphs")
    }

    fn check_graphs(&self, inputs: &[Spec]) -> Result<(), String> {
        let takes = |graph: &SubGraph, specs: &[Spec]| graph.input_specs() == specs;
        match self {
            Self::Cond { branches } => {
                let Some(first) = branches.first() else { return Err("it has no branches".into()) };
                let Some((index, operands)) = inputs.split_first() else { return Err("it has no condition".into()) };
                let decides = is_number_of_one(index) && !is_float(index);
                require(decides, "the first input must be a boolean or an index, of shape [1]")?;
                let alike =
                    |branch: &SubGraph| takes(branch, operands) && branch.output_specs() == first.output_specs();
                require(branches.iter().all(alike), "all branches must accept the operands and return the same types")
            }
            Self::While(WhileLoop { cond, body, consts }) => {
                require(*consts <= inputs.len(), "it has more constants than inputs")?;
                require(takes(cond, inputs) && takes(body, inputs), "condition and body must accept the inputs")?;
                require(body.output_specs() == inputs[*consts..], "the body must return the next carry")?;
                let holds = cond.output_specs();
                let truth = |spec: &Spec| is_number_of_one(spec) && matches!(spec.dtype, DType::Bool(_));
                require(holds.len() == 1 && truth(&holds[0]), "the condition must return one boolean of shape [1]")
            }
            Self::Scan(ScanLoop { body, length, consts, carries, .. }) => {
                let fixed = consts.checked_add(*carries).filter(|fixed| *fixed <= inputs.len());
                let Some(fixed) = fixed else { return Err("it has more constants and carries than inputs".into()) };
                require(*length > 0, "it must have at least one step")?;
                let (once, arrays) = inputs.split_at(fixed);
                let rows = arrays.iter().all(|array| array.shape.first() == Some(length));
                require(rows, format!("each array must have {length} steps"))?;
                let steps: Option<Vec<Spec>> = arrays.iter().map(step_of).collect();
                let expected: Vec<Spec> = once.iter().cloned().chain(steps.unwrap_or_default()).collect();
                require(takes(body, &expected), "the body must accept constants, carry and one step of the arrays")?;
                let results = body.output_specs();
                let kept = results.get(..*carries) == Some(&inputs[*consts..fixed]);
                require(kept, "the body must return the next carry first")?;
                let mut sizes = results[*carries..].iter().map(|spec| stacked(spec, *length));
                let fits = |spec: Spec| {
                    let elements = spec.shape.iter().try_fold(1_u64, |product, size| product.checked_mul(*size as u64));
                    elements.is_some_and(|elements| elements <= 1 << 48)
                };
                require(sizes.all(fits), "the stacked results exceed any memory")
            }
            Self::CustomJvp { function, jvp, .. } => {
                require(takes(function, inputs), "the function must accept the inputs")?;
                let results = function.output_specs();
                let arguments: Vec<Spec> = inputs.iter().cloned().chain(floats(inputs)).collect();
                let with_tangents: Vec<Spec> = results.iter().cloned().chain(floats(&results)).collect();
                let jvp = jvp.get();
                let fits = takes(jvp, &arguments) && jvp.output_specs() == with_tangents;
                require(fits, "the rule must accept arguments and tangents, and return results and tangents")
            }
            Self::CustomVjp { function, forward, backward, .. } => {
                require(takes(function, inputs) && takes(forward, inputs), "the functions must accept the inputs")?;
                let (results, with_residuals) = (function.output_specs(), forward.output_specs());
                let first = with_residuals.get(..results.len()) == Some(&results[..]);
                require(first, "the forward rule must return the results first")?;
                let residuals = with_residuals[results.len()..].iter().cloned();
                let arguments: Vec<Spec> = residuals.chain(floats(&results)).collect();
                let gradients: Vec<Spec> = floats(inputs).collect();
                let backward = backward.get();
                let fits = takes(backward, &arguments) && backward.output_specs() == gradients;
                require(
                    fits,
                    "the backward rule must accept residuals and gradients of the results, and return gradients of \
                     the inputs",
                )
            }
        }
    }
}
