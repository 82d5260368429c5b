//! Execution of a program.

use super::{
    Axis, Block, Element, Instruction, Kind, Memory, Place, Rows,
    functions::{
        binary_bool, binary_f32, binary_f64, binary_int, clamp_f32, clamp_f64, clamp_int, compare, compare_bools,
        convert, select, unary_bool, unary_f32, unary_f64, unary_int,
    },
    single::with_singles,
};
use crate::chain::{Step, apply_step, as_uninit, sum_of_row};

/// Calls a function that is generic over the element type, for a kind.
macro_rules! by_kind {
    ($kind:expr, $function:ident($($argument:expr),*)) => {
        match $kind {
            Kind::F32 => $function::<f32>($($argument),*),
            Kind::F64 => $function::<f64>($($argument),*),
            Kind::I32 => $function::<i32>($($argument),*),
            Kind::I64 => $function::<i64>($($argument),*),
            Kind::Bool => $function::<bool>($($argument),*),
        }
    };
}

/// A list of instructions, prepared for execution.
#[derive(Clone, Debug, PartialEq)]
pub struct Program(Block);

impl Program {
    /// Prepares instructions. The bodies of loops must end with the moves of results to the carry, and the sources of these
    /// moves must not be read after the loop.
    pub fn new(block: Block) -> Self {
        Self(with_singles(block))
    }

    /// Runs the instructions in order. `call` performs the [call](Instruction::Call) with a number.
    ///
    /// # Panics
    /// If a place is not within the memory, an instruction is not defined for the types of its places, or the minimum of a
    /// clamp exceeds its maximum.
    pub fn run(&self, memory: &mut Memory, call: &mut dyn FnMut(usize, &mut Memory)) {
        run(&self.0, memory, call);
    }
}

fn run(block: &[Instruction], memory: &mut Memory, call: &mut dyn FnMut(usize, &mut Memory)) {
    for instruction in block {
        match instruction {
            Instruction::Single(single, operands, y) => single.run(memory, *operands, *y),
            Instruction::Binary(op, operands, y) => match y.kind {
                Kind::F32 => binary_f32(memory, *op, *operands, *y),
                Kind::F64 => binary_f64(memory, *op, *operands, *y),
                Kind::I32 => binary_int::<i32>(memory, *op, *operands, *y),
                Kind::I64 => binary_int::<i64>(memory, *op, *operands, *y),
                Kind::Bool => binary_bool(memory, *op, *operands, *y),
            },
            Instruction::Unary(op, x, y) => match y.kind {
                Kind::F32 => unary_f32(memory, *op, *x, *y),
                Kind::F64 => unary_f64(memory, *op, *x, *y),
                Kind::I32 => unary_int::<i32>(memory, *op, *x, *y),
                Kind::I64 => unary_int::<i64>(memory, *op, *x, *y),
                Kind::Bool => unary_bool(memory, *op, *x, *y),
            },
            Instruction::Compare(op, [a, b], y) => {
                macro_rules! of {
                    ($field:ident) => {
                        compare(*op, &memory.$field[a.range()], &memory.$field[b.range()], &mut memory.bools[y.range()])
                    };
                }
                match a.kind {
                    Kind::F32 => of!(f32s),
                    Kind::F64 => of!(f64s),
                    Kind::I32 => of!(i32s),
                    Kind::I64 => of!(i64s),
                    Kind::Bool => compare_bools(memory, *op, [*a, *b], *y),
                }
            }
            Instruction::IsNan(x, y) => predicate(memory, *x, *y, f32::is_nan, f64::is_nan),
            Instruction::IsInf(x, y) => predicate(memory, *x, *y, f32::is_infinite, f64::is_infinite),
            Instruction::Clamp(bounds, x, y) => match y.kind {
                Kind::F32 => clamp_f32(memory, *bounds, *x, *y),
                Kind::F64 => clamp_f64(memory, *bounds, *x, *y),
                Kind::I32 => clamp_int::<i32>(memory, *bounds, *x, *y),
                Kind::I64 => clamp_int::<i64>(memory, *bounds, *x, *y),
                Kind::Bool => unreachable!("a clamp of booleans"),
            },
            Instruction::Select(mask, branches, y) => selected(memory, *mask, *branches, *y),
            Instruction::Convert(x, y) => convert(memory, *x, *y),
            Instruction::Chain(step, operands, y) => chain(memory, *step, operands, *y),
            Instruction::Sums(divisor, x, y) => {
                let (before, y) = memory.split::<f32>(*y);
                let row = x.len / y.len().max(1);
                for (y, row) in y.iter_mut().zip(before[x.range()].chunks_exact(row.max(1))) {
                    *y = (0.0 + sum_of_row(row)) / divisor;
                }
            }
            Instruction::Sum(axis, x, y) => match y.kind {
                Kind::F32 => sum(memory, *axis, *x, *y, 0.0_f32, |a, b| a + b),
                Kind::F64 => sum(memory, *axis, *x, *y, 0.0_f64, |a, b| a + b),
                Kind::I32 => sum(memory, *axis, *x, *y, 0, i32::wrapping_add),
                Kind::I64 => sum(memory, *axis, *x, *y, 0, i64::wrapping_add),
                Kind::Bool => unreachable!("a sum of booleans"),
            },
            Instruction::Take { axis, operands: [x, positions], y, otherwise } => {
                let fits = |i| position(memory, *positions, i).is_some_and(|position| position < axis.size);
                match (0..positions.len).all(fits) {
                    true => by_kind!(y.kind, take(memory, *axis, *x, *positions, *y)),
                    false => call(*otherwise, memory),
                }
            }
            Instruction::Copy(x, y) => copy(memory, *x, *y),
            Instruction::Gather(positions, x, y) => by_kind!(y.kind, gather(memory, positions, *x, *y)),
            Instruction::Scatter(positions, x, y) => by_kind!(y.kind, scatter(memory, positions, *x, *y)),
            Instruction::Repeat { first, holds, then } => {
                run(first, memory, call);
                while memory.bools[holds.start] {
                    run(then, memory, call);
                }
            }
            Instruction::While { .. } => unreachable!("a program repeats blocks"),
            Instruction::Scan { length, reverse, read, body, write, then } => {
                for step in 0..*length {
                    let i = if *reverse { length - 1 - step } else { step };
                    for rows in read {
                        copy(memory, rows.at(i), rows.row);
                    }
                    run(body, memory, call);
                    for rows in write {
                        copy(memory, rows.row, rows.at(i));
                    }
                    run(then, memory, call);
                }
            }
            Instruction::Switch(index, blocks) => {
                let index = match index.kind {
                    Kind::Bool => i64::from(memory.bools[index.start]),
                    Kind::I32 => i64::from(memory.i32s[index.start]),
                    Kind::I64 => memory.i64s[index.start],
                    kind => unreachable!("an index of {kind:?}"),
                };
                run(&blocks[index.clamp(0, blocks.len() as i64 - 1) as usize], memory, call);
            }
            Instruction::Call(number) => call(*number, memory),
        }
    }
}

