//! Shape and dtype rules of Burn's operations.

use burn::tensor::{DType, Shape};
use grove_backend::ops::Spec;

use super::{
    expected::{Expected, Type, require, take, with},
    module_rules, movement_rules,
};
use crate::{
    Primitive,
    elementwise::Kind,
    primitive::{Binary, Reduction},
    words::dtype_name,
};

/// Formats dtype and shape.
pub(super) fn typed(spec: &Spec) -> String {
    format!("{}{:?}", dtype_name(spec.dtype), &spec.shape[..])
}

fn kind(spec: &Spec) -> Kind {
    Kind::of(spec.dtype)
}

/// Returns an error unless the outputs of one of Burn's operations have the types that follow from the inputs.
pub(super) fn check(primitive: &Primitive, inputs: &[Option<&Spec>], outputs: &[Option<&Spec>]) -> Result<(), String> {
    let given: Vec<&Spec> = inputs.iter().flatten().copied().collect();
    require(given.len() == inputs.len(), "an input is missing")?;
    let words = given.iter().map(|spec| typed(spec)).collect::<Vec<_>>().join(", ");
    let expected = expected(primitive, &given, outputs.len()).map_err(|rule| match words.is_empty() {
        true => rule,
        false => format!("{rule}; the inputs are {words}"),
    })?;
    let counts = format!("it has {} outputs instead of {}", outputs.len(), expected.len());
    require(outputs.len() == expected.len(), counts)?;
    for (i, ((shape, dtype), found)) in expected.into_iter().zip(outputs).enumerate() {
        let Some(found) = found else { return Err(format!("output {i} is missing")) };
        let fits = match dtype {
            Type::Exactly(dtype) => found.dtype == dtype,
            Type::Int => kind(found) == Kind::Int,
            Type::Bool => kind(found) == Kind::Bool,
            Type::Float => kind(found) == Kind::Float,
        };
        let name = match dtype {
            Type::Exactly(dtype) => dtype_name(dtype),
            Type::Int => "int".into(),
            Type::Bool => "bool".into(),
            Type::Float => "float".into(),
        };
        let reason =
            || format!("output {i} is {} instead of {name}{shape:?}, the type for the inputs {words}", typed(found));
        require(fits && found.shape[..] == shape, reason())?;
    }
    Ok(())
}

fn broadcast(shapes: &[&Shape]) -> Result<Vec<usize>, String> {
    let same = |shape: &&Shape| shape.num_dims() == shapes[0].num_dims();
    require(shapes.iter().all(same), "the inputs must have the same number of axes")?;
    (0..shapes[0].num_dims())
        .map(|axis| {
            let size = shapes.iter().map(|shape| shape[axis]).find(|size| *size != 1).unwrap_or(1);
            let fits = shapes.iter().all(|shape| [1, size].contains(&shape[axis]));
            fits.then_some(size).ok_or_else(|| format!("the sizes of axis {axis} must be equal or 1"))
        })
        .collect()
}

/// Returns the only input; an error if it is boolean.
fn numeric<'a>(inputs: &[&'a Spec]) -> Result<&'a Spec, String> {
    let [x] = take(inputs)?;
    require(kind(x) != Kind::Bool, "it is not defined for booleans")?;
    Ok(x)
}

/// Returns the type of the result of a function of an operand `a` and another operand.
fn binary(op: Binary, a: &Spec, kind_of_b: Kind) -> Result<Type, String> {
    require(op.is_defined(kind(a), kind_of_b), "it is not defined for these types")?;
    Ok(if op.is_comparison() { Type::Bool } else { Type::Exactly(a.dtype) })
}

