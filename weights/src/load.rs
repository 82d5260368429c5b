//! Placing a checkpoint's tensors in a model's leaves.

use burn::tensor::DType;
use grove_backend::Backend;
use grove_tree::{AnyArray, Path, Tree};

use crate::checkpoint::Checkpoint;
use crate::error::{Result, WeightsError};
use crate::names::NameMap;
use crate::placement::{Placement, Slot};
use crate::plan::plan;
use crate::report::Report;

/// Where and how tensors are placed.
#[derive(Clone, Debug)]
pub struct LoadOptions<B: Backend> {
    /// The device that gets them.
    pub device: B::Device,
    /// Type of floating-point leaves; `None` leaves the choice to each leaf of the skeleton. Leaves of whole
    /// numbers and booleans keep theirs. Running statistics (`#[tree(buffer)]`) are at least f32.
    pub dtype: Option<DType>,
    /// Which floating-point leaves, by their paths, are placed in the type in which the file has them instead.
    pub stored: fn(&str) -> bool,
    /// Whether missing, unexpected and mismatched names are errors (the default).
    pub strict: bool,
}

impl<B: Backend> LoadOptions<B> {
    /// Strict, each leaf in the skeleton's type.
    pub fn new(device: &B::Device) -> Self {
        Self { device: device.clone(), dtype: None, stored: |_| false, strict: true }
    }

    /// Floating-point leaves as `dtype`.
    pub fn dtype(self, dtype: DType) -> Self {
        Self { dtype: Some(dtype), ..self }
    }

    /// Floating-point leaves for whose paths `keeps` is true are placed in the type in which the file has them: f32,
    /// f16 or bf16; f32 for f64, and for a merge of different types. What is quantised, or no float, follows
    /// [`dtype`](Self::dtype) like all other leaves.
    pub fn stored(self, keeps: fn(&str) -> bool) -> Self {
        Self { stored: keeps, ..self }
    }

    /// Whether every name must meet its like.
    pub fn strict(self, strict: bool) -> Self {
        Self { strict, ..self }
    }

    /// The type in which a leaf is placed.
    fn dtype_of(&self, slot: &Slot, placement: &Placement, checkpoint: &Checkpoint) -> DType {
        if !slot.dtype.is_float() {
            return slot.dtype;
        }
        let stored = (self.stored)(&slot.path).then(|| placement.stored_float(checkpoint)).flatten();
        match stored.or(self.dtype).unwrap_or(slot.dtype) {
            DType::F16 | DType::BF16 if slot.is_buffer => DType::F32,
            dtype => dtype,
        }
    }

    /// Refuses a leaf's type with which the device can do nothing. Matrices may be held in one that it does not compute in,
    /// if it widens them: the types of all other leaves are those that a model computes in.
    fn check_dtype(&self, slot: &Slot, dtype: DType, checkpoint: &Checkpoint) -> Result<()> {
        let held = B::WIDENS_WEIGHTS && slot.shape.len() == 2 && B::supports_dtype(&self.device, dtype);
        if !dtype.is_float() || held || B::computes_in(&self.device, dtype) {
            return Ok(());
        }
        let (path, dtype, backend) = (&slot.path, dtype.name(), B::name(&self.device));
        let reason = format!(
            "`{path}` is to be {dtype}, in which {backend} does not compute; load the model in another type of numbers, \
             or choose another backend"
        );
        Err(WeightsError::Unsupported { file: checkpoint.directory().into(), reason })
    }
}

/// Fills a skeleton, a model whose leaves need not hold anything yet, with a checkpoint's tensors, and reports
/// which names met.
///
/// All names and shapes are compared before anything is read, so that one error tells everything. Then leaf after
/// leaf is read from the mapped file straight into its place, converted and rearranged on the way; beside the
/// model no more than one leaf is held.
///
/// A quantised tensor becomes floats. Or it is taken as it is, by a model that computes with blocks: a leaf of u8 with
/// the shape [`TensorInfo::raw_shape`](crate::TensorInfo::raw_shape) gets its bytes. Rules of the name map then say
/// the same, in values, as long as they leave rows whole: no transpose, and no split or merge along the last axis.
///
/// Where `options.strict` is false, leaves that are missing or of another shape stay as they are in the skeleton:
/// give an initialised model to fine-tune with a new head.
///
/// # Errors
/// [`WeightsError::Incompatible`] with the report, if strict and not everything fits;
/// [`WeightsError::Conversion`], if values cannot become what a leaf holds (floats for whole numbers);
/// [`WeightsError::Unsupported`], if the device does not compute with the type of a leaf, or a tensor is quantised in
/// a way that is not decoded.
pub fn load<B: Backend, T: Tree<B>>(
    skeleton: T,
    checkpoint: &Checkpoint,
    names: &NameMap,
    options: &LoadOptions<B>,
) -> Result<(T, Report)> {
    let mut leaves = Vec::new();
    skeleton.visit(&mut Path::root(), &mut |path: &Path, leaf: &AnyArray<B>| {
        let is_buffer = path.is_buffer();
        leaves.push(Slot { path: path.to_string(), shape: leaf.shape().to_vec(), dtype: leaf.dtype(), is_buffer });
    });
    let (placements, report) = plan(&leaves, checkpoint, names);
    if options.strict && !report.is_complete() {
        return Err(WeightsError::Incompatible(Box::new(report)));
    }
    for slot in &leaves {
        let Some(placement) = placements.get(&slot.path) else { continue };
        placement.check_decodable(checkpoint)?;
        options.check_dtype(slot, options.dtype_of(slot, placement, checkpoint), checkpoint)?;
    }
    let mut failed = None;
    let model = skeleton.map(&mut Path::root(), &mut |path, leaf| {
        let Some(placement) = placements.get(path.as_str()).filter(|_| failed.is_none()) else { return leaf };
        let slot = Slot { path: path.to_string(), shape: vec![], dtype: leaf.dtype(), is_buffer: path.is_buffer() };
        let dtype = options.dtype_of(&slot, placement, checkpoint);
        match placement.read(checkpoint, dtype) {
            Ok(data) => AnyArray::from_data(data, &options.device),
            Err(error) => {
                failed = Some(error);
                leaf
            }
        }
    });
    match failed {
        Some(error) => Err(error),
        None => Ok((model, report)),
    }
}

/// Reads a tree that [`save_tree`](crate::save_tree) wrote: names are the tree's own paths, and all must be there.
///
/// # Errors
/// As [`Checkpoint::open`] and [`load`].
pub fn load_tree<B: Backend, T: Tree<B>>(
    skeleton: T,
    path: impl AsRef<std::path::Path>,
    device: &B::Device,
) -> Result<T> {
    let checkpoint = Checkpoint::open(path)?;
    load(skeleton, &checkpoint, &NameMap::new(), &LoadOptions::new(device)).map(|(tree, _)| tree)
}
