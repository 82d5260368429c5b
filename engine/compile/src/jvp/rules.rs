//! Forward-mode rules: operations on primals and tangents.

use burn::tensor::Slice;
use burn_ir::ScalarIr;
use grove_backend::{
    AnyTensor, Backend,
    ops::{Call, Operation},
};

use crate::{
    Primitive, control,
    eval::{Program, apply, apply_one},
    primitive::{Binary, Reduction, Unary},
    target::{Target, missing},
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
    let rules = JvpRules { target: &target };
    let constants = program.constants(&target).into_iter().map(Dual::constant);
    program.walk(arguments, constants, |equation, inputs| {
        let inputs = inputs.into_iter().flatten().collect();
        match &equation.primitive {
            Primitive::HigherOrder(op) => control::duals(op, inputs, apart, device),
            primitive => rules.apply(primitive, inputs, equation.outputs.len()),
        }
    })
}

/// Operations on the values of a device, from which the rules are composed.
pub(crate) struct JvpRules<'a, B: Backend> {
    pub(super) target: &'a Target<'a, B>,
}

/// A tangent; `None` for zero.
pub(crate) type Tangent<B> = Option<AnyTensor<B>>;

impl<B: Backend> JvpRules<'_, B> {
    pub(crate) fn one(&self, primitive: Primitive, inputs: impl IntoIterator<Item = AnyTensor<B>>) -> AnyTensor<B> {
        apply_one(&primitive, inputs, self.target)
    }

    pub(crate) fn unary(&self, op: Unary, x: AnyTensor<B>) -> AnyTensor<B> {
        self.one(Primitive::Unary(op), [x])
    }

    pub(crate) fn binary(&self, op: Binary, a: AnyTensor<B>, b: AnyTensor<B>) -> AnyTensor<B> {
        self.one(Primitive::Binary(op), [a, b])
    }

    pub(crate) fn add(&self, a: AnyTensor<B>, b: AnyTensor<B>) -> AnyTensor<B> {
        self.binary(Binary::Add, a, b)
    }

    pub(crate) fn sub(&self, a: AnyTensor<B>, b: AnyTensor<B>) -> AnyTensor<B> {
        self.binary(Binary::Sub, a, b)
    }

    pub(crate) fn mul(&self, a: AnyTensor<B>, b: AnyTensor<B>) -> AnyTensor<B> {
        self.binary(Binary::Mul, a, b)
    }

    pub(crate) fn div(&self, a: AnyTensor<B>, b: AnyTensor<B>) -> AnyTensor<B> {
        self.binary(Binary::Div, a, b)
    }

    pub(crate) fn scalar(&self, op: Binary, x: AnyTensor<B>, number: f64) -> AnyTensor<B> {
        self.one(Primitive::BinaryScalar(op, ScalarIr::Float(number)), [x])
    }

    pub(crate) fn square(&self, x: AnyTensor<B>) -> AnyTensor<B> {
        self.mul(x.clone(), x)
    }

    pub(crate) fn sqrt(&self, x: AnyTensor<B>) -> AnyTensor<B> {
        self.unary(Unary::Sqrt, x)
    }

    pub(crate) fn negative(&self, x: AnyTensor<B>) -> AnyTensor<B> {
        self.scalar(Binary::Mul, x, -1.0)
    }

    /// `x + 1`.
    pub(crate) fn plus_one(&self, x: AnyTensor<B>) -> AnyTensor<B> {
        self.scalar(Binary::Add, x, 1.0)
    }

    /// `1 - x`.
    pub(crate) fn one_minus(&self, x: AnyTensor<B>) -> AnyTensor<B> {
        self.plus_one(self.negative(x))
    }

    /// Adds two tangents, either of which may be zero.
    pub(crate) fn sum(&self, a: Tangent<B>, b: Tangent<B>) -> Tangent<B> {
        match (a, b) {
            (Some(a), Some(b)) => Some(self.add(a, b)),
            (a, b) => a.or(b),
        }
    }

    pub(super) fn reduce(&self, op: Reduction, x: AnyTensor<B>, axis: Option<usize>) -> AnyTensor<B> {
        self.one(Primitive::Reduce(op, axis), [x])
    }

    pub(super) fn slice(&self, x: &AnyTensor<B>, axis: usize, range: std::ops::Range<usize>) -> AnyTensor<B> {
        let mut ranges = vec![Slice::full(); x.shape().num_dims()];
        ranges[axis] = Slice::from(range);
        self.one(Primitive::Slice(ranges), [x.clone()])
    }

    /// Broadcasts a tangent to the shape of its primal, from which it may differ in broadcast axes.
    pub(crate) fn fitted(&self, tangent: AnyTensor<B>, primal: &AnyTensor<B>) -> AnyTensor<B> {
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
            Primitive::Unary(op) => op.tangent(self, x[0].clone(), t.remove(0)?, y.clone()),
            Primitive::Binary(op) => {
                let tb = t.pop()?;
                op.tangent(self, [&x[0], &x[1]], [t.pop()?, tb], y)
            }
            Primitive::BinaryScalar(op, number) => op.scalar_tangent(self, *number, &x[0], t.remove(0)?),
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
}
