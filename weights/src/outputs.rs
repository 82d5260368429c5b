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

/// A tensor to be written.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) name: String,
    pub(crate) dtype: StoredDtype,
    pub(crate) shape: Vec<usize>,
    /// Leaves, or parts of leaves, that are concatenated along `axis`.
    pieces: Vec<Piece>,
    axis: usize,
    /// Values without a leaf; if `Some`, `pieces` is empty.
    constant: Option<TensorData>,
}

/// A leaf or a part of a leaf.
#[derive(Debug)]
struct Piece {
    leaf: usize,
    /// Range along the output's axis; `None` for the whole leaf.
    part: Option<Range<usize>>,
    steps: Vec<Step>,
}

/// A leaf to be saved, with its path.
pub(crate) type Leaf<B> = (String, AnyArray<B>);

impl Output {
    /// Returns the size of the values in the file, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.shape.iter().product::<usize>() * self.dtype.bitsize() / 8
    }

    /// Reads the values from the device and arranges them in the published layout.
    pub(crate) fn read<B: Backend>(&self, leaves: &[Leaf<B>]) -> Result<TensorData> {
        if let Some(constant) = &self.constant {
            return Ok(constant.clone());
        }
        let mut data = Vec::with_capacity(self.pieces.len());
        for piece in &self.pieces {
            let (path, leaf) = &leaves[piece.leaf];
            data.push(leaf.clone().into_data().ok_or_else(|| WeightsError::AbsentLeaf { path: path.clone() })?);
        }
        let dtype = burn_dtype(self.dtype).unwrap_or(DType::F32);
        if let ([piece], [single]) = (&self.pieces[..], &data[..])
            && piece.part.is_none()
            && piece.steps.is_empty()
            && single.dtype == dtype
        {
            return Ok(data.remove(0));
        }
        let mut views = Vec::with_capacity(data.len());
        for (piece, data) in self.pieces.iter().zip(&data) {
            let view = View::of_data(&leaves[piece.leaf].0, data);
            views.push(view.piece(self.axis, piece.part.as_ref(), &piece.steps)?);
        }
        materialise(&views, self.axis, dtype)
    }
}

/// Returns the tensors that `leaves` are saved as, in the order of the leaves, followed by the constants.
///
/// # Errors
/// If a leaf is absent or quantized, a rule has no inverse, or two tensors would have the same name.
pub(crate) fn outputs<B: Backend>(
    leaves: &[Leaf<B>],
    names: &NameMap,
    constants: &BTreeMap<String, TensorData>,
) -> Result<Vec<Output>> {
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
        let own_name = NameMap::new().rule(path, path);
        let rules = names.rules_for(path).chain(own_name.rules_for(path));
        let Some((rule, captures, _)) = rules.into_iter().find(|(rule, ..)| !rule.alias) else { continue };
        if rule.paths.len() == 1 {
            outputs.extend(divided(rule, &captures, number, leaf.shape(), dtype).ok_or_else(|| cannot(NO_INVERSE))?);
            continue;
        }
        // The leaf is part of a larger published tensor.
        let parts: Option<Vec<usize>> =
            rule.paths.iter().map(|path| numbers.get(path.expand(&captures)?.as_str()).copied()).collect();
        let parts = parts
            .ok_or_else(|| cannot("it is published as a part of one tensor, whose other parts the model lacks"))?;
        done.extend(&parts);
        let shapes: Vec<&[usize]> = parts.iter().map(|&part| leaves[part].1.shape()).collect();
        outputs.push(united(rule, &captures, &parts, &shapes, dtype).ok_or_else(|| cannot(NO_INVERSE))?);
    }
    for (name, data) in constants {
        let cannot = || WeightsError::CannotSave { path: name.clone(), reason: QUANTISED.into() };
        outputs.push(Output {
            name: name.clone(),
            dtype: stored_dtype(data.dtype).ok_or_else(cannot)?,
            shape: data.shape.to_vec(),
            pieces: Vec::new(),
            axis: 0,
            constant: Some(data.clone()),
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
fn divided(rule: &Rule, captures: &Captures, leaf: usize, shape: &[usize], dtype: StoredDtype) -> Option<Vec<Output>> {
    let count = rule.names.len();
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
        Some(Output {
            name: name.expand(captures)?,
            dtype,
            shape: rule.shape_before(&piece)?,
            pieces: vec![Piece { leaf, part: range, steps: inverse(rule) }],
            axis: rule.axis,
            constant: None,
        })
    };
    rule.names.iter().enumerate().map(output).collect()
}

/// Returns the output of several leaves that are published as one tensor.
fn united(
    rule: &Rule,
    captures: &Captures,
    leaves: &[usize],
    shapes: &[&[usize]],
    dtype: StoredDtype,
) -> Option<Output> {
    let pieces: Vec<Vec<usize>> = shapes.iter().map(|shape| rule.shape_before(shape)).collect::<Option<_>>()?;
    Some(Output {
        name: rule.names.first()?.expand(captures)?,
        dtype,
        shape: joined(&pieces, rule.axis)?,
        pieces: leaves.iter().map(|&leaf| Piece { leaf, part: None, steps: inverse(rule) }).collect(),
        axis: rule.axis,
        constant: None,
    })
}
