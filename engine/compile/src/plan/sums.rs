//! Planning of sums, and of selections by index.

use burn::tensor::DType;
use grove_backend::{
    Backend,
    ops::{
        Spec,
        loops::{Axis, IN_ORDER, Instruction},
    },
};

use super::planner::{Belongs, Id, Planner};
use crate::{Primitive, primitive::Reduction};

impl<B: Backend> Planner<'_, '_, B> {
    /// Plans a sum over an axis or over all elements; `None` if flex adds in another order.
    pub(super) fn sum(&mut self, primitive: &Primitive, inputs: &[Id], spec: &Spec) -> Option<Id> {
        let (Primitive::Reduce(Reduction::Sum, axis), [x]) = (primitive, inputs) else { return None };
        let shape = self.spec(*x).shape.clone();
        let axis = match axis {
            Some(axis) => Axis { size: shape[*axis], inner: shape[axis + 1..].iter().product() },
            None => Axis { size: shape.num_elements(), inner: 1 },
        };
        // Two conditions remain: flex must add in the order of the elements, and no sum may start from -0.
        let in_order = match spec.dtype {
            DType::F32 => axis.size == shape.num_elements() && axis.size <= IN_ORDER,
            DType::F64 => matches!(primitive, Primitive::Reduce(_, Some(_))),
            dtype => !dtype.is_bool(),
        };
        (in_order && self.spec(*x).dtype == spec.dtype).then_some(())?;
        self.emit([*x], spec.clone(), Belongs::Outermost, |[x], y| Instruction::Sum(axis, x, y))
    }

    /// Plans a selection of slices by indices along an axis. Indices may be out of range.
    pub(super) fn take(&mut self, axis: usize, inputs: &[Id], spec: &Spec) -> Option<Id> {
        let [x, positions] = inputs else { return None };
        (self.spec(*positions).shape.num_dims() == 1).then_some(())?;
        matches!(self.spec(*positions).dtype, DType::I32 | DType::I64).then_some(())?;
        let shape = self.spec(*x).shape.clone();
        let of_axis = Axis { size: shape[axis], inner: shape[axis + 1..].iter().product() };
        let operands = [self.place(*x)?, self.place(*positions)?];
        let y = self.new_place(spec)?;
        let otherwise = self.add_call(&Primitive::Take(axis), inputs, spec.clone(), y)?;
        let depth = self.depth();
        self.blocks[depth].push(Instruction::Take { axis: of_axis, operands, y, otherwise });
        Some(self.value(spec.clone(), y, depth))
    }
}
