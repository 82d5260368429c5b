//! Checks of graphs loaded from files: variables, shapes and dtypes.

use burn::tensor::DType;
use grove_backend::{
    ops::{Call, Operation, Spec},
    panic_hook::catch,
};
use std::collections::HashSet;

use super::{Equation, Graph, GraphError, Var, rules};
use crate::{
    Primitive, Traced,
    eval::apply,
    target::Target,
    traced::{Recording, TraceDevice},
    types::Types,
    words::{dtype_name, leaf_name},
};

/// Maximum number of elements of an array: byte counts and products with them fit 64 bits.
const ELEMENTS: u64 = 1 << 48;

/// Maximum axis length with which one of grove's operations is traced as a check: compositions build ranges of this length on
/// the host.
const AXIS: usize = 1 << 22;

/// Returns an error unless each variable is assigned once and before its use, and shapes and dtypes fit the operations.
pub(super) fn check(graph: &Graph) -> Result<(), GraphError> {
    for (i, spec) in graph.variables.iter().enumerate() {
        spec_fits(spec).map_err(|reason| GraphError::invalid(format!("variable {i}"), reason))?;
    }
    variables(graph)?;
    let mut known = HashSet::new();
    for (i, equation) in graph.equations.iter().enumerate() {
        let spec = |var: &Option<Var>| var.map(|var| &graph.variables[var.index()]);
        let inputs: Vec<Option<&Spec>> = equation.inputs.iter().map(spec).collect();
        let outputs: Vec<Option<&Spec>> = equation.outputs.iter().map(spec).collect();
        let checked = match &equation.primitive {
            Primitive::Grove(call) => {
                // An equal equation has been checked.
                match known.insert(graph.typed_identity(equation)) {
                    true => of_grove(equation, call, &inputs, &outputs, graph.types),
                    false => Ok(()),
                }
            }
            Primitive::WithKey(call) => match (&inputs[..], call.clone().key_mut()) {
                ([Some(key), rest @ ..], Some(_)) if **key == key_spec() => {
                    of_grove(equation, call, rest, &outputs, graph.types)
                }
                _ => Err("its first input must be a random key, u32[2]".into()),
            },
            Primitive::HigherOrder(op) => op.check(&inputs, &outputs),
            primitive => rules::check(primitive, &inputs, &outputs),
        };
        checked.map_err(|reason| GraphError::invalid(name(graph, i), reason))?;
    }
    Ok(())
}

fn name(graph: &Graph, equation: usize) -> String {
    format!("equation {equation} (`{}`)", graph.equations[equation].primitive.name())
}

/// Returns an error if an array exceeds the maximum size or has a dtype that graphs do not support.
fn spec_fits(spec: &Spec) -> Result<(), String> {
    if matches!(spec.dtype, DType::QFloat(_)) {
        return Err("graphs have no quantized types".into());
    }
    let elements = spec.shape.iter().try_fold(1_u64, |product, size| product.checked_mul(*size as u64));
    match elements {
        Some(elements) if elements <= ELEMENTS => Ok(()),
        _ => Err(format!("{:?} has more elements than any memory can hold", &spec.shape[..])),
    }
}

/// Checks assignments and uses of variables.
fn variables(graph: &Graph) -> Result<(), GraphError> {
    let count = graph.variables.len();
    let mut assigned: Vec<Option<String>> = vec![None; count];
    let mut assign = |var: Var, place: String| {
        let Some(before) = assigned.get_mut(var.index()) else {
            let reason = format!("it assigns variable {}, but there are only {count}", var.0);
            return Err(GraphError::invalid(place, reason));
        };
        match before.replace(place.clone()) {
            None => Ok(()),
            Some(before) => {
                let reason = format!("it assigns variable {}, which {before} assigns already", var.0);
                Err(GraphError::invalid(place, reason))
            }
        }
    };
    for (path, var) in &graph.inputs {
        assign(*var, leaf_name("argument", path))?;
    }
    for (i, (var, _)) in graph.constants.iter().enumerate() {
        assign(*var, format!("constant {i}"))?;
    }
    for (i, equation) in graph.equations.iter().enumerate() {
        equation.outputs.iter().flatten().try_for_each(|var| assign(*var, name(graph, i)))?;
    }
    for (i, (var, data)) in graph.constants.iter().enumerate() {
        let spec = &graph.variables[var.index()];
        if spec.shape != data.shape || spec.dtype != data.dtype {
            let reason = format!(
                "its values are {}{:?}, but variable {} is {}",
                dtype_name(data.dtype),
                &data.shape[..],
                var.0,
                rules::typed(spec)
            );
            return Err(GraphError::invalid(format!("constant {i}"), reason));
        }
    }
    let mut ready = vec![false; count];
    graph.inputs.iter().for_each(|(_, var)| ready[var.index()] = true);
    graph.constants.iter().for_each(|(var, _)| ready[var.index()] = true);
    let used = |var: Var, ready: &[bool], place: String| match (ready.get(var.index()), assigned.get(var.index())) {
        (Some(true), _) => Ok(()),
        (_, Some(Some(later))) => {
            let reason = format!("it uses variable {} before {later} assigns it", var.0);
            Err(GraphError::invalid(place, reason))
        }
        (_, Some(None)) => {
            Err(GraphError::invalid(place, format!("it uses variable {}, which nothing assigns", var.0)))
        }
        (_, None) => Err(GraphError::invalid(place, format!("it uses variable {}, but there are only {count}", var.0))),
    };
    for (i, equation) in graph.equations.iter().enumerate() {
        equation.inputs.iter().flatten().try_for_each(|var| used(*var, &ready, name(graph, i)))?;
        equation.outputs.iter().flatten().for_each(|var| ready[var.index()] = true);
    }
    graph.outputs.iter().try_for_each(|(path, var)| used(*var, &ready, leaf_name("result", path)))
}

