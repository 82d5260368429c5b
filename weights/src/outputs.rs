//! The tensors that a model is saved as: the name map in reverse.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use burn::tensor::{DType, TensorData};
use grove_backend::Backend;
use grove_tree::AnyArray;

use crate::entry::{StoredDtype, burn_dtype, joined, stored_dtype};
use crate::error::{Result, WeightsError};
use crate::names::{NameMap, Rule};
use crate::pattern::Captures;
use crate::step::Step;
use crate::view::{View, materialise};

/// A tensor to be written. Its values are read only then.
pub(crate) struct Output<'a> {
    pub(crate) name: String,
    pub(crate) dtype: StoredDtype,
    pub(crate) shape: Vec<usize>,
    pub(crate) read: Box<dyn Fn() -> Result<TensorData> + 'a>,
}

impl Output<'_> {
    /// Returns the size of the values in the file, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.shape.iter().product::<usize>() * self.dtype.bitsize() / 8
    }
}

/// A leaf to be saved, with its path.
type NamedArray<B> = (String, AnyArray<B>);

/// Leaves, or a part of a leaf, in the layout of a published tensor.
struct Pieces<'a, B: Backend> {
    /// The leaves; several are concatenated along `axis`.
    leaves: Vec<&'a NamedArray<B>>,
    /// Range of the only leaf along `axis`; `None` for whole leaves.
    part: Option<Range<usize>>,
    /// Steps from each leaf to its published layout.
    steps: Vec<Step>,
    axis: usize,
}

impl<B: Backend> Pieces<'_, B> {
    /// Reads the values from the device and arranges them in the published layout.
    fn read(&self, dtype: DType) -> Result<TensorData> {
        let absent = |path: &str| WeightsError::AbsentLeaf { path: path.to_owned() };
        let read = |(path, leaf): &&NamedArray<B>| leaf.clone().into_data().ok_or_else(|| absent(path));
        let mut data = self.leaves.iter().map(read).collect::<Result<Vec<TensorData>>>()?;
        if self.part.is_none() && self.steps.is_empty() && data.len() == 1 && data[0].dtype == dtype {
            return Ok(data.remove(0));
        }
        let pieces = self
            .leaves
            .iter()
            .zip(&data)
            .map(|((path, _), data)| View::of_data(path, data).piece(self.axis, self.part.as_ref(), &self.steps));
        materialise(&pieces.collect::<Result<Vec<_>>>()?, self.axis, dtype)
    }

    /// Returns the tensor with this name and shape.
    fn output<'a>(self, name: String, dtype: StoredDtype, shape: Vec<usize>) -> Output<'a>
    where
        Self: 'a,
    {
        let read = move || self.read(burn_dtype(dtype).unwrap_or(DType::F32));
        Output { name, dtype, shape, read: Box::new(read) }
    }
}

/// Returns the tensors that `leaves` are saved as, in the order of the leaves, followed by the constants.
///
/// # Errors
/// If a leaf is absent or quantized, a rule has no inverse, or two tensors would have the same name.
pub(crate) fn outputs<'a, B: Backend>(
    leaves: &'a [NamedArray<B>],
    names: &NameMap,
    constants: &'a BTreeMap<String, TensorData>,
) -> Result<Vec<Output<'a>>> {
    let numbers: HashMap<&str, usize> = leaves.iter().enumerate().map(|(i, (path, _))| (path.as_str(), i)).collect();
    let mut outputs = Vec::new();
    let mut done = HashSet::new();
    for (number, (path, leaf)) in leaves.iter().enumerate() {
        if !leaf.is_present() {
            return Err(WeightsError::AbsentLeaf { path: path.clone() });
        }
        if !done.insert(number) {
            continue;
        }
        let cannot = |reason: &str| WeightsError::CannotSave { path: path.clone(), reason: reason.into() };
        let dtype = stored_dtype(leaf.dtype()).ok_or_else(|| cannot(QUANTISED))?;
        let Some((rule, captures)) = names.saving_rule(path) else { continue };
        if rule.paths.len() == 1 {
            outputs.extend(divided(&rule, &captures, &leaves[number], dtype).ok_or_else(|| cannot(NO_INVERSE))?);
            continue;
        }
        // The leaf is part of a larger published tensor.
        let parts: Option<Vec<usize>> =
            rule.paths.iter().map(|path| numbers.get(path.expand(&captures)?.as_str()).copied()).collect();
        let parts = parts
            .ok_or_else(|| cannot("it is published as a part of one tensor, whose other parts the model lacks"))?;
        done.extend(&parts);
        let parts = parts.iter().map(|&part| &leaves[part]).collect();
        outputs.push(united(&rule, &captures, parts, dtype).ok_or_else(|| cannot(NO_INVERSE))?);
    }
    for (name, data) in constants {
        let cannot = || WeightsError::CannotSave { path: name.clone(), reason: QUANTISED.into() };
        outputs.push(Output {
            name: name.clone(),
            dtype: stored_dtype(data.dtype).ok_or_else(cannot)?,
            shape: data.shape.to_vec(),
            read: Box::new(move || Ok(data.clone())),
        });
    }
    let mut seen = HashSet::new();
    match outputs.iter().find(|output| !seen.insert(&output.name)) {
        Some(twice) => Err(WeightsError::CannotSave {
            path: twice.name.clone(),
            reason: "two leaves would be published under this name".into(),
        }),
        None => Ok(outputs),
    }
}

const QUANTISED: &str = "quantized values have no place in the format";
const NO_INVERSE: &str = "the name map's rule for it cannot be inverted for its shape";

fn inverse(rule: &Rule) -> Vec<Step> {
    rule.steps.iter().rev().map(Step::inverse).collect()
}

/// Returns the outputs of a leaf that is published as one tensor, or as several equal parts.
fn divided<'a, B: Backend>(
    rule: &Rule,
    captures: &Captures,
    leaf: &'a NamedArray<B>,
    dtype: StoredDtype,
) -> Option<Vec<Output<'a>>> {
    let (count, shape) = (rule.names.len(), leaf.1.shape());
    let extent = if count == 1 { 0 } else { *shape.get(rule.axis)? };
    if !extent.is_multiple_of(count) {
        return None;
    }
    let part = extent / count;
    let output = |(index, name): (usize, &crate::pattern::Pattern)| {
        let mut piece = shape.to_vec();
        let range = (count > 1).then(|| index * part..(index + 1) * part);
        if range.is_some() {
            piece[rule.axis] = part;
        }
        let pieces = Pieces { leaves: vec![leaf], part: range, steps: inverse(rule), axis: rule.axis };
        Some(pieces.output(name.expand(captures)?, dtype, rule.shape_before(&piece)?))
    };
    rule.names.iter().enumerate().map(output).collect()
}

/// Returns the output of several leaves that are published as one tensor.
fn united<'a, B: Backend>(
    rule: &Rule,
    captures: &Captures,
    leaves: Vec<&'a NamedArray<B>>,
    dtype: StoredDtype,
) -> Option<Output<'a>> {
    let shapes: Option<Vec<_>> = leaves.iter().map(|(_, leaf)| rule.shape_before(leaf.shape())).collect();
    let shape = joined(&shapes?, rule.axis)?;
    let pieces = Pieces { leaves, part: None, steps: inverse(rule), axis: rule.axis };
    Some(pieces.output(rule.names.first()?.expand(captures)?, dtype, shape))
}
