//! Chains of functions of elements in one pass over memory.

mod functions;

use rayon::prelude::*;
use std::mem::MaybeUninit;

use crate::{dispatch::TASK, fresh::zeroed};
pub use functions::{Map, Pair};
use functions::{apply_clamp, apply_fill, apply_map, apply_number, apply_pair, apply_power, apply_select};

/// Elements that are computed at once: values of all steps stay in the first cache.
const TILE: usize = 1 << 10;

/// A step of a chain. Numbers name values: the inputs, and then the results of the steps before.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// A function of a value.
    Map(Map, usize),
    /// A function of two values.
    Pair(Pair, usize, usize),
    /// A function of a value and a number.
    Number(Pair, usize, f32),
    /// A value to the power of an integer.
    Power(usize, i32),
    /// A value kept between two numbers.
    Clamp(usize, f32, f32),
    /// The second value where the first is true, else the third.
    Select(usize, usize, usize),
    /// The number where the first value is true, else the second value.
    Fill(usize, usize, f32),
}

impl Step {
    fn operands(self) -> impl Iterator<Item = usize> {
        let operands = match self {
            Self::Map(_, x) | Self::Number(_, x, _) | Self::Power(x, _) | Self::Clamp(x, ..) => [Some(x), None, None],
            Self::Pair(_, a, b) | Self::Fill(a, b, _) => [Some(a), Some(b), None],
            Self::Select(mask, a, b) => [Some(mask), Some(a), Some(b)],
        };
        operands.into_iter().flatten()
    }
}

/// The element of an input that belongs to element `i` of the outputs: `(i / repeat) % len`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Consecutive elements of the outputs that share an element of the input.
    pub repeat: usize,
    /// Number of elements of the input.
    pub len: usize,
}

/// Place of a value while a tile is computed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    Input(usize),
    Slot(usize),
    Output(usize),
}

/// Functions of elements, each of the inputs or of earlier results, as one pass over memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Chain {
    inputs: Vec<Access>,
    steps: Vec<Step>,
    outputs: usize,
    /// Places of the inputs and then of the steps' results.
    places: Vec<Place>,
    slots: usize,
    len: usize,
}

impl Chain {
    /// Creates a chain of inputs, of which each output has `len` elements. `outputs` are numbers of steps' results, without
    /// repetitions.
    ///
    /// # Panics
    /// If a step uses a value that does not come before it, an output is no step's result, or an input does not fit the length.
    pub fn new(inputs: Vec<Access>, steps: Vec<Step>, outputs: &[usize], len: usize) -> Self {
        let count = inputs.len();
        for access in &inputs {
            let Access { repeat, len: size } = *access;
            assert!(
                repeat > 0 && size > 0 && len.is_multiple_of(repeat * size),
                "{access:?} does not fit {len} elements"
            );
        }
        let mut last = vec![0; count + steps.len()];
        for (i, step) in steps.iter().enumerate() {
            for x in step.operands() {
                assert!(x < count + i, "step {i} uses value {x}, which comes after it");
                last[x] = i;
            }
        }
        let mut places: Vec<_> = (0..count).map(Place::Input).collect();
        let (mut free, mut slots) = (Vec::new(), 0);
        for (i, step) in steps.iter().enumerate() {
            let value = count + i;
            // Before the operands' places are free: a step never writes where it reads.
            places.push(match outputs.iter().position(|output| *output == value) {
                Some(output) => Place::Output(output),
                None => Place::Slot(free.pop().unwrap_or_else(|| {
                    slots += 1;
                    slots - 1
                })),
            });
            let mut done: Vec<_> = step.operands().filter(|x| last[*x] == i).collect();
            done.sort_unstable();
            done.dedup();
            free.extend(done.into_iter().filter_map(|x| match places[x] {
                Place::Slot(slot) => Some(slot),
                _ => None,
            }));
        }
        let given = places.iter().filter(|place| matches!(place, Place::Output(_))).count();
        assert!(given == outputs.len(), "an output is no step's result, or stands twice");
        Self { inputs, steps, outputs: outputs.len(), places, slots, len }
    }

