use burn::tensor::{BoolStore, DType, FloatDType, TensorData};
use grove_backend::{Backend, ops};
use grove_communicator::{CommError, Communicator, Rank, Result, Wire};
use grove_tree::{AnyArray, Tree, leaves, map, try_map_with_path};

use crate::buckets::Buckets;

/// Options of a reduction of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReduceOptions {
    /// Maximum size of a bucket of leaves in bytes; a larger leaf has its own bucket. Default: 25 MiB.
    pub bucket_bytes: usize,
    /// Dtype of the values in transit. Default: their own dtype. Devices that reduce by themselves add in this dtype.
    pub wire: Wire,
}

impl Default for ReduceOptions {
    fn default() -> Self {
        Self { bucket_bytes: 25 << 20, wire: Wire::Full }
    }
}

impl ReduceOptions {
    /// [`all_reduce_mean`] with these options.
    ///
    /// # Errors
    /// If a collective fails.
    pub fn mean<B: Backend, P: Tree<B>>(self, tree: P, comm: &Communicator) -> Result<P> {
        reduce(tree, (1.0, 1.0 / comm.size() as f64), comm, self)
    }
}

/// Returns the means of the floating-point leaves over all ranks, in at least f32. Other leaves and absent leaves stay unchanged.
///
/// Every rank gets the same bits, whatever the division into buckets.
///
/// # Errors
/// [`CommError`].
pub fn all_reduce_mean<B: Backend, P: Tree<B>>(tree: P, comm: &Communicator) -> Result<P> {
    reduce(tree, (1.0, 1.0 / comm.size() as f64), comm, ReduceOptions::default())
}

/// Returns the sums of the floating-point leaves over all ranks, like the means of [`all_reduce_mean`].
///
/// # Errors
/// [`CommError`].
pub fn all_reduce_sum<B: Backend, P: Tree<B>>(tree: P, comm: &Communicator) -> Result<P> {
    reduce(tree, (1.0, 1.0), comm, ReduceOptions::default())
}

/// Returns the weighted means over all ranks. The weight of a rank is the number of examples or tokens over which its leaves are
/// averaged. A rank of weight 0 is excluded, even if its leaves are not finite. If all weights are 0, all ranks have the same
/// weight.
///
/// # Errors
/// [`CommError`].
pub fn all_reduce_weighted_mean<B: Backend, P: Tree<B>>(
    tree: P,
    weight: f64,
    comm: &Communicator,
    options: ReduceOptions,
) -> Result<P> {
    if !comm.is_shared() {
        return Ok(tree);
    }
    let weights: Vec<f64> = comm.all_gather("weights", vec![weight])?.concat();
    let (factor, after) = factors(&weights, comm.rank());
    let tree = if factor == 0.0 { map(tree, |leaf| zeros(leaf)) } else { tree };
    reduce(tree, (factor, after), comm, options)
}

/// Returns the factor of a rank's values before the sum, and the factor of the sum. Weights are relative to the first nonzero
/// weight, so that equal weights change no bit.
pub(crate) fn factors(weights: &[f64], rank: usize) -> (f64, f64) {
    let Some(unit) = weights.iter().copied().find(|&weight| weight > 0.0) else {
        return (1.0, 1.0 / weights.len() as f64);
    };
    let total: f64 = weights.iter().map(|weight| weight / unit).sum();
    (weights[rank] / unit, 1.0 / total)
}

fn zeros<B: Backend>(leaf: AnyArray<B>) -> AnyArray<B> {
    if leaf.dtype().is_float() { leaf.zeros_like() } else { leaf }
}

/// Sums the leaves, with a factor before the sum and one after it.
pub(crate) fn reduce<B: Backend, P: Tree<B>>(
    tree: P,
    (factor, after): (f64, f64),
    comm: &Communicator,
    options: ReduceOptions,
) -> Result<P> {
    if !comm.is_shared() {
        return Ok(tree);
    }
    let takes_part = |leaf: &AnyArray<B>| leaf.is_present() && leaf.dtype().is_float();
    if let Some(device) = leaves(&tree).iter().find_map(|(_, leaf)| leaf.device())
        && B::reduces(&device, comm)
    {
        return Ok(reduce_on_device(tree, (factor, after), comm, options.wire));
    }
    let parts: Vec<_> =
        leaves(&tree).iter().map(|(_, leaf)| takes_part(leaf).then(|| (leaf.len(), leaf.dtype()))).collect();
    let mut buckets = Buckets::new(&parts, 0..parts.len(), comm, (options.bucket_bytes, options.wire), factor);
    let mut places = Vec::new();
    let frame = try_map_with_path(tree, |_, leaf| -> Result<AnyArray<B>> {
        let number = places.len();
        places.push(leaf.device());
        if !takes_part(&leaf) {
            return Ok(leaf);
        }
        let absent = AnyArray::absent(leaf.shape(), leaf.dtype());
        buckets.fill(number, leaf.into_data().as_ref())?;
        Ok(absent)
    })?;
    let (sums, _) = buckets.wait(after)?;
    let mut sums = sums.into_iter().zip(places);
    Ok(map(frame, |leaf| match sums.next() {
        Some((Some(sum), Some(device))) => with_values(sum, &leaf, &device),
        _ => leaf,
    }))
}

