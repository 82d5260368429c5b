//! The identity of programs: static values by their bits, constants by all their bytes.

use burn::tensor::TensorData;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::{Equation, Graph};
use crate::{
    Primitive,
    control::{HigherOrder, SubGraph},
};

/// 128 bits of hash.
pub(crate) type Digest = [u64; 2];

/// The digest of what a function writes.
fn digest_of(write: impl Fn(&mut DefaultHasher)) -> Digest {
    [0, 1].map(|seed| {
        let mut hasher = DefaultHasher::new();
        hasher.write_u8(seed);
        write(&mut hasher);
        hasher.finish()
    })
}

/// The digest of an array's type and elements.
pub(super) fn constant_digest(data: &TensorData) -> Digest {
    digest_of(|hasher| {
        data.dtype.hash(hasher);
        hasher.write(data.as_bytes());
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
            graph.identity().digest.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
        }
        bytes
    }
}

impl HigherOrder {
    /// Static values, besides sub-graphs and rules.
    fn static_values(&self) -> String {
        match self {
            Self::Cond { branches } => format!("{}", branches.len()),
            Self::While { consts, .. } => format!("{consts}"),
            Self::Scan { length, reverse, consts, carries, .. } => format!("{length} {reverse} {consts} {carries}"),
            Self::CustomJvp { name, .. } | Self::CustomVjp { name, .. } => name.clone(),
        }
    }
}

/// The identity of a graph but for rules of differentiation. Constants and sub-graphs are in it by their digests.
#[derive(Debug, PartialEq)]
pub(crate) struct Identity {
    bytes: Vec<u8>,
    digest: Digest,
}

impl Graph {
    pub(crate) fn identity(&self) -> Identity {
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
        Identity { digest: digest_of(|hasher| hasher.write(&bytes)), bytes }
    }

    /// True if two graphs of one identity are equal in that of which it has digests.
    pub(crate) fn has_same_parts(&self, other: &Self) -> bool {
        let same = |(equation, other): (&Equation, &Equation)| match (&equation.primitive, &other.primitive) {
            (Primitive::HigherOrder(op), Primitive::HigherOrder(other)) => {
                op.sub_graphs().iter().zip(other.sub_graphs()).all(|((_, graph), (_, other))| graph.computes_as(other))
            }
            _ => true,
        };
        self.constants == other.constants && self.equations.iter().zip(&other.equations).all(same)
    }
}

impl SubGraph {
    /// True if two are equal but for rules of differentiation.
    fn computes_as(&self, other: &Self) -> bool {
        self.is_same(other) || self.identity() == other.identity() && self.has_same_parts(other)
    }
}
