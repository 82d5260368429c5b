//! Control flow: operations with sub-graphs, whose regions may use values defined outside.

use grove_compile::{
    Graph,
    primitive::{HigherOrder, ScanLoop, SubGraph, WhileLoop},
};

use super::{
    Lowering, Result,
    builder::Builder,
    value::{Value, joined, types},
};
use crate::{ArrayType, ElementType};

impl Lowering<'_> {
    pub(super) fn higher_order(&mut self, op: &HigherOrder, inputs: Vec<Value>) -> Result<Vec<Value>> {
        match op {
            HigherOrder::Cond { branches } => self.cond(branches, inputs),
            HigherOrder::While(WhileLoop { cond, body, consts }) => self.while_loop(cond, body, inputs, *consts),
            HigherOrder::Scan(ScanLoop { body, length, reverse, consts, carries }) => {
                self.scan(body, [*length, *consts, *carries], *reverse, inputs)
            }
            HigherOrder::CustomJvp { function, .. } | HigherOrder::CustomVjp { function, .. } => {
                self.graph(function, inputs)
            }
        }
    }

    /// Appends the lines of a branch, which end with its results and, if some branch all-reduces over ranks, the order token.
    fn branch(&mut self, graph: &Graph, arguments: Vec<Value>, order: Option<&Value>) -> Result<()> {
        self.lines.nest(1);
        self.order = order.cloned();
        let mut results = self.graph(graph, arguments)?;
        results.extend(self.order.take());
        self.lines.returns(&results);
        self.lines.nest(-1);
        Ok(())
    }

    fn cond(&mut self, branches: &[SubGraph], mut inputs: Vec<Value>) -> Result<Vec<Value>> {
        let operands = inputs.split_off(1);
        // Rematerialisation: the barrier keeps XLA from reusing the values of the first computation.
        if let [branch] = branches {
            let operands = if operands.is_empty() { operands } else { self.lines.barrier(&operands) };
            return self.graph(branch, operands);
        }
        let which = self.lines.reshape(&inputs[0], &[]);
        // For a boolean, the second branch is the true branch.
        let which = self.lines.convert(&which, ElementType::I32);
        let last = branches.len() as i64 - 1;
        let which = self.lines.clamp(&which, 0_i64.into(), last.into());
        let mut arrays: Vec<ArrayType> = match branches.first() {
            Some(branch) => self.outputs(branch)?,
            None => Vec::new(),
        };
        let outer = self.order.take();
        let order = outer.clone().filter(|_| branches.iter().any(|branch| branch.meets_ranks()));
        arrays.extend(order.iter().map(|order| order.array.clone()));
        let (names, mut results) = self.lines.results(arrays);
        self.lines.line(format_args!("{names} = \"stablehlo.case\"({which}) ({{"));
        for (i, branch) in branches.iter().enumerate() {
            if i > 0 {
                self.lines.line("}, {");
            }
            self.branch(branch, operands.clone(), order.as_ref())?;
        }
        self.lines.line(format_args!("}}) : (tensor<i32>) -> ({})", types(&results)));
        self.order = if order.is_some() { results.pop() } else { outer };
        Ok(results)
    }

    /// A loop over some values, with a condition and a body. If the body all-reduces over ranks, the order token is one more
    /// value.
    fn repeated(
        &mut self,
        init: &[Value],
        sums: bool,
        condition: impl FnOnce(&mut Self, Vec<Value>) -> Result<Value>,
        body: impl FnOnce(&mut Self, Vec<Value>) -> Result<Vec<Value>>,
    ) -> Result<Vec<Value>> {
        let outer = self.order.take();
        let order = outer.clone().filter(|_| sums);
        let init = [init, order.as_slice()].concat();
        let (names, mut results) = self.lines.results(init.iter().map(|value| value.array.clone()));
        let mut arguments: Vec<Value> = init.iter().map(|value| self.lines.argument(value.array.clone())).collect();
        let pairs = joined(arguments.iter().zip(&init).map(|(argument, init)| format!("{argument} = {init}")));
        self.lines.line(format_args!("{names} = stablehlo.while({pairs}) : {}", types(&init)));
        let inner = order.as_ref().and_then(|_| arguments.pop());
        self.lines.line("cond {");
        self.lines.nest(1);
        let proceed = condition(self, arguments.clone())?;
        self.lines.returns(&[proceed]);
        self.lines.nest(-1);
        self.lines.line("} do {");
        self.lines.nest(1);
        self.order = inner;
        let mut next = body(self, arguments)?;
        next.extend(self.order.take());
        self.lines.returns(&next);
        self.lines.nest(-1);
        self.lines.line("}");
        self.order = if order.is_some() { results.pop() } else { outer };
        Ok(results)
    }

    fn while_loop(
        &mut self,
        cond: &SubGraph,
        body: &SubGraph,
        inputs: Vec<Value>,
        consts: usize,
    ) -> Result<Vec<Value>> {
        let (consts, init) = inputs.split_at(consts);
        let with = |carry: Vec<Value>| [consts, &carry[..]].concat();
        self.repeated(
            init,
            body.meets_ranks(),
            |lowering, carry| {
                let proceed = lowering.graph(cond, with(carry))?;
                Ok(lowering.lines.reshape(&proceed[0], &[]))
            },
            |lowering, carry| lowering.graph(body, with(carry)),
        )
    }

    fn scan(
        &mut self,
        body: &SubGraph,
        [length, consts, carries]: [usize; 3],
        reverse: bool,
        inputs: Vec<Value>,
    ) -> Result<Vec<Value>> {
        let (consts, rest) = inputs.split_at(consts);
        let (carry, xs) = rest.split_at(carries);
        let steps: Vec<ArrayType> = self.outputs(body)?.split_off(carries);
        // The carry, and the stacked results of the steps.
        let mut init = carry.to_vec();
        for step in &steps {
            let all = ArrayType::new(step.element, [&[length], &step.dims[..]].concat());
            init.push(self.lines.full(all, 0_usize));
        }
        self.counted(&init, length, body.meets_ranks(), |lowering, count, state| {
            let lines = &mut lowering.lines;
            let (carry, ys) = state.split_at(carries);
            let at = lines.at(count, length, reverse);
            let rows = xs.iter().map(|x| lines.row(x, &at)).collect::<Vec<_>>();
            let mut next = lowering.graph(body, [consts, carry, &rows].concat())?;
            let step_results = next.split_off(carries);
            for (all, step) in ys.iter().zip(step_results) {
                next.push(lowering.lines.with_row(all, &step, &at));
            }
            Ok(next)
        })
    }

    /// A loop of `rounds` iterations over some values. The body gets the index of the iteration and the values, and returns the
    /// next values. It may all-reduce over ranks if `sums` is true.
    pub(super) fn counted(
        &mut self,
        init: &[Value],
        rounds: usize,
        sums: bool,
        body: impl FnOnce(&mut Self, &Value, &[Value]) -> Result<Vec<Value>>,
    ) -> Result<Vec<Value>> {
        let zero = self.lines.scalar(ElementType::I32, 0_usize);
        let mut results = self.repeated(
            &[&[zero], init].concat(),
            sums,
            |lowering, state| {
                let end = lowering.lines.scalar(ElementType::I32, rounds);
                Ok(lowering.lines.compare("LT", &state[0], &end))
            },
            |lowering, state| {
                let next = body(lowering, &state[0], &state[1..])?;
                let one = lowering.lines.scalar(ElementType::I32, 1_usize);
                let count = lowering.lines.binary("add", &state[0], &one);
                Ok([vec![count], next].concat())
            },
        )?;
        Ok(results.split_off(1))
    }
}

