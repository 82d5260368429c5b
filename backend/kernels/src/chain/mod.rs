//! Chains of functions of elements in one pass over memory.

mod functions;
mod source;

use rayon::prelude::*;
use std::mem::MaybeUninit;

use crate::dispatch::TASK;
pub use functions::{Map, Pair};
use functions::{apply_clamp, apply_fill, apply_map, apply_number, apply_pair, apply_power, apply_select, sum};
pub use source::Access;
use source::Source;

/// Elements that are computed at once: values of all steps stay in the first cache.
const TILE: usize = 1 << 10;

/// Elements of a cache line.
const LINE: usize = 16;

/// Shorter rows are no tiles of their own.
const LEAST_ROW: usize = 1 << 8;

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

/// Sums of consecutive elements of a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sum {
    /// The value, a step's result.
    pub value: usize,
    /// Number of elements of each sum.
    pub row: usize,
    /// The number that the sums are divided by.
    pub divisor: f32,
}

/// An input of a chain.
#[derive(Debug)]
pub enum Input<'a> {
    /// Elements that stay as they are.
    Shared(&'a [f32]),
    /// Elements that an output may overwrite, if there is one for each element of the outputs.
    Donated(&'a mut [f32]),
}

/// An output of a chain.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// In memory of its own.
    New(Vec<f32>),
    /// In the memory of the input of this number.
    Input(usize),
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
    sums: Vec<Sum>,
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
        Self { inputs, steps, outputs: outputs.len(), places, slots, len, sums: Vec::new() }
    }

    /// The chain with sums as further outputs. The order in which numbers are added does not depend on the number of threads.
    ///
    /// # Panics
    /// If the rows differ in length or do not fit, or a value is no step's result.
    pub fn with_sums(self, sums: Vec<Sum>) -> Self {
        for Sum { value, row, .. } in &sums {
            assert!(*row == sums[0].row && *row > 0 && self.len.is_multiple_of(*row), "rows of {row} elements");
            assert!((self.inputs.len()..self.places.len()).contains(value), "value {value} is no step's result");
        }
        Self { sums, ..self }
    }

    /// Number of elements of each output that is no sum.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if the outputs have no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// True if an output can be written over an input, which has an element for each of the output's.
    pub fn can_donate(&self, input: usize) -> bool {
        self.inputs[input] == Access { repeat: 1, len: self.len }
    }

    /// Returns the outputs, and then the sums.
    ///
    /// # Panics
    /// If the inputs are not as many, and of as many elements, as the chain was created for.
    pub fn run(&self, inputs: &[&[f32]]) -> Vec<Vec<f32>> {
        let outputs = self.run_in_place(inputs.iter().map(|x| Input::Shared(x)).collect()).into_iter();
        let new = |output| match output {
            Output::New(values) => values,
            Output::Input(_) => unreachable!("no input was donated"),
        };
        outputs.map(new).collect()
    }

    /// As [`run`](Self::run), with outputs in the memory of donated inputs as far as there are any.
    ///
    /// # Panics
    /// As [`run`](Self::run).
    pub fn run_in_place(&self, inputs: Vec<Input<'_>>) -> Vec<Output> {
        assert_eq!(inputs.len(), self.inputs.len(), "inputs do not fit the chain");
        // The output of each input that is overwritten.
        let (mut donated, mut memory) = (vec![None; inputs.len()], Vec::new());
        let mut shared: Vec<&[f32]> = Vec::with_capacity(inputs.len());
        for (i, input) in inputs.into_iter().enumerate() {
            let len = match &input {
                Input::Shared(x) => x.len(),
                Input::Donated(x) => x.len(),
            };
            assert_eq!(len, self.inputs[i].len, "inputs do not fit the chain");
            shared.push(match input {
                Input::Donated(x) if memory.len() < self.outputs && self.can_donate(i) => {
                    donated[i] = Some(memory.len());
                    memory.push(x);
                    &[]
                }
                Input::Donated(x) => x,
                Input::Shared(x) => x,
            });
        }
        let mut outputs: Vec<Vec<f32>> = (memory.len()..self.outputs).map(|_| Vec::with_capacity(self.len)).collect();
        let new = outputs.iter_mut().map(|output| &mut output.spare_capacity_mut()[..self.len]);
        let mut rest: Vec<_> = memory.into_iter().map(as_uninit).chain(new).collect();
        let inputs = &Inputs { shared, donated };
        let (mut tasks, mut start) = (Vec::with_capacity(self.len.div_ceil(TASK)), 0);
        while start < self.len {
            let count = self.task_size(start);
            let outputs: Vec<_> = rest.iter_mut().filter_map(|rest| rest.split_off_mut(..count)).collect();
            tasks.push(Task { start, count, outputs });
            start += count;
        }
        let sums: Vec<Vec<Vec<f32>>> = match tasks.len() {
            1 => vec![self.task(tasks.remove(0), inputs)],
            _ => tasks.into_par_iter().map(|task| self.task(task, inputs)).collect(),
        };
        for output in &mut outputs {
            // SAFETY: the tasks cover the first `len` elements, and each initialised its own.
            unsafe { output.set_len(self.len) };
        }
        let overwritten = |output| inputs.donated.iter().position(|donated| *donated == Some(output));
        let overwritten = (0..self.outputs).map_while(overwritten).map(Output::Input);
        let mut outputs: Vec<Output> = overwritten.chain(outputs.into_iter().map(Output::New)).collect();
        for (i, Sum { row, divisor, .. }) in self.sums.iter().enumerate() {
            let parts: Vec<f32> = sums.iter().flat_map(|task| &task[i]).copied().collect();
            let each = if *row > TASK { row.div_ceil(TASK) } else { 1 };
            let sums = parts.chunks(each).map(|parts| parts.iter().sum::<f32>() / divisor).collect();
            outputs.push(Output::New(sums));
        }
        outputs
    }

    /// Number of elements of the task that begins with an element: whole rows of the sums, or a part of one.
    fn task_size(&self, start: usize) -> usize {
        let size = match self.sums.first() {
            Some(Sum { row, .. }) if *row > TASK => TASK.min(row - start % row),
            Some(Sum { row, .. }) => TASK / row * row,
            None => TASK,
        };
        size.min(self.len - start)
    }

    /// The length of the rows at whose ends tiles end, so that one that belongs to every row is read in place.
    fn period(&self) -> usize {
        let rows =
            self.inputs.iter().filter(|access| access.repeat == 1 && (LEAST_ROW..self.len).contains(&access.len));
        rows.map(|access| access.len).min().unwrap_or(usize::MAX)
    }

    /// Computes some elements of the outputs, and returns the sums over them.
    fn task(&self, Task { start, count, mut outputs }: Task<'_>, inputs: &Inputs<'_>) -> Vec<Vec<f32>> {
        let rows = |sum: &Sum| vec![0.0; count.div_ceil(sum.row)];
        let mut sums: Vec<Vec<f32>> = self.sums.iter().map(rows).collect();
        let tile = TILE.min(count);
        let mut memory = vec![MaybeUninit::uninit(); self.slots * (tile + LINE) + LINE];
        let aligned = memory.as_ptr().align_offset(LINE * size_of::<f32>()).min(LINE);
        // A line between them, since places a page apart hinder each other.
        let mut slots: Vec<&mut [MaybeUninit<f32>]> =
            memory[aligned..].chunks_exact_mut(tile + LINE).take(self.slots).collect();
        let mut sources: Vec<Source> = self.inputs.iter().map(|access| Source::new(*access)).collect();
        let period = self.period();
        let mut done = 0;
        while done < count {
            let from = start + done;
            // To the end of the tile, of the row, or of all.
            let size = tile.min(count - done).min(period - from % period);
            let mut tiles: Vec<&mut [MaybeUninit<f32>]> = Vec::with_capacity(outputs.len());
            for output in &mut outputs {
                let (tile, rest) = std::mem::take(output).split_at_mut(size);
                *output = rest;
                tiles.push(tile);
            }
            for ((source, input), donated) in sources.iter_mut().zip(&inputs.shared).zip(&inputs.donated) {
                match donated {
                    // SAFETY: the output is in the memory of the input, whose elements were written before.
                    Some(output) => source.hold(unsafe { written(tiles[*output]) }),
                    None => source.advance(input, from, size),
                }
            }
            for (i, step) in self.steps.iter().enumerate() {
                let place = self.places[self.inputs.len() + i];
                let taken = match place {
                    Place::Slot(slot) => std::mem::take(&mut slots[slot]),
                    Place::Output(output) => std::mem::take(&mut tiles[output]),
                    Place::Input(_) => unreachable!("results of steps have places of their own"),
                };
                let y = &mut taken[..size];
                let value = |x: usize| match self.places[x] {
                    Place::Input(input) => sources[input].values(inputs.shared[input], size),
                    // SAFETY: a step uses values of steps before it only, as `new` asserts, and each of these has written the
                    // first `size` elements of its place, since it was given as many of each value.
                    Place::Slot(slot) => unsafe { written(&slots[slot][..size]) },
                    // SAFETY: as above.
                    Place::Output(output) => unsafe { written(&tiles[output][..size]) },
                };
                match *step {
                    Step::Map(map, x) => apply_map(map, value(x), y),
                    Step::Pair(pair, a, b) => apply_pair(pair, value(a), value(b), y),
                    Step::Number(pair, x, number) => apply_number(pair, value(x), number, y),
                    Step::Power(x, exponent) => apply_power(value(x), exponent, y),
                    Step::Clamp(x, min, max) => apply_clamp(value(x), min, max, y),
                    Step::Select(mask, a, b) => apply_select(value(mask), value(a), value(b), y),
                    Step::Fill(mask, x, number) => apply_fill(value(mask), value(x), number, y),
                }
                for (sum, sums) in self.sums.iter().zip(&mut sums).filter(|(sum, _)| sum.value == self.inputs.len() + i)
                {
                    // SAFETY: the step has just written them.
                    add_rows(unsafe { written(&taken[..size]) }, from, start, sum.row, sums);
                }
                match place {
                    Place::Slot(slot) => slots[slot] = taken,
                    Place::Output(output) => tiles[output] = taken,
                    Place::Input(_) => {}
                }
            }
            done += size;
        }
        sums
    }
}

