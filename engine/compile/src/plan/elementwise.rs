//! Planning of element-wise operations.

use burn::tensor::{DType, Scalar, Shape};
use grove_backend::{
    Backend,
    ops::{
        Spec,
        loops::{Bounds, Instruction},
    },
};

use super::planner::{Belongs, Id, Number, Planner};
use crate::{
    Primitive,
    elementwise::{Kind, Looped},
    primitive::{Binary, Unary},
};

impl<B: Backend> Planner<'_, '_, B> {
    /// Plans an element-wise operation. Returns `None` if there is no instruction for it; the operation then runs on tensors,
    /// with its own panics.
    pub(super) fn elementwise(&mut self, primitive: &Primitive, inputs: &[Id], spec: &Spec) -> Option<Id> {
        match (primitive, inputs) {
            (Primitive::Unary(op), [x]) => self.unary(*op, *x, spec),
            (Primitive::Binary(op), [a, b]) => self.binary(*op, *a, *b, spec),
            (Primitive::BinaryScalar(op, number), [x]) => self.scalar(*op, *x, (*number).into(), spec),
            (Primitive::Where, [x, mask, y]) => self.select(*mask, *y, *x, spec),
            (Primitive::MaskFill(number), [x, mask]) => {
                let number = (*number).into();
                let value = match spec.dtype {
                    DType::Bool(_) => Number::Bool(Scalar::elem::<bool>(number)),
                    dtype => numeric(number, dtype)?,
                };
                let value = self.number(value);
                self.select(*mask, value, *x, spec)
            }
            (Primitive::Clamp(min, max), [x]) => {
                let (min, max): (Scalar, Scalar) = ((*min).into(), (*max).into());
                let bounds = match self.spec(*x).dtype {
                    DType::F32 => Bounds::Float((float(min) as f32).into(), (float(max) as f32).into()),
                    DType::F64 => Bounds::Float(float(min), float(max)),
                    DType::I32 | DType::I64 => Bounds::Int(integer(min)?, integer(max)?),
                    _ => return None,
                };
                self.emit([*x], spec.clone(), Belongs::Here, |[x], y| Instruction::Clamp(bounds, x, y))
            }
            (Primitive::Convert(dtype), [x]) => {
                let from = self.spec(*x).dtype;
                match *dtype {
                    to if to == from => self.reshaped(*x, spec.clone()),
                    to if to == spec.dtype && !to.is_bool() => {
                        self.emit([*x], spec.clone(), Belongs::Outermost, |[x], y| Instruction::Convert(x, y))
                    }
                    _ => None,
                }
            }
            (Primitive::StopGradient, [x]) => self.reshaped(*x, spec.clone()),
            _ => None,
        }
    }

    fn unary(&mut self, op: Unary, x: Id, spec: &Spec) -> Option<Id> {
        op.is_defined(Kind::of(self.spec(x).dtype)).then_some(())?;
        let function = match op {
            Unary::IsNan => {
                return self.emit([x], spec.clone(), Belongs::Outermost, |[x], y| Instruction::IsNan(x, y));
            }
            Unary::IsInf => {
                return self.emit([x], spec.clone(), Belongs::Outermost, |[x], y| Instruction::IsInf(x, y));
            }
            op => op.facts().looped?,
        };
        self.emit([x], spec.clone(), Belongs::Outermost, |[x], y| Instruction::Unary(function, x, y))
    }

    fn binary(&mut self, op: Binary, a: Id, b: Id, spec: &Spec) -> Option<Id> {
        let (of_a, of_b) = (self.spec(a).dtype, self.spec(b).dtype);
        let b = match op {
            // The exponents are integers.
            Binary::IntegerPow if of_a.is_float() => {
                let exponents = Spec { shape: self.spec(b).shape.clone(), dtype: of_a };
                self.emit([b], exponents, Belongs::Outermost, |[x], y| Instruction::Convert(x, y))?
            }
            _ if of_a == of_b => b,
            _ => return None,
        };
        let (a, b) = (self.operand(a, &spec.shape)?, self.operand(b, &spec.shape)?);
        self.pair(op, of_a, a, b, spec)
    }

    /// Plans an operation on two arrays of the same dtype. Each has the shape of the result or a single element.
    pub(super) fn pair(&mut self, op: Binary, dtype: DType, a: Id, b: Id, spec: &Spec) -> Option<Id> {
        let kind = Kind::of(dtype);
        // The exponents of floating-point bases have been converted.
        let kind_of_b = if op == Binary::IntegerPow { Kind::Int } else { kind };
        op.is_defined(kind, kind_of_b).then_some(())?;
        let looped = op.facts().looped;
        self.emit([a, b], spec.clone(), Belongs::Outermost, |operands, y| match looped {
            Looped::Values(function) => Instruction::Binary(function, operands, y),
            Looped::Comparison(comparison) => Instruction::Compare(comparison, operands, y),
        })
    }

