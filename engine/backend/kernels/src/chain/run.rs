//! Execution of a chain.

use rayon::prelude::*;
use std::mem::MaybeUninit;

use super::{
    Access, Chain, Pair, Step, Sum,
    functions::{apply_clamp, apply_fill, apply_map, apply_number, apply_pair, apply_power, apply_select, sum},
    plan::Place,
    several::{Arithmetic, Operand, apply_affine_map, apply_map_two, apply_two},
    source::Source,
};
use crate::dispatch::{TASK, prefetch};

/// Number of elements computed at once, so that the values of all steps stay in the first-level cache.
pub(super) const TILE: usize = 1 << 10;

/// Number of elements of a cache line.
const LINE: usize = 16;

/// Minimum length of rows that end tiles.
const MIN_ROW: usize = 1 << 8;

/// An input of a chain.
#[derive(Debug)]
pub enum Input<'a> {
    /// Elements that are only read.
    Shared(&'a [f32]),
    /// Elements that an output may overwrite, if the input has one for each output element.
    Donated(&'a mut [f32]),
}

/// An output of a chain.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// In newly allocated memory.
    New(Vec<f32>),
    /// In the memory of the input with this index.
    Input(usize),
}

impl Chain {
    /// Returns true if an output can overwrite an input: the input has one element for each output element.
    pub fn can_donate(&self, input: usize) -> bool {
        self.inputs[input] == Access { repeat: 1, len: self.len }
    }

