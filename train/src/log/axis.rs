//! Ranges and ticks of plot axes.

use std::ops::Range;

use indicatif::HumanCount;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};

/// Axis of a plot: range, scale and labelled ticks.
pub(crate) struct Axis {
    range: Range<f64>,
    ticks: Vec<f64>,
    logarithmic: bool,
}

impl Axis {
    /// Creates an axis that shows all of these steps.
    pub(crate) fn of_steps(steps: impl Iterator<Item = f64>) -> Self {
        let (low, high) = extent(steps).unwrap_or((0.0, 1.0));
        // False for a single step, or for steps too large to differ in f64.
        let several = high - low > high * 1e-9;
        let range = if several { low..high } else { low - 0.5 - low * 0.01..high + 0.5 + high * 0.01 };
        Self { ticks: linear_ticks(&range, 1.0), range, logarithmic: false }
    }

    /// Creates a linear axis that shows all of these values, with a margin.
    pub(crate) fn linear(values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = extent(values).unwrap_or((0.0, 1.0));
        let (span, size) = (high - low, low.abs().max(high.abs()));
        let room = match size {
            0.0 => 0.5,
            _ if span > size * 1e-6 => span * 0.05,
            _ => size * 0.05,
        };
        // Smaller ranges are useless.
        let room = room.max(1e-9);
        // Non-negative values need no negative part of the axis.
        let floor = if low >= 0.0 { 0.0 } else { f64::NEG_INFINITY };
        let range = (low - room).max(floor)..high + room;
        Self { ticks: linear_ticks(&range, 0.0), range, logarithmic: false }
    }

    /// Creates a logarithmic axis. The values must be positive.
    pub(crate) fn logarithmic(values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = extent(values).unwrap_or((0.1, 1.0));
        let low = low.max(1e-30);
        let range = low / 1.1..high.max(low) * 1.1;
        Self { ticks: logarithmic_ticks(&range), range, logarithmic: true }
    }

    /// Returns the labelled values.
    pub(crate) fn ticks(&self) -> &[f64] {
        &self.ticks
    }

    /// Returns the value at a share of the axis, from 0 at its lower end to 1.
    pub(crate) fn at(&self, share: f64) -> f64 {
        let Range { start, end } = self.range;
        if self.logarithmic { start * (end / start).powf(share) } else { start + share * (end - start) }
    }

    /// Returns the lower end of the range.
    pub(crate) fn start(&self) -> f64 {
        self.range.start
    }
}

/// Placement of values for the plotting library. Its own logarithmic axes have labels only at powers of ten, of which a
/// range of losses may contain none. Values outside the range are clamped, because the library does not clip.
impl Ranged for Axis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (first, last): (i32, i32)) -> i32 {
        let place = |value: f64| if self.logarithmic { value.max(f64::MIN_POSITIVE).ln() } else { value };
        let (start, end) = (place(self.range.start), place(self.range.end));
        let share = ((place(*value) - start) / (end - start)).clamp(0.0, 1.0);
        first + (share * f64::from(last - first)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

/// About eight ticks at multiples of 1, 2 or 5 times a power of ten, not closer than `finest`.
fn linear_ticks(range: &Range<f64>, finest: f64) -> Vec<f64> {
    let raw = ((range.end - range.start) / 8.0).max(finest);
    let power = 10f64.powf(raw.log10().floor());
    let gap = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power).into_iter().find(|gap| *gap >= raw * 0.999);
    let gap = gap.unwrap_or(raw);
    let first = (range.start / gap).ceil();
    (0..20).map(|i| (first + f64::from(i)) * gap).take_while(|tick| *tick <= range.end).collect()
}

/// Ticks at powers of ten, and in between if there are few.
fn logarithmic_ticks(range: &Range<f64>) -> Vec<f64> {
    let exponents = range.start.log10().floor() as i32..=range.end.log10().ceil() as i32;
    let factors: &[f64] = match range.end / range.start {
        ratio if ratio < 2.0 => return linear_ticks(range, 0.0),
        ratio if ratio < 4.0 => &[1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0],
        ratio if ratio < 1e3 => &[1.0, 2.0, 3.0, 5.0, 7.0],
        _ => &[1.0],
    };
    let every = (exponents.clone().count() / 10).max(1);
    exponents
        .step_by(every)
        .flat_map(|exponent| factors.iter().map(move |factor| factor * 10f64.powi(exponent)))
        .filter(|tick| range.contains(tick))
        .collect()
}

/// Formats the label of a step.
pub(crate) fn step_label(step: f64) -> String {
    if (0.0..1e10).contains(&step) { HumanCount(step.round() as u64).to_string() } else { label(step) }
}

/// Formats the label of a value, without rounding noise.
pub(crate) fn label(value: f64) -> String {
    let rounded = format!("{value:.8e}").parse().unwrap_or(value);
    if value == 0.0 || (1e-3..1e6).contains(&value.abs()) { rounded.to_string() } else { format!("{rounded:e}") }
}

/// Returns the minimum and maximum, `None` if there are no values.
fn extent(numbers: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    numbers.fold(None, |found, number| {
        let (low, high) = found.unwrap_or((number, number));
        Some((low.min(number), high.max(number)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_numbers() {
        let labels = |range, finest| linear_ticks(&range, finest).into_iter().map(label).collect::<Vec<_>>();
        assert_eq!(labels(0.05..0.33, 0.0), ["0.05", "0.1", "0.15", "0.2", "0.25", "0.3"]);
        assert_eq!(labels(-1e30..1e30, 0.0), ["-1e30", "-5e29", "0", "5e29", "1e30"]);
        assert_eq!(labels(1.0..4.0, 1.0), ["1", "2", "3", "4"], "no ticks between steps");
        assert_eq!(labels(8e-6..3e-5, 0.0), ["1e-5", "1.5e-5", "2e-5", "2.5e-5", "3e-5"]);
        let labels = |range| logarithmic_ticks(&range).into_iter().map(label).collect::<Vec<_>>();
        assert_eq!(labels(1.9..12.0), ["2", "3", "5", "7", "10"]);
        assert_eq!(labels(1e-9..1e-5), ["1e-9", "1e-8", "1e-7", "1e-6"]);
        assert_eq!(step_label(1_234_567.0), "1,234,567");
    }
}
