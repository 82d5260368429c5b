//! Comparison of the results of a case.

use grove::tensor::{DType, TensorData};
use serde::Serialize;
use std::fmt;

use super::{Case, Kind, Output};

/// Result of a comparison.
#[derive(Serialize, Debug)]
pub struct Row {
    pub name: String,
    kind: Kind,
    /// Norm of the difference divided by the norm of flex's result, for the output with the largest such error.
    distance: Option<f64>,
    /// Largest difference divided by the largest value of flex's result, for the same output.
    largest: Option<f64>,
    /// Path of the output with the largest error.
    output: String,
    /// Maximum `distance` explained by rounding.
    tolerance: f64,
    /// Reason why the device has no result.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// Time of the device in seconds, including compilation.
    seconds: f64,
}

impl Row {
    /// Returns true if the error of the case exceeds the tolerance, is NaN, or is unknown.
    pub fn failed(&self) -> bool {
        !self.distance.is_some_and(|distance| distance <= self.tolerance)
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.failed() { "FAILED" } else { "ok" };
        write!(f, "{verdict:6} {:<44} ", self.name)?;
        match (&self.error, self.distance, self.largest) {
            (Some(error), ..) => write!(f, "{error}"),
            (None, Some(distance), Some(largest)) => write!(f, "{distance:8.1e} {largest:8.1e}  {}", self.output),
            _ => write!(f, "it has no outputs"),
        }
    }
}

/// Compares the results of a device with the reference.
pub fn compare(
    case: &Case,
    tolerance: f64,
    reference: Vec<Output>,
    computed: Result<Vec<Output>, String>,
    seconds: f64,
) -> Row {
    let (name, kind) = (case.name.clone(), case.kind);
    let mut row =
        Row { name, kind, distance: None, largest: None, output: String::new(), tolerance, error: None, seconds };
    let computed = match computed {
        Ok(computed) => computed,
        Err(error) => return Row { error: Some(error), ..row },
    };
    let shape =
        |outputs: &[Output]| outputs.iter().map(|(path, data)| (path.clone(), data.shape.to_vec())).collect::<Vec<_>>();
    if shape(&reference) != shape(&computed) {
        return Row { error: Some("the outputs have other names or shapes".into()), ..row };
    }
    let mut groups: Vec<(String, Difference)> = Vec::new();
    for ((path, reference), (_, computed)) in reference.into_iter().zip(computed) {
        let group = if kind == Kind::Training { group_of(&path) } else { Some(path) };
        let Some(group) = group else { continue };
        let of_group = match groups.iter_mut().find(|(name, _)| *name == group) {
            Some((_, of_group)) => of_group,
            None => {
                groups.push((group, Difference::default()));
                &mut groups.last_mut().expect("it was added").1
            }
        };
        of_group.add(&reference, &computed);
    }
    for (output, difference) in groups {
        let distance = difference.distance();
        // NaN counts as the largest distance.
        if distance.is_nan() || row.distance.is_none_or(|before| distance > before) {
            (row.distance, row.largest, row.output) = (Some(distance), Some(difference.largest()), output);
        }
    }
    row
}

/// Returns the group of an output of a training step. All leaves of a group are compared together, because the gradient of some
/// biases is only rounding error and has no meaningful relative distance. Returns `None` for weights, which are not compared: if
/// a gradient is rounding error, so is the direction of AdamW's update.
fn group_of(path: &str) -> Option<String> {
    let parts: Vec<&str> = path.split('.').collect();
    match parts.iter().position(|part| ["mu", "nu"].contains(part)) {
        Some(at) => Some(parts[..=at].join(".")),
        None if parts.first() == Some(&"1") => None,
        None => parts.first().map(|part| (*part).to_owned()),
    }
}

/// Difference between results, over one or several leaves.
#[derive(Default)]
struct Difference {
    squares: f64,
    norm: f64,
    largest: f64,
    most: f64,
}

impl Difference {
    /// Adds the values of a leaf. Equal values, including infinities, have no difference.
    fn add(&mut self, reference: &TensorData, computed: &TensorData) {
        for (a, b) in values(reference).into_iter().zip(values(computed)) {
            let difference = if a == b { 0.0 } else { (a - b).abs() };
            self.squares += difference * difference;
            self.largest = if difference.is_nan() { difference } else { self.largest.max(difference) };
            if a.is_finite() {
                self.norm += a * a;
                self.most = self.most.max(a.abs());
            }
        }
    }

    /// Returns the norm of the difference divided by the norm of the reference.
    fn distance(&self) -> f64 {
        if self.squares == 0.0 { 0.0 } else { self.squares.sqrt() / self.norm.sqrt() }
    }

    /// Returns the largest difference divided by the largest value of the reference.
    fn largest(&self) -> f64 {
        if self.largest == 0.0 { 0.0 } else { self.largest / self.most }
    }
}

fn values(data: &TensorData) -> Vec<f64> {
    match data.dtype {
        DType::F64 | DType::F32 | DType::F16 | DType::BF16 => data.iter::<f64>().collect(),
        // Random bits are u32, which some backends store as i32.
        DType::Bool(_) => data.iter::<bool>().map(f64::from).collect(),
        _ => data.iter::<i64>().map(|value| value as u32 as f64).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn difference(reference: [f32; 2], computed: [f32; 2]) -> Difference {
        let [reference, computed] = [reference, computed].map(|values| TensorData::new(values.to_vec(), [2]));
        let mut difference = Difference::default();
        difference.add(&reference, &computed);
        difference
    }

    #[test]
    fn differences_are_relative_to_the_reference() {
        let same = difference([3.0, 4.0], [3.0, 4.0]);
        assert_eq!((same.distance(), same.largest()), (0.0, 0.0));
        let half = difference([3.0, 4.0], [3.0, 4.5]);
        assert!((half.distance() - 0.1).abs() < 1e-9 && (half.largest() - 0.125).abs() < 1e-9);
        assert!(difference([0.0, 0.0], [0.0, 1.0]).distance().is_infinite());
    }

    #[test]
    fn values_that_are_not_finite_differ() {
        assert!(difference([3.0, 4.0], [3.0, f32::NAN]).distance().is_nan());
        assert_eq!(difference([3.0, f32::INFINITY], [3.0, f32::INFINITY]).distance(), 0.0);
        assert!(difference([3.0, f32::INFINITY], [3.0, 4.0]).distance() > 1.0);
    }

    #[test]
    fn moments_are_compared_together() {
        assert_eq!(group_of("2.0.nu.blocks.1.attention.key.bias").as_deref(), Some("2.0.nu"));
        assert_eq!(group_of("0").as_deref(), Some("0"));
        assert_eq!(group_of("1.blocks.1.attention.key.bias"), None);
    }
}