impl Rows {
    #[inline(always)]
    fn at(&self, i: usize) -> Place {
        Place { start: self.array.start + i * self.row.len, ..self.row }
    }
}

fn predicate(memory: &mut Memory, x: Place, y: Place, of_f32: fn(f32) -> bool, of_f64: fn(f64) -> bool) {
    let bools = memory.bools[y.range()].iter_mut();
    match x.kind {
        Kind::F32 => bools.zip(&memory.f32s[x.range()]).for_each(|(y, x)| *y = of_f32(*x)),
        Kind::F64 => bools.zip(&memory.f64s[x.range()]).for_each(|(y, x)| *y = of_f64(*x)),
        kind => unreachable!("a predicate of {kind:?}"),
    }
}

fn selected(memory: &mut Memory, mask: Place, [yes, no]: [Place; 2], y: Place) {
    macro_rules! of {
        ($field:ident) => {{
            let (before, rest) = memory.$field.split_at_mut(y.start);
            select(&memory.bools[mask.range()], &before[yes.range()], &before[no.range()], &mut rest[..y.len]);
        }};
    }
    match y.kind {
        Kind::F32 => of!(f32s),
        Kind::F64 => of!(f64s),
        Kind::I32 => of!(i32s),
        Kind::I64 => of!(i64s),
        Kind::Bool => {
            let (before, y) = memory.split::<bool>(y);
            select(&before[mask.range()], &before[yes.range()], &before[no.range()], y);
        }
    }
}

fn chain(memory: &mut Memory, step: Step, operands: &[Place; 3], y: Place) {
    let (before, y) = memory.split::<f32>(y);
    apply_step(step, |operand| &before[operands[operand].range()], as_uninit(y));
}

#[inline(always)]
fn copy(memory: &mut Memory, x: Place, y: Place) {
    #[inline(always)]
    fn of<T: Element>(memory: &mut Memory, x: Place, y: Place) {
        let all = T::all_mut(memory);
        match x.len {
            1 => all[y.start] = all[x.start],
            _ => all.copy_within(x.range(), y.start),
        }
    }
    by_kind!(x.kind, of(memory, x, y))
}

