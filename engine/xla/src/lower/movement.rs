//! Operations that move elements.

use burn::tensor::Slice;

use super::{
    builder::Builder,
    value::{List, Value, attribute},
};
use crate::{ArrayType, ElementType};

impl Builder {
    /// Extracts windows along an axis; their elements become the last axis.
    pub(super) fn unfold(&mut self, x: &Value, axis: usize, size: usize, step: usize) -> Value {
        let windows = x.dims()[axis].checked_sub(size).map_or(0, |rest| rest / step + 1);
        if windows == 0 {
            let mut dims = x.dims().to_vec();
            dims[axis] = 0;
            dims.push(size);
            return self.full(x.with_dims(dims), 0_i64);
        }
        // The elements at one position of every window.
        let places: Vec<Value> = (0..size)
            .map(|place| {
                let mut ranges: Vec<[usize; 3]> = x.dims().iter().map(|dim| [0, *dim, 1]).collect();
                ranges[axis] = [place, place + (windows - 1) * step + 1, step];
                let part = self.slice(x, &ranges);
                let dims = [part.dims(), &[1]].concat();
                self.reshape(&part, &dims)
            })
            .collect();
        self.concatenate(&places, x.rank())
    }

    /// Slices each axis; a negative step takes the elements of the range in reverse.
    pub(super) fn part(&mut self, x: &Value, ranges: &[Slice]) -> Value {
        if x.dims().iter().zip(ranges).any(|(dim, range)| range.output_size(*dim) == 0) {
            let sizes = x.dims().iter().enumerate();
            let dims = sizes.map(|(i, dim)| ranges.get(i).map_or(*dim, |range| range.output_size(*dim)));
            return self.full(x.with_dims(dims.collect::<Vec<_>>()), 0_i64);
        }
        let (mut x, mut taken, mut reversed) = (x.clone(), Vec::new(), Vec::new());
        for (axis, dim) in x.dims().to_vec().into_iter().enumerate() {
            let Some(slice) = ranges.get(axis) else {
                taken.push([0, dim, 1]);
                continue;
            };
            let (range, step) = (slice.to_range(dim), slice.step.unsigned_abs());
            if slice.is_reversed() {
                reversed.push(axis);
                taken.push([dim - range.end, dim - range.start, step]);
            } else {
                taken.push([range.start, range.end, step]);
            }
        }
        if !reversed.is_empty() {
            x = self.reverse(&x, &reversed);
        }
        self.slice(&x, &taken)
    }

    /// Replaces a slice of an array.
    pub(super) fn with_part(&mut self, x: &Value, part: &Value, ranges: &[Slice]) -> Value {
        if part.dims().contains(&0) {
            return x.clone();
        }
        let (mut low, mut high, mut interior, mut reversed) = (vec![], vec![], vec![], vec![]);
        for (axis, dim) in x.dims().iter().copied().enumerate() {
            let slice = ranges.get(axis).copied().unwrap_or_else(Slice::full);
            let (range, step) = (slice.to_range(dim), slice.step.unsigned_abs());
            let reach = (part.dims()[axis] - 1) * step + 1;
            let start = if slice.is_reversed() { range.end - reach } else { range.start };
            if slice.is_reversed() {
                reversed.push(axis);
            }
            low.push(start as i64);
            high.push((dim - start - reach) as i64);
            interior.push(step as i64 - 1);
        }
        let part = if reversed.is_empty() { part.clone() } else { self.reverse(part, &reversed) };
        if interior.iter().all(|gap| *gap == 0) {
            let starts: Vec<usize> = low.iter().map(|start| *start as usize).collect();
            return self.with_block(x, &part, &starts, 0);
        }
        // The part, with gaps between its elements, and a mask of its positions.
        let zero = self.scalar(x.element(), 0_i64);
        let (inside, outside) =
            (self.full(ArrayType::new(ElementType::Bool, part.dims()), true), self.scalar(ElementType::Bool, false));
        let spread = self.pad(&part, &zero, [&low, &high, &interior]);
        let mask = self.pad(&inside, &outside, [&low, &high, &interior]);
        self.select(&mask, &spread, x)
    }

    /// Replaces the block of an array that begins at `starts`, by concatenation along `axis` and the axes after it. XLA's
    /// compiler for processors updates a slice in place even if a fused operation reads the elements that it overwrites.
    fn with_block(&mut self, x: &Value, block: &Value, starts: &[usize], axis: usize) -> Value {
        let Some(axis) = (axis..x.rank()).find(|axis| block.dims()[*axis] < x.dims()[*axis]) else {
            return block.clone();
        };
        let (dim, start) = (x.dims()[axis], starts[axis]);
        let end = start + block.dims()[axis];
        let replaced = self.slice_axis(x, axis, [start, end]);
        let mut parts = vec![self.with_block(&replaced, block, starts, axis + 1)];
        if start > 0 {
            parts.insert(0, self.slice_axis(x, axis, [0, start]));
        }
        if end < dim {
            parts.push(self.slice_axis(x, axis, [end, dim]));
        }
        self.concatenate(&parts, axis)
    }

    /// Takes slices at positions of an axis. The axes of `positions` replace this axis.
    pub(super) fn take(&mut self, x: &Value, positions: &Value, axis: usize) -> Value {
        let (rank, count) = (x.rank(), positions.rank());
        let dims = [&x.dims()[..axis], positions.dims(), &x.dims()[axis + 1..]].concat();
        let offsets: Vec<usize> = (0..axis).chain(axis + count..rank + count - 1).collect();
        let mut sizes = x.dims().to_vec();
        sizes[axis] = 1;
        let numbers = format!(
            "#stablehlo.gather<offset_dims = [{}], collapsed_slice_dims = [{axis}], start_index_map = [{axis}], index_vector_dim = {count}>",
            List(&offsets)
        );
        self.gathered(x, positions, &numbers, &sizes, &dims)
    }

