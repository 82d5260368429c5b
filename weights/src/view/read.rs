//! Reads views into memory. No other module reads the values of stored tensors.

use std::borrow::Cow;
use std::ops::Range;

use burn::tensor::{Bytes, DType, TensorData};

use super::{Storage, View};
use crate::convert::convert;
use crate::entry::{element_count, joined, row_major};
use crate::error::{Result, WeightsError};

/// Bytes converted between two calls to [`MappedFile::release`].
const CHUNK: usize = 4 << 20;
/// Elements gathered at a time if neighbours in the view are not neighbours in the file.
const GATHER: usize = 1 << 16;
/// Bytes of a cache line, and of a side of the square tiles in which a matrix is transposed.
const LINE: usize = 64;
/// Runs of fewer bytes are gathered.
const SHORT_RUN: usize = 256;

impl View<'_> {
    /// Converts an element's index along the first `axes` axes to its byte position.
    fn position(&self, mut index: usize, axes: usize) -> usize {
        let mut elements = 0;
        for axis in (0..axes).rev() {
            elements += index % self.shape[axis] * self.strides[axis];
            index /= self.shape[axis];
        }
        self.offset + elements * self.dtype.size()
    }

    /// Returns the number of trailing axes that are contiguous in memory.
    fn contiguous_axes(&self) -> usize {
        let expected = row_major(&self.shape);
        let fits = |&axis: &usize| self.shape[axis] == 1 || self.strides[axis] == expected[axis];
        (0..self.shape.len()).rev().take_while(fits).count()
    }

    /// Returns the first axis of a contiguous run, and the number of its elements, if the pieces share `lead` leading
    /// axes.
    fn runs(&self, lead: usize) -> (usize, usize) {
        let head = (self.shape.len() - self.contiguous_axes()).max(lead);
        (head, self.shape[head..].iter().product())
    }

    /// Returns a view of decoded values in memory if the blocks would otherwise be decoded repeatedly, for runs shorter
    /// than a block; otherwise the view itself.
    fn decoded(&self, lead: usize) -> std::result::Result<Cow<'_, Self>, String> {
        let Storage::Blocks(blocks) = &self.bytes else { return Ok(Cow::Borrowed(self)) };
        let (head, run) = self.runs(lead);
        let is_long = run >= blocks.kind().values_per_block() && run * self.dtype.size() >= SHORT_RUN;
        if is_long || self.shape[..head].iter().product::<usize>() <= 1 {
            return Ok(Cow::Borrowed(self));
        }
        let mut values = zeroed(blocks.count(), self.dtype)
            .ok_or_else(|| format!("no memory for {} decoded values", blocks.count()))?;
        blocks.write(0, &mut values, self.dtype)?;
        Ok(Cow::Owned(Self { bytes: Storage::Memory(Cow::Owned(values)), ..self.clone() }))
    }

    /// Writes the elements of `rows` in row-major order into `target`. Rows are counted along the first `lead` axes,
    /// and contain all elements of the other axes.
    fn write(&self, lead: usize, rows: Range<usize>, target: &mut [u8], to: DType) -> std::result::Result<(), String> {
        let (head, run) = self.runs(lead);
        let inner: usize = self.shape[lead..head].iter().product();
        let runs = rows.start * inner..rows.end * inner;
        if let Some(bytes) = self.bytes.plain()
            && run * self.dtype.size() < SHORT_RUN
            && runs.len() > 1
        {
            return self.write_gathered(bytes, head, runs, run, target, to);
        }
        for (index, target) in runs.zip(target.chunks_mut((run * to.size()).max(1))) {
            self.write_run(self.position(index, head), target, to)?;
        }
        Ok(())
    }

    /// Releases the pages of all elements of the view.
    fn release(&self) {
        match &self.bytes {
            Storage::Mapped(file) => {
                let last: usize =
                    self.shape.iter().zip(&self.strides).map(|(size, stride)| size.saturating_sub(1) * stride).sum();
                file.release(self.offset..self.offset + (last + 1) * self.dtype.size());
            }
            Storage::Memory(_) => {}
            Storage::Blocks(blocks) => blocks.release(),
        }
    }

    /// Writes one contiguous run from byte `start`, releasing the pages read.
    fn write_run(&self, start: usize, target: &mut [u8], to: DType) -> std::result::Result<(), String> {
        let bytes: &[u8] = match &self.bytes {
            Storage::Mapped(file) => file.bytes(),
            Storage::Memory(bytes) => bytes,
            Storage::Blocks(blocks) => return blocks.write(start / self.dtype.size(), target, to),
        };
        let per_chunk = CHUNK / self.dtype.size();
        let mut start = start;
        for target in target.chunks_mut(per_chunk * to.size()) {
            let end = start + target.len() / to.size() * self.dtype.size();
            if let Storage::Mapped(file) = self.bytes {
                file.will_need(start..end);
            }
            convert(&bytes[start..end], self.dtype, target, to)?;
            if let Storage::Mapped(file) = self.bytes {
                file.release(start..end);
            }
            start = end;
        }
        Ok(())
    }

    /// Gathers short runs in a buffer and converts the buffer.
    fn write_gathered(
        &self,
        bytes: &[u8],
        head: usize,
        runs: Range<usize>,
        run: usize,
        target: &mut [u8],
        to: DType,
    ) -> std::result::Result<(), String> {
        let size = self.dtype.size();
        let row = self.shape[head - 1];
        // Whole rows of the last non-contiguous axis, so that they can be transposed in tiles.
        let side = LINE / size;
        let rows_at_once = (GATHER / (row * run).max(1)).next_multiple_of(side).max(side);
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

/// Gathers rows of `row` elements, which are `stride` elements apart, in square tiles. In a transposed matrix the
/// elements of adjacent rows are neighbours, so that each cache line, read or written, is fetched once.
fn gather_elements<const N: usize>(bytes: &[u8], starts: &[usize], stride: usize, row: usize, buffer: &mut [u8]) {
    let Some(offset) = starts.first().map(|start| start % N) else { return };
    let (elements, _) = bytes[offset..].as_chunks::<N>();
    let (buffer, _) = buffer.as_chunks_mut::<N>();
    let side = LINE / N;
    let mut tile = vec![[0; N]; side * side];
    for (starts, rows) in starts.chunks(side).zip(buffer.chunks_mut(side * row)) {
        let first = (starts[0] - offset) / N;
        let neighbours = starts.windows(2).all(|pair| pair[0] + N == pair[1]);
        for left in (0..row).step_by(side) {
            let columns = side.min(row - left);
            for (column, line) in tile.chunks_mut(side).take(columns).enumerate() {
                let at = (left + column) * stride;
                let line = &mut line[..starts.len()];
                if neighbours {
                    line.copy_from_slice(&elements[first + at..][..starts.len()]);
                } else {
                    for (value, start) in line.iter_mut().zip(starts) {
                        *value = elements[(start - offset) / N + at];
                    }
                }
            }
            for (i, row) in rows.chunks_mut(row).enumerate() {
                for (value, line) in row[left..][..columns].iter_mut().zip(tile.chunks(side)) {
                    *value = line[i];
                }
            }
        }
    }
}

/// Reads views into memory, concatenated along `axis`, as values of dtype `to`. Makes no other copy of a tensor.
///
/// # Errors
/// If the shapes cannot be concatenated, or a value cannot be converted to `to`.
pub(crate) fn materialise(views: &[View<'_>], axis: usize, to: DType) -> Result<TensorData> {
    let Some(first) = views.first() else {
        return Ok(TensorData::from_bytes_vec(Vec::new(), [0], to));
    };
    let shapes: Vec<Vec<usize>> = views.iter().map(|view| view.shape.clone()).collect();
    let shape = joined(&shapes, axis)
        .ok_or_else(|| first.misfit("merge", format!("shapes {shapes:?} do not join along axis {axis}")))?;
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
            from: view.stored_name().into(),
            to: to.name().into(),
            reason,
        };
        let source = view.decoded(lead).map_err(failed)?;
        if size == row_bytes {
            source.write(0, 0..1, &mut bytes, to).map_err(failed)?;
        } else if size > 0 {
            for row in 0..rows {
                let start = row * row_bytes + start;
                source.write(lead, row..row + 1, &mut bytes[start..start + size], to).map_err(failed)?;
            }
        }
        view.release();
        start += size;
    }
    Ok(TensorData::from_bytes(bytes, shape, to))
}