    /// Computes the outputs, followed by the sums. Outputs are written to the memory of donated inputs as far as possible.
    ///
    /// # Panics
    /// If the number of inputs or their lengths differ from those that the chain was created for.
    pub fn run(&self, inputs: Vec<Input<'_>>) -> Vec<Output> {
        assert_eq!(inputs.len(), self.inputs.len(), "inputs do not fit the chain");
        // For each input, the output that overwrites it.
        let (mut donated, mut memory) = (vec![None; inputs.len()], Vec::new());
        let mut shared: Vec<&[f32]> = Vec::with_capacity(inputs.len());
        for (i, input) in inputs.into_iter().enumerate() {
            let len = match &input {
                Input::Shared(x) => x.len(),
                Input::Donated(x) => x.len(),
            };
            assert_eq!(len, self.inputs[i].len, "inputs do not fit the chain");
            shared.push(match input {
                Input::Donated(x) if memory.len() < self.outputs.len() && self.can_donate(i) => {
                    donated[i] = Some(memory.len());
                    memory.push(x);
                    &[]
                }
                Input::Donated(x) => x,
                Input::Shared(x) => x,
            });
        }
        let mut outputs: Vec<Vec<f32>> =
            (memory.len()..self.outputs.len()).map(|_| Vec::with_capacity(self.len)).collect();
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
            // SAFETY: the tasks cover the first `len` elements, and each task has initialised its own.
            unsafe { output.set_len(self.len) };
        }
        let overwritten = |output| inputs.donated.iter().position(|donated| *donated == Some(output));
        let overwritten = (0..self.outputs.len()).map_while(overwritten).map(Output::Input);
        let mut outputs: Vec<Output> = overwritten.chain(outputs.into_iter().map(Output::New)).collect();
        for (i, Sum { row, divisor, .. }) in self.sums.iter().enumerate() {
            let parts: Vec<f32> = sums.iter().flat_map(|task| &task[i]).copied().collect();
            let each = if *row > TASK { row.div_ceil(TASK) } else { 1 };
            let sums = parts.chunks(each).map(|parts| parts.iter().sum::<f32>() / divisor).collect();
            outputs.push(Output::New(sums));
        }
        outputs
    }

    /// Number of elements of the task that starts at an element: whole rows of the sums, or a part of a row.
    fn task_size(&self, start: usize) -> usize {
        let size = match self.sums.first() {
            Some(Sum { row, .. }) if *row > TASK => TASK.min(row - start % row),
            Some(Sum { row, .. }) => TASK / row * row,
            None => TASK,
        };
        size.min(self.len - start)
    }

    /// Length of the rows whose ends also end tiles, so that an input that repeats for every row is read in place.
    pub(super) fn period(&self) -> usize {
        let rows = self.inputs.iter().filter(|access| access.repeat == 1 && (MIN_ROW..self.len).contains(&access.len));
        rows.map(|access| access.len).min().unwrap_or(usize::MAX)
    }

    /// Prefetches the next tile during the computation of the current one: compute-bound passes hide the latency of
    /// memory-bound ones. `outputs` are the remaining parts of the outputs.
    fn prefetch(&self, inputs: &Inputs<'_>, outputs: &[&mut [MaybeUninit<f32>]], from: usize, size: usize) {
        for i in (0..self.inputs.len()).filter(|i| self.can_donate(*i) && inputs.donated[*i].is_none()) {
            let next = inputs.shared[i].get(from..).unwrap_or_default();
            next.iter().take(size).step_by(LINE).for_each(|x| prefetch(x));
        }
        for output in outputs {
            output.iter().take(size).step_by(LINE).for_each(|y| prefetch(y));
        }
    }

    /// Computes the elements of a task, and returns the sums over them.
    fn task(&self, Task { start, count, mut outputs }: Task<'_>, inputs: &Inputs<'_>) -> Vec<Vec<f32>> {
        let rows = |sum: &Sum| vec![0.0; count.div_ceil(sum.row)];
        let mut sums: Vec<Vec<f32>> = self.sums.iter().map(rows).collect();
        let tile = TILE.min(count);
        let mut memory = vec![MaybeUninit::uninit(); self.plan.slots * (tile + LINE) + LINE];
        let aligned = memory.as_ptr().align_offset(LINE * size_of::<f32>()).min(LINE);
        // Slots are a cache line apart, because slots at multiples of the page size would compete for the same cache sets.
        let mut slots: Vec<&mut [MaybeUninit<f32>]> =
            memory[aligned..].chunks_exact_mut(tile + LINE).take(self.plan.slots).collect();
        let mut sources: Vec<Source> = self.inputs.iter().map(|access| Source::new(*access)).collect();
        let period = self.period();
        let mut done = 0;
        while done < count {
            let from = start + done;
            // Up to the end of the tile, the row or the task.
            let size = tile.min(count - done).min(period - from % period);
            let mut tiles: Vec<&mut [MaybeUninit<f32>]> = Vec::with_capacity(outputs.len());
            for output in &mut outputs {
                let (tile, rest) = std::mem::take(output).split_at_mut(size);
                *output = rest;
                tiles.push(tile);
            }
            for ((source, input), donated) in sources.iter_mut().zip(&inputs.shared).zip(&inputs.donated) {
                match donated {
                    // SAFETY: the output is in the memory of the input, whose elements are initialised.
                    Some(output) => source.hold(unsafe { written(tiles[*output]) }),
                    None => source.advance(input, from, size),
                }
            }
            self.prefetch(inputs, &outputs, from + size, size);
            for pass in &self.plan.passes {
                let value = self.inputs.len() + pass.last();
                let place = self.plan.places[value];
                let taken = match place {
                    Place::Slot(slot) => std::mem::take(&mut slots[slot]),
                    Place::Output(output) => std::mem::take(&mut tiles[output]),
                    Place::Input(_) | Place::Nowhere => unreachable!("results of passes have places of their own"),
                };
                let y = &mut taken[..size];
                let read = |x: usize| match self.plan.places[x] {
                    Place::Input(input) => sources[input].values(inputs.shared[input], size),
                    // SAFETY: a pass uses only values of earlier passes, as `new` asserts, and each of these has written the
                    // first `size` elements of its place, because all values have `size` elements per tile.
                    Place::Slot(slot) => unsafe { written(&slots[slot][..size]) },
                    // SAFETY: as for slots.
                    Place::Output(output) => unsafe { written(&tiles[output][..size]) },
                    Place::Nowhere => unreachable!("the pass that uses the value computes it"),
                };
                self.apply_pass(&pass.steps, read, y);
                for (sum, sums) in self.sums.iter().zip(&mut sums).filter(|(sum, _)| sum.value == value) {
                    // SAFETY: the pass has just written these elements.
                    add_rows(unsafe { written(&taken[..size]) }, from, start, sum.row, sums);
                }
                match place {
                    Place::Slot(slot) => slots[slot] = taken,
                    Place::Output(output) => tiles[output] = taken,
                    Place::Input(_) | Place::Nowhere => {}
                }
            }
            done += size;
        }
        sums
    }

    /// Computes the steps of a pass.
    fn apply_pass<'a>(&self, steps: &[usize], read: impl Fn(usize) -> &'a [f32], y: &mut [MaybeUninit<f32>]) {
        let (step, value) = (|i: usize| self.steps[steps[i]], |i: usize| self.inputs.len() + steps[i]);
        match (steps.len(), step(0)) {
            (1, step) => apply(step, read, y),
            (2, first) => apply_two_steps(first, value(0), step(1), read, y),
            (count, Step::Pair(_, a, b)) => {
                let (_, c) = other(step(1), value(0));
                let second = (count > 3).then(|| other(step(3), value(2)));
                let Step::Map(map, _) = step(2) else { unreachable!("{NO_PASS}") };
                apply_affine_map([read(a), read(b), read(c)], map, second.map(|(op, x)| (op, read(x))), y);
            }
            _ => unreachable!("{NO_PASS}"),
        }
    }
}

