//! Values of a program, and the syntax of types and attributes.

use std::fmt;

use crate::{ArrayType, ElementType};

/// A value of a program: its name and type.
#[derive(Clone, Debug)]
pub(super) struct Value {
    pub name: String,
    pub array: ArrayType,
}

impl Value {
    /// Creates a parameter.
    pub fn named(name: String, array: ArrayType) -> Self {
        Self { name, array }
    }

    pub fn dims(&self) -> &[usize] {
        &self.array.dims
    }

    pub fn rank(&self) -> usize {
        self.array.dims.len()
    }

    pub fn element(&self) -> ElementType {
        self.array.element
    }

    /// Returns the type with other sizes.
    pub fn with_dims(&self, dims: impl Into<Vec<usize>>) -> ArrayType {
        ArrayType::new(self.element(), dims)
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// A type in MLIR's syntax: `tensor<2x3xf32>`.
pub(super) struct Mlir<'a>(pub &'a ArrayType);

impl fmt::Display for Mlir<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("tensor<")?;
        self.0.dims.iter().try_for_each(|dim| write!(f, "{dim}x"))?;
        write!(f, "{}>", self.0.element.mlir())
    }
}

/// Comma-separated numbers.
pub(super) struct List<'a>(pub &'a [usize]);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let items: Vec<String> = self.0.iter().map(usize::to_string).collect();
        f.write_str(&items.join(", "))
    }
}

/// Formats a list of numbers as an attribute: `array<i64: 1, 2>`.
pub(super) fn attribute(items: &[usize]) -> String {
    match items {
        [] => "array<i64>".into(),
        _ => format!("array<i64: {}>", List(items)),
    }
}

/// Joins names or types with commas.
pub(super) fn joined<T: fmt::Display>(items: impl IntoIterator<Item = T>) -> String {
    items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join(", ")
}

/// Joins the types of values with commas.
pub(super) fn types<'a>(values: impl IntoIterator<Item = &'a Value>) -> String {
    joined(values.into_iter().map(|value| Mlir(&value.array)))
}

/// Formats the types of an operation's operands and of its result: `(tensor<2xf32>) -> tensor<2x1xf32>`.
pub(super) fn signature<'a>(operands: impl IntoIterator<Item = &'a Value>, result: &ArrayType) -> String {
    format!("({}) -> {}", types(operands), Mlir(result))
}