/// Returns zeroed memory for `count` values, aligned for their type, so that backends can use it without a copy; `None`
/// if there is not enough memory.
fn zeroed(count: usize, dtype: DType) -> Option<Bytes> {
    fn room<T: Clone + Default + bytemuck::NoUninit + Send + Sync>(count: usize) -> Option<Bytes> {
        // Checked first because `vec!` aborts without memory. `vec!` gets zeroed pages from the system and does not
        // touch them.
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

    /// Computes the element at each index of a view, by definition.
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
        // Long enough for several buffers, with sizes that do not divide a buffer.
        let shape = [7, 131, 173];
        let data = counting(shape);
        let at = |i: usize, j: usize, k: usize| ((i * shape[1] + j) * shape[2] + k) as i32;
        let view = || View::of_data("t", &data);
        assert_eq!(read(&[view()], 0), data);
        let turned = view().permute(&[2, 0, 1]);
        assert_eq!(read(&[turned], 0), by_definition(&[173, 7, 131], |x| at(x[1], x[2], x[0])));
        let inner = view().permute(&[1, 0, 2]);
        assert_eq!(read(&[inner], 0), by_definition(&[131, 7, 173], |x| at(x[1], x[0], x[2])));
        let part = view().slice(2, 3..20).and_then(|view| view.slice(1, 100..131)).expect("fits");
        assert_eq!(read(&[part], 0), by_definition(&[7, 31, 17], |x| at(x[0], x[1] + 100, x[2] + 3)));
        let both = view().slice(1, 5..6).map(|view| view.permute(&[2, 1, 0])).expect("fits");
        assert_eq!(read(&[both], 0), by_definition(&[173, 1, 7], |x| at(x[2], 5, x[0])));
    }

    fn gathers<const N: usize>() {
        // Sizes that are not multiples of a tile's side, and bytes that do not start at an element.
        let (rows, row, offset) = (77, 131, 3);
        let bytes: Vec<u8> = (0..offset + N * rows * row + N).map(|i| (i * 7 + i / 256) as u8).collect();
        let neighbours = |i: usize| offset + i * N;
        let apart = |i: usize| offset + (i * 5 % rows) * N;
        for start in [&neighbours as &dyn Fn(usize) -> usize, &apart] {
            let starts: Vec<usize> = (0..rows).map(start).collect();
            let mut found = vec![0; N * rows * row];
            gather_elements::<N>(&bytes, &starts, rows, row, &mut found);
            let element = |i: usize, j: usize| &bytes[starts[i] + j * rows * N..][..N];
            let expected: Vec<u8> = (0..rows * row).flat_map(|at| element(at / row, at % row)).copied().collect();
            assert!(found == expected, "{N}");
        }
    }

    #[test]
    fn elements_of_every_size_are_gathered() {
        gathers::<1>();
        gathers::<2>();
        gathers::<4>();
        gathers::<8>();
    }

    #[test]
    fn merges_along_every_axis() {
        let (a, b) = (counting([3, 4, 5]), counting([3, 2, 5]));
        let at = |shape: [usize; 3], x: &[usize]| ((x[0] * shape[1] + x[1]) * shape[2] + x[2]) as i32;
        let merged = by_definition(&[3, 6, 5], |x| match x[1] {
            0..4 => at([3, 4, 5], x),
            _ => at([3, 2, 5], &[x[0], x[1] - 4, x[2]]),
        });
        let views = [View::of_data("a", &a), View::of_data("b", &b)];
        assert_eq!(read(&views, 1), merged);
        assert!(materialise(&views, 0, DType::I32).is_err() && materialise(&views, 3, DType::I32).is_err());
        // The same along the last axis, of transposed pieces.
        let views = views.map(|view| view.permute(&[2, 0, 1]));
        assert_eq!(
            read(&views, 2),
            by_definition(&[5, 3, 6], |x| merged.as_slice::<i32>().expect("i32")[(x[1] * 6 + x[2]) * 5 + x[0]])
        );
    }

    #[test]
    fn empty_tensors_are_read() {
        for shape in [[0, 2, 3], [2, 0, 3], [2, 3, 0]] {
            let data = counting(shape);
            assert_eq!(read(&[View::of_data("e", &data)], 0), data);
            let turned = View::of_data("e", &data).permute(&[2, 1, 0]);
            assert_eq!(read(&[turned.clone(), turned], 1).num_elements(), 0);
        }
    }
}