fn expected(primitive: &Primitive, inputs: &[&Spec], outputs: usize) -> Result<Vec<Expected>, String> {
    let same = |x: &Spec| vec![(x.shape.to_vec(), Type::Exactly(x.dtype))];
    Ok(match primitive {
        Primitive::Unary(op) => {
            let [x] = take(inputs)?;
            require(op.is_defined(kind(x)), "it is not defined for this type")?;
            vec![(x.shape.to_vec(), if op.is_test() { Type::Bool } else { Type::Exactly(x.dtype) })]
        }
        Primitive::Binary(op) => {
            let [a, b] = take(inputs)?;
            require(a.dtype == b.dtype || *op == Binary::IntegerPow, "both inputs must have the same dtype")?;
            vec![(broadcast(&[&a.shape, &b.shape])?, binary(*op, a, kind(b))?)]
        }
        Primitive::BinaryScalar(op, _) => {
            let [x] = take(inputs)?;
            let number = if *op == Binary::IntegerPow { Kind::Int } else { kind(x) };
            let scalar = !(*op == Binary::Atan2 || kind(x) == Kind::Bool && *op != Binary::Eq);
            require(scalar, "it is not defined for a scalar operand")?;
            vec![(x.shape.to_vec(), binary(*op, x, number)?)]
        }
        Primitive::Reduce(_, None) => {
            let x = numeric(inputs)?;
            vec![(vec![1], Type::Exactly(x.dtype))]
        }
        Primitive::Reduce(_, Some(axis)) => {
            let x = numeric(inputs)?;
            vec![(with(&x.shape, *axis, 1)?, Type::Exactly(x.dtype))]
        }
        Primitive::Argmax(axis) | Primitive::Argmin(axis) => {
            let x = numeric(inputs)?;
            vec![(with(&x.shape, *axis, 1)?, Type::Int)]
        }
        Primitive::TopK(axis, k) | Primitive::ArgTopK(axis, k) => {
            let x = numeric(inputs)?;
            let shape = with(&x.shape, *axis, *k)?;
            require(
                x.shape[*axis] >= *k,
                format!("it cannot select {k} elements of an axis of size {}", x.shape[*axis]),
            )?;
            let positions = matches!(primitive, Primitive::ArgTopK(..));
            vec![(shape, if positions { Type::Int } else { Type::Exactly(x.dtype) })]
        }
        Primitive::MaxWithIndices(axis) | Primitive::MinWithIndices(axis) => {
            let x = numeric(inputs)?;
            let shape = with(&x.shape, *axis, 1)?;
            vec![(shape.clone(), Type::Exactly(x.dtype)), (shape, Type::Int)]
        }
        Primitive::Cumulative(op, axis) => {
            let x = numeric(inputs)?;
            require(!matches!(op, Reduction::Mean | Reduction::MaxAbs), "its reduction is not cumulative")?;
            with(&x.shape, *axis, 1)?;
            same(x)
        }
        Primitive::Clamp(..) => {
            let x = numeric(inputs)?;
            same(x)
        }
        Primitive::Where => {
            let [x, mask, y] = take(inputs)?;
            require(kind(mask) == Kind::Bool, "the mask must be boolean")?;
            require(x.dtype == y.dtype, "both arrays must have the same dtype")?;
            vec![(broadcast(&[&x.shape, &mask.shape, &y.shape])?, Type::Exactly(x.dtype))]
        }
        Primitive::MaskFill(_) => {
            let [x, mask] = take(inputs)?;
            require(kind(mask) == Kind::Bool, "the mask must be boolean")?;
            vec![(broadcast(&[&x.shape, &mask.shape])?, Type::Exactly(x.dtype))]
        }
        Primitive::Reshape(_)
        | Primitive::SwapAxes(..)
        | Primitive::Transpose(_)
        | Primitive::Flip(_)
        | Primitive::BroadcastTo(_)
        | Primitive::Unfold(..)
        | Primitive::Slice(_)
        | Primitive::UpdateSlice(_)
        | Primitive::Take(_)
        | Primitive::TakeAdd(_)
        | Primitive::Gather(_)
        | Primitive::ScatterAdd(_)
        | Primitive::Repeat(..)
        | Primitive::Concatenate(_) => {
            vec![(movement_rules::shape(primitive, inputs)?, Type::Exactly(inputs[0].dtype))]
        }
        Primitive::Convert(dtype) => {
            let [x] = take(inputs)?;
            let numeric_dtype = !matches!(dtype, DType::Bool(_) | DType::QFloat(_));
            require(numeric_dtype, "it cannot convert to booleans or quantized values")?;
            vec![(x.shape.to_vec(), Type::Exactly(*dtype))]
        }
        Primitive::DebugPrint(_) => {
            let [x] = take(inputs)?;
            same(x)
        }
        Primitive::StopGradient => {
            let [x] = take(inputs)?;
            require(kind(x) == Kind::Float, "the input must be a floating-point array")?;
            same(x)
        }
        Primitive::Full(shape, dtype, _) => {
            let [] = take(inputs)?;
            vec![(shape.clone(), Type::Exactly(*dtype))]
        }
        Primitive::MatMul => {
            let [a, b] = take(inputs)?;
            let rank = a.shape.num_dims();
            let fits = rank >= 2 && b.shape.num_dims() == rank && a.shape[rank - 1] == b.shape[rank - 2];
            let kinds = kind(a) == kind(b) && kind(a) != Kind::Bool;
            require(fits && kinds, "the inputs must be [.., m, k] and [.., k, n], of the same kind")?;
            let batch = |shape: &Shape| Shape::from(shape[..rank - 2].to_vec());
            let mut shape = match rank {
                2 => Vec::new(),
                _ => broadcast(&[&batch(&a.shape), &batch(&b.shape)])?,
            };
            shape.extend([a.shape[rank - 2], b.shape[rank - 1]]);
            let mixed = if kind(a) == Kind::Float { Type::Float } else { Type::Int };
            vec![(shape, if a.dtype == b.dtype { Type::Exactly(a.dtype) } else { mixed })]
        }
        Primitive::Module(module) => module_rules::expected(module, inputs, outputs)?,
        Primitive::Fused(_) | Primitive::Grove(_) | Primitive::WithKey(_) | Primitive::HigherOrder(_) => {
            return Err("it is not one of Burn's operations".into());
        }
    })
}
