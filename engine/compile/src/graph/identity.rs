//! Identity of programs: static values by their bits, constants by all their bytes.

use burn::tensor::TensorData;
use grove_backend::ops::Spec;
use serde::Serialize;
use std::{
    fmt,
    hash::{DefaultHasher, Hash, Hasher},
};

use super::{Equation, Graph, Var};
use crate::{
    Primitive,
    sub_graph::{HigherOrder, ScanLoop, SubGraph, WhileLoop},
};

/// A 128-bit hash.
pub(crate) type Digest = [u64; 2];

/// Computes the digest of the data that a function writes.
fn digest_of(write: impl Fn(&mut DefaultHasher)) -> Digest {
    [0, 1].map(|seed| {
        let mut hasher = DefaultHasher::new();
        hasher.write_u8(seed);
        write(&mut hasher);
        hasher.finish()
    })
}

/// Computes the digest of an array's dtype and elements.
pub(super) fn constant_digest(data: &TensorData) -> Digest {
    digest_of(|hasher| {
        data.dtype.hash(hasher);
        hasher.write(data.as_bytes());
    })
}

/// Bytes of an identity. Every part is self-delimiting.
#[derive(Default)]
struct Bytes(Vec<u8>);

impl Bytes {
    fn number(&mut self, number: usize) {
        self.0.extend((number as u64).to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.number(text.len());
        self.0.extend(text.as_bytes());
    }

    fn digest(&mut self, digest: &Digest) {
        digest.iter().for_each(|word| self.0.extend(word.to_le_bytes()));
    }

    fn vars(&mut self, vars: &[Option<Var>]) {
        self.number(vars.len());
        // `u32::MAX` stands for `None`: no graph has that many variables.
        vars.iter().for_each(|var| self.0.extend(var.map_or(u32::MAX, |var| var.0).to_le_bytes()));
    }

    fn named(&mut self, vars: &[(String, Var)]) {
        self.number(vars.len());
        for (name, var) in vars {
            self.text(name);
            self.number(var.index());
        }
    }

    fn spec(&mut self, Spec { shape, dtype }: &Spec) {
        self.number(shape.num_dims());
        shape.iter().for_each(|size| self.number(*size));
        self.value(dtype);
    }

    /// Writes a value in Serde's format, or its `Debug` text if Serde cannot serialise it.
    fn value(&mut self, value: &(impl Serialize + fmt::Debug)) {
        let start = self.0.len();
        if rmp_serde::encode::write(&mut self.0, value).is_err() {
            self.0.truncate(start);
            self.text(&format!("{value:?}"));
        }
    }

    /// Writes an operation and its static values, which are equal if two primitives compute the same result. Sub-graphs are
    /// included as digests. Differentiation rules are not included, because a rule is traced only when it is needed.
    fn primitive(&mut self, primitive: &Primitive) {
        let Primitive::HigherOrder(op) = primitive else {
            // Serde cannot serialise fused chains. Their `Debug` text contains all numbers of a chain.
            return self.value(primitive);
        };
        self.text(op.name());
        self.text(&op.static_values());
        op.sub_graphs().iter().for_each(|(_, graph)| self.digest(&graph.identity().digest));
    }
}

impl Primitive {
    /// Returns the operation and its static values as bytes.
    pub(crate) fn identity(&self) -> Vec<u8> {
        let mut bytes = Bytes::default();
        bytes.primitive(self);
        bytes.0
    }
}

impl HigherOrder {
    /// Formats the static values except sub-graphs and rules.
    fn static_values(&self) -> String {
        match self {
            Self::Cond { branches } => format!("{}", branches.len()),
            Self::While(WhileLoop { consts, .. }) => format!("{consts}"),
            Self::Scan(ScanLoop { length, reverse, consts, carries, .. }) => {
                format!("{length} {reverse} {consts} {carries}")
            }
            Self::CustomJvp { name, .. } | Self::CustomVjp { name, .. } => name.clone(),
        }
    }
}

/// Identity of a graph, ignoring differentiation rules. Constants and sub-graphs are included as digests.
#[derive(Debug, PartialEq)]
pub(crate) struct Identity {
    bytes: Vec<u8>,
    digest: Digest,
}

impl Graph {
    pub(crate) fn identity(&self) -> Identity {
        let Self { variables, inputs, constants, equations, outputs, keys, types } = self;
        let mut bytes = Bytes::default();
        bytes.number(variables.len());
        variables.iter().for_each(|spec| bytes.spec(spec));
        bytes.named(inputs);
        bytes.named(outputs);
        bytes.text(&format!("{keys:?} {types:?}"));
        bytes.number(constants.len());
        for (var, data) in constants {
            bytes.number(var.index());
            bytes.spec(&Spec { shape: data.shape.clone(), dtype: data.dtype });
            bytes.digest(&constant_digest(data));
        }
        for equation in equations {
            let start = bytes.0.len();
            bytes.primitive(&equation.primitive);
            bytes.number(bytes.0.len() - start);
            bytes.vars(&equation.inputs);
            bytes.vars(&equation.outputs);
        }
        let bytes = bytes.0;
        Identity { digest: digest_of(|hasher| hasher.write(&bytes)), bytes }
    }

    /// Returns the operation of an equation, its static values, and the types of its inputs and outputs as bytes.
    pub(super) fn typed_identity(&self, equation: &Equation) -> Vec<u8> {
        let mut bytes = Bytes::default();
        bytes.primitive(&equation.primitive);
        for vars in [&equation.inputs, &equation.outputs] {
            bytes.number(vars.len());
            for var in vars {
                bytes.number(usize::from(var.is_some()));
                var.iter().for_each(|var| bytes.spec(&self.variables[var.index()]));
            }
        }
        bytes.0
    }

    /// Returns true if the constants and sub-graphs of two graphs are equal. The graphs must have equal identities, which
    /// contain only digests of these parts.
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
    /// Returns true if two sub-graphs are equal, ignoring differentiation rules.
    fn computes_as(&self, other: &Self) -> bool {
        self.is_same(other) || self.identity() == other.identity() && self.has_same_parts(other)
    }

    /// Returns [`Graph::identity`], computed once.
    pub(crate) fn identity(&self) -> &Identity {
        self.memo(|| self.graph().identity())
    }
}
