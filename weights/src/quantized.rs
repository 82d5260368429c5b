//! Quantized tensors that a model stores without decoding: rows of bytes.
//!
//! Names and shapes of these leaves are also compared in values, so that one rule serves a model of floats and a model
//! of quantized blocks. The steps of a rule must keep rows whole: a block cannot be divided or transposed.

use burn::tensor::DType;

use crate::entry::TensorInfo;
use crate::gguf::BlockType;
use crate::names::Rule;
use crate::placement::Slot;
use crate::step::Step;

/// Returns the block type that a leaf gets without decoding; `None` unless the leaf is u8 and the tensor is quantized.
pub(crate) fn kind(slot: &Slot, info: &TensorInfo) -> Option<BlockType> {
    info.quantized.filter(|_| slot.dtype == DType::U8)
}

/// Returns a leaf's shape, counted in values of its tensor; `None` if its rows are not a whole number of blocks.
pub(crate) fn shape_in_values(slot: &Slot, info: &TensorInfo) -> Option<Vec<usize>> {
    let Some(kind) = kind(slot, info) else { return Some(slot.shape.clone()) };
    let (&bytes, rows) = slot.shape.split_last()?;
    Some([rows, &[kind.row_values(bytes)?]].concat())
}

/// Returns a tensor's shape in the units of the leaf: bytes for a leaf of blocks, otherwise values.
pub(crate) fn shape_for(slot: &Slot, info: &TensorInfo) -> Vec<usize> {
    kind(slot, info).and_then(|_| info.raw_shape()).unwrap_or_else(|| info.shape.clone())
}

/// Converts a rule's steps for tensors of `shape`, in values, to steps on rows of blocks, in which the last axis counts
/// the bytes of a row.
///
/// Returns `None` if the rule does not keep rows whole, or if the tensors differ in block type.
pub(crate) fn steps(rule: &Rule, infos: &[TensorInfo], shape: &[usize]) -> Option<Vec<Step>> {
    let kind = infos.first()?.quantized?;
    let bytes = kind.row_bytes(*shape.last()?)?;
    // A split is applied before the steps, a merge after them.
    let divides_rows = rule.paths.len() > 1 && rule.axis + 1 >= shape.len();
    if divides_rows || infos.iter().any(|info| info.quantized != Some(kind)) {
        return None;
    }
    let mut shape = shape.to_vec();
    let mut steps = Vec::with_capacity(rule.steps.len());
    for step in &rule.steps {
        steps.push(step.on_rows(&shape, bytes)?);
        shape = step.shape_after(&shape)?;
    }
    let joins_rows = rule.names.len() > 1 && rule.axis + 1 >= shape.len();
    (!joins_rows).then_some(steps)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::StoredDtype;
    use crate::names::NameMap;

    fn info(quantized: Option<BlockType>) -> TensorInfo {
        TensorInfo { shape: vec![8, 64], dtype: StoredDtype::F32, quantized, file: "x.gguf".into() }
    }

    fn steps_of(names: NameMap, infos: &[TensorInfo]) -> Option<Vec<Step>> {
        steps(&names.rules[0], infos, &[8, 64])
    }

    #[test]
    fn steps_that_leave_rows_whole() {
        let q4 = [info(Some(BlockType::Q4_0))];
        let rule = || NameMap::new().rule("w", "w");
        // Explicit sizes count values; 64 values of a row become the bytes of two blocks.
        for last in [64, -1] {
            let halves = Step::Reshape { from: vec![8, 64], to: vec![2, 2, 2, last] };
            let rope = rule().then(halves).then(Step::Permute(vec![0, 2, 1, 3]));
            let expected = Step::Reshape { from: vec![8, 36], to: vec![2, 2, 2, 36] };
            assert_eq!(steps_of(rope, &q4), Some(vec![expected, Step::Permute(vec![0, 2, 1, 3])]));
        }
        for cut in [
            rule().then(Step::Transpose),
            rule().then(Step::Permute(vec![1, 0])),
            rule().then(Step::Reshape { from: vec![8, 64], to: vec![16, 32] }),
            rule().then(Step::Reshape { from: vec![8, 64], to: vec![512] }),
            NameMap::new().split("w", 1, &["a", "b"]),
        ] {
            assert_eq!(steps_of(cut.clone(), &q4), None, "{cut:?}");
        }
    }

    #[test]
    fn pieces_are_of_one_kind() {
        let merge = || NameMap::new().merge(&["a", "b"], 0, "w");
        let (q4, iq4) = (info(Some(BlockType::Q4_0)), info(Some(BlockType::IQ4_NL)));
        assert_eq!(steps_of(merge(), &[q4.clone(), q4.clone()]), Some(Vec::new()));
        assert_eq!(steps_of(merge(), &[q4.clone(), iq4]), None, "the same size, but another meaning");
        assert_eq!(steps_of(merge(), &[q4, info(None)]), None);
        let along_rows = NameMap::new().merge(&["a", "b"], 1, "w");
        let q4 = info(Some(BlockType::Q4_0));
        assert_eq!(steps_of(along_rows, &[q4.clone(), q4]), None);
    }
}
