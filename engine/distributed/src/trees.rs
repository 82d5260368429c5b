use burn::tensor::{BoolStore, DType, FloatDType, TensorData};
use grove_backend::{Backend, ops};
use grove_communicator::{CommError, Communicator, Rank, Result, Wire};
use grove_tree::{AnyArray, Tree, leaves, map};

use crate::buckets::Buckets;

/// Options of a reduction of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReduceOptions {
    /// Bytes of a bucket, in which leaves travel together; a larger leaf has one of its own. Default: 25 MiB.
    pub bucket_bytes: usize,
    /// Type of the values on their way. Default: their own. Devices that sum themselves add in it.
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
    /// A collective fails.
    pub fn mean<B: Backend, P: Tree<B>>(self, tree: P, comm: &Communicator) -> Result<P> {
        reduce(tree, (1.0, 1.0 / comm.size() as f64), comm, self)
    }
}

/// The means of the floating-point leaves over all ranks, f32 at least. Other leaves, and absent ones, stay as they are.
///
/// Every rank gets the same bits, however leaves are put into buckets.
///
/// # Errors
/// [`CommError`].
pub fn all_reduce_mean<B: Backend, P: Tree<B>>(tree: P, comm: &Communicator) -> Result<P> {
    reduce(tree, (1.0, 1.0 / comm.size() as f64), comm, ReduceOptions::default())
}

/// The sums of the floating-point leaves over all ranks, as [`all_reduce_mean`] has the means.
///
/// # Errors
/// [`CommError`].
pub fn all_reduce_sum<B: Backend, P: Tree<B>>(tree: P, comm: &Communicator) -> Result<P> {
    reduce(tree, (1.0, 1.0), comm, ReduceOptions::default())
}

/// The means over all ranks, each of which counts by its weight: the number of examples or tokens of which its leaves are the
/// mean. A rank of weight 0 counts for nothing, even if its leaves are not finite; where all weights are 0 the ranks count the
/// same.
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

/// The factor of a rank's values before they are summed, and of the sum. Weights are taken relative to the first that is not
/// 0, so that equal ones change no bit.
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

/// Sums, with a factor before and one after.
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
    let (mut places, mut failure) = (Vec::new(), None);
    let frame = map(tree, |leaf| {
        let number = places.len();
        places.push(leaf.device());
        if !takes_part(&leaf) || failure.is_some() {
            return leaf;
        }
        let absent = AnyArray::absent(leaf.shape(), leaf.dtype());
        failure = buckets.fill(number, leaf.into_data().as_ref()).err();
        absent
    });
    if let Some(error) = failure {
        return Err(error);
    }
    let (sums, _) = buckets.wait(after)?;
    let mut sums = sums.into_iter().zip(places);
    Ok(map(frame, |leaf| match sums.next() {
        Some((Some(sum), Some(device))) => with_values(sum, &leaf, &device),
        _ => leaf,
    }))
}

/// As [`reduce`], where the device sums all leaves in one operation.
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

/// An array of the shape of a leaf.
pub(crate) fn with_values<B: Backend>(values: TensorData, leaf: &AnyArray<B>, device: &B::Device) -> AnyArray<B> {
    AnyArray::from_data(TensorData::from_bytes(values.bytes, leaf.shape().to_vec(), values.dtype), device)
}

/// The tree of rank 0 on every rank: the values of all leaves that are present. Every rank must have the same leaves.
///
/// # Errors
/// [`CommError`].
pub fn broadcast<B: Backend, T: Tree<B>>(tree: T, comm: &Communicator) -> Result<T> {
    if !comm.is_shared() {
        return Ok(tree);
    }
    let mut failure = None;
    let sent = map(tree, |leaf| {
        let Some(device) = leaf.device().filter(|_| failure.is_none()) else { return leaf };
        let spare = leaf.clone();
        let sent = leaf.into_data().map(|data| broadcast_data(data, comm));
        match sent {
            Some(Ok(data)) => AnyArray::from_data(data, &device),
            Some(Err(error)) => {
                failure = Some(error);
                spare
            }
            None => spare,
        }
    });
    failure.map_or(Ok(sent), Err)
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

/// Types of leaves. Ranks tell each other their places, from 1.
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

/// A tree whose leaves are divided among the ranks, whole on every rank: a leaf that is absent here and present elsewhere is
/// that of the lowest rank that has it. The state of `grove_optim::zero1` is such a tree.
///
/// Types are those of the ranks that have the leaves: a rank without any does not know the device's types of integers and
/// booleans.
///
/// # Errors
/// [`CommError`].
pub fn gather_missing<B: Backend, T: Tree<B>>(tree: T, device: &B::Device, comm: &Communicator) -> Result<T> {
    if !comm.is_shared() {
        return Ok(tree);
    }
    let type_of = |leaf: &AnyArray<B>| TYPES.iter().position(|dtype| *dtype == leaf.dtype()).unwrap_or(TYPES.len());
    let told = |leaf: &AnyArray<B>| if leaf.is_present() { type_of(leaf) as u8 + 1 } else { 0 };
    let own: Vec<u8> = leaves(&tree).iter().map(|(_, leaf)| told(leaf)).collect();
    let count = own.len();
    let all = comm.all_gather("the places of the optimizer's state", own)?;
    let has = |rank: usize, leaf: usize| all[rank].get(leaf).is_some_and(|told| *told > 0);
    let mut failure = None;
    let mut next = 0..count;
    let whole = map(tree, |leaf| {
        let i = next.next().unwrap_or(count);
        let owner = (0..comm.size()).find(|&rank| has(rank, i));
        let Some(owner) = owner.filter(|_| failure.is_none() && !(0..comm.size()).all(|rank| has(rank, i))) else {
            return leaf;
        };
        let shape = leaf.shape().to_vec();
        let dtype = TYPES.get(usize::from(all[owner][i]) - 1).copied().unwrap_or(leaf.dtype());
        let own = match leaf.clone().into_data() {
            Some(data) if owner == comm.rank() => data.as_bytes().to_vec(),
            _ => vec![],
        };
        match comm.all_gather("the optimizer's state", own) {
            Ok(mut parts) if !leaf.is_present() => {
                AnyArray::from_data(TensorData::from_bytes_vec(parts.swap_remove(owner), shape, dtype), device)
            }
            Ok(_) => leaf,
            Err(error) => {
                failure = Some(error);
                leaf
            }
        }
    });
    failure.map_or(Ok(whole), Err)
}