/// The inputs of a run.
struct Inputs<'a> {
    /// Their elements; none of those that are donated.
    shared: Vec<&'a [f32]>,
    /// The output that overwrites each input, if there is one.
    donated: Vec<Option<usize>>,
}

/// Elements that are computed by one thread.
struct Task<'a> {
    start: usize,
    count: usize,
    outputs: Vec<&'a mut [MaybeUninit<f32>]>,
}

/// Elements that are overwritten.
fn as_uninit(elements: &mut [f32]) -> &mut [MaybeUninit<f32>] {
    // SAFETY: the layouts are the same, and no uninitialised element is ever written: `task` writes the results of steps.
    unsafe { &mut *(std::ptr::from_mut(elements) as *mut [MaybeUninit<f32>]) }
}

/// The elements of a place.
///
/// # Safety
/// All of them must have been written.
unsafe fn written(place: &[MaybeUninit<f32>]) -> &[f32] {
    // SAFETY: the caller's promise.
    unsafe { &*(std::ptr::from_ref(place) as *const [f32]) }
}

/// Adds the elements from `from` on to the sums of the rows that they belong to; the first sum is that of the row of `start`.
fn add_rows(x: &[f32], from: usize, start: usize, row: usize, sums: &mut [f32]) {
    let mut at = 0;
    while at < x.len() {
        let end = x.len().min(at + row - (from + at) % row);
        sums[(from + at) / row - start / row] += sum(&x[at..end]);
        at = end;
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

    /// Outputs over inputs: of one step, where they are read after, with more outputs than donated inputs, and with fewer.
    #[test]
    fn outputs_overwrite_donated_inputs() {
        for len in if cfg!(miri) { vec![1, 70] } else { vec![1, 70, 1024, 5000, 3 * TASK + 7] } {
            let full = Access { repeat: 1, len };
            let inputs = vec![full, Access { repeat: 1, len: 1 }, full];
            let steps = vec![
                Step::Map(Map::Abs, 0),          // 3, an output, before 0 and 2 are read for the last time
                Step::Pair(Pair::Sub, 0, 2),     // 4
                Step::Pair(Pair::Mul, 4, 1),     // 5, an output
                Step::Number(Pair::Add, 2, 1.0), // 6, an output
            ];
            let data = [values(len, 1), vec![0.5], values(len, 2)];
            for outputs in [vec![3], vec![5], vec![3, 5], vec![6, 5, 3]] {
                let chain = Chain::new(inputs.clone(), steps.clone(), &outputs, len).with_sums(vec![Sum {
                    value: 4,
                    row: len,
                    divisor: 1.0,
                }]);
                let expected = chain.run(&[&data[0], &data[1], &data[2]]);
                let [mut a, mut b, mut c] = data.clone();
                let given = vec![Input::Donated(&mut a), Input::Donated(&mut b), Input::Donated(&mut c)];
                let found = chain.run_in_place(given);
                let places: Vec<_> = found.iter().map(|output| matches!(output, Output::Input(_))).collect();
                let donated = outputs.len().min(2);
                // An input of one element is one for each output where they have one, too.
                assert!(len == 1 || places.iter().filter(|place| **place).count() == donated, "{places:?}");
                let memory = [a, b, c];
                let found: Vec<Vec<f32>> = found
                    .into_iter()
                    .map(|output| match output {
                        Output::New(values) => values,
                        Output::Input(input) => memory[input].clone(),
                    })
                    .collect();
                assert_eq!(found, expected, "{len} {outputs:?}");
            }
        }
    }

    /// Sums over short rows, rows longer than a tile and than a task, and over all; of a value that is an output, and of one that is not.
    #[test]
    fn sums_of_rows() {
        let sizes = if cfg!(miri) {
            vec![(2, 3), (1, 40)]
        } else {
            vec![(1, 1), (7, 1), (700, 33), (3, 2_500), (2, TASK + 5), (1, 3 * TASK), (40, 1024)]
        };
        for (rows, row) in sizes {
            let len = rows * row;
            let x = values(len, 3);
            let inputs = vec![Access { repeat: 1, len }, Access { repeat: 1, len: row }];
            let steps = vec![Step::Pair(Pair::Mul, 0, 1), Step::Power(2, 2)];
            let sums = vec![Sum { value: 3, row, divisor: row as f32 }, Sum { value: 2, row, divisor: 1.0 }];
            let chain = Chain::new(inputs, steps, &[2], len).with_sums(sums);
            let found = chain.run(&[&x, &x[..row]]);
            assert_eq!(found, chain.run(&[&x, &x[..row]]));
            assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), [len, rows, rows]);
            for i in 0..rows {
                let products = (0..row).map(|j| f64::from(x[i * row + j]) * f64::from(x[j]));
                let (sum, size): (f64, f64) =
                    products.clone().fold((0.0, 0.0), |(sum, size), x| (sum + x, size + x.abs()));
                let mean = products.map(|x| x * x).sum::<f64>() / row as f64;
                assert!((f64::from(found[1][i]) - mean).abs() <= 2e-6 * mean, "{row}: {} {mean}", found[1][i]);
                assert!((f64::from(found[2][i]) - sum).abs() <= 2e-6 * size + 1e-6, "{row}: {} {sum}", found[2][i]);
            }
        }
        let one = Chain::new(vec![Access { repeat: 1, len: 20 }], vec![Step::Map(Map::Exp, 0)], &[], 20);
        let one = one.with_sums(vec![Sum { value: 1, row: 20, divisor: 1.0 }]);
        assert_eq!(one.run(&[&[0.0; 20]]), [[20.0]]);
        assert!(one.run(&[&[f32::NAN; 20]])[0][0].is_nan());
        assert_eq!(one.run(&[&[f32::NEG_INFINITY; 20]]), [[0.0]]);
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
