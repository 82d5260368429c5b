//! Strided views of stored tensors, and the one place where they become values in memory.

use std::borrow::Cow;
use std::ops::Range;

use burn::tensor::{Bytes, DType, TensorData};

use crate::convert::convert;
use crate::entry::{Entry, burn_dtype, element_count, element_size, row_major};
use crate::error::{Result, WeightsError};
use crate::mapped::MappedFile;

/// Bytes converted between two calls to [`MappedFile::release`].
const CHUNK: usize = 4 << 20;
/// Elements gathered at a time where neighbours of the view are not neighbours in the file.
const GATHER: usize = 1 << 16;
/// Side of the blocks in which a matrix is transposed: 16 values of four bytes are a cache line.
const BLOCK: usize = 16;
/// Runs of fewer bytes than this are gathered.
const SHORT_RUN: usize = 256;

/// A tensor as it lies in a file, seen through transposes, slices and reshapes that move nothing.
#[derive(Clone, Debug)]
pub(crate) struct View<'a> {
    name: &'a str,
    bytes: Storage<'a>,
    dtype: DType,
    shape: Vec<usize>,
    /// Distance between neighbours along each axis, in elements.
    strides: Vec<usize>,
    /// Position of the first element, in bytes.
    offset: usize,
}

#[derive(Clone, Debug)]
enum Storage<'a> {
    Mapped(&'a MappedFile),
    Memory(Cow<'a, Bytes>),
}

impl Storage<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Mapped(file) => file.bytes(),
            Self::Memory(bytes) => bytes,
        }
    }
}

impl<'a> View<'a> {
    /// The tensor `name` at `entry`.
    ///
    /// # Errors
    /// If its stored type has no counterpart among Burn's, or the entry reaches beyond the file.
    pub(crate) fn of_file(name: &'a str, file: &'a MappedFile, entry: &Entry) -> Result<Self> {
        let dtype = burn_dtype(entry.dtype).ok_or_else(|| WeightsError::Conversion {
            tensor: name.into(),
            from: entry.dtype.to_string(),
            to: "values".into(),
            reason: "this type is not supported".into(),
        })?;
        if !reaches_inside(entry, element_size(entry.dtype, name)?, file.bytes().len()) {
            return Err(WeightsError::MalformedTensor {
                file: file.path().into(),
                tensor: name.into(),
                reason: "its elements lie outside the file".into(),
            });
        }
        let Entry { shape, strides, offset, .. } = entry.clone();
        Ok(Self { name, bytes: Storage::Mapped(file), dtype, shape, strides, offset })
    }

    /// Values in memory, row-major.
    pub(crate) fn of_data(name: &'a str, data: &'a TensorData) -> Self {
        let shape = data.shape.to_vec();
        let strides = row_major(&shape);
        Self { name, bytes: Storage::Memory(Cow::Borrowed(&data.bytes)), dtype: data.dtype, shape, strides, offset: 0 }
    }

