//! Arrays on meshes.

use burn::tensor::TensorData;
use std::sync::Arc;

use crate::{ArrayType, Buffer, Mesh, PartitionSpec, lower::element_type};

/// Minimum size in bytes of an array that is not copied if the device can use host memory.
const LARGE: usize = 1 << 16;

/// An array that is distributed over a mesh: each device has a part.
#[derive(Debug)]
pub(crate) struct ShardedArray {
    /// Type of the whole array.
    pub array: ArrayType,
    pub spec: PartitionSpec,
    /// Parts, in the order of the mesh's devices.
    pub parts: Vec<Buffer>,
}

/// A host array that devices read in place.
struct Host(Arc<TensorData>);

impl AsRef<[u8]> for Host {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl ShardedArray {
    /// Copies a host array to the devices of a mesh.
    pub fn upload(mesh: &Mesh, data: TensorData, spec: &PartitionSpec) -> Result<Self, String> {
        let array = ArrayType::new(element_type(data.dtype).map_err(text)?, data.shape.to_vec());
        let part_dims = mesh.part_dims(spec, &array.dims)?;
        let part = ArrayType::new(array.element, part_dims);
        let (data, devices) = (Arc::new(data), mesh.devices().iter().enumerate());
        let upload = |(i, device)| match () {
            () if !spec.is_replicated() => {
                let block = copied(&data, &array, &mesh.block(spec, &array.dims, i));
                Buffer::from_host(device, &part, &block)
            }
            () if data.as_bytes().len() < LARGE => Buffer::from_host(device, &part, data.as_bytes()),
            () => Buffer::from_shared(device, &part, Host(data.clone())),
        };
        let parts = devices.map(upload).collect::<crate::Result<_>>().map_err(text)?;
        Ok(Self { array, spec: spec.clone(), parts })
    }

    /// Copies the whole array to the host.
    pub fn download(&self, mesh: &Mesh) -> Result<TensorData, String> {
        let bytes = match self.spec.is_replicated() {
            true => self.parts[0].to_host().map_err(text)?,
            false => {
                let mut whole = vec![0; self.array.bytes().unwrap_or(0)];
                for (i, part) in self.parts.iter().enumerate() {
                    let block = mesh.block(&self.spec, &self.array.dims, i);
                    let bytes = part.to_host().map_err(text)?;
                    let mut rows = bytes.chunks_exact(row(&self.array, &block).max(1));
                    for_each_row(&self.array, &block, |at, len| {
                        if let Some(row) = rows.next() {
                            whole[at..at + len].copy_from_slice(row);
                        }
                    });
                }
                whole
            }
        };
        Ok(TensorData::from_bytes_vec(bytes, self.array.dims.clone(), self.array.element.dtype()))
    }
}

/// Copies the bytes of a block of an array.
fn copied(data: &TensorData, array: &ArrayType, block: &[[usize; 2]]) -> Vec<u8> {
    let bytes = data.as_bytes();
    let mut part = Vec::new();
    for_each_row(array, block, |at, len| part.extend_from_slice(&bytes[at..at + len]));
    part
}

/// Returns the number of contiguous bytes in a row of a block.
fn row(array: &ArrayType, block: &[[usize; 2]]) -> usize {
    array.element.size() * block.last().map_or(1, |[start, end]| end - start)
}

/// Calls a function with the position and the length of each row of a block, in bytes.
fn for_each_row(array: &ArrayType, block: &[[usize; 2]], mut f: impl FnMut(usize, usize)) {
    let (size, len) = (array.element.size(), row(array, block));
    let Some((last, outer)) = block.split_last() else { return f(0, len) };
    if block.iter().any(|[start, end]| start == end) {
        return;
    }
    let mut at: Vec<usize> = outer.iter().map(|[start, _]| *start).collect();
    loop {
        let index = at.iter().zip(&array.dims).fold(0, |index, (at, dim)| index * dim + at);
        f(size * (index * array.dims[outer.len()] + last[0]), len);
        // The next row, along the last outer axis that is not exhausted.
        let Some(axis) = (0..outer.len()).rev().find(|axis| at[*axis] + 1 < outer[*axis][1]) else { return };
        at[axis] += 1;
        (axis + 1..outer.len()).for_each(|axis| at[axis] = outer[axis][0]);
    }
}

pub(crate) fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ElementType;

    #[test]
    fn blocks_are_cut_row_by_row() {
        let data = TensorData::new((0..24).collect::<Vec<i32>>(), [2, 3, 4]);
        let array = ArrayType::new(ElementType::I32, [2, 3, 4]);
        let cut = |block: &[[usize; 2]]| -> Vec<i32> {
            copied(&data, &array, block).chunks_exact(4).map(|x| i32::from_ne_bytes(x.try_into().unwrap())).collect()
        };
        assert_eq!(cut(&[[1, 2], [0, 3], [2, 4]]), [14, 15, 18, 19, 22, 23]);
        assert_eq!(cut(&[[0, 2], [1, 2], [0, 1]]), [4, 16]);
        assert_eq!(cut(&[[0, 2], [1, 1], [0, 4]]), [0; 0]);
        let scalar = TensorData::new(vec![7_i32], [0_usize; 0]);
        assert_eq!(copied(&scalar, &ArrayType::new(ElementType::I32, []), &[]), 7_i32.to_ne_bytes());
    }
}
