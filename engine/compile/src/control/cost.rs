//! Cost of higher-order operations.

use std::collections::BTreeMap;

use crate::{
    Cost, OperationCost,
    sub_graph::{HigherOrder, ScanLoop, SubGraph, WhileLoop},
};

impl HigherOrder {
    /// Returns the cost of each executed sub-graph and the number of its runs. A loop of unknown length counts as one step, a
    /// conditional as its most expensive branch.
    fn costs(&self) -> Vec<(&Cost, usize)> {
        match self {
            Self::Cond { branches } => {
                let costs = branches.iter().map(SubGraph::cost);
                costs
                    .max_by_key(|cost| (cost.total.flops, cost.total.bytes))
                    .map(|cost| (cost, 1))
                    .into_iter()
                    .collect()
            }
            Self::While(WhileLoop { cond, body, .. }) => vec![(cond.cost(), 1), (body.cost(), 1)],
            Self::Scan(ScanLoop { body, length, .. }) => vec![(body.cost(), *length)],
            Self::CustomJvp { function, .. } | Self::CustomVjp { function, .. } => vec![(function.cost(), 1)],
        }
    }

    /// Adds the cost of the sub-graphs.
    pub(crate) fn add_cost(&self, total: &mut OperationCost, by_operation: &mut BTreeMap<String, OperationCost>) {
        for (cost, times) in self.costs() {
            add(total, &cost.total, times);
            for (name, cost) in &cost.by_operation {
                add(by_operation.entry(name.clone()).or_default(), cost, times);
            }
        }
    }

    /// Returns the largest number of bytes that a sub-graph holds in addition to its arguments.
    pub(crate) fn peak_bytes_inside(&self) -> u128 {
        let inside = self.sub_graphs().into_iter().map(|(_, graph)| {
            let arguments = graph.inputs.iter().map(|(_, var)| {
                let elements: u128 = graph.shape(*var).iter().map(|size| *size as u128).product();
                elements * graph.dtype(*var).size() as u128
            });
            graph.cost().peak_bytes.saturating_sub(arguments.sum::<u128>())
        });
        inside.max().unwrap_or_default()
    }
}

fn add(sum: &mut OperationCost, cost: &OperationCost, times: usize) {
    sum.count += times * cost.count;
    sum.flops += times as u128 * cost.flops;
    sum.bytes += times as u128 * cost.bytes;
}

impl SubGraph {
    /// Returns [`Graph::cost`], computed once.
    pub(crate) fn cost(&self) -> &Cost {
        self.memo(|| self.graph().cost())
    }
}
