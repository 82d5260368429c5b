//! Tangents of reductions, cumulative functions and top-k.

use burn::tensor::TensorData;
use burn_ir::ScalarIr;
use grove_backend::{AnyTensor, Backend};

use super::rules::JvpRules;
use crate::{
    Primitive,
    control::associative,
    primitive::{Binary, Reduction},
    target::missing,
    vmap::move_axis,
};

impl<B: Backend> JvpRules<'_, B> {
    pub(super) fn reduce_tangent(
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

    pub(super) fn cumulative_tangent(
        &self,
        op: Reduction,
        axis: usize,
        x: &AnyTensor<B>,
        t: AnyTensor<B>,
    ) -> AnyTensor<B> {
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
    pub(super) fn top_tangent(&self, axis: usize, k: usize, mut x: AnyTensor<B>, t: AnyTensor<B>) -> AnyTensor<B> {
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
