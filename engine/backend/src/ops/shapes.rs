//! Input shapes of an operation and their checks.

use burn::tensor::{DType, Shape};

/// Shapes of an operation's inputs, by position.
#[derive(Clone, Debug, PartialEq)]
pub struct Shapes(Vec<Option<Shape>>);

impl FromIterator<Option<Shape>> for Shapes {
    fn from_iter<I: IntoIterator<Item = Option<Shape>>>(shapes: I) -> Self {
        Self(shapes.into_iter().collect())
    }
}

impl Shapes {
    /// Number of positions.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the sizes at a position; `None` if the input is missing.
    pub fn get(&self, position: usize) -> Option<&[usize]> {
        self.0.get(position)?.as_ref().map(|shape| &shape[..])
    }

    /// Iterates over all present shapes.
    pub fn given(&self) -> impl Iterator<Item = &Shape> {
        self.0.iter().flatten()
    }

    /// Returns the sizes at a position. Panics if the tensor is missing or its rank is not `D`.
    #[track_caller]
    pub(super) fn dims<const D: usize>(&self, operation: &str, position: usize) -> [usize; D] {
        let dims = self.get(position).and_then(|sizes| sizes.try_into().ok());
        dims.unwrap_or_else(|| self.refuse(operation, &format!("input {position} with {D} axes")))
    }

    /// Panics with the operation, the shapes and the rule if the rule does not hold.
    #[track_caller]
    pub(super) fn require(&self, holds: bool, operation: &str, rule: &str) {
        if !holds {
            self.refuse(operation, rule)
        }
    }

    /// Panics unless an optional input is missing or has the expected shape.
    #[track_caller]
    pub(super) fn require_optional(&self, position: usize, expected: &[usize], operation: &str, rule: &str) {
        self.require(self.get(position).is_none_or(|sizes| sizes == expected), operation, rule);
    }

    #[track_caller]
    fn refuse(&self, operation: &str, rule: &str) -> ! {
        let shapes: Vec<_> = self.given().map(|shape| format!("{:?}", &shape[..])).collect();
        panic!("{operation} of shapes {}: expected {rule}", shapes.join(", "))
    }
}

/// Shape and dtype of a tensor.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Spec {
    /// Shape.
    #[serde(with = "sizes")]
    pub shape: Shape,
    /// Dtype of the elements.
    pub dtype: DType,
}

/// Inputs that need a gradient, by position, with their shapes and dtypes.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Wanted(Vec<Option<Spec>>);

impl Wanted {
    /// Creates the list; `None` marks inputs that need no gradient.
    pub fn new(inputs: Vec<Option<Spec>>) -> Self {
        Self(inputs)
    }

    /// Returns the input at a position, if it needs a gradient.
    pub fn get(&self, position: usize) -> Option<&Spec> {
        self.0.get(position)?.as_ref()
    }

    /// Returns for each of the first `N` inputs if it needs a gradient.
    pub fn needs<const N: usize>(&self) -> [bool; N] {
        std::array::from_fn(|position| self.get(position).is_some())
    }

    /// Returns for each input if it needs a gradient.
    pub fn all_needs(&self) -> Vec<bool> {
        self.0.iter().map(Option::is_some).collect()
    }

    /// Replaces each input that needs a gradient; `None`: it needs none any more.
    pub fn map(&self, mut f: impl FnMut(usize, &Spec) -> Option<Spec>) -> Self {
        Self(self.0.iter().enumerate().map(|(position, spec)| f(position, spec.as_ref()?)).collect())
    }

    /// Returns the input at a position, which must need a gradient.
    #[track_caller]
    pub fn spec(&self, position: usize) -> &Spec {
        self.get(position).expect("an input whose gradient is wanted")
    }
}

/// Replaces the last axis of a shape.
pub(super) fn with_last(sizes: &[usize], last: usize) -> Shape {
    let mut shape = Shape::from(sizes.to_vec());
    let axis = shape.num_dims() - 1;
    shape[axis] = last;
    shape
}

/// Serialised shapes: lists of sizes.
pub(super) mod sizes {
    use burn::tensor::Shape;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(shape: &Shape, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(shape.iter())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Shape, D::Error> {
        Vec::<usize>::deserialize(deserializer).map(Shape::from)
    }
}