    /// Number of elements of each output.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if the outputs have no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the outputs.
    ///
    /// # Panics
    /// If the inputs are not as many, and of as many elements, as the chain was created for.
    pub fn run(&self, inputs: &[&[f32]]) -> Vec<Vec<f32>> {
        let fits = inputs.iter().zip(&self.inputs).all(|(x, access)| x.len() == access.len);
        assert!(fits && inputs.len() == self.inputs.len(), "inputs do not fit the chain");
        let mut outputs: Vec<Vec<f32>> = (0..self.outputs).map(|_| Vec::with_capacity(self.len)).collect();
        let mut tasks: Vec<Vec<&mut [MaybeUninit<f32>]>> = (0..self.len.div_ceil(TASK)).map(|_| Vec::new()).collect();
        for output in &mut outputs {
            let chunks = output.spare_capacity_mut()[..self.len].chunks_mut(TASK);
            tasks.iter_mut().zip(chunks).for_each(|(task, chunk)| task.push(chunk));
        }
        match tasks.len() {
            1 => self.task(0, tasks.remove(0), inputs),
            _ => tasks.into_par_iter().enumerate().for_each(|(i, task)| self.task(i * TASK, task, inputs)),
        }
        for output in &mut outputs {
            // SAFETY: the chunks of a task's elements cover the first `len`, and `task` initialised each of them.
            unsafe { output.set_len(self.len) };
        }
        outputs
    }

    /// Computes the elements from `start` on, as many as the outputs have places.
    fn task(&self, start: usize, mut outputs: Vec<&mut [MaybeUninit<f32>]>, inputs: &[&[f32]]) {
        let count = outputs.first().map_or(0, |output| output.len());
        let mut slots = vec![vec![0.0; TILE.min(count)]; self.slots];
        // Inputs that are read as they are need no copy.
        let copy = |access: &Access| self.copied(*access).then(|| vec![0.0; TILE.min(count)]);
        let mut copies: Vec<Option<Vec<f32>>> = self.inputs.iter().map(copy).collect();
        for (access, (copy, input)) in self.inputs.iter().zip(copies.iter_mut().zip(inputs)) {
            if let (Access { len: 1, .. }, Some(copy)) = (access, copy) {
                copy.fill(input[0]);
            }
        }
        let mut done = 0;
        while done < count {
            let size = TILE.min(count - done);
            let (from, until) = (start + done, start + done + size);
            for ((access, copy), input) in self.inputs.iter().zip(&mut copies).zip(inputs) {
                if let Some(copy) = copy.as_mut().filter(|_| access.len > 1) {
                    gather(*access, input, from, &mut copy[..size]);
                }
            }
            let mut tiles: Vec<&mut [f32]> = Vec::with_capacity(outputs.len());
            for output in &mut outputs {
                let (tile, rest) = std::mem::take(output).split_at_mut(size);
                *output = rest;
                tiles.push(zeroed(tile));
            }
            for (i, step) in self.steps.iter().enumerate() {
                let place = self.places[self.inputs.len() + i];
                let (mut slot, tile): (Vec<f32>, &mut [f32]) = match place {
                    Place::Slot(slot) => (std::mem::take(&mut slots[slot]), &mut []),
                    Place::Output(output) => (Vec::new(), std::mem::take(&mut tiles[output])),
                    Place::Input(_) => unreachable!("results of steps have places of their own"),
                };
                let value = |x: usize| -> &[f32] {
                    match self.places[x] {
                        Place::Input(input) => match &copies[input] {
                            Some(copy) => &copy[..size],
                            None => &inputs[input][from..until],
                        },
                        Place::Slot(slot) => &slots[slot][..size],
                        Place::Output(output) => tiles[output],
                    }
                };
                let y = if slot.is_empty() { &mut *tile } else { &mut slot[..size] };
                match *step {
                    Step::Map(map, x) => apply_map(map, value(x), y),
                    Step::Pair(pair, a, b) => apply_pair(pair, value(a), value(b), y),
                    Step::Number(pair, x, number) => apply_number(pair, value(x), number, y),
                    Step::Power(x, exponent) => apply_power(value(x), exponent, y),
                    Step::Clamp(x, min, max) => apply_clamp(value(x), min, max, y),
                    Step::Select(mask, a, b) => apply_select(value(mask), value(a), value(b), y),
                    Step::Fill(mask, x, number) => apply_fill(value(mask), value(x), number, y),
                }
                match place {
                    Place::Slot(place) => slots[place] = slot,
                    Place::Output(output) => tiles[output] = tile,
                    Place::Input(_) => {}
                }
            }
            done += size;
        }
    }

    /// True if the elements of an input are not in the order of the outputs.
    fn copied(&self, access: Access) -> bool {
        access.repeat != 1 || access.len != self.len
    }
}