    fn scalar(&mut self, op: Binary, x: Id, number: Scalar, spec: &Spec) -> Option<Id> {
        let dtype = self.spec(x).dtype;
        if dtype.is_bool() {
            let number = self.number(Number::Bool(number.elem::<bool>()));
            return self.pair(op, dtype, x, number, spec).filter(|_| op == Binary::Eq);
        }
        match op {
            Binary::Pow | Binary::IntegerPow => {
                let exponent = match (op, number) {
                    (Binary::Pow, Scalar::Float(exponent)) if exponent.is_infinite() => return None,
                    (Binary::Pow, number) => match number.try_as_integer() {
                        Some(exponent) => Some(integer(exponent)?),
                        None => None,
                    },
                    (_, number) => Some(integer(number)?),
                };
                self.power(dtype, x, exponent, number, spec)
            }
            _ => {
                let number = numeric(number, dtype)?;
                let number = self.number(number);
                self.pair(op, dtype, x, number, spec)
            }
        }
    }

    /// Plans a power. For small exponents Burn multiplies instead, and so does the plan.
    fn power(&mut self, dtype: DType, x: Id, integer: Option<i64>, number: Scalar, spec: &Spec) -> Option<Id> {
        let one = numeric(Scalar::Int(1), dtype)?;
        let product = |planner: &mut Self| planner.pair(Binary::Mul, dtype, x, x, spec);
        let recip = |planner: &mut Self, x| planner.unary(Unary::Recip, x, spec);
        match (integer, dtype.is_float()) {
            (Some(0), _) => {
                let one = self.number(one);
                self.operand_of_shape(one, &spec.shape)
            }
            (Some(1), _) => self.reshaped(x, spec.clone()),
            (Some(2), _) => product(self),
            (_, false) => None,
            (Some(-1), true) => recip(self, x),
            (Some(-2), true) => {
                let product = product(self)?;
                recip(self, product)
            }
            (_, true) => {
                let number = numeric(number, dtype)?;
                let number = self.number(number);
                self.pair(Binary::Pow, dtype, x, number, spec)
            }
        }
    }

    fn select(&mut self, mask: Id, yes: Id, no: Id, spec: &Spec) -> Option<Id> {
        let same = |planner: &Self, id| planner.spec(id).dtype == spec.dtype;
        (self.spec(mask).dtype.is_bool() && same(self, yes) && same(self, no)).then_some(())?;
        let mask = self.operand(mask, &spec.shape)?;
        let (yes, no) = (self.operand(yes, &spec.shape)?, self.operand(no, &spec.shape)?);
        self.emit([mask, yes, no], spec.clone(), Belongs::Outermost, |[mask, yes, no], y| {
            Instruction::Select(mask, [yes, no], y)
        })
    }

    /// Prepares an operand for a result of this shape: a single element, or as many elements as the result.
    pub(super) fn operand(&mut self, id: Id, shape: &Shape) -> Option<Id> {
        match self.spec(id).shape.num_elements() {
            1 => Some(id),
            _ => self.operand_of_shape(id, shape),
        }
    }

    /// Broadcasts an operand to the number of elements of the result.
    pub(super) fn operand_of_shape(&mut self, id: Id, shape: &Shape) -> Option<Id> {
        let spec = self.spec(id);
        // If the number of elements is equal, broadcasting only adds axes of size 1.
        if spec.shape.num_elements() == shape.num_elements() {
            return Some(id);
        }
        let spec = Spec { shape: shape.clone(), dtype: spec.dtype };
        self.movement(&Primitive::BroadcastTo(shape.to_vec()), &[id], &spec)
    }
}

/// Converts a number to a dtype as Burn does; `None` for unsupported dtypes and values.
fn numeric(number: Scalar, dtype: DType) -> Option<Number> {
    Some(match dtype {
        DType::F32 => Number::F32(float(number) as f32),
        DType::F64 => Number::F64(float(number)),
        DType::I32 => Number::I32(integer(number)? as i32),
        DType::I64 => Number::I64(integer(number)?),
        _ => return None,
    })
}

fn float(number: Scalar) -> f64 {
    match number {
        Scalar::Float(x) => x,
        Scalar::Int(x) => x as f64,
        Scalar::UInt(x) => x as f64,
        Scalar::Bool(x) => u8::from(x).into(),
    }
}

/// Truncates to an integer; `None` outside the range of `i64`.
fn integer(number: Scalar) -> Option<i64> {
    match number {
        Scalar::Float(x) => (-(2f64.powi(63))..2f64.powi(63)).contains(&x).then_some(x as i64),
        Scalar::Int(x) => Some(x),
        Scalar::UInt(x) => x.try_into().ok(),
        Scalar::Bool(x) => Some(x.into()),
    }
}
