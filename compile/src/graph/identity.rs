//! What tells programs apart: static values by their bits, constants by all their bytes.

use burn::tensor::TensorData;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::Graph;
use crate::{
    Primitive,
    control::{HigherOrder, SubGraph},
};

/// 128 bits of hash.
pub(crate) type Digest = [u64; 2];

/// The digest of bytes.
pub(crate) fn digest(bytes: &[u8]) -> Digest {
    [0, 1].map(|seed: u8| {
        let mut hasher = DefaultHasher::new();
        hasher.write_u8(seed);
        hasher.write(bytes);
        hasher.finish()
    })
}

impl Primitive {
    /// The operation and its static values as bytes, which are equal where two primitives compute the same. Sub-graphs are in it by
    /// their digests, and rules of differentiation are not, since a rule is only traced when it is needed.
    pub(crate) fn identity(&self) -> Vec<u8> {
        let Self::HigherOrder(op) = self else {
            // Serde has no form of fused chains. Debug prints all numbers of a chain.
            return rmp_serde::to_vec(self).unwrap_or_else(|_| format!("{self:?}").into_bytes());
        };
        let mut bytes = format!("{} {}", op.name(), op.static_values()).into_bytes();
        for (_, graph) in op.sub_graphs() {
            graph.digest().iter().for_each(|word| bytes.extend(word.to_le_bytes()));
        }
        bytes
    }

    /// True if two primitives compute the same, whatever their rules of differentiation are.
    fn computes_as(&self, other: &Self) -> bool {
        let (Self::HigherOrder(op), Self::HigherOrder(other_op)) = (self, other) else {
            return self.identity() == other.identity();
        };
        let (graphs, others) = (op.sub_graphs(), other_op.sub_graphs());
        (op.name(), op.static_values()) == (other_op.name(), other_op.static_values())
            && graphs.len() == others.len()
            && graphs
                .iter()
                .zip(others)
                .all(|((_, graph), (_, other))| graph.is_same(other) || graph.computes_as(other))
    }
}

impl HigherOrder {
    /// What it has besides sub-graphs and rules.
    fn static_values(&self) -> String {
        match self {
            Self::Cond { branches } => format!("{}", branches.len()),
            Self::While { consts, .. } => format!("{consts}"),
            Self::Scan { length, reverse, consts, carries, .. } => format!("{length} {reverse} {consts} {carries}"),
            Self::CustomJvp { name, .. } | Self::CustomVjp { name, .. } => name.clone(),
        }
    }
}

impl Graph {
    /// A digest of the graph with its constants, but without rules of differentiation.
    pub(crate) fn digest(&self) -> Digest {
        let Self { variables, inputs, constants, equations, outputs, keys, types } = self;
        let mut bytes = format!("{variables:?} {inputs:?} {outputs:?} {keys:?} {types:?}").into_bytes();
        for (var, data) in constants {
            bytes.extend(format!("{var:?} {:?} {:?}", data.shape, constant_digest(data)).into_bytes());
        }
        for equation in equations {
            let identity = equation.primitive.identity();
            // With its length, so that it ends where it ends.
            bytes.extend(identity.len().to_le_bytes());
            bytes.extend(identity);
            bytes.extend(format!("{:?} {:?}", equation.inputs, equation.outputs).into_bytes());
        }
        digest(&bytes)
    }

    /// True if two graphs are equal but for rules of differentiation.
    pub(crate) fn computes_as(&self, other: &Self) -> bool {
        let Self { variables, inputs, constants, equations, outputs, keys, types } = self;
        (variables, inputs, outputs, keys, types)
            == (&other.variables, &other.inputs, &other.outputs, &other.keys, &other.types)
            && constants == &other.constants
            && equations.len() == other.equations.len()
            && equations.iter().zip(&other.equations).all(|(equation, other)| {
                (&equation.inputs, &equation.outputs) == (&other.inputs, &other.outputs)
                    && equation.primitive.computes_as(&other.primitive)
            })
    }
}

/// The digest of an array's type and elements.
pub(crate) fn constant_digest(data: &TensorData) -> Digest {
    [0, 1].map(|seed: u8| {
        let mut hasher = DefaultHasher::new();
        (seed, data.dtype).hash(&mut hasher);
        hasher.write(data.as_bytes());
        hasher.finish()
    })
}

impl SubGraph {
    /// True if two are one.
    fn is_same(&self, other: &Self) -> bool {
        std::ptr::eq(self.program(), other.program())
    }
}