/// Gathers the elements of an input that belong to the outputs' from `from` on.
fn gather(Access { repeat, len }: Access, x: &[f32], from: usize, y: &mut [f32]) {
    if repeat == 1 {
        let (mut at, mut rest) = (from % len, y);
        while !rest.is_empty() {
            let count = rest.len().min(len - at);
            let (first, others) = rest.split_at_mut(count);
            first.copy_from_slice(&x[at..at + count]);
            (at, rest) = (0, others);
        }
        return;
    }
    let (mut at, mut left, mut rest) = (from / repeat % len, repeat - from % repeat, y);
    while !rest.is_empty() {
        let (first, others) = rest.split_at_mut(left.min(rest.len()));
        first.fill(x[at]);
        (at, left, rest) = ((at + 1) % len, repeat, others);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(len: usize, seed: usize) -> Vec<f32> {
        (0..len).map(|i| ((i * 7919 + seed * 31) % 1000) as f32 / 250.0 - 2.0).collect()
    }

    /// Every kind of access and of place, in tiles and tasks that are not full.
    #[test]
    fn chains_of_every_length() {
        let lengths = if cfg!(miri) { [(1, 1, 1), (3, 5, 7)] } else { [(1, 1, 1), (7, 33, 101)] };
        for (a, b, c) in lengths {
            let len = a * b * c;
            let inputs = vec![
                Access { repeat: 1, len },
                Access { repeat: 1, len: c },
                Access { repeat: c, len: b },
                Access { repeat: b * c, len: a },
                Access { repeat: 1, len: 1 },
            ];
            let data: Vec<_> = inputs.iter().enumerate().map(|(i, access)| values(access.len, i)).collect();
            let steps = vec![
                Step::Pair(Pair::Mul, 0, 1),    // 5
                Step::Pair(Pair::Add, 5, 2),    // 6
                Step::Map(Map::Tanh, 6),        // 7
                Step::Number(Pair::Gt, 7, 0.0), // 8
                Step::Select(8, 7, 3),          // 9, an output
                Step::Pair(Pair::Sub, 9, 4),    // 10
                Step::Clamp(10, -1.0, 1.0),     // 11
                Step::Fill(8, 11, 0.25),        // 12
                Step::Power(12, 3),             // 13, an output
                Step::Pair(Pair::Mul, 13, 13),  // 14, which nothing uses
            ];
            let found = Chain::new(inputs, steps, &[9, 13], len).run(&data.iter().map(|x| &x[..]).collect::<Vec<_>>());
            for i in 0..len {
                let sum = data[0][i] * data[1][i % c] + data[2][i / c % b];
                let bounded = sum.tanh();
                let chosen = if bounded > 0.0 { bounded } else { data[3][i / (b * c)] };
                let kept = (chosen - data[4][0]).clamp(-1.0, 1.0);
                let filled: f32 = if bounded > 0.0 { 0.25 } else { kept };
                assert!((found[0][i] - chosen).abs() < 1e-6, "{i}: {} {chosen}", found[0][i]);
                assert!((found[1][i] - filled.powi(3)).abs() < 1e-5, "{i}: {} {filled}", found[1][i]);
            }
        }
    }

    #[test]
    fn functions_are_those_of_the_library() {
        let x = values(1100, 1);
        let f = |map: Map| {
            let access = vec![Access { repeat: 1, len: x.len() }];
            Chain::new(access, vec![Step::Map(map, 0)], &[1], x.len()).run(&[&x]).remove(0)
        };
        type Function = fn(f64) -> f64;
        let table: [(Map, Function); 13] = [
            (Map::Copy, |x| x),
            (Map::Abs, f64::abs),
            (Map::Exp, f64::exp),
            (Map::Log, f64::ln),
            (Map::Log1p, f64::ln_1p),
            (Map::Sqrt, f64::sqrt),
            (Map::Recip, f64::recip),
            (Map::Erf, libm::erf),
            (Map::Sin, f64::sin),
            (Map::Cos, f64::cos),
            (Map::Tanh, f64::tanh),
            (Map::Floor, f64::floor),
            (Map::IsNan, |x| f64::from(u8::from(x.is_nan()))),
        ];
        for (map, expected) in table {
            for (y, &x) in f(map).iter().zip(&x) {
                let expected = expected(f64::from(x));
                let close = (f64::from(*y) - expected).abs() <= 1e-6 * expected.abs().max(1.0);
                assert!(
                    close || y.is_nan() && expected.is_nan() || *y as f64 == expected,
                    "{map:?} {x}: {y} {expected}"
                );
            }
        }
        assert_eq!(f(Map::Selu), crate::selu(&x));
        assert_eq!(f(Map::GeluErf), crate::gelu_erf(&x));
        assert_eq!(f(Map::GeluTanh), crate::gelu_tanh(&x));
    }

    #[test]
    fn nan_stays() {
        let access = vec![Access { repeat: 1, len: 2 }];
        let y = Chain::new(access, vec![Step::Clamp(0, 0.0, 1.0)], &[1], 2).run(&[&[f32::NAN, 3.0]]).remove(0);
        assert!(y[0].is_nan() && y[1] == 1.0);
    }

    #[test]
    #[should_panic(expected = "step 0 uses value 1, which comes after it")]
    fn refuses_a_later_value() {
        Chain::new(vec![Access { repeat: 1, len: 1 }], vec![Step::Map(Map::Exp, 1)], &[1], 1);
    }
}