    pub(crate) fn name(&self) -> &'a str {
        self.name
    }

    pub(crate) fn dtype(&self) -> DType {
        self.dtype
    }

    pub(crate) fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn misfit(&self, step: &str, reason: String) -> WeightsError {
        WeightsError::Transform { tensor: self.name.into(), step: step.into(), reason }
    }

    /// Axes in another order: axis `i` of the result is axis `axes[i]` of this.
    pub(crate) fn permute(mut self, axes: &[usize]) -> Result<Self> {
        let mut sorted = axes.to_vec();
        sorted.sort_unstable();
        if !sorted.into_iter().eq(0..self.shape.len()) {
            return Err(self.misfit("permutation", format!("{axes:?} is no order of the axes of {:?}", self.shape)));
        }
        self.shape = axes.iter().map(|&axis| self.shape[axis]).collect();
        self.strides = axes.iter().map(|&axis| self.strides[axis]).collect();
        Ok(self)
    }

    /// The part `range` along `axis`.
    pub(crate) fn slice(mut self, axis: usize, range: Range<usize>) -> Result<Self> {
        if self.shape.get(axis).is_none_or(|&size| range.end > size || range.start > range.end) {
            return Err(self.misfit("split", format!("no part {range:?} along axis {axis} of {:?}", self.shape)));
        }
        self.offset += range.start * self.strides[axis] * self.dtype.size();
        self.shape[axis] = range.len();
        Ok(self)
    }

    /// The same elements in row-major order under another shape.
    pub(crate) fn reshape(mut self, shape: &[usize]) -> Result<Self> {
        if element_count(shape) != element_count(&self.shape) {
            return Err(
                self.misfit("reshape", format!("{:?} has another number of elements than {shape:?}", self.shape))
            );
        }
        if self.strides != row_major(&self.shape) {
            let data = materialise(std::slice::from_ref(&self), 0, self.dtype)?;
            self.bytes = Storage::Memory(Cow::Owned(data.bytes));
            self.offset = 0;
        }
        self.shape = shape.to_vec();
        self.strides = row_major(shape);
        Ok(self)
    }

    /// Element number along the leading axes to byte position.
    fn position(&self, mut index: usize, axes: usize) -> usize {
        let mut elements = 0;
        for axis in (0..axes).rev() {
            elements += index % self.shape[axis] * self.strides[axis];
            index /= self.shape[axis];
        }
        self.offset + elements * self.dtype.size()
    }

    /// How many of the last axes lie contiguously in memory.
    fn contiguous_axes(&self) -> usize {
        let expected = row_major(&self.shape);
        let fits = |&axis: &usize| self.shape[axis] == 1 || self.strides[axis] == expected[axis];
        (0..self.shape.len()).rev().take_while(fits).count()
    }

    /// Writes the elements `rows` (counted along the first `lead` axes, each with all that is below it) in
    /// row-major order into `target`.
    fn write(&self, lead: usize, rows: Range<usize>, target: &mut [u8], to: DType) -> std::result::Result<(), String> {
        let rank = self.shape.len();
        let head = (rank - self.contiguous_axes()).max(lead);
        let run: usize = self.shape[head..].iter().product();
        let inner: usize = self.shape[lead..head].iter().product();
        let runs = rows.start * inner..rows.end * inner;
        if run * self.dtype.size() < SHORT_RUN && runs.len() > 1 {
            return self.write_gathered(head, runs, run, target, to);
        }
        for (index, target) in runs.zip(target.chunks_mut((run * to.size()).max(1))) {
            self.write_run(self.position(index, head), target, to)?;
        }
        Ok(())
    }

    /// Lets go of everything that the view reaches.
    fn release(&self) {
        if let Storage::Mapped(file) = self.bytes {
            let last: usize =
                self.shape.iter().zip(&self.strides).map(|(size, stride)| size.saturating_sub(1) * stride).sum();
            file.release(self.offset..self.offset + (last + 1) * self.dtype.size());
        }
    }

    /// Writes one contiguous run from byte `start`, releasing what has been read.
    fn write_run(&self, start: usize, target: &mut [u8], to: DType) -> std::result::Result<(), String> {
        let per_chunk = CHUNK / self.dtype.size();
        let mut start = start;
        for target in target.chunks_mut(per_chunk * to.size()) {
            let end = start + target.len() / to.size() * self.dtype.size();
            convert(&self.bytes.bytes()[start..end], self.dtype, target, to)?;
            if let Storage::Mapped(file) = self.bytes {
                file.release(start..end);
            }
            start = end;
        }
        Ok(())
    }

    /// Writes short runs: collects them in a buffer, and converts the buffer.
    fn write_gathered(
        &self,
        head: usize,
        runs: Range<usize>,
        run: usize,
        target: &mut [u8],
        to: DType,
    ) -> std::result::Result<(), String> {
        let size = self.dtype.size();
        let bytes = self.bytes.bytes();
        let row = self.shape[head - 1];
        // Whole rows of the last axis that is not contiguous, so that they can be transposed in tiles.
        let rows_at_once = (GATHER / (row * run).max(1)).next_multiple_of(BLOCK).max(BLOCK);
        let first = runs.start;
        debug_assert!(first.is_multiple_of(row) && runs.end.is_multiple_of(row));
        let mut buffer = vec![0; (rows_at_once * row * run * size).min(runs.len() * run * size)];
        for (step, target) in target.chunks_mut(buffer.len() / size * to.size()).enumerate() {
            let count = target.len() / to.size();
            let buffer = &mut buffer[..count * size];
            let row_start = first / row + step * rows_at_once;
            let starts: Vec<usize> = (0..count / (row * run)).map(|i| self.position(row_start + i, head - 1)).collect();
            match (run, size) {
                (1, 1) => gather_elements::<1>(bytes, &starts, self.strides[head - 1], row, buffer),
                (1, 2) => gather_elements::<2>(bytes, &starts, self.strides[head - 1], row, buffer),
                (1, 4) => gather_elements::<4>(bytes, &starts, self.strides[head - 1], row, buffer),
                (1, 8) => gather_elements::<8>(bytes, &starts, self.strides[head - 1], row, buffer),
                _ => {
                    let positions = starts
                        .iter()
                        .flat_map(|start| (0..row).map(move |i| start + i * self.strides[head - 1] * size));
                    for (position, buffer) in positions.zip(buffer.chunks_mut(run * size)) {
                        buffer.copy_from_slice(&bytes[position..position + run * size]);
                    }
                }
            }
            convert(buffer, self.dtype, target, to)?;
        }
        Ok(())
    }
}

