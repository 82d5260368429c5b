//! Forward-mode rules: operations on primals and tangents.

use burn::tensor::{Slice, TensorData};
use burn_ir::ScalarIr;
use grove_backend::{
    AnyTensor, Backend,
    ops::{Call, Operation},
};

use crate::{
    Primitive,
    control::{self, associative},
    eval::{Program, apply, apply_one},
    primitive::{Binary, Reduction, Unary},
    target::{Target, missing},
    vmap::move_axis,
};

/// A primal and its tangent; a tangent of `None` is zero.
#[derive(Clone, Debug)]
pub(crate) struct Dual<B: Backend> {
    pub primal: AnyTensor<B>,
    pub tangent: Option<AnyTensor<B>>,
}

impl<B: Backend> Dual<B> {
    /// Creates a value without a tangent.
    pub fn constant(primal: AnyTensor<B>) -> Self {
        Self { primal, tangent: None }
    }

    /// Returns the tangent, filled with zeros if it is `None`; `None` for values that are not floating-point.
    pub fn into_tangent(self) -> Option<AnyTensor<B>> {
        match (self.primal, self.tangent) {
            (_, Some(tangent)) => Some(tangent),
            (primal @ AnyTensor::Float(_), None) => Some(primal.zeros_like()),
            _ => None,
        }
    }
}

/// Runs a decomposed program on primals and tangents.
pub(crate) fn run<B: Backend>(program: &Program, arguments: Vec<Dual<B>>, device: &B::Device) -> Vec<Dual<B>> {
    walk(program, arguments, false, device)
}

/// Like [`run`], but no operation computes primals and tangents together, so that the resulting graph can be split.
pub(super) fn run_apart<B: Backend>(program: &Program, arguments: Vec<Dual<B>>, device: &B::Device) -> Vec<Dual<B>> {
    walk(program, arguments, true, device)
}

fn walk<B: Backend>(program: &Program, arguments: Vec<Dual<B>>, apart: bool, device: &B::Device) -> Vec<Dual<B>> {
    let target = Target::<B>::new(device);
    let rules = Rules { target: &target };
    let constants = program.constants(&target).into_iter().map(Dual::constant);
    program.walk(arguments, constants, |equation, inputs| {
        let inputs = inputs.into_iter().flatten().collect();
        match &equation.primitive {
            Primitive::HigherOrder(op) => control::duals(op, inputs, apart, device),
            primitive => rules.apply(primitive, inputs, equation.outputs.len()),
        }
    })
}

pub(super) struct Rules<'a, B: Backend> {
    pub(super) target: &'a Target<'a, B>,
}

pub(super) type Tangent<B> = Option<AnyTensor<B>>;