impl Builder {
    /// Returns the position of an iteration, counted from the start or from the end.
    pub(super) fn at(&mut self, count: &Value, rounds: usize, reverse: bool) -> Value {
        if !reverse {
            return count.clone();
        }
        let last = self.scalar(ElementType::I32, rounds.saturating_sub(1));
        self.binary("subtract", &last, count)
    }

    /// Replaces a row of an array; the given row lacks the first axis.
    pub(super) fn with_row(&mut self, all: &Value, row: &Value, at: &Value) -> Value {
        let row = self.reshape(row, &[&[1], row.dims()].concat());
        let starts = self.starts(all, at);
        self.dynamic_update_slice(all, &row, &starts)
    }

    /// Returns a row of an array, without the first axis.
    pub(super) fn row(&mut self, x: &Value, at: &Value) -> Value {
        let starts = self.starts(x, at);
        let dims = x.dims()[1..].to_vec();
        let row = self.dynamic_slice(x, &starts, &[&[1], &dims[..]].concat());
        self.reshape(&row, &dims)
    }

    /// Returns the start positions of a row.
    fn starts(&mut self, x: &Value, at: &Value) -> Vec<Value> {
        let zero = self.scalar(ElementType::I32, 0_usize);
        (0..x.rank()).map(|axis| if axis == 0 { at.clone() } else { zero.clone() }).collect()
    }

    /// Appends the end of a region.
    fn returns(&mut self, results: &[Value]) {
        self.line(format_args!("stablehlo.return {} : {}", joined(results), types(results)));
    }
}