/// Gathers rows of `row` elements that lie `stride` elements apart, in square blocks: in a transposed matrix the
/// rows' elements are neighbours, and each cache line, read or written, is fetched once.
fn gather_elements<const N: usize>(bytes: &[u8], starts: &[usize], stride: usize, row: usize, buffer: &mut [u8]) {
    let (buffer, _) = buffer.as_chunks_mut::<N>();
    for (starts, rows) in starts.chunks(BLOCK).zip(buffer.chunks_mut(BLOCK * row)) {
        for block in (0..row).step_by(BLOCK) {
            for (start, row) in starts.iter().zip(rows.chunks_mut(row)) {
                let last = row.len().min(block + BLOCK);
                for (column, value) in row[block..last].iter_mut().enumerate() {
                    let position = start + (block + column) * stride * N;
                    value.copy_from_slice(&bytes[position..position + N]);
                }
            }
        }
    }
}

/// Whether every element that the entry's shape and strides reach lies below `len` bytes.
pub(crate) fn reaches_inside(entry: &Entry, size: usize, len: usize) -> bool {
    let last = || -> Option<usize> {
        let mut last = 0usize;
        for (&count, &stride) in entry.shape.iter().zip(&entry.strides) {
            last = last.checked_add(count.checked_sub(1)?.checked_mul(stride)?)?;
        }
        last.checked_add(1)?.checked_mul(size)?.checked_add(entry.offset)
    };
    let empty = entry.shape.contains(&0);
    entry.shape.len() == entry.strides.len()
        && element_count(&entry.shape).is_some()
        && (empty && entry.offset <= len || last().is_some_and(|last| last <= len))
}

/// Reads views into memory, one after another along `axis`, as values of type `to`. This is the only copy that
/// is made of a tensor.
///
/// # Errors
/// If shapes do not go together, or a value cannot become a `to`.
pub(crate) fn materialise(views: &[View<'_>], axis: usize, to: DType) -> Result<TensorData> {
    let Some(first) = views.first() else {
        return Ok(TensorData::from_bytes_vec(Vec::new(), [0], to));
    };
    let mut shape = first.shape.clone();
    if views.len() > 1 {
        let fits = |view: &View<'_>| {
            view.shape.len() == shape.len() && (0..shape.len()).all(|i| i == axis || view.shape[i] == shape[i])
        };
        if axis >= shape.len() || !views.iter().all(fits) {
            let shapes: Vec<_> = views.iter().map(|view| &view.shape).collect();
            return Err(first.misfit("merge", format!("shapes {shapes:?} do not join along axis {axis}")));
        }
        shape[axis] = views.iter().map(|view| view.shape[axis]).sum();
    }
    let count = element_count(&shape).ok_or_else(|| first.misfit("merge", "too many elements".into()))?;
    let mut bytes =
        zeroed(count, to).ok_or_else(|| first.misfit("placement", format!("no memory for {count} elements")))?;
    if count == 0 {
        return Ok(TensorData::from_bytes(bytes, shape, to));
    }
    let lead = if views.len() > 1 { axis } else { 0 };
    let rows: usize = shape[..lead].iter().product();
    let row_bytes = bytes.len() / rows.max(1);
    let mut start = 0;
    for view in views {
        let size = view.shape[lead..].iter().product::<usize>() * to.size();
        let failed = |reason| WeightsError::Conversion {
            tensor: view.name.into(),
            from: view.dtype.name().into(),
            to: to.name().into(),
            reason,
        };
        if size == row_bytes {
            view.write(0, 0..1, &mut bytes, to).map_err(failed)?;
        } else if size > 0 {
            for row in 0..rows {
                let start = row * row_bytes + start;
                view.write(lead, row..row + 1, &mut bytes[start..start + size], to).map_err(failed)?;
            }
        }
        view.release();
        start += size;
    }
    Ok(TensorData::from_bytes(bytes, shape, to))
}

