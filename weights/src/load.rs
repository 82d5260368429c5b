//! Loading the tensors of a checkpoint into the leaves of a model.

use std::collections::HashMap;

use burn::tensor::DType;
use grove_backend::Backend;
use grove_tree::{AnyArray, Path, Tree};

use crate::checkpoint::TensorFiles;
use crate::error::{Result, WeightsError};
use crate::names::NameMap;
use crate::placement::{Placement, Slot};
use crate::plan::plan;
use crate::report::Report;

/// Device and dtypes of the loaded leaves, and strictness.
#[derive(Clone, Debug)]
pub struct LoadOptions<B: Backend> {
    /// Device of the loaded leaves.
    pub device: B::Device,
    /// Dtype of floating-point leaves. If `None`, each leaf keeps the dtype of the skeleton. Integer and boolean leaves
    /// always keep theirs. Running statistics (`#[tree(buffer)]`) are at least f32.
    pub dtype: Option<DType>,
    /// Predicate on paths: floating-point leaves for which it returns true keep the dtype of the file instead of
    /// `dtype`.
    pub stored: fn(&str) -> bool,
    /// If true (the default), missing, unexpected and mismatched names are errors.
    pub strict: bool,
}

impl<B: Backend> LoadOptions<B> {
    /// Creates strict options with the dtypes of the skeleton.
    pub fn new(device: &B::Device) -> Self {
        Self { device: device.clone(), dtype: None, stored: |_| false, strict: true }
    }

    /// Sets the dtype of floating-point leaves.
    pub fn dtype(self, dtype: DType) -> Self {
        Self { dtype: Some(dtype), ..self }
    }

    /// Sets the predicate for floating-point leaves that keep the dtype of the file: f32, f16 or bf16, or f32 for f64
    /// and for a merge of different dtypes. Tensors that are quantized or not floating-point follow
    /// [`dtype`](Self::dtype) like all other leaves.
    pub fn stored(self, keeps: fn(&str) -> bool) -> Self {
        Self { stored: keeps, ..self }
    }

    /// Sets strictness. If true, missing, unexpected and mismatched names are errors.
    pub fn strict(self, strict: bool) -> Self {
        Self { strict, ..self }
    }

    /// Returns the dtype in which a leaf is loaded.
    fn dtype_of(&self, slot: &Slot, placement: &Placement, checkpoint: &TensorFiles) -> DType {
        if !slot.dtype.is_float() {
            return slot.dtype;
        }
        let stored = (self.stored)(&slot.path).then(|| placement.stored_float(checkpoint)).flatten();
        match stored.or(self.dtype).unwrap_or(slot.dtype) {
            DType::F16 | DType::BF16 if slot.is_buffer => DType::F32,
            dtype => dtype,
        }
    }

    /// Returns an error if the device does not compute in a leaf's dtype. A matrix may have a dtype that the device
    /// only stores if the backend widens the weights of matrix products: the activations then have the dtypes of the
    /// other leaves.
    fn check_dtype(&self, slot: &Slot, dtype: DType, placement: &Placement, checkpoint: &TensorFiles) -> Result<()> {
        let held = B::MIXED_DTYPE_WEIGHTS && slot.shape.len() == 2 && B::supports_dtype(&self.device, dtype);
        if !dtype.is_float() || held || B::computes_in(&self.device, dtype) {
            return Ok(());
        }
        let (path, dtype, backend) = (&slot.path, dtype.name(), B::name(&self.device));
        let reason = format!(
            "`{path}` would be {dtype}, which {backend} does not support; load the model with another dtype, or \
             choose another backend"
        );
        Err(WeightsError::unsupported(&placement.file(checkpoint)?, reason))
    }
}

/// Fills a skeleton, a model whose leaves may be absent, with the tensors of a checkpoint. Returns the model and a
/// report of the names.
///
/// All names and shapes are compared before any value is read, so that one error lists every difference. Each leaf is
/// then read from the mapped file, converted and rearranged. In addition to the model, at most one leaf is in memory.
///
/// A quantized tensor is decoded to floats. A model that computes with quantized blocks gets them without decoding: a
/// leaf of u8 with the shape [`TensorInfo::raw_shape`](crate::TensorInfo::raw_shape) gets the bytes. The rules of the
/// name map are the same as for values, but must keep rows whole: no transpose, and no split or merge along the last
/// axis.
///
/// If `options.strict` is false, leaves that are missing or of another shape keep the skeleton's values. To fine-tune
/// with a new head, pass an initialised model.
///
/// # Errors
/// [`WeightsError::Incompatible`] with the report, if `strict` is true and names or shapes differ;
/// [`WeightsError::Conversion`] if the values cannot be converted to the dtype of the leaf (floats to integers);
/// [`WeightsError::Unsupported`] if the device does not compute in the dtype of a leaf, or if the block type of a
/// tensor cannot be decoded.
pub fn load<B: Backend, T: Tree<B>>(
    skeleton: T,
    checkpoint: &TensorFiles,
    names: &NameMap,
    options: &LoadOptions<B>,
) -> Result<(T, Report)> {
    let mut leaves = Vec::new();
    skeleton.visit(&mut Path::root(), &mut |path: &Path, leaf: &AnyArray<B>| {
        let is_buffer = path.is_buffer();
        leaves.push(Slot { path: path.to_string(), shape: leaf.shape().to_vec(), dtype: leaf.dtype(), is_buffer });
    });
    let (mut placements, report) = plan(&leaves, checkpoint, names)?;
    if options.strict && !report.is_complete() {
        return Err(WeightsError::Incompatible(Box::new(report)));
    }
    let mut planned = HashMap::new();
    for slot in &leaves {
        let Some(placement) = placements.remove(&slot.path) else { continue };
        let dtype = options.dtype_of(slot, &placement, checkpoint);
        placement.check_decodable(checkpoint)?;
        options.check_dtype(slot, dtype, &placement, checkpoint)?;
        planned.insert(slot.path.as_str(), (placement, dtype));
    }
    let mut failed = None;
    let model = skeleton.map(&mut Path::root(), &mut |path, leaf| {
        let Some((placement, dtype)) = planned.get(path.as_str()).filter(|_| failed.is_none()) else { return leaf };
        match placement.read(checkpoint, *dtype) {
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

/// Reads a tree written by [`save_tree`](crate::save_tree). Names are the tree's own paths, and all must be present.
///
/// - `skeleton`: a tree of the same structure, with or without values, such as a model made with `Init::skeleton()`.
///
/// ```no_run
/// use grove_tree::Init;
/// use grove_weights::load_tree;
/// # type B = burn_flex::Flex;
/// let weight = load_tree(Init::<B>::skeleton().zeros([3, 4]), "weight.safetensors", &Default::default())?;
/// println!("{}", weight.val().sum());
/// # Ok::<(), grove_weights::WeightsError>(())
/// ```
///
/// # Errors
/// Those of [`TensorFiles::open`] and [`load`].
pub fn load_tree<B: Backend, T: Tree<B>>(
    skeleton: T,
    path: impl AsRef<std::path::Path>,
    device: &B::Device,
) -> Result<T> {
    let checkpoint = TensorFiles::open(path)?;
    load(skeleton, &checkpoint, &NameMap::new(), &LoadOptions::new(device)).map(|(tree, _)| tree)
}
