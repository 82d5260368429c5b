//! Planning of operations that move elements.

use burn::tensor::Slice;
use grove_backend::{
    Backend,
    ops::{Spec, loops::Instruction},
};

use super::planner::{Belongs, Id, Planner};
use crate::Primitive;

impl<B: Backend> Planner<'_, '_, B> {
    /// Plans a movement of elements; `None` for other operations.
    pub(super) fn movement(&mut self, primitive: &Primitive, inputs: &[Id], spec: &Spec) -> Option<Id> {
        match (primitive, inputs) {
            (Primitive::Reshape(_), [x]) => self.reshaped(*x, spec.clone()),
            (
                Primitive::SwapAxes(..)
                | Primitive::Transpose(_)
                | Primitive::Flip(_)
                | Primitive::BroadcastTo(_)
                | Primitive::Unfold(..)
                | Primitive::Slice(_)
                | Primitive::Repeat(..),
                [x],
            ) => self.moved(primitive, *x, spec),
            (Primitive::Concatenate(axis), parts) => self.concatenated(*axis, parts, spec),
            (Primitive::UpdateSlice(ranges), [x, part]) if ranges.iter().all(|range| range.step > 0) => {
                self.updated(ranges, *x, *part, spec)
            }
            _ => None,
        }
    }

    fn moved(&mut self, primitive: &Primitive, x: Id, spec: &Spec) -> Option<Id> {
        self.place(x)?;
        self.fits(spec)?;
        let shape = self.spec(x).shape.clone();
        let positions = self.positions(primitive, &shape);
        match run_of(&positions) {
            Some(range) => self.part(x, range, spec.clone()),
            None => self.gathered(x, positions, spec.clone()),
        }
    }

    /// Gathers the elements at some positions.
    pub(super) fn gathered(&mut self, x: Id, positions: Vec<u32>, spec: Spec) -> Option<Id> {
        self.emit([x], spec, Belongs::Outermost, |[x], y| Instruction::Gather(positions.into(), x, y))
    }

    fn concatenated(&mut self, axis: usize, parts: &[Id], spec: &Spec) -> Option<Id> {
        let places = self.places(parts)?;
        self.fits(spec)?;
        let y = self.new_place(spec)?;
        let block = self.block_for(parts, Belongs::Outermost);
        let mut start = 0;
        for (part, x) in parts.iter().zip(places) {
            let size = self.spec(*part).shape[axis];
            let mut ranges = vec![Slice::full(); spec.shape.num_dims()];
            ranges[axis] = (start..start + size).into();
            start += size;
            let positions = self.positions(&Primitive::Slice(ranges), &spec.shape);
            self.blocks[block].push(match run_of(&positions) {
                Some(range) => Instruction::Copy(x, y.part(range)),
                None => Instruction::Scatter(positions.into(), x, y),
            });
        }
        Some(self.value(spec.clone(), y, block))
    }

    fn updated(&mut self, ranges: &[Slice], x: Id, part: Id, spec: &Spec) -> Option<Id> {
        let (from, new) = (self.place(x)?, self.place(part)?);
        let shape = self.spec(x).shape.clone();
        let positions = self.positions(&Primitive::Slice(ranges.to_vec()), &shape);
        // If the part has another size, the call on tensors reports the error.
        (positions.len() == new.len).then_some(())?;
        let y = self.new_place(spec)?;
        let block = self.block_for(&[x, part], Belongs::Outermost);
        self.blocks[block].push(Instruction::Copy(from, y));
        self.blocks[block].push(match run_of(&positions) {
            Some(range) => Instruction::Copy(new, y.part(range)),
            None => Instruction::Scatter(positions.into(), new, y),
        });
        Some(self.value(spec.clone(), y, block))
    }

    /// Returns `None` if an array is large.
    fn fits(&self, spec: &Spec) -> Option<()> {
        (spec.shape.num_elements() <= super::MAX_ELEMENTS).then_some(())
    }
}

/// Returns the range of positions, if they are consecutive.
fn run_of(positions: &[u32]) -> Option<std::ops::Range<usize>> {
    let Some(first) = positions.first() else { return Some(0..0) };
    let consecutive = positions.windows(2).all(|pair| pair[1] == pair[0] + 1);
    consecutive.then(|| *first as usize..*first as usize + positions.len())
}