/// Checks one of grove's operations by its shape rule, and by tracing its composition unless an axis is long.
fn of_grove(
    equation: &Equation,
    call: &Call,
    inputs: &[Option<&Spec>],
    outputs: &[Option<&Spec>],
    types: Types,
) -> Result<(), String> {
    let shape = |spec: &Option<&Spec>| spec.map(|spec| spec.shape.clone());
    match call {
        Call::Run(operation, _) => {
            if let Operation::Chunk(chunk) = operation
                && chunk.count != outputs.len()
            {
                return Err(format!("it has {} parts, but {} outputs", chunk.count, outputs.len()));
            }
            let found = catch(|| operation.shapes(&inputs.iter().map(shape).collect()))?;
            if found.len() > outputs.len() {
                return Err(format!("it has {} outputs instead of {}", outputs.len(), found.len()));
            }
            for (i, (found, given)) in found.iter().zip(outputs).enumerate() {
                if let Some(given) = given.filter(|given| given.shape != *found) {
                    return Err(format!("output {i} must have shape {:?}, but is {}", &found[..], rules::typed(given)));
                }
            }
        }
        Call::Vjp(operation, residuals, wanted) => {
            if *residuals > inputs.len() {
                return Err(format!("it has {residuals} residuals, but {} inputs", inputs.len()));
            }
            let grads = inputs.len() - residuals;
            if let Operation::Chunk(chunk) = operation
                && chunk.count != grads
            {
                return Err(format!("it has {} parts, but {grads} gradients", chunk.count));
            }
            for (i, given) in outputs.iter().enumerate() {
                let Some(given) = given else { continue };
                match wanted.get(i) {
                    Some(spec) if spec.shape == given.shape => spec_fits(spec)?,
                    _ => {
                        return Err(format!(
                            "output {i} is {}, which is not the type of a gradient of input {i}",
                            rules::typed(given)
                        ));
                    }
                }
            }
        }
    }
    let large = inputs.iter().chain(outputs).flatten().any(|spec| spec.shape.iter().any(|size| *size > AXIS));
    if large {
        return Ok(());
    }
    let found = catch(|| try_out(equation, inputs, types))?;
    if found.len() != outputs.len() {
        return Err(format!("it has {} outputs instead of {}", outputs.len(), found.len()));
    }
    for (i, (found, given)) in found.iter().zip(outputs).enumerate() {
        match (found, given) {
            (Some(found), Some(given)) if found != *given => {
                return Err(format!("output {i} is {} instead of {}", rules::typed(given), rules::typed(found)));
            }
            (None, Some(given)) => {
                return Err(format!("output {i} is {}, but the operation returns nothing for it", rules::typed(given)));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Returns the type of a key's array.
fn key_spec() -> Spec {
    Spec { shape: [2].into(), dtype: DType::U32 }
}

/// Traces one equation to obtain the types of its outputs.
fn try_out(equation: &Equation, inputs: &[Option<&Spec>], types: Types) -> Vec<Option<Spec>> {
    let recording = Recording::start(types);
    let device = TraceDevice::default();
    let tensor = |spec: &Option<&Spec>| spec.map(|spec| recording.input("", spec.clone()));
    let key = key_spec();
    let key = matches!(equation.primitive, Primitive::WithKey(_)).then_some(Some(&key));
    let inputs = key.iter().chain(inputs).map(tensor).collect();
    let outputs = apply::<Traced>(&equation.primitive, inputs, equation.outputs.len(), &Target::new(&device));
    outputs.into_iter().map(|x| x.map(|x| Spec { shape: x.shape(), dtype: x.dtype() })).collect()
}