/// Like [`reduce`], for a device that reduces all leaves in one operation.
fn reduce_on_device<B: Backend, P: Tree<B>>(
    tree: P,
    (factor, after): (f64, f64),
    comm: &Communicator,
    wire: Wire,
) -> P {
    let times = |leaf: AnyArray<B>, factor: f64| if factor == 1.0 { leaf } else { leaf.mul_scalar(factor) };
    let (mut sent, mut took_part) = (Vec::new(), Vec::new());
    let frame = map(tree, |leaf| {
        let takes_part = leaf.is_present() && leaf.dtype().is_float();
        took_part.push(takes_part);
        if !takes_part {
            return leaf;
        }
        let leaf = leaf.widen();
        let absent = AnyArray::absent(leaf.shape(), leaf.dtype());
        let leaf = times(leaf, factor);
        let leaf = if wire == Wire::Bf16 { leaf.cast_float(FloatDType::BF16) } else { leaf };
        sent.extend(leaf.into_value().map(|value| (value, absent.dtype())));
        absent
    });
    let (sent, types): (Vec<_>, Vec<DType>) = sent.into_iter().unzip();
    let mut sums = ops::all_reduce(sent, "gradients", comm).into_iter().zip(types);
    let mut took_part = took_part.into_iter();
    map(frame, |leaf| match took_part.next() {
        Some(true) => {
            let (sum, dtype) = sums.next().expect("a sum of each leaf");
            times(AnyArray::present(sum).cast_float(dtype.into()), after)
        }
        _ => leaf,
    })
}

/// Returns an array with the shape of a leaf.
pub(crate) fn with_values<B: Backend>(values: TensorData, leaf: &AnyArray<B>, device: &B::Device) -> AnyArray<B> {
    AnyArray::from_data(TensorData::from_bytes(values.bytes, leaf.shape().to_vec(), values.dtype), device)
}

/// Broadcasts the tree of rank 0 to every rank: the values of all present leaves. Every rank must have the same leaves.
///
/// # Errors
/// [`CommError`].
pub fn broadcast<B: Backend, T: Tree<B>>(tree: T, comm: &Communicator) -> Result<T> {
    if !comm.is_shared() {
        return Ok(tree);
    }
    try_map_with_path(tree, |_, leaf| match (leaf.device(), leaf.clone().into_data()) {
        (Some(device), Some(data)) => Ok(AnyArray::from_data(broadcast_data(data, comm)?, &device)),
        _ => Ok(leaf),
    })
}

fn broadcast_data(data: TensorData, comm: &Communicator) -> Result<TensorData> {
    let (shape, dtype) = (data.shape.clone(), data.dtype);
    let own = data.as_bytes().to_vec();
    let expected = own.len();
    let bytes = comm.broadcast("the parameters", own)?;
    if bytes.len() != expected {
        let (rank, collective) = (Rank { number: 0, process: None }, "broadcast of the parameters".into());
        return Err(CommError::OtherSize { collective, rank, found: bytes.len(), expected });
    }
    Ok(TensorData::from_bytes_vec(bytes, shape, dtype))
}

/// Dtypes of leaves. Ranks exchange their positions in this list, counted from 1.
const TYPES: [DType; 15] = [
    DType::F64,
    DType::F32,
    DType::F16,
    DType::BF16,
    DType::I64,
    DType::I32,
    DType::I16,
    DType::I8,
    DType::U64,
    DType::U32,
    DType::U16,
    DType::U8,
    DType::Bool(BoolStore::Native),
    DType::Bool(BoolStore::U8),
    DType::Bool(BoolStore::U32),
];

/// Completes a tree whose leaves are divided among the ranks: a leaf that is absent on this rank is taken from the lowest rank
/// that has it. The state of `grove_optim::zero1` is such a tree.
///
/// Dtypes are those of the ranks that have the leaves: a rank without them does not know the device's dtypes of integers and
/// booleans.
///
/// # Errors
/// [`CommError`].
pub fn gather_missing<B: Backend, T: Tree<B>>(tree: T, device: &B::Device, comm: &Communicator) -> Result<T> {
    if !comm.is_shared() {
        return Ok(tree);
    }
    let type_of = |leaf: &AnyArray<B>| TYPES.iter().position(|dtype| *dtype == leaf.dtype()).unwrap_or(TYPES.len());
    let dtype_code = |leaf: &AnyArray<B>| if leaf.is_present() { type_of(leaf) as u8 + 1 } else { 0 };
    let own: Vec<u8> = leaves(&tree).iter().map(|(_, leaf)| dtype_code(leaf)).collect();
    let count = own.len();
    let all = comm.all_gather("the places of the optimizer's state", own)?;
    let has = |rank: usize, leaf: usize| all[rank].get(leaf).is_some_and(|dtype_code| *dtype_code > 0);
    let mut next = 0..count;
    try_map_with_path(tree, |_, leaf| {
        let i = next.next().unwrap_or(count);
        let owner = (0..comm.size()).find(|&rank| has(rank, i));
        let Some(owner) = owner.filter(|_| !(0..comm.size()).all(|rank| has(rank, i))) else { return Ok(leaf) };
        let shape = leaf.shape().to_vec();
        let dtype = TYPES.get(usize::from(all[owner][i]) - 1).copied().unwrap_or(leaf.dtype());
        let own = match leaf.clone().into_data() {
            Some(data) if owner == comm.rank() => data.as_bytes().to_vec(),
            _ => vec![],
        };
        let mut parts = comm.all_gather("the optimizer's state", own)?;
        if leaf.is_present() {
            return Ok(leaf);
        }
        Ok(AnyArray::from_data(TensorData::from_bytes_vec(parts.swap_remove(owner), shape, dtype), device))
    })
}
