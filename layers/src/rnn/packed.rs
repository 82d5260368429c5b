use burn::tensor::{BasicOps, Tensor, TensorKind};
use grove_backend::Backend;
use grove_tree::{Array, Kind, Tree};

use super::{PackError, Packing, packing::pick};

/// A batch of sequences of different lengths without padding, like PyTorch's `PackedSequence`.
///
/// `A` is the array of packed rows, `[rows, …]`: the first steps of all sequences, then all second steps, and so on.
#[derive(Tree, Clone, Debug)]
pub struct PackedSequence<A> {
    /// Packed rows, `[rows, …]`.
    pub data: A,
    /// Layout: maps each row to its sequence and step.
    #[tree(static)]
    pub packing: Packing,
}

/// Packs a padded batch. `P` is `D - 1`: the time and batch axes become one.
///
/// # Shapes
/// - x `[t, b, …]`, or `[b, t, …]` with `batch_first`
/// - output `[rows, …]`
///
/// # Errors
/// If a length is 0 or more than t, the number of lengths is not b, or the lengths increase although `enforce_sorted` is
/// true.
#[track_caller]
pub fn pack_padded_sequence<B: Backend, const D: usize, const P: usize, K: Kind>(
    x: Tensor<B, D, K::On<B>>,
    lengths: &[usize],
    batch_first: bool,
    enforce_sorted: bool,
) -> Result<PackedSequence<Array<B, P, K>>, PackError> {
    const { assert!(D == P + 1 && P >= 1, "packing makes one axis of two") };
    let shape = x.dims();
    let (b, t) = if batch_first { (shape[0], shape[1]) } else { (shape[1], shape[0]) };
    if lengths.len() != b {
        return Err(PackError::Count { lengths: lengths.len(), sequences: b });
    }
    if let Some(index) = lengths.iter().position(|&length| length > t) {
        return Err(PackError::TooLong { index, length: lengths[index], steps: t });
    }
    let packing = Packing::new(lengths, enforce_sorted)?;
    let mut rows = [b * t; P];
    rows[1..].copy_from_slice(&shape[2..]);
    let data = if packing.is_dense() && packing.longest() == t {
        let x = if batch_first { x.swap_dims(0, 1) } else { x };
        x.reshape(rows)
    } else {
        let positions: Vec<(usize, usize)> = packing.positions().collect();
        let at = |(i, step): (usize, usize)| if batch_first { i * t + step } else { step * b + i };
        pick(x.reshape(rows), 0, positions.into_iter().map(at))
    };
    Ok(PackedSequence { data: Array::from(data), packing })
}

/// Pads a packed batch. Returns the padded batch and the lengths. `D` is `P + 1`. The result has `total_length` steps, by
/// default the length of the longest sequence.
///
/// # Shapes
/// - input `[rows, …]`
/// - output `[t, b, …]`, or `[b, t, …]` with `batch_first`
///
/// # Errors
/// [`PackError::TotalLength`] if the longest sequence has more steps than `total_length`.
#[track_caller]
pub fn pad_packed_sequence<B: Backend, const P: usize, const D: usize>(
    packed: &PackedSequence<Array<B, P>>,
    batch_first: bool,
    padding_value: f64,
    total_length: Option<usize>,
) -> Result<(Tensor<B, D>, Vec<usize>), PackError> {
    const { assert!(D == P + 1 && P >= 1, "padding makes two axes of one") };
    let packing = &packed.packing;
    let (b, longest) = (packing.batch(), packing.longest());
    let t = total_length.unwrap_or(longest);
    if t < longest {
        return Err(PackError::TotalLength { total: t, longest });
    }
    let data = packed.data.val();
    let row = data.dims();
    let mut shape = [0; D];
    shape[2..].copy_from_slice(&row[1..]);
    let lengths = packing.lengths().to_vec();
    if packing.is_dense() && t == longest {
        shape[..2].copy_from_slice(&[t, b]);
        let y = data.reshape(shape);
        return Ok((if batch_first { y.swap_dims(0, 1) } else { y }, lengths));
    }
    // Every padded step selects the padding row, which is appended after the last row.
    let rows = packing.rows();
    let mut from = vec![rows; b * t];
    for (source, (i, step)) in packing.positions().enumerate() {
        from[if batch_first { i * t + step } else { step * b + i }] = source;
    }
    let mut one = row;
    one[0] = 1;
    let padding = Tensor::full(one, padding_value, (&data.device(), data.dtype()));
    let y = pick(Tensor::cat(vec![data, padding], 0), 0, from.into_iter());
    shape[..2].copy_from_slice(&if batch_first { [b, t] } else { [t, b] });
    Ok((y.reshape(shape), lengths))
}

/// Packs a list of sequences, each `[steps, …]`, like PyTorch's `pack_sequence`.
///
/// # Errors
/// If the list is empty, a sequence has no steps, the row shapes differ, or the lengths increase although `enforce_sorted`
/// is true.
#[track_caller]
pub fn pack_sequence<B: Backend, const P: usize, K: Kind>(
    sequences: &[Tensor<B, P, K::On<B>>],
    enforce_sorted: bool,
) -> Result<PackedSequence<Array<B, P, K>>, PackError>
where
    K::On<B>: BasicOps<B> + TensorKind<B>,
{
    let shapes: Vec<[usize; P]> = sequences.iter().map(|sequence| sequence.dims()).collect();
    let lengths: Vec<usize> = shapes.iter().map(|shape| shape[0]).collect();
    let packing = Packing::new(&lengths, enforce_sorted)?;
    if let Some(index) = shapes.iter().position(|shape| shape[1..] != shapes[0][1..]) {
        let (found, expected) = (shapes[index][1..].to_vec(), shapes[0][1..].to_vec());
        return Err(PackError::RowShape { index, found, expected });
    }
    let mut starts = vec![0];
    for length in lengths {
        starts.push(starts[starts.len() - 1] + length);
    }
    let rows: Vec<usize> = packing.positions().map(|(i, step)| starts[i] + step).collect();
    let data = pick(Tensor::cat(sequences.to_vec(), 0), 0, rows.into_iter());
    Ok(PackedSequence { data: Array::from(data), packing })
}