/// Zeroed room for `count` values, aligned as a vector of them is, so that backends take it without a copy.
fn zeroed(count: usize, dtype: DType) -> Option<Bytes> {
    fn room<T: Clone + Default + bytemuck::NoUninit + Send + Sync>(count: usize) -> Option<Bytes> {
        // Asked first because `vec!` aborts where there is no memory. It gets zeroed pages from the system and
        // does not touch them.
        Vec::<T>::new().try_reserve_exact(count).ok()?;
        Some(Bytes::from_elems(vec![T::default(); count]))
    }
    match dtype.size() {
        1 => room::<u8>(count),
        2 => room::<u16>(count),
        4 => room::<u32>(count),
        8 => room::<u64>(count),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counting(shape: [usize; 3]) -> TensorData {
        TensorData::new((0..shape.iter().product::<usize>() as i32).collect::<Vec<_>>(), shape)
    }

    /// The element at each index of a view, by definition.
    fn by_definition(shape: &[usize], element: impl Fn(&[usize]) -> i32) -> TensorData {
        let count = shape.iter().product::<usize>();
        let index = |mut number: usize| {
            let mut index = vec![0; shape.len()];
            for axis in (0..shape.len()).rev() {
                index[axis] = number % shape[axis];
                number /= shape[axis];
            }
            index
        };
        TensorData::new((0..count).map(|number| element(&index(number))).collect::<Vec<_>>(), shape.to_vec())
    }

    fn read(views: &[View<'_>], axis: usize) -> TensorData {
        materialise(views, axis, DType::I32).expect("read")
    }

    #[test]
    fn permutations_slices_and_both() {
        // Long enough for several buffers, and of sizes that divide nothing.
        let shape = [7, 131, 173];
        let data = counting(shape);
        let at = |i: usize, j: usize, k: usize| ((i * shape[1] + j) * shape[2] + k) as i32;
        let view = || View::of_data("t", &data);
        assert_eq!(read(&[view()], 0), data);
        let turned = view().permute(&[2, 0, 1]).expect("fits");
        assert_eq!(read(&[turned], 0), by_definition(&[173, 7, 131], |x| at(x[1], x[2], x[0])));
        let inner = view().permute(&[1, 0, 2]).expect("fits");
        assert_eq!(read(&[inner], 0), by_definition(&[131, 7, 173], |x| at(x[1], x[0], x[2])));
        let part = view().slice(2, 3..20).and_then(|view| view.slice(1, 100..131)).expect("fits");
        assert_eq!(read(&[part], 0), by_definition(&[7, 31, 17], |x| at(x[0], x[1] + 100, x[2] + 3)));
        let both = view().slice(1, 5..6).and_then(|view| view.permute(&[2, 1, 0])).expect("fits");
        assert_eq!(read(&[both], 0), by_definition(&[173, 1, 7], |x| at(x[2], 5, x[0])));
    }

    #[test]
    fn merges_along_every_axis() {
        let (a, b) = (counting([3, 4, 5]), counting([3, 2, 5]));
        let at = |shape: [usize; 3], x: &[usize]| ((x[0] * shape[1] + x[1]) * shape[2] + x[2]) as i32;
        let joined = by_definition(&[3, 6, 5], |x| match x[1] {
            0..4 => at([3, 4, 5], x),
            _ => at([3, 2, 5], &[x[0], x[1] - 4, x[2]]),
        });
        let views = [View::of_data("a", &a), View::of_data("b", &b)];
        assert_eq!(read(&views, 1), joined);
        assert!(materialise(&views, 0, DType::I32).is_err() && materialise(&views, 3, DType::I32).is_err());
        // The same along the last axis, of transposed pieces.
        let views = views.map(|view| view.permute(&[2, 0, 1]).expect("fits"));
        assert_eq!(
            read(&views, 2),
            by_definition(&[5, 3, 6], |x| joined.as_slice::<i32>().expect("i32")[(x[1] * 6 + x[2]) * 5 + x[0]])
        );
    }

    #[test]
    fn empty_tensors_are_read() {
        for shape in [[0, 2, 3], [2, 0, 3], [2, 3, 0]] {
            let data = counting(shape);
            assert_eq!(read(&[View::of_data("e", &data)], 0), data);
            let turned = View::of_data("e", &data).permute(&[2, 1, 0]).expect("fits");
            assert_eq!(read(&[turned.clone(), turned], 1).num_elements(), 0);
        }
    }

    #[test]
    fn reaching_outside_is_noticed() {
        let entry = |shape: &[usize], strides: &[usize], offset| Entry {
            dtype: crate::StoredDtype::F32,
            shape: shape.into(),
            strides: strides.into(),
            offset,
        };
        for (shape, strides, offset, inside) in [
            (&[2, 3][..], &[3, 1][..], 16, true),
            (&[2, 3], &[3, 1], 17, false),
            (&[2, 3], &[4, 1], 16, false),
            (&[usize::MAX, 2], &[0, 0], 0, false),
            (&[2], &[usize::MAX], 0, false),
            (&[1], &[1], usize::MAX, false),
            (&[0, 5], &[5, 1], 40, true),
            (&[0, 5], &[5, 1], 41, false),
            (&[], &[], 36, true),
            (&[2], &[], 0, false),
        ] {
            assert_eq!(reaches_inside(&entry(shape, strides, offset), 4, 40), inside, "{shape:?} {strides:?} {offset}");
        }
    }
}