/// Sums over an axis, from the first element to the last.
fn sum<T: Element>(memory: &mut Memory, axis: Axis, x: Place, y: Place, zero: T, add: impl Fn(T, T) -> T) {
    let Axis { size, inner } = axis;
    let (before, y) = memory.split::<T>(y);
    let x = &before[x.range()];
    for (i, y) in y.iter_mut().enumerate() {
        let first = i / inner * size * inner + i % inner;
        *y = (0..size).fold(zero, |sum, j| add(sum, x[first + j * inner]));
    }
}

/// Returns an index; `None` if it is negative.
#[inline(always)]
fn position(memory: &Memory, positions: Place, i: usize) -> Option<usize> {
    match positions.kind {
        Kind::I32 => memory.i32s[positions.range()][i].try_into().ok(),
        Kind::I64 => memory.i64s[positions.range()][i].try_into().ok(),
        kind => unreachable!("positions of {kind:?}"),
    }
}

/// See [`Instruction::Take`].
fn take<T: Element>(memory: &mut Memory, Axis { size, inner }: Axis, x: Place, positions: Place, y: Place) {
    let (whole, slices) = (size * inner, positions.len * inner);
    for i in 0..positions.len {
        let from = position(memory, positions, i).unwrap_or_default() * inner;
        for outer in 0..x.len / whole.max(1) {
            let slice = x.start + outer * whole + from;
            T::all_mut(memory).copy_within(slice..slice + inner, y.start + outer * slices + i * inner);
        }
    }
}

/// See [`Instruction::Gather`].
fn gather<T: Element>(memory: &mut Memory, positions: &[u32], x: Place, y: Place) {
    let (before, y) = memory.split::<T>(y);
    let x = &before[x.range()];
    for (y, position) in y.iter_mut().zip(positions) {
        *y = x[*position as usize];
    }
}

/// See [`Instruction::Scatter`].
fn scatter<T: Element>(memory: &mut Memory, positions: &[u32], x: Place, y: Place) {
    let (before, y) = memory.split::<T>(y);
    for (x, position) in before[x.range()].iter().zip(positions) {
        y[*position as usize] = *x;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loops::{Binary, Comparison, Sizes};

    /// `(i, a, b)` to `(i + 1, b, a + b)` while `i < n`, which exchanges places of the carry.
    #[test]
    fn while_loop_of_fibonacci_numbers() {
        let mut sizes = Sizes::default();
        let mut int = || sizes.place(Kind::I64, 1);
        let [one, n, i, a, b, next, sum, old] = std::array::from_fn(|_| int());
        let holds = sizes.place(Kind::Bool, 1);
        let program = Program::new(vec![Instruction::While {
            condition: vec![Instruction::Compare(Comparison::Lt, [i, n], holds)],
            holds,
            body: vec![
                Instruction::Binary(Binary::Add, [i, one], next),
                Instruction::Binary(Binary::Add, [a, b], sum),
                Instruction::Copy(b, old),
                Instruction::Copy(next, i),
                Instruction::Copy(old, a),
                Instruction::Copy(sum, b),
            ],
        }]);
        let mut memory = Memory::new(&sizes);
        for (place, value) in [(one, 1), (n, 50), (b, 1)] {
            memory.get_mut::<i64>(place)[0] = value;
        }
        program.run(&mut memory, &mut |_, _| unreachable!("there is no call"));
        assert_eq!(memory.get::<i64>(a), [12_586_269_025]);
        let [Instruction::Repeat { then, .. }] = &program.0[..] else { panic!("{program:?}") };
        assert!(then.iter().all(|instruction| matches!(instruction, Instruction::Single(..))), "{then:?}");
        assert_eq!(then.len(), 6, "the next count is written to the carry: {then:?}");
    }

    /// Cumulative sums from the last row on, with a call in each step.
    #[test]
    fn reverse_scan_with_a_call() {
        let mut sizes = Sizes::default();
        let [xs, carry, row] = [6, 2, 2].map(|len| sizes.place(Kind::F32, len));
        let (sum, ys) = (sizes.place(Kind::F32, 2), sizes.place(Kind::F32, 6));
        let program = Program::new(vec![Instruction::Scan {
            length: 3,
            reverse: true,
            read: vec![Rows { array: xs, row }],
            body: vec![Instruction::Call(7), Instruction::Binary(Binary::Add, [carry, row], sum)],
            write: vec![Rows { array: ys, row: sum }],
            then: vec![Instruction::Copy(sum, carry)],
        }]);
        let mut memory = Memory::new(&sizes);
        memory.get_mut::<f32>(xs).copy_from_slice(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        program.run(&mut memory, &mut |number, memory| {
            assert_eq!(number, 7);
            memory.get_mut::<f32>(row).iter_mut().for_each(|x| *x *= 10.0);
        });
        assert_eq!(memory.get::<f32>(ys), [90.0, 120.0, 80.0, 100.0, 50.0, 60.0]);
    }
}