impl<B: Backend> Rules<'_, B> {
    pub(super) fn one(&self, primitive: Primitive, inputs: impl IntoIterator<Item = AnyTensor<B>>) -> AnyTensor<B> {
        apply_one(&primitive, inputs, self.target)
    }

    fn unary(&self, op: Unary, x: AnyTensor<B>) -> AnyTensor<B> {
        self.one(Primitive::Unary(op), [x])
    }

    fn binary(&self, op: Binary, a: AnyTensor<B>, b: AnyTensor<B>) -> AnyTensor<B> {
        self.one(Primitive::Binary(op), [a, b])
    }

    fn add(&self, a: AnyTensor<B>, b: AnyTensor<B>) -> AnyTensor<B> {
        self.binary(Binary::Add, a, b)
    }

    fn sub(&self, a: AnyTensor<B>, b: AnyTensor<B>) -> AnyTensor<B> {
        self.binary(Binary::Sub, a, b)
    }

    fn mul(&self, a: AnyTensor<B>, b: AnyTensor<B>) -> AnyTensor<B> {
        self.binary(Binary::Mul, a, b)
    }

    fn div(&self, a: AnyTensor<B>, b: AnyTensor<B>) -> AnyTensor<B> {
        self.binary(Binary::Div, a, b)
    }

    fn scalar(&self, op: Binary, x: AnyTensor<B>, number: f64) -> AnyTensor<B> {
        self.one(Primitive::BinaryScalar(op, ScalarIr::Float(number)), [x])
    }

    fn square(&self, x: AnyTensor<B>) -> AnyTensor<B> {
        self.mul(x.clone(), x)
    }

    /// `1 - x`.
    fn one_minus(&self, x: AnyTensor<B>) -> AnyTensor<B> {
        self.scalar(Binary::Add, self.scalar(Binary::Mul, x, -1.0), 1.0)
    }

    /// Adds two tangents, either of which may be zero.
    pub(super) fn sum(&self, a: Tangent<B>, b: Tangent<B>) -> Tangent<B> {
        match (a, b) {
            (Some(a), Some(b)) => Some(self.add(a, b)),
            (a, b) => a.or(b),
        }
    }

    fn reduce(&self, op: Reduction, x: AnyTensor<B>, axis: Option<usize>) -> AnyTensor<B> {
        self.one(Primitive::Reduce(op, axis), [x])
    }

    fn slice(&self, x: &AnyTensor<B>, axis: usize, range: std::ops::Range<usize>) -> AnyTensor<B> {
        let mut ranges = vec![Slice::full(); x.shape().num_dims()];
        ranges[axis] = Slice::from(range);
        self.one(Primitive::Slice(ranges), [x.clone()])
    }

    /// Broadcasts a tangent to the shape of its primal, from which it may differ in broadcast axes.
    fn fitted(&self, tangent: AnyTensor<B>, primal: &AnyTensor<B>) -> AnyTensor<B> {
        let shape = primal.shape();
        if tangent.shape() == shape {
            return tangent;
        }
        self.one(Primitive::BroadcastTo(shape.to_vec()), [tangent])
    }

    fn apply(&self, primitive: &Primitive, inputs: Vec<Dual<B>>, outputs: usize) -> Vec<Option<Dual<B>>> {
        let (primals, tangents): (Vec<_>, Vec<_>) = inputs.into_iter().map(|x| (x.primal, x.tangent)).unzip();
        let given = primals.iter().cloned().map(Some).collect();
        let results = apply(primitive, given, outputs, self.target);
        if tangents.iter().all(Option::is_none) {
            return results.into_iter().map(|y| y.map(Dual::constant)).collect();
        }
        if let Primitive::Grove(Call::Run(Operation::AllReduce(_), _)) = primitive {
            // An all-reduce is linear in all inputs together. Every rank sums the same tangents.
            let tangents = primals.iter().zip(tangents).map(|(x, t)| Some(self.or_zero(t, x))).collect();
            let tangents = apply(primitive, tangents, outputs, self.target);
            let dual = |(primal, tangent): (Option<AnyTensor<B>>, _)| Some(Dual { primal: primal?, tangent });
            return results.into_iter().zip(tangents).map(dual).collect();
        }
        let first = results.first().cloned().flatten().unwrap_or_else(|| missing());
        let tangent = match first {
            AnyTensor::Float(_) => {
                self.tangent(primitive, &primals, tangents, &first, results.get(1).cloned().flatten())
            }
            _ => None,
        };
        let mut tangent = tangent.map(|tangent| self.fitted(tangent, &first));
        // Further outputs are indices, which have no derivatives.
        results.into_iter().map(|y| y.map(|primal| Dual { primal, tangent: tangent.take() })).collect()
    }

    /// Returns the tangent of the first output, `y`. At least one input has a tangent. `positions` is the second output.
    fn tangent(
        &self,
        primitive: &Primitive,
        x: &[AnyTensor<B>],
        mut t: Vec<Tangent<B>>,
        y: &AnyTensor<B>,
        positions: Option<AnyTensor<B>>,
    ) -> Tangent<B> {
        match primitive {
            Primitive::Unary(op) => self.unary_tangent(*op, x[0].clone(), t.remove(0)?, y.clone()),
            Primitive::Binary(op) => {
                let tb = t.pop()?;
                self.binary_tangent(*op, [&x[0], &x[1]], [t.pop()?, tb], y)
            }
            Primitive::BinaryScalar(op, number) => self.scalar_tangent(*op, *number, &x[0], t.remove(0)?),
            Primitive::Reduce(op, axis) => Some(self.reduce_tangent(*op, *axis, &x[0], t.remove(0)?, y)),
            Primitive::Cumulative(op, axis) => Some(self.cumulative_tangent(*op, *axis, &x[0], t.remove(0)?)),
            Primitive::TopK(axis, k) => Some(self.top_tangent(*axis, *k, x[0].clone(), t.remove(0)?)),
            Primitive::MaxWithIndices(axis) | Primitive::MinWithIndices(axis) => {
                Some(self.one(Primitive::Gather(*axis), [t.remove(0)?, positions?]))
            }
            Primitive::Clamp(min, max) => {
                let above = self.one(Primitive::BinaryScalar(Binary::Ge, *min), [x[0].clone()]);
                let below = self.one(Primitive::BinaryScalar(Binary::Le, *max), [x[0].clone()]);
                let outside = self.unary(Unary::Not, self.binary(Binary::And, above, below));
                Some(self.one(Primitive::MaskFill(ScalarIr::Float(0.0)), [t.remove(0)?, outside]))
            }
            Primitive::MaskFill(_) => {
                Some(self.one(Primitive::MaskFill(ScalarIr::Float(0.0)), [t.remove(0)?, x[1].clone()]))
            }
            // The inputs are the array, the mask, and the array for true.
            Primitive::Where => {
                let [a, _, b] = <[Tangent<B>; 3]>::try_from(t).ok()?;
                let (a, b) = (self.or_zero(a, &x[0]), self.or_zero(b, &x[2]));
                Some(self.one(Primitive::Where, [a, x[1].clone(), b]))
            }
            // These operations are linear in their floating-point arrays.
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
            | Primitive::Concatenate(_)
            | Primitive::Convert(_)
            | Primitive::Grove(Call::Run(Operation::Dropout(_), _) | Call::Vjp(Operation::Dropout(_), ..))
            | Primitive::WithKey(Call::Run(Operation::Dropout(_), _) | Call::Vjp(Operation::Dropout(_), ..)) => {
                Some(self.linear(primitive, x, t, |_| true))
            }
            Primitive::DebugPrint(_) => t.remove(0),
            Primitive::MatMul => self.bilinear(primitive, x, &t, [0, 1]),
            Primitive::Module(module) => self.module_tangent(module, primitive, x, t),
            Primitive::Argmax(_)
            | Primitive::Argmin(_)
            | Primitive::ArgTopK(..)
            | Primitive::Full(..)
            | Primitive::StopGradient => None,
            Primitive::Grove(_) | Primitive::WithKey(_) | Primitive::Fused(_) | Primitive::HigherOrder(_) => {
                unreachable!("`{}` is not in a graph that is transformed", primitive.name())
            }
        }
    }

    fn or_zero(&self, tangent: Tangent<B>, primal: &AnyTensor<B>) -> AnyTensor<B> {
        tangent.unwrap_or_else(|| primal.zeros_like())
    }

    /// Returns the tangent of an operation that is jointly linear in the arrays at some positions.
    pub(super) fn linear(
        &self,
        primitive: &Primitive,
        x: &[AnyTensor<B>],
        t: Vec<Tangent<B>>,
        is_linear: impl Fn(usize) -> bool,
    ) -> AnyTensor<B> {
        let input = |(i, (x, t)): (usize, (&AnyTensor<B>, Tangent<B>))| match x {
            AnyTensor::Float(_) if is_linear(i) => self.or_zero(t, x),
            _ => x.clone(),
        };
        let inputs: Vec<_> = x.iter().zip(t).enumerate().map(input).collect();
        self.one(primitive.clone(), inputs)
    }

    /// Returns the tangent of an operation that is linear in each of two arrays.
    pub(super) fn bilinear(
        &self,
        primitive: &Primitive,
        x: &[AnyTensor<B>],
        t: &[Tangent<B>],
        positions: [usize; 2],
    ) -> Tangent<B> {
        let term = |position: usize| {
            let mut inputs = x.to_vec();
            inputs[position] = t[position].clone()?;
            Some(self.one(primitive.clone(), inputs))
        };
        self.sum(term(positions[0]), term(positions[1]))
    }

    fn unary_tangent(&self, op: Unary, x: AnyTensor<B>, t: AnyTensor<B>, y: AnyTensor<B>) -> Tangent<B> {
        let sqrt = |x| self.unary(Unary::Sqrt, x);
        let plus_one = |x| self.scalar(Binary::Add, x, 1.0);
        Some(match op {
            Unary::Abs => self.mul(t, x.sign()),
            Unary::Exp => self.mul(t, y),
            Unary::Log => self.div(t, x),
            Unary::Log1p => self.div(t, plus_one(x)),
            Unary::Sqrt => self.div(t, self.scalar(Binary::Mul, y, 2.0)),
            Unary::Recip => self.scalar(Binary::Mul, self.mul(t, self.square(y)), -1.0),
            Unary::Erf => {
                let slope = self.unary(Unary::Exp, self.scalar(Binary::Mul, self.square(x), -1.0));
                self.scalar(Binary::Mul, self.mul(t, slope), std::f64::consts::FRAC_2_SQRT_PI)
            }
            Unary::Sin => self.mul(t, self.unary(Unary::Cos, x)),
            Unary::Cos => self.scalar(Binary::Mul, self.mul(t, self.unary(Unary::Sin, x)), -1.0),
            Unary::Tan => self.mul(t, plus_one(self.square(y))),
            Unary::Sinh => self.mul(t, self.unary(Unary::Cosh, x)),
            Unary::Cosh => self.mul(t, self.unary(Unary::Sinh, x)),
            Unary::Tanh => self.mul(t, self.one_minus(self.square(y))),
            Unary::Asin => self.div(t, sqrt(self.one_minus(self.square(x)))),
            Unary::Acos => self.scalar(Binary::Mul, self.div(t, sqrt(self.one_minus(self.square(x)))), -1.0),
            Unary::Atan => self.div(t, plus_one(self.square(x))),
            Unary::Asinh => self.div(t, sqrt(plus_one(self.square(x)))),
            Unary::Acosh => self.div(t, sqrt(self.scalar(Binary::Sub, self.square(x), 1.0))),
            Unary::Atanh => self.div(t, self.one_minus(self.square(x))),
            Unary::Sigmoid => self.mul(t, self.mul(y.clone(), self.one_minus(y))),
            // Step functions, and operations whose results are not floating-point.
            Unary::Round | Unary::Floor | Unary::Ceil | Unary::Trunc | Unary::IsNan | Unary::IsInf | Unary::Not => {
                return None;
            }
        })
    }

    fn binary_tangent(
        &self,
        op: Binary,
        [a, b]: [&AnyTensor<B>; 2],
        [ta, tb]: [Tangent<B>; 2],
        y: &AnyTensor<B>,
    ) -> Tangent<B> {
        let negative = |x| self.scalar(Binary::Mul, x, -1.0);
        let times = |t: Tangent<B>, factor: &dyn Fn() -> AnyTensor<B>| t.map(|t| self.mul(t, factor()));
        match op {
            Binary::Add => {
                // One tangent may be smaller than the sum; the caller broadcasts it.
                self.sum(ta, tb)
            }
            Binary::Sub => match (ta, tb) {
                (Some(ta), Some(tb)) => Some(self.sub(ta, tb)),
                (ta, tb) => ta.or(tb.map(negative)),
            },
            Binary::Mul => self.sum(times(ta, &|| b.clone()), times(tb, &|| a.clone())),
            Binary::Div => {
                let of_a = ta.map(|ta| self.div(ta, b.clone()));
                let of_b = tb.map(|tb| negative(self.div(self.mul(tb, y.clone()), b.clone())));
                self.sum(of_a, of_b)
            }
            Binary::Rem => {
                let quotient = || negative(self.unary(Unary::Floor, self.div(a.clone(), b.clone())));
                self.sum(ta, times(tb, &quotient))
            }
            Binary::Pow => {
                let is_zero =
                    |x: &AnyTensor<B>| self.one(Primitive::BinaryScalar(Binary::Eq, ScalarIr::Float(0.0)), [x.clone()]);
                let fill = |x, mask, value| self.one(Primitive::MaskFill(ScalarIr::Float(value)), [x, mask]);
                let fitted = |x: &AnyTensor<B>| self.fitted(x.clone(), y);
                // If base and exponent are 0, the derivative is 0, as for the constant 1, instead of 0 times infinity.
                let of_base = || {
                    let constant = self.binary(Binary::And, is_zero(&fitted(a)), is_zero(&fitted(b)));
                    let lower = fill(fitted(&self.scalar(Binary::Sub, b.clone(), 1.0)), constant, 0.0);
                    self.mul(b.clone(), self.binary(Binary::Pow, a.clone(), lower))
                };
                // If the base is 0, the power does not depend on the exponent, and the logarithm is not finite.
                let of_exponent = || self.mul(y.clone(), self.unary(Unary::Log, fill(a.clone(), is_zero(a), 1.0)));
                self.sum(times(ta, &of_base), times(tb, &of_exponent))
            }
            Binary::IntegerPow => times(ta, &|| {
                let lower = self.one(Primitive::BinaryScalar(Binary::Sub, ScalarIr::Int(1)), [b.clone()]);
                let factor = self.one(Primitive::Convert(a.dtype()), [b.clone()]);
                self.mul(factor, self.binary(Binary::IntegerPow, a.clone(), lower))
            }),
            Binary::Atan2 => {
                let norm = self.add(self.square(a.clone()), self.square(b.clone()));
                let of_a = times(ta, &|| b.clone());
                let of_b = times(tb, &|| negative(a.clone()));
                self.sum(of_a, of_b).map(|t| self.div(t, norm))
            }
            Binary::And
            | Binary::Or
            | Binary::Xor
            | Binary::ShiftLeft
            | Binary::ShiftRight
            | Binary::Eq
            | Binary::Gt
            | Binary::Ge
            | Binary::Lt
            | Binary::Le => None,
        }
    }

    fn scalar_tangent(&self, op: Binary, number: ScalarIr, x: &AnyTensor<B>, t: AnyTensor<B>) -> Tangent<B> {
        match op {
            Binary::Add | Binary::Sub | Binary::Rem => Some(t),
            Binary::Mul | Binary::Div => Some(self.one(Primitive::BinaryScalar(op, number), [t])),
            Binary::Pow | Binary::IntegerPow => {
                let exponent = burn::tensor::Scalar::from(number).elem::<f64>();
                if exponent == 0.0 {
                    return None;
                }
                let lower = match op {
                    Binary::Pow => ScalarIr::Float(exponent - 1.0),
                    _ => ScalarIr::Int(exponent as i64 - 1),
                };
                let power = self.one(Primitive::BinaryScalar(op, lower), [x.clone()]);
                Some(self.mul(t, self.scalar(Binary::Mul, power, exponent)))
            }
            _ => None,
        }
    }

    fn reduce_tangent(
        &self,
        op: Reduction,
        axis: Option<usize>,
        x: &AnyTensor<B>,
        t: AnyTensor<B>,
        y: &AnyTensor<B>,
    ) -> AnyTensor<B> {
        match op {
            Reduction::Sum | Reduction::Mean => self.reduce(op, t, axis),
            Reduction::Prod => {
                let (x, t, axis) = match axis {
                    Some(axis) => (x.clone(), t, axis),
                    None => (flat(x.clone()), flat(t), 0),
                };
                // The product of all other elements, correct even if one is 0: the product before times the product after each
                // element.
                let before = self.exclusive_product(x.clone(), axis);
                let flip = |x| self.one(Primitive::Flip(vec![axis]), [x]);
                let after = flip(self.exclusive_product(flip(x), axis));
                self.reduce(Reduction::Sum, self.mul(t, self.mul(before, after)), Some(axis))
            }
            // The mean of the tangents of all extremal elements, as in JAX.
            Reduction::Max | Reduction::Min | Reduction::MaxAbs => {
                let (x, t) = match op {
                    Reduction::MaxAbs => (x.clone().abs(), self.mul(t, x.clone().sign())),
                    _ => (x.clone(), t),
                };
                let y = match axis {
                    Some(_) => y.clone(),
                    None => y.clone().reshape(vec![1; x.shape().num_dims()]),
                };
                let dtype = t.dtype();
                let places =
                    self.one(Primitive::Convert(dtype), [self.binary(Binary::Eq, x.clone(), self.fitted(y, &x))]);
                let count = self.reduce(Reduction::Sum, places.clone(), axis);
                self.div(self.reduce(Reduction::Sum, self.mul(t, places), axis), count)
            }
        }
    }

    /// Returns the product of all elements before each element along an axis.
    fn exclusive_product(&self, x: AnyTensor<B>, axis: usize) -> AnyTensor<B> {
        let size = x.shape()[axis];
        if size == 0 {
            return x;
        }
        let first = self.scalar(Binary::Add, self.slice(&x, axis, 0..1).zeros_like(), 1.0);
        let rest = self.slice(&x, axis, 0..size - 1);
        let shifted = if size > 1 { self.one(Primitive::Concatenate(axis), [first, rest]) } else { first };
        self.one(Primitive::Cumulative(Reduction::Prod, axis), [shifted])
    }

    fn cumulative_tangent(&self, op: Reduction, axis: usize, x: &AnyTensor<B>, t: AnyTensor<B>) -> AnyTensor<B> {
        if op == Reduction::Sum {
            return self.one(Primitive::Cumulative(op, axis), [t]);
        }
        // A parallel scan along the first axis, in log n steps.
        let along = |x: AnyTensor<B>| move_axis(x, axis, 0);
        let combine = |before: Vec<AnyTensor<B>>, own: Vec<AnyTensor<B>>| {
            let pair = |x: Vec<AnyTensor<B>>| <[_; 2]>::try_from(x).unwrap_or_else(|_| missing());
            self.combined(op, pair(before), pair(own)).to_vec()
        };
        let tangent = associative(&combine, vec![along(x.clone()), along(t)]).pop().unwrap_or_else(|| missing());
        move_axis(tangent, 0, axis)
    }

    /// Computes the product, maximum or minimum of two values, and its tangent.
    fn combined(
        &self,
        op: Reduction,
        [before, of_before]: [AnyTensor<B>; 2],
        [own, of_own]: [AnyTensor<B>; 2],
    ) -> [AnyTensor<B>; 2] {
        if op == Reduction::Prod {
            let tangent = self.add(self.mul(of_before, own.clone()), self.mul(before.clone(), of_own));
            return [self.mul(before, own), tangent];
        }
        // On ties the last element wins, as in reverse mode.
        let compare = if op == Reduction::Max { Binary::Ge } else { Binary::Le };
        let taken = self.binary(compare, own.clone(), before.clone());
        let select = |old, new| self.one(Primitive::Where, [old, taken.clone(), new]);
        [select(before, own), select(of_before, of_own)]
    }

    /// Selects the tangents of the `k` largest elements along an axis one by one, because not every backend returns their
    /// indices.
    fn top_tangent(&self, axis: usize, k: usize, mut x: AnyTensor<B>, t: AnyTensor<B>) -> AnyTensor<B> {
        let shape = x.shape();
        let mut along = vec![1; shape.num_dims()];
        along[axis] = shape[axis];
        let places = TensorData::new((0..shape[axis] as i64).collect(), along);
        let mut tangents = Vec::with_capacity(k);
        // 1 for the remaining elements, 0 for those already selected.
        let mut left = self.scalar(Binary::Add, x.zeros_like(), 1.0);
        for _ in 0..k {
            // If all remaining elements are -inf, argmax could return an element that was already selected.
            let first_left = self.one(Primitive::Argmax(axis), [left.clone()]);
            let largest = self.one(Primitive::Argmax(axis), [x.clone()]);
            let value = self.one(Primitive::Gather(axis), [x.clone(), largest.clone()]);
            let lowest = self.one(Primitive::BinaryScalar(Binary::Eq, ScalarIr::Float(f64::NEG_INFINITY)), [value]);
            let largest = self.one(Primitive::Where, [largest, lowest, first_left]);
            tangents.push(self.one(Primitive::Gather(axis), [t.clone(), largest.clone()]));
            let places = places.clone().convert_dtype(largest.dtype());
            let taken = self.binary(Binary::Eq, AnyTensor::from_data(places, self.target.device), largest);
            let taken = self.one(Primitive::BroadcastTo(shape.to_vec()), [taken]);
            left = self.one(Primitive::MaskFill(ScalarIr::Float(0.0)), [left, taken.clone()]);
            x = self.one(Primitive::MaskFill(ScalarIr::Float(f64::NEG_INFINITY)), [x, taken]);
        }
        self.one(Primitive::Concatenate(axis), tangents)
    }
}

/// Flattens a value.
fn flat<B: Backend>(x: AnyTensor<B>) -> AnyTensor<B> {
    let count = x.shape().num_elements();
    x.reshape([count])
}