/// Computes a step.
pub(crate) fn apply<'a>(step: Step, read: impl Fn(usize) -> &'a [f32], y: &mut [MaybeUninit<f32>]) {
    match step {
        Step::Map(map, x) => apply_map(map, read(x), y),
        Step::Pair(pair, a, b) => apply_pair(pair, read(a), read(b), y),
        Step::Number(pair, x, number) => apply_number(pair, read(x), number, y),
        Step::Power(x, exponent) => apply_power(read(x), exponent, y),
        Step::Clamp(x, min, max) => apply_clamp(read(x), min, max, y),
        Step::Select(mask, a, b) => apply_select(read(mask), read(a), read(b), y),
        Step::Fill(mask, x, number) => apply_fill(read(mask), read(x), number, y),
    }
}

/// Computes two steps; the second uses the result of the first, the value `inner`.
fn apply_two_steps<'a>(
    first: Step,
    inner: usize,
    second: Step,
    read: impl Fn(usize) -> &'a [f32],
    y: &mut [MaybeUninit<f32>],
) {
    let (op, c) = match second {
        Step::Number(pair, _, number) => (arithmetic(pair), Operand::Number(number)),
        second => {
            let (op, c) = other(second, inner);
            (op, Operand::Tile(read(c)))
        }
    };
    match (first, c) {
        (Step::Pair(pair, a, b), c) => apply_two(arithmetic(pair), read(a), Operand::Tile(read(b)), op, c, y),
        (Step::Number(pair, a, b), c) => apply_two(arithmetic(pair), read(a), Operand::Number(b), op, c, y),
        (Step::Map(map, x), Operand::Tile(c)) => apply_map_two(map, read(x), op, c, y),
        _ => unreachable!("{NO_PASS}"),
    }
}

/// Expresses a function of two values as one of `inner` and the other value. Returns it with the other value.
fn other(step: Step, inner: usize) -> (Arithmetic, usize) {
    match step {
        Step::Pair(pair, a, b) if a == inner => (arithmetic(pair), b),
        Step::Pair(pair, a, _) => (arithmetic(pair).swapped(), a),
        _ => unreachable!("{NO_PASS}"),
    }
}

fn arithmetic(pair: Pair) -> Arithmetic {
    Arithmetic::of(pair).unwrap_or_else(|| unreachable!("{NO_PASS}"))
}

const NO_PASS: &str = "the plan has no such pass";

/// Inputs of a run.
struct Inputs<'a> {
    /// Elements of each input; empty for donated inputs.
    shared: Vec<&'a [f32]>,
    /// For each input, the output that overwrites it, if any.
    donated: Vec<Option<usize>>,
}

/// Elements that one thread computes.
struct Task<'a> {
    start: usize,
    count: usize,
    outputs: Vec<&'a mut [MaybeUninit<f32>]>,
}

/// Views elements that will be overwritten.
pub(crate) fn as_uninit(elements: &mut [f32]) -> &mut [MaybeUninit<f32>] {
    // SAFETY: the layouts are the same, and no uninitialised element is ever written: `task` writes results of steps.
    unsafe { &mut *(std::ptr::from_mut(elements) as *mut [MaybeUninit<f32>]) }
}

/// Views the elements of a place.
///
/// # Safety
/// All of them must be initialised.
unsafe fn written(place: &[MaybeUninit<f32>]) -> &[f32] {
    // SAFETY: the caller guarantees that all elements are initialised.
    unsafe { &*(std::ptr::from_ref(place) as *const [f32]) }
}

/// Adds the elements from `from` on to the sums of their rows. The first sum is that of the row of `start`.
fn add_rows(x: &[f32], from: usize, start: usize, row: usize, sums: &mut [f32]) {
    let mut at = 0;
    while at < x.len() {
        let end = x.len().min(at + row - (from + at) % row);
        sums[(from + at) / row - start / row] += sum(&x[at..end]);
        at = end;
    }
}
