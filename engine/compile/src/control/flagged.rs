//! Sub-graphs that compute more than the original ones: tangents, or a batch of examples.

use crate::sub_graph::SubGraph;

/// A graph that computes tangents or a batch of examples, and for each result of the original graph true if it has a tangent or
/// the batch axis.
pub(super) struct Flagged {
    pub graph: SubGraph,
    pub flags: Vec<bool>,
}

/// Derives the branches of a conditional, which return the same results: a result is flagged if it is flagged in any branch. The
/// second argument of `derive` has the results whose flags are forced.
pub(super) fn branches(
    branches: &[SubGraph],
    derive: impl Fn(&SubGraph, &[bool]) -> Flagged,
) -> (Vec<SubGraph>, Vec<bool>) {
    let mut flags = vec![false; branches[0].outputs.len()];
    for branch in branches {
        flags = derive(branch, &flags).flags;
    }
    (branches.iter().map(|branch| derive(branch, &flags).graph).collect(), flags)
}

/// Derives the body of a loop. A carry is flagged if its initial value is flagged or a step makes it so. The arguments of `derive`
/// are the flags of the body's arguments and the results whose flags are forced. Also returns the flags of the arguments.
pub(super) fn looped(
    body: &SubGraph,
    consts: usize,
    carries: usize,
    mut given: Vec<bool>,
    derive: impl Fn(&[bool], &[bool]) -> Flagged,
) -> (Flagged, Vec<bool>) {
    loop {
        let mut forced = vec![false; body.outputs.len()];
        forced[..carries].copy_from_slice(&given[consts..consts + carries]);
        let step = derive(&given, &forced);
        if step.flags[..carries] == given[consts..consts + carries] {
            return (step, given);
        }
        given[consts..consts + carries].copy_from_slice(&step.flags[..carries]);
    }
}