    /// Adds slices to an array at positions of an axis.
    pub(super) fn take_add(&mut self, x: &Value, positions: &Value, part: &Value, axis: usize) -> Value {
        let count = positions.rank();
        let windows: Vec<usize> = (0..axis).chain(axis + count..x.rank() + count - 1).collect();
        let numbers = format!(
            "#stablehlo.scatter<update_window_dims = [{}], inserted_window_dims = [{axis}], \
             scatter_dims_to_operand_dims = [{axis}], index_vector_dim = {count}>",
            List(&windows)
        );
        self.scattered(x, positions, part, &numbers)
    }

    /// Gathers elements at positions along an axis.
    pub(super) fn gather(&mut self, x: &Value, positions: &Value, axis: usize) -> Value {
        let x = self.common(x, positions, axis);
        let others: Vec<usize> = (0..x.rank()).filter(|other| *other != axis).collect();
        let list = List(&others);
        let numbers = format!(
            "#stablehlo.gather<collapsed_slice_dims = [{axis}], operand_batching_dims = [{list}], \
             start_indices_batching_dims = [{list}], start_index_map = [{axis}], index_vector_dim = {}>",
            x.rank()
        );
        self.gathered(&x, positions, &numbers, &vec![1; x.rank()], positions.dims())
    }

    /// Adds elements to an array at positions along an axis.
    pub(super) fn scatter_add(&mut self, x: &Value, positions: &Value, part: &Value, axis: usize) -> Value {
        let common = self.common(x, positions, axis);
        let others: Vec<usize> = (0..x.rank()).filter(|other| *other != axis).collect();
        let list = List(&others);
        let numbers = format!(
            "#stablehlo.scatter<inserted_window_dims = [{axis}], input_batching_dims = [{list}], \
             scatter_indices_batching_dims = [{list}], scatter_dims_to_operand_dims = [{axis}], index_vector_dim = {}>",
            x.rank()
        );
        let sums = self.scattered(&common, positions, part, &numbers);
        if sums.dims() == x.dims() {
            return sums;
        }
        let zero = self.scalar(ElementType::I32, 0_i64);
        self.dynamic_update_slice(x, &sums, &vec![zero; x.rank()])
    }

    /// Slices the axes other than `axis` to the sizes of `positions`, from the first element on.
    fn common(&mut self, x: &Value, positions: &Value, axis: usize) -> Value {
        if (0..x.rank()).all(|other| other == axis || x.dims()[other] == positions.dims()[other]) {
            return x.clone();
        }
        let sizes = x.dims().iter().zip(positions.dims()).enumerate();
        let ranges: Vec<[usize; 3]> =
            sizes.map(|(i, (dim, other))| [0, if i == axis { *dim } else { *other }, 1]).collect();
        self.slice(x, &ranges)
    }

    fn gathered(&mut self, x: &Value, positions: &Value, numbers: &str, sizes: &[usize], dims: &[usize]) -> Value {
        let sizes = attribute(sizes);
        let attributes = format!("dimension_numbers = {numbers}, indices_are_sorted = false, slice_sizes = {sizes}");
        let text = format!("\"stablehlo.gather\"({x}, {positions}) <{{{attributes}}}>");
        self.emit_typed(text, [x, positions], x.with_dims(dims))
    }

    /// A scatter that combines booleans by "or", and other elements by addition.
    fn scattered(&mut self, x: &Value, positions: &Value, part: &Value, numbers: &str) -> Value {
        let attributes =
            format!("scatter_dimension_numbers = {numbers}, indices_are_sorted = false, unique_indices = false");
        let reducer = if x.element() == ElementType::Bool { "or" } else { "add" };
        self.with_reducer("stablehlo.scatter", &[x, positions, part], &attributes, reducer, x.array.clone())
    }

    /// Repeats an array along an axis.
    pub(super) fn repeat(&mut self, x: &Value, axis: usize, times: usize) -> Value {
        let mut with = x.dims().to_vec();
        with.insert(axis, times);
        let axes: Vec<usize> = (0..with.len()).filter(|other| *other != axis).collect();
        let mut dims = x.dims().to_vec();
        dims[axis] *= times;
        let copies = self.broadcast(x, &with, &axes);
        self.reshape(&copies, &dims)
    }

    /// The product of matrices `[.., m, k]` and `[.., k, n]`, whose other axes are broadcast against each other, computed in an
    /// element type.
    pub(super) fn matmul(&mut self, a: &Value, b: &Value, element: ElementType) -> Value {
        let (a, b) = (self.convert(a, element), self.convert(b, element));
        let rank = a.rank();
        // One matrix for the whole batch: its axes of size 1 are not axes of the product.
        if b.dims()[..rank - 2].iter().all(|dim| *dim == 1) {
            let matrix = self.reshape(&b, &b.dims()[rank - 2..]);
            return self.dot_general(&a, &matrix, [&[], &[]], [&[rank - 1], &[0]]);
        }
        let batch = |x: &Value, y: &Value| -> Vec<usize> {
            let dims = x.dims()[..rank - 2].iter().zip(y.dims());
            dims.map(|(x, y)| if *x == 1 { *y } else { *x }).chain(x.dims()[rank - 2..].iter().copied()).collect()
        };
        let (dims_a, dims_b) = (batch(&a, &b), batch(&b, &a));
        let (a, b) = (self.broadcast_to(&a, &dims_a), self.broadcast_to(&b, &dims_b));
        let axes: Vec<usize> = (0..rank - 2).collect();
        self.dot_general(&a, &b, [&axes, &axes], [&[rank - 1], &[rank - 2]])
    }
}
